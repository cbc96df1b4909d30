//! `git clone` over https, from a server of the story with a certificate of its own.

use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::daemon::{Daemon, Upstream, is_local_only};
use e2e::skipped;
use serde_json::json;

use super::{Server, exec};

const NAME: &str = "git.example.com";
const PORT: u16 = 9443;

/// Serves a directory over TLS.
const SERVER: &str = "
import functools, http.server, ssl, sys
directory, address, port, certificate, key = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)
server = http.server.ThreadingHTTPServer((address, int(port)), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print('ready', flush=True)
server.serve_forever()
";

/// Makes a bare repository with one commit, and a certificate.
const SET_UP: &str = "
set -e; cd \"$1\"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out cert.pem \
  -subj /CN=git.example.com -addext subjectAltName=DNS:git.example.com
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
git init -q work; echo cloned > work/file; git -C work add file; git -C work commit -q -m one
git clone -q --bare work served/demo.git; git -C served/demo.git update-server-info
";

#[tokio::test]
async fn git_clones_over_https_where_a_rule_allows_it() {
    let story = "git over https";
    if is_local_only(story, "clients in containers have a story of their own") {
        return;
    }
    let Some(upstream) = Upstream::start(story) else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    if !has_repository(directory.path()) {
        return skipped(story, "git or openssl is not installed");
    }
    let mut command = upstream.command("python3");
    command.args(["-c", SERVER]).arg(directory.path().join("served")).arg(upstream.good().to_string());
    command.arg(PORT.to_string()).args(["cert.pem", "key.pem"].map(|file| directory.path().join(file)));
    // It prints every request.
    command.stderr(Stdio::null());
    let _server = Server::start(command);
    let names = [("localhost", IpAddr::from([127, 0, 0, 1])), (NAME, upstream.good().into())];
    let daemon = Daemon::builder().hosts(&names).start().await;
    let session = daemon.create(json!({ "network": { "allow": [format!("{NAME}:{PORT}")] } })).await;
    let certificate = std::fs::read(directory.path().join("cert.pem")).expect("a certificate");
    session.put("ca.pem", certificate).await.ok();
    let clone = format!("git clone -q https://{NAME}:{PORT}/demo.git /tmp/demo 2>&1 && cat /tmp/demo/file");
    // Without the certificate, the client itself refuses the server: nobody in between has another one.
    let reply = exec(&session, &clone).await;
    assert!(reply["exit_code"] != 0 && reply["output"].as_str().is_some_and(|o| o.contains("certificate")), "{reply}");
    let reply = exec(&session, &format!("GIT_SSL_CAINFO=/workspace/ca.pem {clone}")).await;
    assert_eq!((&reply["exit_code"], &reply["output"]), (&json!(0), &json!("cloned\n")), "{reply}");
    println!("git clone: after {} ms", reply["duration_ms"]);
    session.destroy().await;
    daemon.stop().await;
}

fn has_repository(directory: &Path) -> bool {
    let made = Command::new("bash").args(["-c", SET_UP, "set-up"]).arg(directory).env("HOME", directory).output();
    made.is_ok_and(|output| output.status.success())
}
