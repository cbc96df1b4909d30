//! Headers that the daemon adds to requests of sandboxes, with values that no sandbox sees.

mod requests;
mod search;
mod secrets;
mod server;

use e2e::daemon::Session;
use serde_json::{Value, json};

use server::{SecureWorld, all, bearer, header_of};

async fn exec(session: &Session, cmd: &str) -> Value {
    let request = json!({ "cmd": cmd, "timeout_ms": 60_000 });
    session.api.patient().post(&session.path("/exec"), request).await.ok()
}

/// Runs a command that must succeed, and returns its output.
async fn prints(session: &Session, cmd: &str) -> String {
    let reply = exec(session, cmd).await;
    assert_eq!(reply["exit_code"], 0, "{cmd}: {reply}");
    reply["output"].as_str().expect("text").to_owned()
}

/// Python code that has a TLS connection `c` to `api.example.com`, through the proxy if there is one, and a function that reads one
/// answer with a length.
fn raw(code: &str) -> String {
    let code = format!(
        "import os, socket, ssl
from urllib.parse import urlsplit
def dialled():
    proxy = os.environ.get('https_proxy')
    if not proxy: return socket.create_connection(('api.example.com', 443))
    d = socket.create_connection((urlsplit(proxy).hostname, urlsplit(proxy).port))
    d.sendall(b'CONNECT api.example.com:443 HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n')
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'): head += d.recv(1)
    assert b' 200 ' in head, head
    return d
def answer():
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'):
        piece = c.recv(1)
        if not piece: return 'closed'
        head += piece
    length = [int(l.split(b':')[1]) for l in head.split(b'\\r\\n') if l.lower().startswith(b'content-length:')]
    body = b''
    while length and len(body) < length[0]: body += c.recv(length[0] - len(body))
    return head.split(b'\\r\\n')[0].decode()
c = ssl.create_default_context().wrap_socket(dialled(), server_hostname='api.example.com')
{code}"
    );
    format!("python3 -c '{}'", code.replace('\'', "'\\''"))
}
