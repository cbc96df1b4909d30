//! `GET`, `HEAD` and `PUT …/files/{path}`: raw bytes of any number, passed on as they come.
//!
//! A name and a content that anybody may have written go to browsers too: so nothing is ever shown inline, guessed at, or run.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HeaderValue, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use shared_protocol::runner::WroteView;

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::intake::Intake;
use super::target::{Params, file_path, session_id};
use crate::metrics::Metrics;
use crate::runner_client::{FileAnswer, FileCall, Outgoing, RunnerError};
use crate::session::{Activity, SessionError};

/// Of a file's name in an answer's head.
const MAX_NAME_BYTES: usize = 255;

pub async fn get(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let path = file_path(request.uri())?;
    let activity = state.sessions.get(&session_id(request.uri())?)?.begin().await?;
    read(&state, activity, &path, request).await
}

pub async fn put(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let path = file_path(request.uri())?;
    let activity = state.sessions.get(&session_id(request.uri())?)?.begin().await?;
    write(&state, activity, &path, request).await
}

/// Answers a `GET` or `HEAD` with the file's bytes, or the part of them that `Range` names.
pub async fn read(state: &ApiState, activity: Activity, path: &[u8], request: Request) -> Result<Response, ApiError> {
    Params::parse(request.uri(), &[])?;
    let is_head = request.method() == Method::HEAD;
    let range = request.headers().get(RANGE).filter(|_| !is_head).cloned();
    let call = FileCall::new(Method::GET, "files").with("path", path).with_range(range);
    let file = in_session(&activity, activity.runner().forward(call)).await?;
    let (length, part) = (file.length, file.part);
    let mut response = match is_head {
        // The runner knows no HEAD: it is asked for the file, and hung up on.
        true => Body::empty().into_response(),
        false => stream(activity, file, state.metrics.clone()),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, disposition(path));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(part) = part {
        let range = format!("bytes {}-{}/{}", part.first, part.last, part.size);
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(range).unwrap_or(HeaderValue::from_static("bytes */*")));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// Writes a request's body to a file: all of it, or nothing.
pub async fn write(state: &ApiState, activity: Activity, path: &[u8], request: Request) -> Result<Response, ApiError> {
    let params = Params::parse(request.uri(), &["mode"])?;
    let mut call = FileCall::new(Method::PUT, "files").with("path", path);
    if let Some(mode) = params.get("mode") {
        call = call.with("mode", mode);
    }
    let wrote = send_body(&activity, call, request.into_body()).await?;
    state.metrics.bytes_in(wrote.bytes);
    Ok((StatusCode::CREATED, axum::Json(wrote)).into_response())
}

/// Passes a request's body on with a call. Where the runner refuses it, the rest is read all the same, so that the client gets
/// to the answer.
pub async fn send_body(activity: &Activity, call: FileCall, body: Body) -> Result<WroteView, ApiError> {
    let (intake, passing) = Intake::new(body);
    let call = call.with_body(Outgoing::stream(passing));
    let wrote = in_session(activity, async { activity.runner().forward(call).await?.document().await }).await;
    if wrote.is_err() {
        intake.drain().await;
    }
    wrote
}

/// `attachment`, with the last part of the path as a name that no header can be broken with.
fn disposition(path: &[u8]) -> HeaderValue {
    let name = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).unwrap_or(b"file");
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    let encoded = percent_encode(name, NON_ALPHANUMERIC);
    HeaderValue::try_from(format!("attachment; filename*=UTF-8''{encoded}"))
        .unwrap_or(HeaderValue::from_static("attachment"))
}

/// An answer's body that is a runner's.
pub fn stream(activity: Activity, file: FileAnswer, metrics: Metrics) -> Response {
    let ended = Box::pin(activity.ended());
    Body::new(FileBody { ended, file, metrics, _activity: activity }).into_response()
}

/// Bytes from the runner to the client, pulled by the client. An error cuts the connection, so that half a file is never
/// taken for a whole one.
struct FileBody {
    file: FileAnswer,
    ended: Pin<Box<dyn Future<Output = SessionError> + Send>>,
    metrics: Metrics,
    /// Keeps the session from expiring.
    _activity: Activity,
}

#[derive(Debug, thiserror::Error)]
enum CutError {
    #[error(transparent)]
    Runner(RunnerError),
    #[error(transparent)]
    Session(SessionError),
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.file.poll_chunk(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.metrics.bytes_out(bytes.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(CutError::Runner(error).into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.ended.as_mut().poll(cx).map(|error| Some(Err(CutError::Session(error).into()))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.file.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_shown_as_a_name_and_nothing_else() {
        let shown = |path: &[u8]| disposition(path).to_str().unwrap().to_owned();
        assert_eq!(shown(b"/a/report 1.pdf"), "attachment; filename*=UTF-8''report%201%2Epdf");
        assert_eq!(shown(b"dir/"), "attachment; filename*=UTF-8''dir");
        assert_eq!(shown(b"/"), "attachment; filename*=UTF-8''file");
        assert_eq!(
            shown(b"x\r\nSet-Cookie: a=b\xff"),
            "attachment; filename*=UTF-8''x%0D%0ASet%2DCookie%3A%20a%3Db%FF"
        );
    }

    proptest! {
        #[test]
        fn no_name_breaks_out_of_its_header(path in proptest::collection::vec(any::<u8>(), 0..400)) {
            let header = disposition(&path);
            let rest = header.to_str().unwrap().strip_prefix("attachment; filename*=UTF-8''").unwrap();
            prop_assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'));
        }
    }
}
