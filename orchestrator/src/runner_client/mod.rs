//! The client for one sandbox's runner: it sends the daemon's calls and checks the answers.
//!
//! ```text
//! RunnerClient ── call ──▶ Connections ──▶ Connection ──▶ Answer ──▶ FrameStream | document | bytes
//! ```
//!
//! **The runner may be hostile**, because it is inside the sandbox. Everything it sends has a limit (heads, frames,
//! documents, texts), must come in the one order that can be true (`sequence`), and its errors are checked (`error`). No
//! allocation depends on a length that the runner announced. A violation ends the request with `Hostile`, and closes the
//! connection.
//!
//! **A command runs exactly once.** It has an id before it is sent. If a connection breaks, a request is sent a second time
//! only if none of it was written, or if the repetition changes nothing: the runner refuses an exec whose id it knows.
//!
//! **Every wait has a limit**, except for the frames and bytes of a stream: they last as long as the command or the client.
//! A command that has a time limit also has a `deadline` here, for a runner that does not keep the limit. A runner that lets a
//! call or a stream wait is doubted (`pulse`), and the session's driver finds out whether it still answers.

mod answer;
mod attach;
mod calls;
mod connect;
mod connection;
mod connections;
mod deadline;
mod error;
mod file_calls;
mod files;
mod frame;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod gather;
mod network;
mod outgoing;
mod ports;
mod pulse;
mod sequence;
mod socket;
mod stdin;
mod stream;
mod watch;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use shared_protocol::runner::{ExecRequest, RunRequest};
use shared_protocol::{ErrorCode, ExecId};

pub use attach::{Attached, AttachedPermit};
pub use calls::ExecPage;
pub use error::RunnerError;
pub use file_calls::{Depth, LastLink, OnExisting, Parents};
pub use files::{ByteRange, FileAnswer, Part};
pub use frame::{Data, Frame};
pub use gather::{GatherCall, GatherStream, Gathered, ListedName};
pub use outgoing::Outgoing;
pub use ports::EndOfClient;
pub use pulse::Pulse;
pub use stdin::AfterInput;
pub use stream::FrameStream;
pub use watch::WatchStream;

use crate::runner_address::RunnerAddress;
use answer::Answer;
use connect::Connector;
use connection::{Connection, SendError};
use connections::Connections;
use sequence::{Sequence, Streams};

/// The longest wait for the head of an answer. The runner answers an exec within milliseconds, whatever the command does; a
/// host under full load takes longer.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The same limit for calls that first end processes: closing and resetting shells.
pub const ENDING_TIMEOUT: Duration = Duration::from_secs(60);

/// The header with the process id of a run.
const PID_HEADER: &str = "x-cove-pid";

/// The random bytes in an id that is made here.
const ID_BYTES: usize = 12;

/// A client for one runner. Cheap to clone.
#[derive(Clone)]
pub struct RunnerClient(Arc<Connections>);

impl std::fmt::Debug for RunnerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunnerClient")
    }
}

/// Whether a request may be sent again after its connection broke and it may have been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// The repetition changes nothing.
    Harmless,
    Never,
}

struct Call<'a> {
    method: Method,
    target: Cow<'a, str>,
    /// The JSON document to send, if there is one.
    body: Option<Bytes>,
    repeat: Repeat,
    head_timeout: Duration,
}

impl<'a> Call<'a> {
    fn get(target: impl Into<Cow<'a, str>>) -> Self {
        let target = target.into();
        Self { method: Method::GET, target, body: None, repeat: Repeat::Harmless, head_timeout: HEAD_TIMEOUT }
    }

    fn post(target: impl Into<Cow<'a, str>>, body: &impl Serialize) -> Result<Self, RunnerError> {
        let encoded = serde_json::to_vec(body).map_err(|error| {
            RunnerError::refused(ErrorCode::InvalidRequest, format!("the request cannot be passed on: {error}"))
        })?;
        let body = Some(Bytes::from(encoded));
        let (target, head_timeout) = (target.into(), HEAD_TIMEOUT);
        Ok(Self { method: Method::POST, target, body, repeat: Repeat::Never, head_timeout })
    }

    fn request(&self) -> Result<Request<Outgoing>, RunnerError> {
        let body = self.body.clone().map_or_else(Outgoing::empty, Outgoing::full);
        let mut request = request(self.method.clone(), &self.target, body)?;
        if self.body.is_some() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(request)
    }
}

