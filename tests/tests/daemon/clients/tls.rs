//! A daemon behind a proxy that speaks TLS.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use e2e::daemon::{Cove, Daemon};

/// A proxy, which ends with this value.
struct Proxy {
    child: Child,
    port: u16,
}

impl Proxy {
    fn start(directory: &Path, daemon: &Daemon) -> Self {
        let path = |name: &str| directory.join(name).display().to_string();
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        let made = openssl.args(["-keyout", &path("key.pem"), "-out", &path("cert.pem")]).output().expect("openssl");
        assert!(made.status.success(), "{made:?}");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/clients/tls_proxy.py");
        let (host, port) = (daemon.address.ip().to_string(), daemon.address.port().to_string());
        let mut python = Command::new("python3");
        python.args([script, &path("cert.pem"), &path("key.pem"), &host, &port]).stdout(Stdio::piped());
        let mut child = python.spawn().expect("python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a pipe");
        Self { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn commands_reach_a_daemon_behind_tls_if_they_trust_its_certificate() {
    let daemon = Daemon::start().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxy = Proxy::start(directory.path(), &daemon);
    let certificate = directory.path().join("cert.pem").display().to_string();
    let at = |host: &str| Cove::of(&daemon).env("COVE_URL", &format!("https://{host}:{}", proxy.port));
    let trusting = at("localhost").env("SSL_CERT_FILE", &certificate);
    let id = trusting.run(&["create"]).await.ok().trim().to_owned();
    assert_eq!(trusting.run(&["exec", &id, "echo hello"]).await.ok(), "hello\n");
    let piped = trusting.run_with_stdin(&["exec", "-i", &id, "wc -c"], vec![7; 1_000_000]).await;
    assert_eq!(piped.ok().trim(), "1000000");
    let stranger = at("localhost").run(&["ps"]).await;
    assert_eq!(stranger.code, 69, "{stranger:?}");
    assert!(stranger.stderr.contains("certificate"), "{stranger:?}");
    let other_name = at("127.0.0.1").env("SSL_CERT_FILE", &certificate).run(&["ps"]).await;
    assert_eq!(other_name.code, 69, "{other_name:?}");
    drop(proxy);
    daemon.stop().await;
}
