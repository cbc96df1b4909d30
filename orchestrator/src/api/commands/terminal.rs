//! `GET …/terminal`: a shell's terminal as a WebSocket, for a person who types.
//!
//! Binary messages carry the terminal's bytes, in both directions. Text messages are JSON: the client sends
//! `{"type":"resize","cols","rows"}`; the daemon sends `{"type":"ready","shell"}` first and
//! `{"type":"exit","exit_code"?,"reason"?}` last.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::BytesMut;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::Uri;
use serde::{Deserialize, Serialize};
use shared_protocol::ShellName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::extract::{By, Held, SessionPath, query};
use crate::service::SessionError;
use crate::service::shells::{Attachment, Terminal, TerminalEnd, TerminalInput, TerminalOutput, TerminalSpec};

/// The largest message from the client. A large paste is sent as several messages.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The most output bytes in one message to the client.
const OUTPUT_BYTES: usize = 32 << 10;

/// The time between two pings to the client.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The silence after which the daemon takes the client for lost.
const MAX_SILENCE: Duration = Duration::from_secs(90);

/// The time in which a client must take one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which a client must take the last messages.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum FromClient {
    Resize { cols: u16, rows: u16 },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToClient<'a> {
    Ready {
        shell: &'a ShellName,
    },
    Exit {
        /// The exit code of a shell that ended by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl ToClient<'_> {
    fn message(&self) -> Message {
        Message::text(serde_json::to_string(self).unwrap_or_else(|_| r#"{"type":"exit"}"#.to_owned()))
    }
}

pub async fn terminal(
    State(state): State<ApiState>,
    By(caller): By,
    held: Held,
    SessionPath(id): SessionPath,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let spec = spec(&uri)?;
    let upgrade = upgrade.map_err(|rejection| ApiError::invalid(rejection.body_text()))?;
    let attachment = state.service.shells().attach(&caller, &id, spec).await?;
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let Attachment { terminal, output, input } = attachment;
        let session_id = terminal.session_id().clone();
        tracing::debug!(%session_id, shell = %terminal.shell(), "a terminal was attached");
        tokio::select! {
            carried = carry(socket, &terminal, output, input) => terminal.count(carried.typed, carried.printed),
            () = caller.removed() => tracing::debug!(%session_id, "the key of a terminal's caller was removed"),
        }
        tracing::debug!(%session_id, "a terminal was detached");
        drop(held);
    }))
}

fn spec(uri: &Uri) -> Result<TerminalSpec, ApiError> {
    let query = query(uri, &["shell", "cols", "rows"])?;
    let side = |name: &str| -> Result<Option<u16>, ApiError> {
        let number = query.number(name)?;
        number.map(|n| u16::try_from(n).map_err(|_| ApiError::invalid(format!("{name} is too large")))).transpose()
    };
    let shell = query.text("shell")?.map(ShellName::new).transpose()?;
    Ok(TerminalSpec::new(shell, side("cols")?, side("rows")?)?)
}

/// Why the terminal's connection ends.
enum End {
    /// The client left, or is told to leave with this close frame.
    Left(Option<CloseFrame>),
    /// The terminal's side closed.
    Closed,
    Session(SessionError),
}

/// The number of bytes that a terminal carried in each direction.
#[derive(Default)]
struct Carried {
    typed: u64,
    printed: u64,
}

async fn carry(socket: WebSocket, terminal: &Terminal, output: TerminalOutput, input: TerminalInput) -> Carried {
    let (mut to_client, from_client) = socket.split();
    let mut carried = Carried::default();
    if send(&mut to_client, ToClient::Ready { shell: terminal.shell() }.message()).await.is_err() {
        return carried;
    }
    let (heard, last_heard) = watch::channel(Instant::now());
    let end = {
        let typed = take_input(from_client, input, &heard, terminal, &mut carried.typed);
        let printed = send_output(output, &mut to_client, last_heard, &mut carried.printed);
        tokio::select! {
            end = typed => end,
            end = printed => end,
            error = terminal.session_ended() => End::Session(error),
        }
    };
    let goodbye = goodbye(&mut to_client, end, terminal);
    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await;
    carried
}

