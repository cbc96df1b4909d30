//! The certificate authority of one session, and the directory with all of them.
//!
//! Only that session's sandbox trusts it, and its key stays with the daemon: a program can do nothing with it, and a thief could only
//! deceive that one sandbox. The files are `authorities/ID.json` in the data directory, readable by the daemon's user alone, from before
//! the sandbox is made until it is gone.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use network_policy::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use shared_protocol::SessionId;
use tokio::time::Instant;
use zeroize::{Zeroize as _, Zeroizing};

use crate::disk::DiskThreads;

/// How long an authority is valid: longer than sessions live.
const AUTHORITY_VALID: Duration = Duration::from_secs(397 * DAY);
/// How long the certificate of a host is valid, and after which time a new one is made.
const LEAF_VALID: Duration = Duration::from_secs(2 * DAY);
const LEAF_USED: Duration = Duration::from_secs(DAY);
/// How far the clock may have been set back since.
const CLOCK_SLACK: Duration = Duration::from_secs(DAY);
const DAY: u64 = 24 * 60 * 60;
/// The longest common name that a certificate can have.
const MAX_COMMON_NAME: usize = 64;
/// The protocols that a program can choose from. The daemon adds headers to HTTP/1.1 alone.
const ALPN: &[u8] = b"http/1.1";
const SUFFIX: &str = ".json";
/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("making a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("using a certificate")]
    Tls(#[from] rustls::Error),
    #[error("keeping the session's certificate authority")]
    File(#[from] io::Error),
}

/// The certificate authority of one session.
pub struct Authority {
    id: SessionId,
    key: KeyPair,
    certificate: String,
    /// What is presented for each host that was dialled. The session's injections bound their number.
    leaves: Mutex<BTreeMap<HostName, (Instant, Arc<ServerConfig>)>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.id)
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    certificate: String,
    key: String,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Authority {
    fn make(id: &SessionId) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params(id).self_signed(&key)?.pem();
        Ok(Self { id: id.clone(), key, certificate, leaves: Mutex::default() })
    }

    /// The certificate that the sandbox trusts, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// How to be a server of this name for the sandbox.
    pub fn server(&self, host: &HostName) -> Result<Arc<ServerConfig>, AuthorityError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, config)) = leaves.get(host).filter(|(made, _)| made.elapsed() < LEAF_USED) {
            return Ok(config.clone());
        }
        leaves.retain(|_, (made, _)| made.elapsed() < LEAF_USED);
        let config = Arc::new(self.leaf(host)?);
        leaves.insert(host.clone(), (Instant::now(), config.clone()));
        Ok(config)
    }

    fn leaf(&self, host: &HostName) -> Result<ServerConfig, AuthorityError> {
        let mut leaf = CertificateParams::new([host.to_string()])?;
        leaf.distinguished_name = DistinguishedName::new();
        if host.as_str().len() <= MAX_COMMON_NAME {
            leaf.distinguished_name.push(DnType::CommonName, host.as_str());
        }
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        set_validity(&mut leaf, LEAF_VALID);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = leaf.signed_by(&key, &Issuer::new(params(&self.id), &self.key))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(certificate.der().to_vec())], key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
}

fn params(id: &SessionId) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Cove");
    let name: String = format!("Cove session {id}").chars().take(MAX_COMMON_NAME).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_VALID);
    params
}

fn set_validity(params: &mut CertificateParams, valid: Duration) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let begin = date_time_ymd(1970, 1, 1) + since.saturating_sub(CLOCK_SLACK);
    params.not_before = begin;
    params.not_after = begin + CLOCK_SLACK + valid;
}

/// The authorities of all sessions, one file each. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Authorities {
    directory: Arc<PathBuf>,
    disk: DiskThreads,
}

impl Authorities {
    pub fn new(data_dir: &Path) -> Self {
        Self { directory: Arc::new(data_dir.join("authorities")), disk: DiskThreads::default() }
    }

    fn path_of(&self, id: &SessionId) -> PathBuf {
        self.directory.join(format!("{id}{SUFFIX}"))
    }

