//! The address of a daemon: `http://HOST:PORT` or `https://HOST:PORT`, which have no path and no user, or `unix:PATH`.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use hyper::header::HeaderValue;

use super::ClientError;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp {
        /// The host, without the brackets of an IPv6 address.
        host: String,
        port: u16,
        /// Whether the daemon is behind a proxy that speaks TLS.
        is_tls: bool,
    },
    Unix {
        path: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not the address of a daemon: {why}")]
pub struct InvalidUrl {
    url: String,
    why: &'static str,
}

impl Endpoint {
    pub fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let invalid = |why| InvalidUrl { url: url.to_owned(), why };
        if let Some(path) = url.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            return if path.is_absolute() {
                Ok(Self::Unix { path })
            } else {
                Err(invalid("after unix: there must be an absolute path"))
            };
        }
        let (is_tls, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err(invalid("it must begin with http:// or https://")),
            None => (false, url),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(invalid("use http://HOST:PORT or https://HOST:PORT and nothing more"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or_else(|| invalid("a bracket is not closed"))?;
                host.parse::<Ipv6Addr>().map_err(|_| invalid("what is in brackets is no IPv6 address"))?;
                let port = match behind {
                    "" => None,
                    _ => Some(behind.strip_prefix(':').ok_or_else(|| invalid("use http://[ADDRESS]:PORT"))?),
                };
                (host, port)
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            Some(port) => {
                port.parse().ok().filter(|port| *port != 0).ok_or_else(|| invalid("the port is no number"))?
            }
            None if is_tls => HTTPS_PORT,
            None => HTTP_PORT,
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(invalid("it names no host"));
        }
        Ok(Self::Tcp { host: host.to_owned(), port, is_tls })
    }

    /// `HOST:PORT`, with brackets around an IPv6 address. A daemon behind a socket is `localhost`.
    pub fn authority(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
            Self::Unix { .. } => "localhost".to_owned(),
        }
    }

    pub(super) fn host_header(&self) -> Result<HeaderValue, ClientError> {
        HeaderValue::try_from(self.authority()).map_err(|e| ClientError::Protocol(e.to_string()))
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { is_tls: true, .. } => write!(f, "https://{}", self.authority()),
            Self::Tcp { .. } => write!(f, "http://{}", self.authority()),
            Self::Unix { path } => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_its_parts() {
        for (url, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://localhost:8080/", "http://localhost:8080"),
            ("HTTP://box", "http://box:80"),
            ("127.0.0.1:9", "http://127.0.0.1:9"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://cove.example.com", "https://cove.example.com:443"),
            ("HTTPS://[::1]:8443/", "https://[::1]:8443"),
            ("unix:/run/cove.sock", "unix:/run/cove.sock"),
            ("unix:///run/cove.sock", "unix:/run/cove.sock"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().to_string(), shown, "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for url in [
            "",
            "http://",
            "http://a:b",
            "http://a:0",
            "http://a/b",
            "https://a/b",
            "https://",
            "ftp://a",
            "http://u@a",
            "http://[::1",
            "a b",
            "unix:",
            "unix:x",
        ] {
            assert!(Endpoint::parse(url).is_err(), "{url} was accepted");
        }
    }
}
