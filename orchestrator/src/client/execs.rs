//! Calls for commands and programs: start, follow, signal.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, HeaderValue};
use serde::Serialize;
use shared_protocol::api::{ApiExecRequest, ApiExecView, ApiRunRequest, DetachedView, ExecReply, OkView, RunReply};
use shared_protocol::runner::{MAX_PAGE_EXECS, SignalRequest, StdinView};
use shared_protocol::{ExecId, SessionId};

use super::sessions::session_path;
use super::{Body, Client, ClientError, FrameReader, ReplyTimeout, empty, full, post_request, request};

/// The most execs of one session that are listed.
const MAX_EXECS: usize = 100_000;

/// What follows the bytes of one write to standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputEnd {
    More,
    Close,
}

impl Client {
    pub async fn exec(&self, session: &SessionId, wanted: &ApiExecRequest) -> Result<ExecReply, ClientError> {
        let request = post_request(&session_path(session, "exec"), wanted)?;
        self.document(request, ReplyTimeout::None).await
    }

    pub async fn exec_detached(
        &self,
        session: &SessionId,
        wanted: &ApiExecRequest,
    ) -> Result<DetachedView, ClientError> {
        self.post(&session_path(session, "exec"), wanted).await
    }

    pub async fn exec_stream(&self, session: &SessionId, wanted: &ApiExecRequest) -> Result<FrameReader, ClientError> {
        self.stream(&session_path(session, "exec/stream"), wanted).await
    }

    /// Follows the output of an exec or a run from an offset on, to its end.
    pub async fn reattach(&self, session: &SessionId, exec: &ExecId, from: u64) -> Result<FrameReader, ClientError> {
        let path = session_path(session, &format!("execs/{exec}?from={from}&follow=1"));
        self.frames(request(Method::GET, &path, empty())?).await
    }

    pub async fn run(&self, session: &SessionId, wanted: &ApiRunRequest) -> Result<RunReply, ClientError> {
        let request = post_request(&session_path(session, "run"), wanted)?;
        self.document(request, ReplyTimeout::None).await
    }

    pub async fn run_detached(&self, session: &SessionId, wanted: &ApiRunRequest) -> Result<DetachedView, ClientError> {
        self.post(&session_path(session, "run"), wanted).await
    }

    /// The commands and runs that the session remembers, the oldest first.
    pub async fn execs(&self, session: &SessionId) -> Result<Vec<ApiExecView>, ClientError> {
        let mut execs: Vec<ApiExecView> = Vec::new();
        loop {
            let after = execs.last().map(|last| format!("&after={}", last.exec_id)).unwrap_or_default();
            let path = session_path(session, &format!("execs?limit={MAX_PAGE_EXECS}{after}"));
            let page: Vec<ApiExecView> = self.get(&path).await?;
            let is_last = page.len() < MAX_PAGE_EXECS;
            execs.extend(page);
            if is_last || execs.len() >= MAX_EXECS {
                return Ok(execs);
            }
        }
    }

    pub async fn run_stream(&self, session: &SessionId, wanted: &ApiRunRequest) -> Result<FrameReader, ClientError> {
        self.stream(&session_path(session, "run/stream"), wanted).await
    }

    /// Writes to the open standard input of a run, and returns when the program has taken the bytes.
    pub async fn write_stdin(
        &self,
        session: &SessionId,
        exec: &ExecId,
        bytes: Bytes,
        end: InputEnd,
    ) -> Result<(), ClientError> {
        let close = u8::from(end == InputEnd::Close);
        let path = session_path(session, &format!("runs/{exec}/stdin?close={close}"));
        let request = request(Method::POST, &path, full(bytes))?;
        self.document::<StdinView>(request, ReplyTimeout::None).await.map(drop)
    }

    pub async fn signal(&self, session: &SessionId, exec: &ExecId, signal: &str) -> Result<(), ClientError> {
        let wanted = SignalRequest { signal: signal.to_owned(), shell: None, exec_id: Some(exec.clone()) };
        self.post::<OkView>(&session_path(session, "signal"), &wanted).await.map(drop)
    }

    async fn stream(&self, path: &str, wanted: &impl Serialize) -> Result<FrameReader, ClientError> {
        self.frames(post_request(path, wanted)?).await
    }

    async fn frames(&self, mut request: hyper::Request<Body>) -> Result<FrameReader, ClientError> {
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/x-ndjson"));
        let response = self.send(request, ReplyTimeout::None).await?;
        Ok(FrameReader::new(response.into_body()))
    }
}
