//! What the daemon says to one sandbox's runner, and how it hears the answer.
//!
//! ```text
//! RunnerClient ── call ──▶ Pool ──▶ Line (one connection) ──▶ Answer ──▶ FrameStream | document | bytes
//! ```
//!
//! **Hostile:** the runner is inside the sandbox. Everything it says has a bound (heads, frames, documents, texts), comes in
//! the one order that can be true (`sequence`), and its errors are its own (`error`). Nothing is allocated by a length that it
//! gave. What breaks this ends the request with `Hostile`, and the connection with it.
//!
//! **Exactly once:** a command has an id before it is sent. A request that met a dying connection is sent once more only if
//! none of it was written, or if its repetition changes nothing: an exec's is refused by the runner as known.
//!
//! **Every wait has a bound**, but for the frames and bytes of a stream: those last as long as the command or the client.

mod answer;
mod attach;
mod calls;
mod connect;
mod error;
mod files;
mod frame;
mod line;
mod outgoing;
mod pool;
mod sequence;
mod socket;
mod stream;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use shared_protocol::runner::{ExecRequest, RunRequest};
use shared_protocol::{ErrorCode, ExecId};

pub use attach::Attached;
pub use error::RunnerError;
pub use files::{FileAnswer, FileCall, Part};
pub use frame::{Data, Frame};
pub use outgoing::Outgoing;
pub use stream::FrameStream;

use crate::runtime::RunnerAddress;
use answer::Answer;
use connect::Door;
use line::{Line, SendError};
use pool::Pool;
use sequence::{Sequence, Streams};

/// For the head of an answer. The runner gives an exec's within milliseconds, whatever the command does; a host under full
/// load takes longer.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// For calls that end processes first: closing and resetting shells.
pub const ENDING_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of chance in an id that is made here.
const ID_BYTES: usize = 12;

/// Speaks to one runner; a cheap clone.
#[derive(Clone)]
pub struct RunnerClient(Arc<Pool>);

impl std::fmt::Debug for RunnerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunnerClient")
    }
}

/// Whether a request may be sent again when its connection broke and nobody knows if it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It changes nothing the second time.
    Harmless,
    Never,
}

struct Call<'a> {
    method: Method,
    target: Cow<'a, str>,
    /// A JSON document, or nothing.
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

/// The head of an answer that is not an error, and the body to come.
struct Opened {
    status: StatusCode,
    headers: HeaderMap,
    answer: Answer,
    /// It was sent a second time, and the first may have been heard.
    is_repeated: bool,
}

impl RunnerClient {
    pub fn new(address: RunnerAddress) -> Self {
        let RunnerAddress::Unix(path) = address;
        Self(Pool::new(Door::new(path)))
    }

    /// Runs a command. It goes on when the stream is dropped.
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
    }

    /// Runs a program beside the shells.
    pub async fn run(&self, request: &RunRequest) -> Result<FrameStream, RunnerError> {
        match &request.exec_id {
            Some(id) => self.begin("/v1/run", request, id.clone(), Streams::Run, IdOrigin::Client).await,
            None => {
                let id = fresh_id()?;
                let request = RunRequest { exec_id: Some(id.clone()), ..request.clone() };
                self.begin("/v1/run", &request, id, Streams::Run, IdOrigin::Ours).await
            }
        }
    }

    /// Follows an exec from an offset; without `follow`, as far as it is now.
    pub async fn reattach(&self, id: &ExecId, from: u64, follow: bool) -> Result<FrameStream, RunnerError> {
        let target = format!("/v1/execs/{id}?from={from}&follow={}", u8::from(follow));
        let opened = self.expect(Call::get(target), StatusCode::OK).await?;
        Ok(FrameStream::new(opened.answer, Sequence::new(id.clone(), Streams::Any, from), follow))
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
            return Ok(FrameStream::new(opened.answer, Sequence::new(id, streams, 0), /* is_live */ true));
        }
        let is_repeated = opened.is_repeated;
        let error = opened.answer.into_error(opened.status.as_u16()).await;
        match (is_repeated, origin, error.code()) {
            // Nobody else knows this id: the first sending was heard, and its command is ours to follow. Of an id that the
            // client gave we cannot tell whose it is; the client, who can, is told that it is taken.
            (true, IdOrigin::Ours, Some(ErrorCode::Conflict)) => self.reattach(&id, 0, true).await,
            _ => Err(error),
        }
    }

    /// Sends a call and takes no other status.
    async fn expect(&self, call: Call<'_>, status: StatusCode) -> Result<Opened, RunnerError> {
        let opened = self.open(call).await?;
        if opened.status == status { Ok(opened) } else { Err(opened.answer.into_error(opened.status.as_u16()).await) }
    }

    /// Sends a call on a line that is kept, or else on a new one.
    async fn open(&self, call: Call<'_>) -> Result<Opened, RunnerError> {
        let timeout = call.head_timeout;
        let work = async {
            let mut request = call.request()?;
            let mut is_repeated = false;
            if let Some(line) = self.0.kept().await {
                match self.send_on(line, request).await {
                    Ok(opened) => return Ok(opened),
                    Err(SendError::NotSent(unsent, _)) => request = *unsent,
                    Err(SendError::Broken(error)) if call.repeat == Repeat::Harmless && !error.is_parse() => {
                        request = call.request()?;
                        is_repeated = true;
                    }
                    Err(SendError::Broken(error)) => return Err(error.into()),
                }
            }
            match self.send_on(self.0.fresh().await?, request).await {
                Ok(opened) => Ok(Opened { is_repeated, ..opened }),
                Err(SendError::NotSent(_, error) | SendError::Broken(error)) => Err(error.into()),
            }
        };
        match tokio::time::timeout(timeout, work).await {
            Ok(opened) => opened,
            Err(_) => Err(RunnerError::Lost(format!("no answer within {} seconds", timeout.as_secs()))),
        }
    }

    async fn send_on(&self, mut line: Line, request: Request<Outgoing>) -> Result<Opened, SendError> {
        let (head, body) = line.send(request).await?.into_parts();
        let answer = Answer::new(line, body, self.0.clone());
        Ok(Opened { status: head.status, headers: head.headers, answer, is_repeated: false })
    }

    #[cfg(test)]
    fn lines_at_rest(&self) -> usize {
        self.0.at_rest()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdOrigin {
    Client,
    Ours,
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