fn request(method: Method, target: &str, body: Outgoing) -> Result<Request<Outgoing>, RunnerError> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = target
        .parse()
        .map_err(|error| RunnerError::refused(ErrorCode::InvalidRequest, format!("it cannot be passed on: {error}")))?;
    request.headers_mut().insert(HOST, HeaderValue::from_static("runner"));
    Ok(request)
}

/// The head of a successful answer, and the body that follows.
struct Opened {
    status: StatusCode,
    headers: HeaderMap,
    answer: Answer,
    /// Whether the request was sent twice, so that the runner may have read it before.
    is_repeated: bool,
}

impl RunnerClient {
    pub fn new(address: RunnerAddress) -> Self {
        let RunnerAddress::Unix(path) = address;
        Self(Connections::new(Connector::new(path)))
    }

    /// Runs a command. If the stream is dropped, the command keeps running.
    pub async fn exec(&self, request: &ExecRequest) -> Result<FrameStream, RunnerError> {
        let streams = Streams::Exec(request.streams);
        match &request.exec_id {
            Some(id) => self.begin("/v1/exec", request, id.clone(), streams, IdOrigin::Client).await,
            None => {
                let id = fresh_id()?;
                let request = ExecRequest { exec_id: Some(id.clone()), ..request.clone() };
                self.begin("/v1/exec", &request, id, streams, IdOrigin::Ours).await
            }
        }
        .map(|frames| frames.limited_to(request.timeout_ms))
    }

    /// Runs a program outside the shells.
    pub async fn run(&self, request: &RunRequest) -> Result<FrameStream, RunnerError> {
        match &request.exec_id {
            Some(id) => self.begin("/v1/run", request, id.clone(), Streams::Run, IdOrigin::Client).await,
            None => {
                let id = fresh_id()?;
                let request = RunRequest { exec_id: Some(id.clone()), ..request.clone() };
                self.begin("/v1/run", &request, id, Streams::Run, IdOrigin::Ours).await
            }
        }
        .map(|frames| frames.limited_to(request.timeout_ms))
    }

    /// Follows an exec from an offset. Without `follow`, the stream ends at the current end of the output.
    pub async fn reattach(&self, id: &ExecId, from: u64, follow: bool) -> Result<FrameStream, RunnerError> {
        let target = format!("/v1/execs/{id}?from={from}&follow={}", u8::from(follow));
        let opened = self.expect(Call::get(target), StatusCode::OK).await?;
        let pid = pid(&opened.headers);
        Ok(FrameStream::new(opened.answer, Sequence::new(id.clone(), Streams::Any, from), follow).with_pid(pid))
    }

    async fn begin(
        &self,
        target: &'static str,
        body: &impl Serialize,
        id: ExecId,
        streams: Streams,
        origin: IdOrigin,
    ) -> Result<FrameStream, RunnerError> {
        let call = Call { repeat: Repeat::Harmless, ..Call::post(target, body)? };
        let opened = self.open(call).await?;
        if opened.status == StatusCode::OK {
            let pid = pid(&opened.headers);
            return Ok(FrameStream::new(opened.answer, Sequence::new(id, streams, 0), /* is_live */ true).with_pid(pid));
        }
        let is_repeated = opened.is_repeated;
        let error = opened.answer.into_error(opened.status.as_u16()).await;
        match (is_repeated, origin, error.code()) {
            // No one else knows this id, so the runner read the first request, and this is its command. An id from the
            // client could belong to another request; then the client is told that the id is taken.
            (true, IdOrigin::Ours, Some(ErrorCode::Conflict)) => self.reattach(&id, 0, true).await,
            _ => Err(error),
        }
    }

    /// Sends a call, and accepts only this status.
    async fn expect(&self, call: Call<'_>, status: StatusCode) -> Result<Opened, RunnerError> {
        let opened = self.open(call).await?;
        if opened.status == status { Ok(opened) } else { Err(opened.answer.into_error(opened.status.as_u16()).await) }
    }