    /// Makes the authority of a session, and keeps it. One of an earlier attempt is replaced.
    pub async fn make(&self, id: &SessionId) -> Result<Arc<Authority>, AuthorityError> {
        let (directory, path, id) = (self.directory.clone(), self.path_of(id), id.clone());
        let work = move || {
            let authority = Authority::make(&id)?;
            let stored = Stored { certificate: authority.certificate.clone(), key: authority.key.serialize_pem() };
            write(&directory, &path, &Zeroizing::new(serde_json::to_vec(&stored).map_err(io::Error::from)?))?;
            Ok(Arc::new(authority))
        };
        self.disk.run(work).await.map_err(io::Error::from)?
    }

    /// The authority of a session, as it was made.
    pub async fn load(&self, id: &SessionId) -> Result<Arc<Authority>, AuthorityError> {
        let (path, id) = (self.path_of(id), id.clone());
        let work = move || {
            if std::fs::metadata(&path)?.len() > MAX_FILE_BYTES {
                return Err(io::Error::other("the file is too large").into());
            }
            let text = Zeroizing::new(std::fs::read(&path)?);
            let stored: Stored = serde_json::from_slice(&text).map_err(io::Error::from)?;
            let key = KeyPair::from_pem(&stored.key)?;
            Ok(Arc::new(Authority { id, key, certificate: stored.certificate.clone(), leaves: Mutex::default() }))
        };
        self.disk.run(work).await.map_err(io::Error::from)?
    }

    /// Removes the authority of a session that is gone. A missing one is no error.
    pub async fn remove(&self, id: &SessionId) -> io::Result<()> {
        let path = self.path_of(id);
        let work = move || match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
        self.disk.run(work).await?
    }

    /// Removes what an earlier daemon left of sessions that are not among these.
    pub async fn sweep(&self, is_known: impl Fn(&str) -> bool + Send + 'static) -> io::Result<()> {
        let directory = self.directory.clone();
        let work = move || {
            let entries = match std::fs::read_dir(&*directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                entries => entries?,
            };
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if !name.strip_suffix(SUFFIX).is_some_and(&is_known) {
                    std::fs::remove_file(path)?;
                }
            }
            Ok(())
        };
        self.disk.run(work).await?
    }
}

/// Writes the file as a whole: what is half-written has another name.
fn write(directory: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(directory)?;
    let new = path.with_extension("new");
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject as _;
    use std::os::unix::fs::PermissionsExt as _;

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    /// A handshake in memory between a sandbox that trusts `trusted` and a daemon that answers for `host`.
    fn handshake(trusted: &str, server: Arc<ServerConfig>, host: &str) -> Result<(), rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client), name)?;
        let mut server = rustls::ServerConnection::new(server)?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_sandbox_trusts_its_own_authority_for_the_name_that_it_dialled_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let authorities = Authorities::new(folder.path());
        let host = HostName::parse("api.example.com").unwrap();
        let made = authorities.make(&id("a")).await.unwrap();
        let again = Authorities::new(folder.path()).load(&id("a")).await.unwrap();
        let other = authorities.make(&id("b")).await.unwrap();
        for authority in [&made, &again] {
            handshake(made.certificate(), authority.server(&host).unwrap(), "api.example.com").unwrap();
        }
        assert!(Arc::ptr_eq(&made.server(&host).unwrap(), &made.server(&host).unwrap()));
        assert!(handshake(made.certificate(), made.server(&host).unwrap(), "evil.example.com").is_err());
        assert!(handshake(made.certificate(), other.server(&host).unwrap(), "api.example.com").is_err());
        let file = folder.path().join("authorities/a.json");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn the_authority_of_a_session_that_is_gone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let authorities = Authorities::new(folder.path());
        authorities.sweep(|_| false).await.unwrap();
        for name in ["a", "b", "c"] {
            authorities.make(&id(name)).await.unwrap();
        }
        std::fs::write(folder.path().join("authorities/d.new"), "half").unwrap();
        authorities.remove(&id("a")).await.unwrap();
        authorities.remove(&id("a")).await.unwrap();
        authorities.sweep(|name| name == "b").await.unwrap();
        let left: Vec<_> = std::fs::read_dir(folder.path().join("authorities")).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert!(authorities.load(&id("b")).await.is_ok() && authorities.load(&id("c")).await.is_err());
    }
}
