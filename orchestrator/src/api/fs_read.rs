//! `GET …/fs/read`: a file's content in a JSON document, made as the bytes come, so that no file is too large for it.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::target::{Params, invalid};
use crate::runner_client::{FileAnswer, FileCall, RunnerError};
use crate::session::{Activity, SessionError};

pub async fn read_in(state: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let params = Params::parse(request.uri(), &["path", "max_bytes"])?;
    let path = params.path("path")?;
    let max_bytes = params.number("max_bytes")?.unwrap_or(u64::MAX);
    let shown = serde_json::to_string(&String::from_utf8_lossy(&path))
        .map_err(|error| invalid(format!("the path cannot be shown: {error}")))?;
    let call = FileCall::new(Method::GET, "files").with("path", &path);
    let file = in_session(&activity, activity.runner().forward(call)).await?;
    let metrics = state.metrics.clone();
    let reading = Reading { activity, file, document: Document::new(&shown, max_bytes), is_over: false };
    let chunks = futures_util::stream::unfold(reading, move |mut reading| {
        let metrics = metrics.clone();
        async move {
            let next = reading.next().await?;
            metrics.bytes_out(next.as_ref().map_or(0, |bytes| bytes.len() as u64));
            Some((next, reading))
        }
    });
    let mut response = Body::from_stream(chunks).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

struct Reading {
    activity: Activity,
    file: FileAnswer,
    document: Document,
    is_over: bool,
}

#[derive(Debug, thiserror::Error)]
enum CutError {
    #[error(transparent)]
    Runner(#[from] RunnerError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Never(#[from] Infallible),
}

impl Reading {
    /// An error cuts the document off, so that half a file is never taken for a whole one.
    async fn next(&mut self) -> Option<Result<Bytes, CutError>> {
        if self.is_over {
            return None;
        }
        let chunk = tokio::select! {
            biased;
            chunk = self.file.chunk() => chunk,
            error = self.activity.ended() => return self.cut(error.into()),
        };
        match chunk {
            Some(Err(error)) => self.cut(error.into()),
            Some(Ok(bytes)) => {
                self.is_over = self.document.push(&bytes);
                Some(Ok(self.document.take()))
            }
            None => {
                self.is_over = true;
                self.document.end();
                Some(Ok(self.document.take()))
            }
        }
    }

    fn cut(&mut self, error: CutError) -> Option<Result<Bytes, CutError>> {
        self.is_over = true;
        Some(Err(error))
    }
}

/// The document, piece by piece. Pure.
struct Document {
    text: Vec<u8>,
    /// One or two bytes that do not fill a group of base64 yet.
    pending: Vec<u8>,
    left: u64,
}

impl Document {
    /// `path` is JSON already.
    fn new(path: &str, max_bytes: u64) -> Self {
        let text = format!("{{\"path\":{path},\"content_base64\":\"").into_bytes();
        Self { text, pending: Vec::new(), left: max_bytes }
    }

    /// Adds bytes; true where that was more than the document may have, and it is over.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let is_truncated = wanted < bytes.len();
        self.left -= wanted as u64;
        self.pending.extend_from_slice(&bytes[..wanted]);
        let whole = self.pending.len() / 3 * 3;
        self.text.extend_from_slice(STANDARD.encode(&self.pending[..whole]).as_bytes());
        self.pending.drain(..whole);
        if is_truncated {
            self.close("true");
        }
        is_truncated
    }

    fn end(&mut self) {
        self.close("false");
    }

    fn close(&mut self, truncated: &str) {
        self.text.extend_from_slice(STANDARD.encode(&self.pending).as_bytes());
        self.text.extend_from_slice(format!("\",\"truncated\":{truncated}}}").as_bytes());
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.text).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shared_protocol::api::FsReadView;

    fn read(max_bytes: u64, chunks: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut document = Document::new("\"p\\\"\"", max_bytes);
        let mut text = Vec::new();
        let is_truncated = chunks.iter().any(|chunk| {
            let is_over = document.push(chunk);
            text.extend(document.take());
            is_over
        });
        if !is_truncated {
            document.end();
        }
        text.extend(document.take());
        let view: FsReadView = serde_json::from_slice(&text).unwrap();
        assert_eq!(view.path, "p\"");
        assert_eq!(view.truncated, is_truncated);
        (STANDARD.decode(view.content_base64).unwrap(), view.truncated)
    }

    #[test]
    fn an_empty_file_and_an_exact_limit_are_whole() {
        assert_eq!(read(10, &[]), (vec![], false));
        assert_eq!(read(3, &[b"abc"]), (b"abc".to_vec(), false));
        assert_eq!(read(2, &[b"abc"]), (b"ab".to_vec(), true));
        assert_eq!(read(0, &[b"abc"]), (vec![], true));
        assert_eq!(read(0, &[]), (vec![], false));
    }

    proptest! {
        #[test]
        fn however_it_comes_it_is_the_file(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..8),
            limit in 0u64..100,
        ) {
            let whole = chunks.concat();
            let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let (content, is_truncated) = read(limit, &slices);
            let expected = &whole[..whole.len().min(usize::try_from(limit).unwrap())];
            prop_assert_eq!(content, expected);
            prop_assert_eq!(is_truncated, (whole.len() as u64) > limit);
        }
    }
}
