//! One answer of the daemon, as it came.

use bytes::Bytes;
use hyper::HeaderMap;
use serde_json::Value;
use shared_protocol::{ErrorBody, ErrorCode};

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// From its bytes, once they are all there; without a length it has no body.
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

    /// The code of an answer that must be an error in the one shape, with the status of that code.
    #[track_caller]
    pub fn refused(&self) -> ErrorCode {
        let error: ErrorBody = serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{} without an error body ({e}): {}", self.status, self.text()));
        assert!(!error.message.is_empty(), "an error without a message");
        assert_eq!(self.status, error.error_code.http_status(), "{}", self.text());
        error.error_code
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
