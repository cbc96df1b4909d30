//! Files and archives as response bodies.
//!
//! Anybody may have written a file's name and content, and browsers read responses too. So the headers keep a browser from
//! showing a file inline, guessing its type, or running it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::Stream as _;
use http_body::{Frame, SizeHint};
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use crate::service::CallError;
use crate::service::files::{FileContent, SandboxPath};

/// The longest file name in a response header.
const MAX_NAME_BYTES: usize = 255;

/// Answers with a file, or a part of it.
pub fn file_body(path: &SandboxPath, content: FileContent) -> Response {
    let head = FileHead::of(&content);
    head.with(path, Body::new(FileBody(content)))
}

/// Answers with the headers of a file and no body.
pub fn file_head(path: &SandboxPath, content: &FileContent) -> Response {
    FileHead::of(content).with(path, Body::empty())
}

/// Answers with a tar stream.
pub fn archive_body(content: FileContent) -> Response {
    let mut response = Body::new(FileBody(content)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The headers that depend on the content.
struct FileHead {
    length: Option<u64>,
    /// The `Content-Range` header, if the content is a part of the file.
    part: Option<String>,
}

impl FileHead {
    fn of(content: &FileContent) -> Self {
        let part = content.part().map(|part| format!("bytes {}-{}/{}", part.first, part.last, part.size));
        Self { length: content.length(), part }
    }

    fn with(self, path: &SandboxPath, body: Body) -> Response {
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(CONTENT_DISPOSITION, disposition(path.as_bytes()));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(length) = self.length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        if let Some(part) = self.part {
            headers.insert(CONTENT_RANGE, HeaderValue::try_from(part).unwrap_or(HeaderValue::from_static("bytes */*")));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }
}

/// The `Content-Disposition` header: `attachment`, with the last part of the path as the name. Escapes keep the name from
/// breaking out of the header.
fn disposition(path: &[u8]) -> HeaderValue {
    let name = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).unwrap_or(b"file");
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    let encoded = percent_encode(name, NON_ALPHANUMERIC);
    HeaderValue::try_from(format!("attachment; filename*=UTF-8''{encoded}"))
        .unwrap_or(HeaderValue::from_static("attachment"))
}

/// A file's bytes as a response body, read as fast as the client takes them. An error cuts the connection, so a client never
/// takes half a file for a whole one.
struct FileBody(FileContent);

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        Pin::new(&mut self.0).poll_next(cx).map_ok(Frame::data)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.length().map_or_else(SizeHint::default, SizeHint::with_exact)
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