    /// Sends a call on an idle connection, or else on a new one.
    async fn open(&self, call: Call<'_>) -> Result<Opened, RunnerError> {
        let timeout = call.head_timeout;
        let is_fresh = AtomicBool::new(false);
        let work = async {
            let mut request = call.request()?;
            let mut is_repeated = false;
            if let Some(connection) = self.0.kept().await {
                match self.send_on(connection, request).await {
                    Ok(opened) => return Ok(opened),
                    Err(SendError::NotSent(unsent, _)) => request = *unsent,
                    Err(SendError::Broken(error)) if call.repeat == Repeat::Harmless && !error.is_parse() => {
                        request = call.request()?;
                        is_repeated = true;
                    }
                    Err(SendError::Broken(error)) => return Err(error.into()),
                }
            }
            is_fresh.store(true, Ordering::Relaxed);
            match self.send_on(self.0.fresh().await?, request).await {
                Ok(opened) => Ok(Opened { is_repeated, ..opened }),
                Err(SendError::NotSent(_, error) | SendError::Broken(error)) => Err(error.into()),
            }
        };
        let opened = self.pulse().in_time(timeout, work).await;
        self.noted(opened.unwrap_or_else(|| {
            let connection =
                if is_fresh.into_inner() { "a new connection" } else { "a connection that was used before" };
            Err(self.silent(&call, connection))
        }))
    }

    /// The error for a call that got no answer in time. It says what is known, because the cause is elsewhere.
    fn silent(&self, call: &Call<'_>, connection: &str) -> RunnerError {
        let heard = match self.pulse().last_heard() {
            Some(heard) => format!("the runner was heard {} ms ago", heard.elapsed().as_millis()),
            None => "the runner was never heard".to_owned(),
        };
        let route = call.target.split('?').next().unwrap_or_default();
        let seconds = call.head_timeout.as_secs();
        RunnerError::Lost(format!(
            "no answer within {seconds} seconds to {} {route} on {connection}; {heard}",
            call.method
        ))
    }

    /// A runner that could not be reached is doubted.
    fn noted<T>(&self, result: Result<T, RunnerError>) -> Result<T, RunnerError> {
        if let Err(RunnerError::Lost(_)) = &result {
            self.pulse().doubt();
        }
        result
    }

    /// When the runner was heard last, and whether there is a reason to doubt that it answers.
    pub fn pulse(&self) -> &Pulse {
        self.0.pulse()
    }

    /// Asks whether the runner answers at all; any answer will do. The question has a connection of its own, so it does not
    /// wait behind other calls, and their number does not matter. The caller limits the time.
    pub async fn ping(&self) -> Result<(), RunnerError> {
        let mut connection = self.0.extra().await?;
        match connection.send(Call::get("/healthz").request()?).await {
            Ok(_) => {
                self.pulse().heard();
                Ok(())
            }
            Err(SendError::NotSent(_, error) | SendError::Broken(error)) => Err(error.into()),
        }
    }

    /// Sends a request whose body is a stream. The body cannot be read twice, so the request is sent again only if none of it was
    /// written.
    async fn send_streamed(&self, mut request: Request<Outgoing>) -> Result<Opened, RunnerError> {
        if let Some(connection) = self.0.kept().await {
            match self.send_on(connection, request).await {
                Ok(opened) => return Ok(opened),
                Err(SendError::NotSent(unsent, _)) => request = *unsent,
                Err(SendError::Broken(error)) => return Err(error.into()),
            }
        }
        match self.send_on(self.0.fresh().await?, request).await {
            Ok(opened) => Ok(opened),
            Err(SendError::NotSent(_, error) | SendError::Broken(error)) => Err(error.into()),
        }
    }

    async fn send_on(&self, mut connection: Connection, request: Request<Outgoing>) -> Result<Opened, SendError> {
        let (head, body) = connection.send(request).await?.into_parts();
        self.pulse().heard();
        let answer = Answer::new(connection, body, self.0.clone());
        Ok(Opened { status: head.status, headers: head.headers, answer, is_repeated: false })
    }

    #[cfg(test)]
    fn idle_connections(&self) -> usize {
        self.0.count_idle()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdOrigin {
    Client,
    Ours,
}

/// The process id that the runner announces for a run.
fn pid(headers: &HeaderMap) -> Option<u32> {
    headers.get(PID_HEADER)?.to_str().ok()?.parse().ok()
}

fn fresh_id() -> Result<ExecId, RunnerError> {
    let failed = |error: &dyn std::fmt::Display| {
        RunnerError::refused(ErrorCode::InternalError, format!("no id could be made for the command: {error}"))
    };
    let mut chance = [0; ID_BYTES];
    getrandom::fill(&mut chance).map_err(|error| failed(&error))?;
    let mut id = String::with_capacity(1 + 2 * ID_BYTES);
    id.push('x');
    for byte in chance {
        id.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        id.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
    }
    ExecId::new(id).map_err(|error| failed(&error))
}

#[cfg(test)]
mod hostile_test;
