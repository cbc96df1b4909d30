//! A session's terminal over WebSocket. Binary frames carry typed and printed bytes; text frames are messages about the
//! terminal.

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use shared_protocol::{SessionId, ShellName};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::sessions::session_path;
use super::{ApiError, CONNECT_TIMEOUT, Client, ClientError, Stream};

/// The terminal to attach to. Without a shell's name it is a new shell, which ends with the connection.
#[derive(Debug, Clone)]
pub struct TerminalTarget {
    pub session: SessionId,
    pub shell: Option<ShellName>,
    pub cols: u16,
    pub rows: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// The shell printed this.
    Output(Bytes),
    /// The shell has ended. Nothing follows.
    Exit { exit_code: Option<i32>, reason: Option<String> },
}

pub struct TerminalReader(SplitStream<WebSocketStream<Stream>>);

pub struct TerminalWriter(SplitSink<WebSocketStream<Stream>, Message>);

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FromClient {
    Resize { cols: u16, rows: u16 },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FromDaemon {
    Ready {},
    Exit {
        #[serde(default)]
        exit_code: Option<i32>,
        #[serde(default)]
        reason: Option<String>,
    },
    /// A message of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl Client {
    pub async fn terminal(&self, target: &TerminalTarget) -> Result<(TerminalReader, TerminalWriter), ClientError> {
        let TerminalTarget { session, shell, cols, rows } = target;
        let shell = shell.as_ref().map(|name| format!("&shell={name}")).unwrap_or_default();
        let path = session_path(session, &format!("terminal?cols={cols}&rows={rows}{shell}"));
        let url = format!("ws://{}{path}", self.endpoint.authority());
        let mut request = url.into_client_request().map_err(|e| ClientError::Protocol(e.to_string()))?;
        request.headers_mut().insert(hyper::header::AUTHORIZATION, self.authorization()?);
        let stream = self.connect().await?;
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, client_async(request, stream)).await;
        let (socket, _) =
            opened.map_err(|_| ClientError::Lost("the terminal did not open in time".into()))?.map_err(failed)?;
        let (writer, reader) = socket.split();
        Ok((TerminalReader(reader), TerminalWriter(writer)))
    }
}

fn failed(error: WsError) -> ClientError {
    match error {
        WsError::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            ClientError::Api(ApiError::parse(response.status().as_u16(), body))
        }
        WsError::ConnectionClosed
        | WsError::AlreadyClosed
        | WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => ClientError::Lost("it was cut off".into()),
        error => ClientError::lost(error),
    }
}

impl TerminalReader {
    /// The next event. If the connection ends without an `Exit`, that is `Lost`.
    pub async fn next(&mut self) -> Result<TerminalEvent, ClientError> {
        loop {
            let message = match self.0.next().await {
                None => return Err(ClientError::Lost("it was closed".into())),
                Some(message) => message.map_err(failed)?,
            };
            match message {
                Message::Binary(bytes) => return Ok(TerminalEvent::Output(bytes)),
                Message::Text(text) => match serde_json::from_str(&text) {
                    Ok(FromDaemon::Exit { exit_code, reason }) => return Ok(TerminalEvent::Exit { exit_code, reason }),
                    Ok(FromDaemon::Ready {} | FromDaemon::Unknown) => {}
                    Err(error) => return Err(ClientError::Protocol(error.to_string())),
                },
                Message::Close(frame) => {
                    let why = frame.map(|frame| frame.reason.to_string()).filter(|reason| !reason.is_empty());
                    return Err(ClientError::Lost(why.unwrap_or_else(|| "it was closed".into())));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

impl TerminalWriter {
    pub async fn input(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.0.send(Message::Binary(bytes)).await.map_err(failed)
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<(), ClientError> {
        let text = serde_json::to_string(&FromClient::Resize { cols, rows });
        let text = text.map_err(|e| ClientError::Protocol(e.to_string()))?;
        self.0.send(Message::text(text)).await.map_err(failed)
    }

    /// Closes the connection with a close frame, which tells the daemon that the client left on purpose.
    pub async fn close(&mut self) -> Result<(), ClientError> {
        self.0.close().await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_says_is_read_and_what_is_new_is_passed_over() {
        let read = |text: &str| format!("{:?}", serde_json::from_str::<FromDaemon>(text).unwrap());
        assert!(read(r#"{"type":"ready","shell":"main"}"#).starts_with("Ready"));
        assert!(read(r#"{"type":"exit","exit_code":3}"#).contains("Some(3)"));
        assert_eq!(read(r#"{"type":"weather","sun":true}"#), "Unknown");
    }
}
