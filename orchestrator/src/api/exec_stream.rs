//! `POST …/exec/stream`, and every other answer that is a stream of an exec's events.
//!
//! The answer's body is pulled by the connection to the client: nothing runs ahead of it, so a slow client holds the runner
//! back and not the daemon's memory. It ends with `done` or `error`; the session is in use until then.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::HeaderMap;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use shared_protocol::api::ApiExecRequest;

use super::ApiState;
use super::alive::{explain, in_session};
use super::error::ApiError;
use super::events::{Encoder, Format};
use super::exec::{Asked, done};
use super::extract::{ApiJson, SessionPath};
use super::output::Splitter;
use super::target::invalid;
use crate::metrics::Metrics;
use crate::runner_client::{Frame, FrameStream, RunnerError};
use crate::session::{Activity, SessionError, SessionHandle};

/// How often a silent stream says that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events that are there already go out together up to this size.
const BATCH_BYTES: usize = 64 << 10;

/// Given with the head, so that a client can reattach to a command that is still queued.
pub const EXEC_ID_HEADER: HeaderName = HeaderName::from_static("x-cove-exec-id");

/// Tells proxies of the nginx kind not to collect the stream.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub async fn exec_stream(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    ApiJson(request): ApiJson<ApiExecRequest>,
) -> Result<Response, ApiError> {
    let handle = state.sessions.get(&id)?;
    let activity = handle.begin().await?;
    let asked = Asked::new(request, &state.config.exec)?;
    if asked.detach {
        return Err(invalid("detach has no stream; use exec, and follow the command at execs/{exec_id}"));
    }
    let frames = in_session(&activity, activity.runner().exec(&asked.request)).await?;
    let follow =
        Follow { format: Format::wanted(&headers), sets_cwd: asked.is_in_main(), counts: Some(state.metrics.clone()) };
    Ok(stream(handle, activity, frames, follow))
}

/// How a stream is told, and what its end changes.
pub struct Follow {
    pub format: Format,
    /// Whether the directory at its end is the session's.
    pub sets_cwd: bool,
    /// Where its end is counted; nowhere for one that is only looked at again.
    pub counts: Option<Metrics>,
}

/// The answer that tells an exec's events as they come.
pub fn stream(handle: SessionHandle, activity: Activity, frames: FrameStream, follow: Follow) -> Response {
    let format = follow.format;
    let exec_id = frames.exec_id().clone();
    let mut encoder = Encoder::new(format, frames.offset());
    encoder.started(&exec_id);
    let live = Live {
        ended: Box::pin(activity.ended()),
        handle,
        activity,
        frames,
        follow,
        encoder,
        splitter: Splitter::default(),
        has_gaps: false,
        is_over: false,
        began: Instant::now(),
    };
    let body = Body::from_stream(futures_util::stream::unfold(live, Live::next));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    if let Ok(id) = HeaderValue::from_str(exec_id.as_str()) {
        headers.insert(EXEC_ID_HEADER, id);
    }
    response
}

/// A stream that is being told.
struct Live {
    handle: SessionHandle,
    /// Keeps the session from expiring.
    activity: Activity,
    ended: Pin<Box<dyn Future<Output = SessionError> + Send>>,
    frames: FrameStream,
    follow: Follow,
    encoder: Encoder,
    splitter: Splitter,
    has_gaps: bool,
    is_over: bool,
    began: Instant,
}

impl Live {
    /// The next bytes of the body: whole events, and all that are there.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        while !self.is_over && self.encoder.len() < BATCH_BYTES {
            // What has been read already, and of what has not, only what is there: an event does not wait for the next.
            let frame = match self.frames.next_at_hand() {
                Ok(None) if self.encoder.is_empty() => self.wait().await,
                Ok(None) => match self.frames.next().now_or_never() {
                    Some(frame) => Some(frame),
                    None => break,
                },
                at_hand => Some(at_hand),
            };
            if let Some(frame) = frame {
                self.take(frame);
            }
        }
        (!self.encoder.is_empty()).then(|| (Ok(self.encoder.take()), self))
    }

    /// Waits for a frame; `None` where something else has been said meanwhile.
    async fn wait(&mut self) -> Option<Result<Option<Frame>, RunnerError>> {
        tokio::select! {
            biased;
            frame = self.frames.next() => return Some(frame),
            error = &mut self.ended => self.fail(error.into()),
            () = tokio::time::sleep(KEEP_ALIVE) => self.encoder.keep_alive(),
        }
        None
    }

    fn take(&mut self, frame: Result<Option<Frame>, RunnerError>) {
        match frame {
            Ok(Some(Frame::Output { stream, offset, data })) => {
                let now = now_ms();
                for piece in self.splitter.push(stream, offset, data) {
                    self.encoder.chunk(piece, now);
                }
            }
            Ok(Some(Frame::Gap { offset, bytes })) => {
                self.flush();
                self.has_gaps = true;
                self.encoder.gap(offset, bytes);
            }
            Ok(Some(Frame::AwaitingInput)) => {
                self.flush();
                self.encoder.awaiting_input();
            }
            Ok(Some(Frame::Exit(outcome))) => {
                self.flush();
                if let (true, Some(cwd)) = (self.follow.sets_cwd, &outcome.cwd) {
                    self.activity.set_cwd(cwd);
                }
                if let Some(metrics) = &self.follow.counts {
                    metrics.exec_finished(outcome.kind, self.began.elapsed().as_secs_f64());
                    metrics.bytes_out(outcome.output_bytes);
                }
                let handle = &self.handle;
                self.encoder.done(done(outcome, self.has_gaps, || handle.view().cwd));
                self.is_over = true;
            }
            // The client was told when the command was taken.
            Ok(Some(Frame::Started { .. } | Frame::Error(_))) => {}
            Ok(None) => {
                self.flush();
                self.is_over = true;
            }
            Err(error) => {
                let error = explain(&self.activity, error, &mut self.ended);
                self.fail(error);
            }
        }
    }

    fn flush(&mut self) {
        if let Some(piece) = self.splitter.flush() {
            self.encoder.chunk(piece, now_ms());
        }
    }

    fn fail(&mut self, error: ApiError) {
        self.flush();
        self.encoder.error(error.0);
        self.is_over = true;
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
