//! TLS to a daemon behind a proxy. The certificate is checked against those that the host trusts, or those of SSL_CERT_FILE.

use std::io::{Error, ErrorKind};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The only protocol that is spoken over a connection.
const ALPN: &[u8] = b"http/1.1";

/// Makes a connection encrypted, after a check of the server's certificate.
pub async fn encrypted(stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, Error> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
    TlsConnector::from(Arc::new(config()?)).connect(name, stream).await
}

fn config() -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let why = "this host has no certificates of authorities; install ca-certificates, or set SSL_CERT_FILE";
        return Err(Error::new(ErrorKind::NotFound, why));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}
