//! What a client speaks, by the first bytes that it sends.
//!
//! ```text
//! 0x16                               TLS: the server name in the client hello
//! a word, a space, … HTTP/1.x        HTTP/1: the Host header, or the host in the target
//! PRI * HTTP/2.0                     HTTP/2 without TLS: the host is compressed in a later frame, and is not read
//! binary, any other text             other
//! ```
//!
//! The caller keeps the bytes, and calls again with all of them when there are more. It gets [`Reading::Incomplete`] only while
//! more bytes can change the answer: binary is clear at once, and a line of text at its end, since `SSH-2.0-name` could be a
//! method. A decision does not depend on how the bytes were split, and more bytes do not change it.
//!
//! Only the first request of a connection is read, and the next one may be for another host. A caller that must know it counts the
//! bytes of head and body, and reads what follows with a new [`FirstBytes`].

use crate::client_hello::{HANDSHAKE, HelloReader};
use crate::http_head::{Body, HeadScan, MAX_METHOD_BYTES, RequestHead, Scanned, Target};
use crate::{Authority, Malformed};

/// The most bytes that are looked at. A client that says nothing clear within them is refused.
pub const MAX_FIRST_BYTES: usize = 32 << 10;
/// The longest first line of an HTTP request.
const MAX_FIRST_LINE_BYTES: usize = 16 << 10;
/// Words that start an HTTP request and no other protocol in use.
const KNOWN_METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT"];
/// The start of the version at the end of a request line.
const HTTP_VERSION: &[u8] = b"HTTP/";
const HTTP2_LINE: &[u8] = b"PRI * HTTP/2.0";
/// A client hello in the format of SSL 2, which some servers still read: a length with the top bit set, the message type 1, and
/// the version 3.x. It has no server name.
const SSL2_CLIENT_HELLO: u8 = 1;
const TLS_MAJOR_VERSION: u8 = 3;

/// What a client speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// More bytes are needed.
    Incomplete,
    Tls {
        /// The name as it was sent. It is not empty, and is printable ASCII without spaces.
        server_name: Option<String>,
        /// Whether there is an encrypted second hello (ECH). The server may serve the name in there, and not `server_name`.
        /// Browsers also send random bytes there, which look the same.
        has_encrypted_hello: bool,
    },
    Http {
        method: String,
        host: Option<Authority>,
        /// The bytes of the request's head. The next request starts after them and the body.
        head_bytes: usize,
        body: Body,
    },
    /// The client takes the server for a proxy. The host in `authority` is not the one that it is connected to.
    HttpConnect { authority: Authority },
    /// HTTP/2 without TLS. Its host is not visible.
    Http2,
    /// Another protocol.
    Other,
    /// The client means TLS or HTTP, and does not say clearly which host it wants.
    Malformed(Malformed),
}

/// Reads the start of one connection.
#[derive(Debug, Default)]
pub struct FirstBytes {
    hello: HelloReader,
    head: HeadScan,
    /// The first line is that of an HTTP/1 request.
    is_http: bool,
    decided: Option<Reading>,
}

impl FirstBytes {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads everything that was received so far. Each call gets at least the bytes of the one before.
    pub fn read(&mut self, received: &[u8]) -> Reading {
        if let Some(reading) = &self.decided {
            return reading.clone();
        }
        let reading = self.decide(received);
        if reading != Reading::Incomplete {
            self.decided = Some(reading.clone());
        }
        reading
    }

    fn decide(&mut self, received: &[u8]) -> Reading {
        let bytes = received.get(..MAX_FIRST_BYTES).unwrap_or(received);
        let reading = match bytes {
            [] => Reading::Incomplete,
            [HANDSHAKE, ..] => self.tls(bytes),
            // Servers skip empty lines before a request.
            [b'\r' | b'\n', ..] => Reading::Malformed(Malformed("it starts with an empty line")),
            [0x80..=0xff, ..] => ssl2(bytes),
            _ => self.http(bytes),
        };
        if reading == Reading::Incomplete && bytes.len() == MAX_FIRST_BYTES {
            return Reading::Malformed(Malformed("the TLS client hello or the head of the HTTP request is too long"));
        }
        reading
    }

