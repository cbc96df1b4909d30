//! Files and archives: bytes that are passed on as they come, in both directions, and never kept.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};
use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::de::DeserializeOwned;

use super::answer::Answer;
use super::line::SendError;
use super::outgoing::Outgoing;
use super::{RunnerClient, RunnerError, request};

/// How long an answer may be awaited while no byte of the request moves. The runner itself gives a client that sends nothing
/// 300 seconds, and a helper that does nothing 30.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(360);

/// What stands for itself in a query; a path keeps its slashes, so that logs stay readable.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// A file call as a runner has it. Paths are bytes.
pub struct FileCall {
    method: Method,
    target: String,
    range: Option<HeaderValue>,
    body: Outgoing,
}

impl FileCall {
    /// `route` is what follows `/v1/`.
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

    /// A part of the file, as the client said it; the runner refuses what it cannot read.
    #[must_use]
    pub fn with_range(mut self, range: Option<HeaderValue>) -> Self {
        self.range = range;
        self
    }

    #[must_use]
    pub fn with_body(mut self, body: Outgoing) -> Self {
        self.body = body;
        self
    }
}

/// The part of a file that an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub first: u64,
    pub last: u64,
    pub size: u64,
}

/// An answer that is not an error.
pub struct FileAnswer {
    /// Where it was announced; hyper cuts an answer that has another length.
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
    /// Passes a file call on. The answer is 200 for what was asked for, 206 for a part of it, 201 for what was made.
    pub async fn forward(&self, call: FileCall) -> Result<FileAnswer, RunnerError> {
        let progress = call.body.progress();
        let is_part = call.range.is_some();
        let is_made =
            matches!((&call.method, &call.body), (&Method::PUT, _)) || call.target.starts_with("/v1/fs/mkdir");
        let mut request = request(call.method, &call.target, call.body)?;
        if let Some(range) = call.range {
            request.headers_mut().insert(RANGE, range);
        }
        let work = async {
            if let Some(line) = self.0.kept().await {
                match self.send_on(line, request).await {
                    Ok(opened) => return Ok(opened),
                    // Its body cannot be read twice, so it is sent anew only if none of it was.
                    Err(SendError::NotSent(unsent, _)) => request = *unsent,
                    Err(SendError::Broken(error)) => return Err(error.into()),
                }
            }
            match self.send_on(self.0.fresh().await?, request).await {
                Ok(opened) => Ok(opened),
                Err(SendError::NotSent(_, error) | SendError::Broken(error)) => Err(RunnerError::from(error)),
            }
        };
        tokio::pin!(work);
        let mut sent = progress.get();
        let opened = loop {
            match tokio::time::timeout(STALL_TIMEOUT, &mut work).await {
                Ok(opened) => break opened?,
                Err(_) if progress.get() == sent => return Err(stalled()),
                Err(_) => sent = progress.get(),
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

/// `bytes a-b/size`, where the numbers fit each other and the length.
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
