//! Whom the daemon trusts when it connects to a host for a session: the certificate authorities of this host, and those of the operator's
//! file. They are read once, at the first connection that needs them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

#[derive(Debug, Default)]
pub struct Roots {
    extra: Option<PathBuf>,
    client: OnceCell<Arc<ClientConfig>>,
}

impl Roots {
    pub fn new(extra: Option<PathBuf>) -> Self {
        Self { extra, client: OnceCell::new() }
    }

    /// How to be a client of any host. The error is a text for people.
    pub async fn client(&self) -> Result<Arc<ClientConfig>, String> {
        let extra = self.extra.clone();
        let reading = || async move {
            let reading = tokio::task::spawn_blocking(move || read(extra.as_deref()));
            reading.await.unwrap_or_else(|_| Err("the certificate authorities of this host could not be read".into()))
        };
        self.client.get_or_try_init(reading).await.cloned()
    }
}

fn read(extra: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "a certificate authority of this host is left out");
    }
    roots.add_parsable_certificates(found.certs);
    if let Some(path) = extra {
        let wrong = |why: String| format!("network.extra_ca_file {}: {why}", path.display());
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    if roots.is_empty() {
        return Err("this host has no certificate authorities: install ca-certificates".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut client = client.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Sessions share nothing, not even what a server remembers of a connection.
    client.resumption = Resumption::disabled();
    Ok(Arc::new(client))
}
