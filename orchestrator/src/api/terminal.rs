//! `GET …/terminal`: a shell's terminal as a WebSocket, for a person.
//!
//! Binary messages are bytes, both ways. Text messages are JSON: `{"type":"resize","cols","rows"}` from the client;
//! `{"type":"ready","shell"}` first and `{"type":"exit","exit_code"?,"reason"?}` last from here. A named shell is opened if it is not there
//! and stays; without a name it is one of its own, a copy of `main`, that is closed with the socket.

use std::time::Duration;

use axum::body::Body;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts as _, Request, State};
use axum::response::Response;
use bytes::BytesMut;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};
use shared_protocol::runner::{OpenShellRequest, ResizeRequest, ShellKind};
use shared_protocol::{ErrorCode, ShellName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::Instant;

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::target::{Params, invalid, session_id};
use crate::runner_client::{Attached, RunnerClient, RunnerError};
use crate::session::{Activity, SessionError};

/// Of one message from the client: a large paste comes in several.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of one message to the client.
const OUTPUT_BYTES: usize = 32 << 10;

/// How often the client is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A client from which nothing came for so long is gone.
const SILENCE: Duration = Duration::from_secs(90);

/// For one message to be taken by the client, and for the last ones at the end.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
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
        /// Of a shell that ended by itself.
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

pub async fn terminal(State(state): State<ApiState>, request: Request<Body>) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let params = Params::parse(&parts.uri, &["shell", "cols", "rows"])?;
    let side = |name: &str| -> Result<Option<u16>, ApiError> {
        let number = params.number(name)?;
        number.map(|n| u16::try_from(n).map_err(|_| invalid(format!("{name} is too large")))).transpose()
    };
    let (cols, rows) = (side("cols")?, side("rows")?);
    let name = params.text("shell")?.map(ShellName::new).transpose()?;
    let session = session_id(&parts.uri)?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|rejection: WebSocketUpgradeRejection| invalid(rejection.body_text()))?;

    let activity = state.sessions.get(&session)?.begin().await?;
    let (lease, attached) = in_session(&activity, open(activity.runner(), name, cols, rows)).await?;
    let metrics = state.metrics.clone();
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let session_id = activity.session_id().clone();
        tracing::debug!(%session_id, shell = %lease.name, "a terminal was attached");
        let carried = carry(socket, attached, &activity, &lease.name).await;
        metrics.bytes_in(carried.typed);
        metrics.bytes_out(carried.printed);
        drop(lease);
        tracing::debug!(%session_id, "a terminal was left");
    }))
}

/// A shell that somebody is attached to; one of its own is closed with it.
struct Lease {
    name: ShellName,
    close_with: Option<RunnerClient>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(runner) = self.close_with.take() else { return };
        let name = self.name.clone();
        // Bounded by the call itself. It runs beside the request, which may have ended in any way.
        tokio::spawn(async move {
            match runner.close_shell(&name).await {
                // It has ended by itself, or the whole sandbox has.
                Ok(()) | Err(RunnerError::Refused(_) | RunnerError::Lost(_)) => {}
                Err(error) => tracing::warn!(shell = %name, %error, "a terminal's shell was not closed"),
            }
        });
    }
}

async fn open(
    runner: &RunnerClient,
    name: Option<ShellName>,
    cols: Option<u16>,
    rows: Option<u16>,
) -> Result<(Lease, Attached), RunnerError> {
    let request = OpenShellRequest {
        name: name.clone(),
        kind: ShellKind::Terminal,
        from: Some(ShellName::main()),
        cols,
        rows,
        ..OpenShellRequest::default()
    };
    let Some(name) = name else {
        let view = runner.open_shell(&request).await?;
        let lease = Lease { name: view.name, close_with: Some(runner.clone()) };
        let attached = runner.attach(&lease.name, None, None).await?;
        return Ok((lease, attached));
    };
    let attached = match runner.attach(&name, cols, rows).await {
        Err(error) if error.code() == Some(ErrorCode::ShellNotFound) => {
            match runner.open_shell(&request).await {
                // Somebody else opened it in the meantime.
                Ok(_) => {}
                Err(error) if error.code() == Some(ErrorCode::Conflict) => {}
                Err(error) => return Err(error),
            }
            runner.attach(&name, cols, rows).await?
        }
        attached => attached?,
    };
    Ok((Lease { name, close_with: None }, attached))
}

