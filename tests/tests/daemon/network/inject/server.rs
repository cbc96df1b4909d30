//! An HTTPS server of a story, with a certificate authority that the story makes, and a daemon that trusts it.

use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use e2e::daemon::{Daemon, DaemonBuilder, Session, Upstream};
use e2e::{DEADLINE, skipped};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::names;

const SCRIPT: &str = include_str!("tls_server.py");
/// The names in the server's certificate.
const NAMES: &str = "subjectAltName=DNS:api.example.com,DNS:plain.example.com\nextendedKeyUsage=serverAuth\n";

pub struct Server {
    child: Child,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    fn start(upstream: &Upstream, folder: &Path) -> Self {
        let script = folder.join("tls_server.py");
        std::fs::write(&script, SCRIPT).expect("our own directory");
        let mut child = Command::new("nsenter")
            .arg(format!("--net={}", upstream.namespace().display()))
            .arg("python3")
            .arg(script)
            .args([upstream.free().to_string(), "443".into()])
            .args([folder.join("server.pem"), folder.join("server.key")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter and python3");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (seen, (tell, told)) = (Arc::new(Mutex::new(Vec::new())), mpsc::channel());
        let shared: Arc<Mutex<Vec<Value>>> = seen.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(request) => shared.lock().unwrap_or_else(PoisonError::into_inner).push(request),
                    Err(_) => drop(tell.send(line)),
                }
            }
        });
        assert_eq!(told.recv_timeout(DEADLINE).expect("the server starts"), "ready");
        Self { child, seen }
    }

    /// The requests that came.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The values of a header in the requests for a path.
    pub fn header(&self, path: &str, name: &str) -> Vec<Vec<String>> {
        let of_path = self.seen().into_iter().filter(|request| request["path"] == path);
        of_path.map(|request| header_of(&request, name)).collect()
    }
}

pub fn header_of(request: &Value, name: &str) -> Vec<String> {
    let headers = request["headers"].as_array().expect("a list");
    let values = headers.iter().filter(|header| header[0] == name).map(|header| header[1].as_str().expect("text"));
    values.map(str::to_owned).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon, and an HTTPS server that it trusts. `api`, `plain` and `wrong` of `example.com` are the server; its certificate is not for
/// `wrong`.
pub struct SecureWorld {
    pub daemon: Daemon,
    pub server: Server,
    pub upstream: Upstream,
    /// The certificate authority of the server.
    pub ca: PathBuf,
    _folder: TempDir,
}

impl SecureWorld {
    pub async fn start(story: &str) -> Option<Self> {
        Self::start_with(story, |builder| builder).await
    }

    pub async fn start_with(story: &str, change: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Option<Self> {
        if !Command::new("openssl").arg("version").output().is_ok_and(|output| output.status.success()) {
            skipped(story, "there is no program `openssl` to make certificates");
            return None;
        }
        let upstream = Upstream::start(story)?;
        let folder = tempfile::Builder::new().prefix("cove-e2e-tls-").tempdir().expect("a directory");
        // A daemon of an ordinary user reads the certificate too.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
        make_certificates(folder.path());
        let server = Server::start(&upstream, folder.path());
        let mut hosts = names(&upstream);
        let free = IpAddr::from(upstream.free());
        hosts.extend([("api.example.com", free), ("plain.example.com", free), ("wrong.example.com", free)]);
        let ca = folder.path().join("ca.pem");
        let config = format!("[network]\nextra_ca_file = '{}'\n", ca.display());
        let daemon = change(Daemon::builder().hosts(&hosts).config(&config)).start().await;
        Some(Self { daemon, server, upstream, ca, _folder: folder })
    }

    pub async fn set_secret(&self, name: &str, value: &str) {
        self.daemon.put(&format!("/v1/secrets/{name}"), json!({ "value": value })).await.ok();
    }

    /// A session that reaches the server under all its names, with the secret `token` as a bearer token for `api`.
    pub async fn session(&self) -> Session {
        self.daemon.create(json!({ "network": all(), "inject": bearer() })).await
    }
}

/// The network of most stories.
pub fn all() -> Value {
    json!({ "allow": ["api.example.com", "plain.example.com", "wrong.example.com"] })
}

/// The injection of most stories.
pub fn bearer() -> Value {
    json!([{ "host": "api.example.com", "header": "Authorization", "value_from": "secret:token", "format": "Bearer {}" }])
}

fn make_certificates(folder: &Path) {
    std::fs::write(folder.join("names"), NAMES).expect("our own directory");
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let authority = [
        "req",
        "-x509",
        "-days",
        "30",
        "-subj",
        "/CN=Story CA",
        "-addext",
        "keyUsage=critical,keyCertSign",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    ];
    openssl(folder, &[&authority[..], &key].concat());
    let request = ["req", "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr"];
    openssl(folder, &[&request[..], &key].concat());
    openssl(
        folder,
        &[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "20",
            "-extfile",
            "names",
            "-out",
            "server.pem",
        ],
    );
}

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
