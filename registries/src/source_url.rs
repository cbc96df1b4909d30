//! The URL of a registry. It never prints what may be secret: user name, password, query, fragment, and the path, because
//! some registries have a token there.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

/// The longest URL that is taken from a configuration or a page.
const MAX_URL_BYTES: usize = 2048;

/// A word of a path with as many letters and digits may be a token.
const MIN_TOKEN_BYTES: usize = 16;

/// The schemes that name a host on the network, with their default ports.
const SCHEMES: [(&str, u16); 5] = [("http", 80), ("https", 443), ("ssh", 22), ("git", 9418), ("ftp", 21)];

/// A URL with a scheme that names a host on the network. It may carry credentials; `Display` and `Debug`
/// show only scheme, host and port.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceUrl(Url);

/// Why a text is not a `SourceUrl`. The text is not repeated, since it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A path or a `file:` URL: no host is needed for it.
    #[error("it is a local path")]
    Local,
    #[error("its scheme is not one that Cove can make a rule for")]
    Scheme,
    #[error("it is not a URL with a host")]
    Malformed,
    #[error("it is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
}

impl SourceUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        if text.len() > MAX_URL_BYTES {
            return Err(UrlError::TooLong);
        }
        if text.starts_with(['/', '.', '~']) {
            return Err(UrlError::Local);
        }
        let url = Url::parse(text).map_err(|_| UrlError::Malformed)?;
        match url.scheme() {
            "file" | "cdrom" | "copy" => return Err(UrlError::Local),
            scheme if default_port(scheme).is_none() => return Err(UrlError::Scheme),
            _ => {}
        }
        let url = Self(url);
        if url.host().is_empty() || url.host().contains(is_not_of_a_host) || url.port() == 0 {
            return Err(UrlError::Malformed);
        }
        Ok(url)
    }

    /// Parses what git takes as a remote: a URL, or `user@host:path`.
    pub fn parse_git(text: &str) -> Result<Self, UrlError> {
        if text.contains("://") {
            return Self::parse(text);
        }
        match text.split_once(':') {
            Some((host, path)) if !host.is_empty() && !host.contains('/') => {
                Self::parse(&format!("ssh://{host}/{}", path.trim_start_matches('/')))
            }
            _ => Err(UrlError::Local),
        }
    }

    /// The host in lower case, without a final dot, and without the brackets of an IPv6 address.
    pub fn host(&self) -> String {
        match self.0.host() {
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_ascii_lowercase(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => String::new(),
        }
    }

    pub fn port(&self) -> u16 {
        self.0.port().or_else(|| default_port(self.scheme())).unwrap_or_default()
    }

    pub fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// The URL of something below this one, as if this one ended with a slash. Credentials are kept.
    pub fn below(&self, path: &str) -> Result<Self, UrlError> {
        let mut base = self.0.clone();
        base.set_query(None);
        base.set_fragment(None);
        let joined = format!("{}/{path}", base.path().trim_end_matches('/'));
        base.set_path(&joined);
        Self::parse(base.as_str())
    }

    /// The URL that a link on this page, or a redirect from it, leads to. Credentials go along only to the same origin.
    pub fn follow(&self, link: &str) -> Result<Self, UrlError> {
        if link.len() > MAX_URL_BYTES {
            return Err(UrlError::TooLong);
        }
        let mut url = self.0.join(link.trim()).map_err(|_| UrlError::Malformed)?;
        let is_same_origin = url.origin().is_tuple() && url.origin() == self.0.origin();
        let (user, password) = match is_same_origin {
            true => (self.0.username(), self.0.password()),
            false => ("", None),
        };
        // It fails only for URLs without a host, which `parse` refuses.
        let _ = url.set_username(user);
        let _ = url.set_password(password);
        Self::parse(url.as_str())
    }

    /// The whole URL, with credentials: only for the program that fetches it, and not as an argument, which others can see.
    pub fn with_credentials(&self) -> &str {
        self.0.as_str()
    }

    /// Whether the URL has parts that are secrets.
    pub fn has_credentials(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some() || self.0.query().is_some()
    }

    /// The URL without user name, password, query and fragment; nothing if a part of its path may be a token.
    pub fn without_credentials(&self) -> Option<String> {
        if self.0.path_segments().into_iter().flatten().any(may_be_token) {
            return None;
        }
        let mut url = self.0.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.set_username("").and_then(|()| url.set_password(None)).ok()?;
        Some(url.into())
    }

    pub fn is_http(&self) -> bool {
        matches!(self.scheme(), "http" | "https")
    }

    /// The address, if the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        self.host().parse().ok()
    }
}

/// Whether a part of a path looks random: a long word of letters with digits or of mixed case, or long hexadecimal groups, or
/// something that is written with `%`. Names of repositories do not look like this.
fn may_be_token(segment: &str) -> bool {
    let is_random = |word: &str| {
        let has = |class: fn(&u8) -> bool| word.bytes().any(|byte| class(&byte));
        word.len() >= MIN_TOKEN_BYTES
            && (has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)))
    };
    let is_grouped = segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let digits = segment.bytes().filter(u8::is_ascii_hexdigit).count();
    segment.contains('%')
        || segment.split(|c: char| !c.is_ascii_alphanumeric()).any(is_random)
        || (is_grouped && digits >= MIN_TOKEN_BYTES)
}

fn default_port(scheme: &str) -> Option<u16> {
    SCHEMES.iter().find(|(name, _)| *name == scheme).map(|(_, port)| *port)
}

/// Characters that no host name or address has. `url` lets some of them through for schemes that it does not know.
fn is_not_of_a_host(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':'))
}

impl fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown_path = if matches!(self.0.path(), "" | "/") { "/" } else { "/…" };
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => write!(f, "{}://{host}:{port}{shown_path}", self.scheme()),
            None => write!(f, "{}://{host}{shown_path}", self.scheme()),
        }
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceUrl({self})")
    }
}

#[cfg(test)]
#[path = "source_url_test.rs"]
mod tests;
