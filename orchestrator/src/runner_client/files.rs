//! Sends a file call to the runner. Bytes are passed on as they arrive, in both directions, and never stored.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};
use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::de::DeserializeOwned;

use super::answer::Answer;
use super::outgoing::Outgoing;
use super::{RunnerClient, RunnerError, request};

/// The longest wait for an answer while no byte of the request moves. The runner itself gives a client that sends nothing
/// 300 seconds, and a helper that does nothing 30.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(360);

/// How often the daemon looks whether a byte has moved.
const LOOK_TIME: Duration = Duration::from_secs(5);

/// The characters that need no escape in a query. A path keeps its slashes, so that logs stay readable.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// The requested part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first to the second offset, both included.
    Between(u64, u64),
    /// From an offset to the end.
    From(u64),
    /// The last bytes, this many.
    Last(u64),
}

impl std::fmt::Display for ByteRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Between(first, last) => write!(f, "bytes={first}-{last}"),
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::Last(count) => write!(f, "bytes=-{count}"),
        }
    }
}

/// A file call of the runner's API; `file_calls` has one method for each. Paths are bytes.
pub(super) struct FileCall {
    method: Method,
    target: String,
    range: Option<ByteRange>,
    body: Outgoing,
}

impl FileCall {
    /// Makes a call. `route` is the path after `/v1/`.
    pub fn new(method: Method, route: &str) -> Self {
        Self { method, target: format!("/v1/{route}"), range: None, body: Outgoing::empty() }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &[u8]) -> Self {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        self.target.push_str(name);
        self.target.push('=');
        self.target.extend(percent_encode(value, PLAIN));
        self
    }

    #[must_use]
    pub fn with_flag(self, name: &str, is_set: bool) -> Self {
        if is_set { self.with(name, b"1") } else { self }
    }

    #[must_use]
    pub fn with_range(mut self, range: Option<ByteRange>) -> Self {
        self.range = range;
        self
    }

    #[must_use]
    pub fn with_body(mut self, body: Outgoing) -> Self {
        self.body = body;
        self
    }
}

/// The part of a file that an answer contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub first: u64,
    pub last: u64,
    pub size: u64,
}

/// An answer that is not an error.
pub struct FileAnswer {
    /// The length, if the answer announces it. hyper cuts an answer that has a different length.
    pub length: Option<u64>,
    pub part: Option<Part>,
    answer: Answer,
}

impl FileAnswer {
    pub async fn document<T: DeserializeOwned>(self) -> Result<T, RunnerError> {
        match tokio::time::timeout(STALL_TIMEOUT, self.answer.document()).await {
            Ok(document) => document,
            Err(_) => Err(stalled()),
        }
    }

    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RunnerError>>> {
        self.answer.poll_chunk(cx)
    }

    pub async fn chunk(&mut self) -> Option<Result<Bytes, RunnerError>> {
        self.answer.chunk().await
    }
}

fn stalled() -> RunnerError {
    RunnerError::Lost(format!("nothing moved for {} seconds", STALL_TIMEOUT.as_secs()))
}

impl RunnerClient {
    /// Sends a file call. The answer is 200 for content, 206 for a part of it, and 201 for something that was created.
    pub(super) async fn send_file_call(&self, call: FileCall) -> Result<FileAnswer, RunnerError> {
        let progress = call.body.progress();
        let is_part = call.range.is_some();
        let is_made =
            matches!((&call.method, &call.body), (&Method::PUT, _)) || call.target.starts_with("/v1/fs/mkdir");
        let mut request = request(call.method, &call.target, call.body)?;
        if let Some(range) = call.range.and_then(|range| HeaderValue::try_from(range.to_string()).ok()) {
            request.headers_mut().insert(RANGE, range);
        }
        let work = self.send_streamed(request);
        tokio::pin!(work);
        let (mut sent, mut still) = (progress.get(), Duration::ZERO);
        let opened = loop {
            if let Ok(opened) = tokio::time::timeout(LOOK_TIME, &mut work).await {
                break self.noted(opened)?;
            }
            if progress.get() != sent {
                (sent, still) = (progress.get(), Duration::ZERO);
                continue;
            }
            // Nothing moved. The runner may wait for the client or for a slow disk, or may not answer at all.
            self.pulse().doubt();
            still += LOOK_TIME;
            if still >= STALL_TIMEOUT {
                return Err(stalled());
            }
        };
        let expected = match (is_made, is_part) {
            (true, _) => StatusCode::CREATED,
            (false, true) => StatusCode::PARTIAL_CONTENT,
            (false, false) => StatusCode::OK,
        };
        if opened.status != expected {
            let error = opened.answer.into_error(opened.status.as_u16());
            return Err(tokio::time::timeout(STALL_TIMEOUT, error).await.unwrap_or_else(|_| stalled()));
        }
        let length = announced(&opened.headers);
        let part = match is_part {
            true => Some(part(&opened.headers, length).ok_or_else(|| RunnerError::hostile("a part that is none"))?),
            false => None,
        };
        Ok(FileAnswer { length, part, answer: opened.answer })
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Parses `bytes a-b/size`, and checks that the numbers are consistent with each other and with the length.
fn part(headers: &HeaderMap, length: Option<u64>) -> Option<Part> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let (range, size) = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let part = Part { first: number(first)?, last: number(last)?, size: number(size)? };
    let is_right = part.first <= part.last && part.last < part.size && length == Some(part.last - part.first + 1);
    is_right.then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_can_be_asked_for() {
        let call = FileCall::new(Method::GET, "files").with("path", b"/a b\n\xff%+&=?#/").with_flag("recursive", true);
        assert_eq!(call.target, "/v1/files?path=/a%20b%0A%FF%25%2B%26%3D%3F%23/&recursive=1");
        assert!(request(call.method, &call.target, Outgoing::empty()).is_ok());
    }

    #[test]
    fn a_range_is_written_as_the_header_has_it() {
        let ranges = [ByteRange::Between(2, 4), ByteRange::From(5), ByteRange::Last(6)];
        assert_eq!(ranges.map(|range| range.to_string()), ["bytes=2-4", "bytes=5-", "bytes=-6"]);
    }

    #[test]
    fn a_part_must_be_of_the_length_it_says() {
        let read = |range: &str, length| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_RANGE, HeaderValue::from_str(range).unwrap());
            part(&headers, Some(length))
        };
        assert_eq!(read("bytes 2-4/9", 3), Some(Part { first: 2, last: 4, size: 9 }));
        for (range, length) in [
            ("bytes 2-4/9", 4),
            ("bytes 4-2/9", 3),
            ("bytes 2-9/9", 8),
            ("bytes */9", 3),
            ("bytes +2-4/9", 3),
            ("2-4/9", 3),
            ("bytes 0-18446744073709551615/18446744073709551615", 0),
        ] {
            assert_eq!(read(range, length), None, "{range}");
        }
    }
}