    fn tls(&mut self, bytes: &[u8]) -> Reading {
        match self.hello.read(bytes) {
            Ok(None) => Reading::Incomplete,
            Ok(Some(hello)) => {
                Reading::Tls { server_name: hello.server_name, has_encrypted_hello: hello.has_encrypted_hello }
            }
            Err(malformed) => Reading::Malformed(malformed),
        }
    }

    fn http(&mut self, bytes: &[u8]) -> Reading {
        if !self.is_http {
            if let Some(reading) = self.first_line(bytes) {
                return reading;
            }
            self.is_http = true;
        }
        match self.head.scan(bytes) {
            Scanned::InFirstLine | Scanned::InHeaders => Reading::Incomplete,
            Scanned::Binary => Reading::Malformed(Malformed("the head of the HTTP request has binary data in it")),
            Scanned::Head(end) => match head(bytes.get(..end).unwrap_or_default()) {
                Ok(reading) => reading,
                Err(malformed) => Reading::Malformed(malformed),
            },
        }
    }

    /// What the first line tells. `None` if it is that of an HTTP/1 request.
    fn first_line(&mut self, bytes: &[u8]) -> Option<Reading> {
        let word = match first_word(bytes) {
            FirstWord::Unfinished => return Some(Reading::Incomplete),
            FirstWord::NotAMethod => return Some(Reading::Other),
            FirstWord::Method(word) => word,
        };
        let not_http = match KNOWN_METHODS.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            true => Reading::Malformed(Malformed("it starts like an HTTP request, and is not a valid one")),
            false => Reading::Other,
        };
        match self.head.scan(bytes.get(..MAX_FIRST_LINE_BYTES).unwrap_or(bytes)) {
            Scanned::InFirstLine if self.head.scanned() < MAX_FIRST_LINE_BYTES => return Some(Reading::Incomplete),
            Scanned::InFirstLine | Scanned::Binary => return Some(not_http),
            Scanned::InHeaders | Scanned::Head(_) => {}
        }
        let line = bytes.get(..self.head.scanned()).unwrap_or_default().trim_ascii_end();
        if line == HTTP2_LINE {
            return Some(Reading::Http2);
        }
        // A request of an unknown method is HTTP too. The version tells it from lines of mail, chat and the like. An HTTP/0.9
        // request has no version; it has no host either, and is refused with the known methods.
        let has_version = line.windows(HTTP_VERSION.len()).any(|part| part.eq_ignore_ascii_case(HTTP_VERSION));
        (!has_version).then_some(not_http)
    }
}

enum FirstWord<'a> {
    Unfinished,
    NotAMethod,
    Method(&'a [u8]),
}

/// The word before the first space. White space of all kinds ends it, since some servers take tabs for spaces.
fn first_word(bytes: &[u8]) -> FirstWord<'_> {
    let end = bytes.iter().take(MAX_METHOD_BYTES + 1).position(|&byte| !is_token(byte));
    match end.map(|end| (end, bytes.split_at(end))) {
        None if bytes.len() <= MAX_METHOD_BYTES => FirstWord::Unfinished,
        Some((1.., (word, [b' ' | b'\t' | 0x0b | 0x0c, ..]))) => FirstWord::Method(word),
        _ => FirstWord::NotAMethod,
    }
}

/// A byte that RFC 9110 allows in a method.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

fn head(bytes: &[u8]) -> Result<Reading, Malformed> {
    let head = RequestHead::parse(bytes)?;
    let host = head.agreed_host()?;
    Ok(match head.target {
        Target::Connect { authority } => Reading::HttpConnect { authority },
        Target::Origin | Target::Absolute { .. } => {
            Reading::Http { method: head.method.to_owned(), host, head_bytes: bytes.len(), body: head.body }
        }
    })
}

/// What a first byte with the top bit set means.
fn ssl2(bytes: &[u8]) -> Reading {
    match bytes.get(2..) {
        Some([SSL2_CLIENT_HELLO, TLS_MAJOR_VERSION, ..]) => {
            Reading::Tls { server_name: None, has_encrypted_hello: false }
        }
        None | Some([] | [SSL2_CLIENT_HELLO]) => Reading::Incomplete,
        Some(_) => Reading::Other,
    }
}

#[cfg(test)]
#[path = "first_bytes_test.rs"]
mod tests;