/// Why a terminal is over.
enum End {
    /// The client went away, or was told to.
    Left(Option<CloseFrame>),
    /// The terminal's side ended.
    Closed,
    Session(SessionError),
}

/// What a terminal has carried, in bytes.
#[derive(Default)]
struct Carried {
    typed: u64,
    printed: u64,
}

async fn carry(socket: WebSocket, attached: Attached, activity: &Activity, shell: &ShellName) -> Carried {
    let (mut to_client, from_client) = socket.split();
    let (from_shell, to_shell) = tokio::io::split(attached);
    let mut carried = Carried::default();
    if send(&mut to_client, ToClient::Ready { shell }.message()).await.is_err() {
        return carried;
    }
    let (heard, last_heard) = watch::channel(Instant::now());
    let end = {
        let typed = take_input(from_client, to_shell, &heard, activity.runner(), shell, &mut carried.typed);
        let printed = send_output(from_shell, &mut to_client, last_heard, &mut carried.printed);
        tokio::select! {
            end = typed => end,
            end = printed => end,
            error = activity.ended() => End::Session(error),
        }
    };
    let goodbye = goodbye(&mut to_client, end, activity, shell);
    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await;
    carried
}

async fn goodbye(to_client: &mut SplitSink<WebSocket, Message>, end: End, activity: &Activity, shell: &ShellName) {
    let end = match end {
        // The cut may be seen before the end of the session that made it.
        End::Closed => activity.ended().now_or_never().map_or(End::Closed, End::Session),
        end => end,
    };
    let mut exit_code = None;
    let (reason, code, text) = match end {
        End::Left(frame) => {
            let _ = to_client.send(Message::Close(frame)).await;
            return;
        }
        End::Session(error) => {
            let is_lost = ApiError::from(error.clone()).0.error_code == ErrorCode::SandboxLost;
            let code = if is_lost { close_code::ERROR } else { close_code::AWAY };
            (Some(error.to_string()), code, "the session is over")
        }
        End::Closed => match activity.runner().shells().await {
            Ok(shells) if shells.iter().any(|view| view.name == *shell) => {
                let reason = "the shell goes on, but this connection took too little of its output; attach again";
                (Some(reason.to_owned()), close_code::AGAIN, "attach again")
            }
            Ok(_) => {
                // Unknown where it was closed by somebody else.
                exit_code = activity.runner().shell_end(shell).await.ok().map(|end| end.exit_code);
                (None, close_code::NORMAL, "the shell has ended")
            }
            Err(error) => (Some(error.to_string()), close_code::ERROR, "the sandbox is lost"),
        },
    };
    let _ = to_client.send(ToClient::Exit { exit_code, reason }.message()).await;
    let _ = to_client.send(Message::Close(Some(CloseFrame { code, reason: text.into() }))).await;
}

async fn take_input(
    mut from_client: SplitStream<WebSocket>,
    mut to_shell: WriteHalf<Attached>,
    heard: &watch::Sender<Instant>,
    runner: &RunnerClient,
    shell: &ShellName,
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
                    let request = ResizeRequest { shell: Some(shell.clone()), cols, rows };
                    match runner.resize(&request).await {
                        // A size that the runner does not want is not the end of a terminal.
                        Ok(()) | Err(RunnerError::Refused(_)) => {}
                        Err(_) => return End::Closed,
                    }
                }
                Err(_) => return refuse(close_code::UNSUPPORTED, "text messages are resize; bytes are binary"),
            },
            // axum answers pings by itself.
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return End::Left(None),
        }
    }
}

async fn send_output(
    mut from_shell: ReadHalf<Attached>,
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
                if last_heard.borrow().elapsed() > SILENCE {
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

/// Sends one message; an error where the client has gone or takes nothing.
async fn send(to_client: &mut SplitSink<WebSocket, Message>, message: Message) -> Result<(), ()> {
    match tokio::time::timeout(SEND_TIMEOUT, to_client.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}
