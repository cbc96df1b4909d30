//! A file's content as a JSON document. The document is written while the bytes arrive, so a file of any size fits.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::api::error::ApiError;
use crate::service::CallError;
use crate::service::files::{FileContent, SandboxPath};

/// Answers with a document that contains at most `max_bytes` of the file.
pub fn file_document(path: &SandboxPath, content: FileContent, max_bytes: u64) -> Result<Response, ApiError> {
    let shown = serde_json::to_string(&String::from_utf8_lossy(path.as_bytes()))
        .map_err(|error| ApiError::invalid(format!("the path cannot be shown: {error}")))?;
    let reading = Reading { content, document: Document::new(&shown, max_bytes), is_over: false };
    let pieces = futures_util::stream::unfold(reading, async |mut reading: Reading| {
        let next = reading.next().await?;
        Some((next, reading))
    });
    let mut response = Body::from_stream(pieces).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

struct Reading {
    content: FileContent,
    document: Document,
    is_over: bool,
}

impl Reading {
    /// Returns the next bytes of the document. An error cuts the document off, so a client never takes half a file for a
    /// whole one.
    async fn next(&mut self) -> Option<Result<Bytes, CallError>> {
        if self.is_over {
            return None;
        }
        match self.content.next().await {
            Some(Err(error)) => {
                self.is_over = true;
                return Some(Err(error));
            }
            Some(Ok(bytes)) => self.is_over = self.document.push(&bytes),
            None => {
                self.is_over = true;
                self.document.end();
            }
        }
        Some(Ok(self.document.take()))
    }
}

/// Builds the document piece by piece. Pure.
struct Document {
    text: Vec<u8>,
    /// One or two bytes that do not yet fill a base64 group of three.
    pending: Vec<u8>,
    left: u64,
}

impl Document {
    /// Begins a document. `path` is already JSON.
    fn new(path: &str, max_bytes: u64) -> Self {
        let text = format!("{{\"path\":{path},\"content_base64\":\"").into_bytes();
        Self { text, pending: Vec::new(), left: max_bytes }
    }

    /// Adds bytes. Returns true if the document cannot take all of them; then it is complete.
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
