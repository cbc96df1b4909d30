//! HTTP proxying: `CONNECT host:port`, and requests for a whole URL, which are rewritten for the server.
//!
//! The rewritten request names the host of its URL in the Host header, whatever the client put there (RFC 9112, 3.2.2), and asks
//! the server to close: a client may use its connection to the proxy for another host next.

use super::{Connecting, NotConnected, Step, Wants, refused};
use crate::Malformed;
use crate::denial::{denied_page, page};
use crate::http_head::{HeadScan, RequestHead, Scanned, Scheme, Target};

pub const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";
/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Fields that are not for the server, or that the proxy writes itself. Fields that the Connection field names are kept: a client
/// could name Content-Length there, and then the proxy and the server would not agree on where the request ends.
const NOT_FORWARDED: [&str; 9] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

pub fn request(scan: &mut HeadScan, received: &[u8]) -> Step {
    let bytes = received.get(..MAX_HEAD_BYTES).unwrap_or(received);
    loop {
        // The scan stops once after the first line.
        let before = scan.scanned();
        match scan.scan(bytes) {
            Scanned::Head(end) => {
                return match wants(bytes.get(..end).unwrap_or_default()) {
                    Ok(wants) => Step::Wants(wants),
                    Err(why) => bad_request(why),
                };
            }
            Scanned::Binary => return refused(Vec::new(), "it speaks neither SOCKS5 nor HTTP to the proxy"),
            Scanned::InHeaders if scan.scanned() < bytes.len() && scan.scanned() > before => {}
            Scanned::InFirstLine | Scanned::InHeaders if bytes.len() == MAX_HEAD_BYTES => {
                return bad_request(Malformed("the head of the HTTP request is too long"));
            }
            Scanned::InFirstLine | Scanned::InHeaders => return Step::NeedMore,
        }
    }
}

fn wants(bytes: &[u8]) -> Result<Wants, Malformed> {
    let head = RequestHead::parse(bytes)?;
    let consumed = bytes.len();
    match &head.target {
        Target::Connect { authority } => {
            let port = authority.port.ok_or(Malformed("the CONNECT request has no port"))?;
            Ok(Wants { host: authority.host.clone(), port, consumed, connecting: Connecting::HttpConnect })
        }
        Target::Absolute { scheme: Scheme::Http, authority, path } => {
            let connecting =
                Connecting::HttpRequest { head: rewritten(&head, &authority.to_string(), path), body: head.body };
            let port = authority.port.unwrap_or(Scheme::Http.port());
            Ok(Wants { host: authority.host.clone(), port, consumed, connecting })
        }
        Target::Absolute { scheme: Scheme::Https, .. } => Err(Malformed("the proxy takes https only by CONNECT")),
        Target::Origin => Err(Malformed("this is a proxy, and the request does not name a host in its first line")),
    }
}

/// The head for the server. Everything in it was checked by the parser, so no part of it can hold a line break.
fn rewritten(head: &RequestHead<'_>, authority: &str, path: &str) -> Vec<u8> {
    let path = path.split('#').next().unwrap_or_default();
    let path = match path {
        "" if head.method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    let mut bytes =
        format!("{} {path} HTTP/1.{}\r\nHost: {authority}\r\n", head.method, head.minor_version).into_bytes();
    for (name, value) in &head.fields {
        if NOT_FORWARDED.iter().any(|field| field.eq_ignore_ascii_case(name)) {
            continue;
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"Connection: close\r\n\r\n");
    bytes
}

fn bad_request(why: Malformed) -> Step {
    Step::Refused {
        reply: page("400 Bad Request", &[], &format!("The proxy cannot serve this request: {why}.\n")),
        why,
    }
}

pub fn not_connected(why: &NotConnected<'_>) -> Vec<u8> {
    match why {
        NotConnected::Denied(denial) => denied_page(denial),
        NotConnected::Unreachable => page("502 Bad Gateway", &[], "The host cannot be reached.\n"),
        NotConnected::ConnectionRefused => page("502 Bad Gateway", &[], "The host refused the connection.\n"),
        NotConnected::TimedOut => page("504 Gateway Timeout", &[], "The host did not answer in time.\n"),
    }
}
