//! A terminal over a WebSocket, like a browser's.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::Session;
use crate::wait::DEADLINE;

pub struct Terminal {
    socket: WebSocketStream<TcpStream>,
    /// Everything that was printed so far.
    pub screen: String,
    /// The offset in `screen` at which the next search begins.
    seen: usize,
    /// The shell's name.
    pub shell: String,
}

impl Terminal {
    pub async fn open(session: &Session, query: &str) -> Self {
        let mut request = format!("ws://{}{}", session.api.address, session.path(&format!("/terminal?{query}")))
            .into_client_request()
            .expect("a URL");
        let key = session.api.key.as_deref().unwrap_or_default();
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
        let stream = TcpStream::connect(session.api.address).await.expect("the daemon listens");
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");
        let mut terminal = Self { socket, screen: String::new(), seen: 0, shell: String::new() };
        let ready = terminal.text_message().await;
        assert_eq!(ready["type"], "ready", "{ready}");
        terminal.shell = ready["shell"].as_str().expect("a name").to_owned();
        terminal
    }

    async fn message(&mut self) -> Option<Message> {
        let next = tokio::time::timeout(DEADLINE, self.socket.next()).await;
        let next = next.unwrap_or_else(|_| panic!("nothing more came after {:?}", tail(&self.screen)));
        Some(next?.expect("the connection holds"))
    }

    /// The next text message. Output before it is added to the screen.
    async fn text_message(&mut self) -> Value {
        loop {
            match self.message().await.expect("the socket is open") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Binary(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    pub async fn keys(&mut self, keys: impl AsRef<[u8]>) {
        self.socket.send(Message::binary(keys.as_ref().to_vec())).await.expect("the connection holds");
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) {
        let text = serde_json::json!({ "type": "resize", "cols": cols, "rows": rows }).to_string();
        self.socket.send(Message::text(text)).await.expect("the connection holds");
    }

    /// Waits for this text, after everything that was waited for before.
    pub async fn until(&mut self, text: &str) {
        loop {
            if let Some(found) = self.screen[self.seen..].find(text) {
                self.seen += found + text.len();
                return;
            }
            match self.message().await.expect("the socket is open") {
                Message::Binary(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?} before {text:?}: {:?}", tail(&self.screen)),
            }
        }
    }

    /// Waits until the daemon closes the connection, whatever it sends before.
    pub async fn closed(mut self) {
        loop {
            match tokio::time::timeout(DEADLINE, self.socket.next()).await.expect("a close") {
                None | Some(Ok(Message::Close(_)) | Err(_)) => return,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Waits for the exit message, after which the socket closes.
    pub async fn exit(mut self) -> Value {
        let exit = self.text_message().await;
        loop {
            match tokio::time::timeout(Duration::from_secs(5), self.socket.next()).await.expect("a close") {
                None | Some(Ok(Message::Close(_)) | Err(_)) => return exit,
                Some(Ok(_)) => {}
            }
        }
    }
}

fn tail(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(400);
    text.chars().skip(skipped).collect()
}