async fn goodbye(to_client: &mut SplitSink<WebSocket, Message>, end: End, terminal: &Terminal) {
    let end = match end {
        End::Left(frame) => {
            let _ = to_client.send(Message::Close(frame)).await;
            return;
        }
        End::Session(error) => TerminalEnd::Session(error),
        End::Closed => terminal.end().await,
    };
    let mut exit_code = None;
    let (reason, code, text) = match end {
        TerminalEnd::Session(error) => {
            let is_lost = matches!(error, SessionError::Lost { .. });
            let code = if is_lost { close_code::ERROR } else { close_code::AWAY };
            (Some(error.to_string()), code, "the session is over")
        }
        TerminalEnd::TooSlow => {
            let reason = "the shell goes on, but this connection took too little of its output; attach again";
            (Some(reason.to_owned()), close_code::AGAIN, "attach again")
        }
        TerminalEnd::ShellEnded { exit_code: code } => {
            exit_code = code;
            (None, close_code::NORMAL, "the shell has ended")
        }
        TerminalEnd::Lost(error) => (Some(error.to_string()), close_code::ERROR, "the sandbox is lost"),
    };
    let _ = to_client.send(ToClient::Exit { exit_code, reason }.message()).await;
    let _ = to_client.send(Message::Close(Some(CloseFrame { code, reason: text.into() }))).await;
}

async fn take_input(
    mut from_client: SplitStream<WebSocket>,
    mut to_shell: TerminalInput,
    heard: &watch::Sender<Instant>,
    terminal: &Terminal,
    typed: &mut u64,
) -> End {
    let refuse = |code, reason: &'static str| End::Left(Some(CloseFrame { code, reason: reason.into() }));
    loop {
        let message = match from_client.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                let is_too_large = error.to_string().contains("too long");
                let (code, why) = match is_too_large {
                    true => (close_code::SIZE, "a message may have 1 MiB"),
                    false => (close_code::PROTOCOL, "not a WebSocket message"),
                };
                return refuse(code, why);
            }
            None => return End::Left(None),
        };
        heard.send_replace(Instant::now());
        match message {
            Message::Binary(bytes) => {
                *typed += bytes.len() as u64;
                if to_shell.write_all(&bytes).await.is_err() {
                    return End::Closed;
                }
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(FromClient::Resize { cols, rows }) => {
                    if terminal.resize(cols, rows).await.is_err() {
                        return End::Closed;
                    }
                }
                Err(_) => return refuse(close_code::UNSUPPORTED, "text messages are resize; bytes are binary"),
            },
            // axum answers pings itself.
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return End::Left(None),
        }
    }
}

async fn send_output(
    mut from_shell: TerminalOutput,
    to_client: &mut SplitSink<WebSocket, Message>,
    last_heard: watch::Receiver<Instant>,
    printed: &mut u64,
) -> End {
    let mut buffer = BytesMut::with_capacity(OUTPUT_BYTES);
    let mut ping = tokio::time::interval(PING_INTERVAL);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ping.reset();
    loop {
        buffer.reserve(OUTPUT_BYTES);
        let message = tokio::select! {
            read = from_shell.read_buf(&mut buffer) => match read {
                Ok(0) | Err(_) => return End::Closed,
                Ok(count) => {
                    *printed += count as u64;
                    Message::Binary(buffer.split().freeze())
                }
            },
            _ = ping.tick() => {
                if last_heard.borrow().elapsed() > MAX_SILENCE {
                    return End::Left(None);
                }
                Message::Ping(bytes::Bytes::new())
            }
        };
        if send(to_client, message).await.is_err() {
            return End::Left(None);
        }
    }
}

/// Sends one message. It fails if the client is gone or takes nothing.
async fn send(to_client: &mut SplitSink<WebSocket, Message>, message: Message) -> Result<(), ()> {
    match tokio::time::timeout(SEND_TIMEOUT, to_client.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}
