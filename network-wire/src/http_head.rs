//! The head of an HTTP/1 request: where it ends, whom it is for, and how long its body is.
//!
//! `httparse` reads the grammar. This file refuses what servers understand in different ways: several hosts, a target that
//! contradicts the Host header, two lengths of the body.

use crate::Malformed;
use crate::authority::Authority;

/// The longest word that is taken for a method.
pub const MAX_METHOD_BYTES: usize = 32;
/// The most header fields of a request.
const MAX_HEADERS: usize = 100;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Finds the end of a head. It remembers how far it looked, so each byte is looked at once.
#[derive(Debug, Default)]
pub struct HeadScan {
    scanned: usize,
    /// The bytes of the line so far, without CR.
    line: usize,
    is_after_first_line: bool,
}

/// What a scan came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanned {
    /// The first line is not whole.
    InFirstLine,
    /// The first line is whole, and the head is not.
    InHeaders,
    /// The head ends after this many bytes.
    Head(usize),
    /// There is a byte that no head has.
    Binary,
}

impl HeadScan {
    /// Looks at what is new. It stops once after the first line, so that the caller can look at that alone.
    pub fn scan(&mut self, received: &[u8]) -> Scanned {
        for &byte in received.get(self.scanned..).unwrap_or_default() {
            match byte {
                b'\n' => {
                    self.scanned += 1;
                    let is_blank = std::mem::take(&mut self.line) == 0;
                    if !std::mem::replace(&mut self.is_after_first_line, true) {
                        return Scanned::InHeaders;
                    }
                    if is_blank {
                        return Scanned::Head(self.scanned);
                    }
                    continue;
                }
                b'\r' => {}
                b'\t' | b' '..=b'~' | 0x80.. => self.line += 1,
                _ => return Scanned::Binary,
            }
            self.scanned += 1;
        }
        if self.is_after_first_line { Scanned::InHeaders } else { Scanned::InFirstLine }
    }

    /// How far it looked.
    pub const fn scanned(&self) -> usize {
        self.scanned
    }
}

/// The host that the target of a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `/path` or `*`.
    Origin,
    /// `http://host/path`, with the text after the host.
    Absolute { scheme: Scheme, authority: Authority, path: String },
    /// `CONNECT host:port`.
    Connect { authority: Authority },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => HTTP_PORT,
            Self::Https => HTTPS_PORT,
        }
    }
}

/// How long the body after a head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// This many bytes; 0 if there is none.
    Bytes(u64),
    /// Chunks, up to the empty one.
    Chunked,
}

/// A whole head.
#[derive(Debug)]
pub struct RequestHead<'a> {
    pub method: &'a str,
    /// The minor version: 0 or 1.
    pub minor_version: u8,
    pub target: Target,
    /// The Host header.
    pub host: Option<Authority>,
    pub body: Body,
    pub fields: Vec<(&'a str, &'a [u8])>,
}

impl<'a> RequestHead<'a> {
    /// Reads a head that `HeadScan` found, with the blank line at its end.
    pub fn parse(head: &'a [u8]) -> Result<Self, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(head).map_err(|error| match error {
            httparse::Error::TooManyHeaders => Malformed("the HTTP request has too many header fields"),
            _ => Malformed("it is not a valid HTTP/1 request"),
        })?;
        let (Some(method), Some(path), Some(minor_version)) = (request.method, request.path, request.version) else {
            return Err(Malformed("the HTTP request is not whole"));
        };
        if status != httparse::Status::Complete(head.len()) {
            return Err(Malformed("it is not clear where the head of the HTTP request ends"));
        }
        if method.len() > MAX_METHOD_BYTES {
            return Err(Malformed("the method of the HTTP request is too long"));
        }
        let fields: Vec<_> = request.headers.iter().map(|header| (header.name, header.value)).collect();
        let host = single(&fields, "host")?.map(Authority::parse).transpose()?;
        let target = Target::parse(method, path)?;
        Ok(Self { method, minor_version, target, host, body: body(&fields, minor_version)?, fields })
    }

    /// The host that the request is for. The Host header and an absolute target must agree.
    pub fn agreed_host(&self) -> Result<Option<Authority>, Malformed> {
        let (wanted, default_port) = match &self.target {
            Target::Origin => return Ok(self.host.clone()),
            Target::Absolute { scheme, authority, .. } => (authority, Some(scheme.port())),
            Target::Connect { authority } => (authority, authority.port),
        };
        if let Some(host) = &self.host {
            let is_same_port = host.port.or(default_port) == wanted.port.or(default_port);
            if !host.host.agrees_with(&wanted.host) || !is_same_port {
                return Err(Malformed("the target of the HTTP request and its Host header name different hosts"));
            }
        }
        Ok(Some(wanted.clone()))
    }
}

impl Target {
    fn parse(method: &str, text: &str) -> Result<Self, Malformed> {
        // Methods are compared in any case: a tolerant server must not see a CONNECT that this file took for something else.
        if method.eq_ignore_ascii_case("CONNECT") {
            let authority = Authority::parse(text.as_bytes())?;
            if authority.port.is_none() || method != "CONNECT" {
                return Err(Malformed("the CONNECT request is not of the form CONNECT host:port"));
            }
            return Ok(Self::Connect { authority });
        }
        if text.starts_with('/') || text == "*" {
            return Ok(Self::Origin);
        }
        let (scheme, rest) =
            text.split_once("://").ok_or(Malformed("the target of the HTTP request is neither a path nor a URL"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(Malformed("the target of the HTTP request is not an http or https URL")),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        Ok(Self::Absolute { scheme, authority: Authority::parse(authority.as_bytes())?, path: path.to_owned() })
    }
}

/// The value of a field that may be there once.
fn single<'a>(fields: &[(&str, &'a [u8])], name: &str) -> Result<Option<&'a [u8]>, Malformed> {
    let mut values = fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let value = values.next();
    match values.next() {
        None => Ok(value.map(<[u8]>::trim_ascii)),
        Some(_) => Err(Malformed("the HTTP request has a header field twice that may be there once")),
    }
}

fn body(fields: &[(&str, &[u8])], minor_version: u8) -> Result<Body, Malformed> {
    match (single(fields, "content-length")?, single(fields, "transfer-encoding")?) {
        (None, None) => Ok(Body::Bytes(0)),
        (Some(digits), None) if digits.iter().all(u8::is_ascii_digit) => {
            let length = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
            length.map(Body::Bytes).ok_or(Malformed("the length of the HTTP request's body is not a number"))
        }
        // HTTP/1.0 has no chunks, so old servers would take them for the next request.
        (None, Some(coding)) if minor_version > 0 && coding.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked),
        _ => Err(Malformed("it is not clear how long the body of the HTTP request is")),
    }
}
