//! Opens the daemon's listening socket. If the address is taken, the error says by whom, as far as that can be told, and what
//! to do.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::gate::REQUEST_ID;

/// The longest wait for the answer of whoever has the address.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// The most that is read of that answer.
const MAX_ANSWER_BYTES: u64 = 4 << 10;

pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let asked = tokio::time::timeout(ASK_TIMEOUT, ask(address)).await;
            let whose = match asked {
                Ok(Ok(answer)) if is_of_cove(&answer) => "another cove listens there already",
                Ok(_) | Err(_) => "another program listens there already",
            };
            anyhow::bail!(
                "cannot listen on {address}: {whose}. Choose another address with --listen, for example --listen \
                 127.0.0.1:0, which picks a free port"
            )
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
    }
}

/// Asks for `/healthz`, which needs no key.
async fn ask(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Whether this is how a cove answers `/healthz`.
fn is_of_cove(answer: &[u8]) -> bool {
    let answer = String::from_utf8_lossy(answer);
    answer.starts_with("HTTP/1.1 200 ")
        && answer.contains(REQUEST_ID.as_str())
        && [r#""status":"ok""#, r#""version":"#].iter().all(|part| answer.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_of_another_program_is_refused_with_a_way_out() {
        // It takes connections and answers none.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = format!("{:#}", listen(address).await.unwrap_err());
        assert!(error.contains(&address.to_string()) && error.contains("--listen"), "{error}");
        assert!(error.contains("another program"), "{error}");
        // An address that no interface has is another matter.
        let error = format!("{:#}", listen("192.0.2.1:1".parse().unwrap()).await.unwrap_err());
        assert!(!error.contains("another"), "{error}");
    }

    #[test]
    fn a_cove_is_told_from_other_servers() {
        let cove = "HTTP/1.1 200 OK\r\nx-request-id: 1-2\r\n\r\n{\"status\":\"ok\",\"version\":\"0.1.0\"}";
        assert!(is_of_cove(cove.as_bytes()));
        for other in ["", "HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}", "\u{fffd}"] {
            assert!(!is_of_cove(other.as_bytes()), "{other}");
        }
    }
}
