//! A complete answer of a server: status, headers and body.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use serde_json::Value;
use shared_protocol::{ErrorBody, ErrorCode};

use crate::wait::DEADLINE;

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Reads the body of an answer whose head has arrived.
    pub async fn read(response: Response<Incoming>) -> anyhow::Result<Self> {
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(DEADLINE, body.collect()).await??.to_bytes();
        Ok(Self { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Parses bytes from a raw socket. `None` while bytes are missing; an answer without a length has no body.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, _) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let start = head.len() + 4;
        let body = bytes.get(start..start + length.unwrap_or(0))?;
        Some(Self { status, headers: HeaderMap::new(), body: Bytes::copy_from_slice(body) })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{} is not JSON ({e}): {}", self.status, self.text()))
    }

    /// The body of an answer that must be a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        self.json()
    }

    /// The error of an answer that must be one: an error body with the status of its code.
    #[track_caller]
    pub fn error(&self) -> ErrorBody {
        let error: ErrorBody = serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{} without an error body ({e}): {}", self.status, self.text()));
        assert!(!error.message.is_empty(), "an error without a message");
        assert_eq!(self.status, error.error_code.http_status(), "{}", self.text());
        error
    }

    /// The code of an answer that must be an error.
    #[track_caller]
    pub fn refused(&self) -> ErrorCode {
        self.error().error_code
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
