//! Decides who may talk to the daemon: it takes headers and returns a decision, and touches nothing.
//!
//! The key protects the daemon and identifies the caller; `service::Keys` knows whose a key is. Host and Origin are checked
//! too, because any web page can make a browser send requests here: after DNS rebinding a page has a foreign Host, and any
//! other page has a foreign Origin.

use std::net::{IpAddr, SocketAddr};

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use shared_protocol::{ErrorBody, ErrorCode};

use crate::service::Caller;

/// Whose a secret is.
pub type Identify = Box<dyn Fn(&[u8]) -> Option<Caller> + Send + Sync>;

pub struct AccessPolicy {
    pub identify: Identify,
    /// The paths that need no key, from the table of routes.
    pub open_paths: Vec<&'static str>,
    pub listen: SocketAddr,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
}

impl AccessPolicy {
    /// Decides about a request. Returns its caller, or `None` for an unknown client at a path that needs no key.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<Option<Caller>, ErrorBody> {
        let host = self.check_host(uri, headers)?;
        self.check_origin(&host, headers)?;
        if self.open_paths.contains(&uri.path()) {
            return Ok(None);
        }
        self.check_key(headers).map(Some)
    }

    /// The origin that may read the answer, if the configuration allows it by name.
    pub fn shared_with<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then_some(origin)
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<String, ErrorBody> {
        let Some(authority) = authority_of(uri, headers) else {
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, "the request must have one Host header"));
        };
        if self.is_our_host(host_of(authority)) {
            return Ok(authority.to_ascii_lowercase());
        }
        let message = "this daemon is not known by that Host; add it to server.allowed_hosts";
        Err(ErrorBody::new(ErrorCode::Forbidden, message))
    }

    fn is_our_host(&self, host: &str) -> bool {
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            // A daemon that listens on every address accepts any address as the host: an address, unlike a name, cannot be
            // rebound.
            let ours = self.listen.ip();
            return address.is_loopback() || address == ours || ours.is_unspecified() || self.is_allowed_host(host);
        }
        host.eq_ignore_ascii_case("localhost") || self.is_allowed_host(host)
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    fn check_origin(&self, host: &str, headers: &HeaderMap) -> Result<(), ErrorBody> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let same = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(scheme, rest)| matches!(scheme, "http" | "https") && rest.eq_ignore_ascii_case(host));
        if same || self.shared_with(headers).is_some() {
            return Ok(());
        }
        let message = "requests from that Origin are not allowed; add it to server.allowed_origins";
        Err(ErrorBody::new(ErrorCode::Forbidden, message))
    }

    fn check_key(&self, headers: &HeaderMap) -> Result<Caller, ErrorBody> {
        let message = match bearer(headers).map(&self.identify) {
            Some(Some(caller)) => return Ok(caller),
            Some(None) => "the API key is wrong",
            None => "an API key is needed: send the header Authorization: Bearer KEY",
        };
        Err(ErrorBody::new(ErrorCode::Unauthorized, message))
    }
}

/// The secret that a request carries.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, key) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
}

/// The host and port that a request is for. `None` if it names none, or more than one.
pub fn authority_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut given = headers.get_all(HOST).iter();
    let header = given.next().map(|value| value.to_str().unwrap_or_default());
    // If the request line is a whole URL, its host wins over the header.
    let authority = uri.authority().map(|authority| authority.as_str()).or(header);
    authority.filter(|_| given.next().is_none())
}

/// The host without the port. An IPv6 address keeps its brackets.
pub fn host_of(authority: &str) -> &str {
    let end = match authority.rfind(']') {
        Some(bracket) => bracket + 1,
        None => authority.rfind(':').unwrap_or(authority.len()),
    };
    &authority[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Role;

    fn policy(listen: &str) -> AccessPolicy {
        AccessPolicy {
            identify: Box::new(|secret| match secret {
                b"the-right-key" => Some(Caller::of("first", Role::Admin)),
                b"another-key" => Some(Caller::of("alice", Role::User)),
                _ => None,
            }),
            open_paths: vec!["/healthz"],
            listen: listen.parse().unwrap(),
            allowed_hosts: vec!["cove.example".into()],
            allowed_origins: vec!["https://app.example".into()],
        }
    }

    fn check(policy: &AccessPolicy, path: &str, headers: &[(&str, &str)]) -> Result<(), ErrorCode> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        policy.check(&path.parse().unwrap(), &map).map(drop).map_err(|body| body.error_code)
    }

    const KEY: (&str, &str) = ("authorization", "Bearer the-right-key");

    #[test]
    fn the_key_is_needed_everywhere_but_for_health() {
        let policy = policy("127.0.0.1:8080");
        let host = ("host", "localhost:8080");
        assert_eq!(check(&policy, "/healthz", &[host]), Ok(()));
        for path in ["/v1/sessions", "/metrics", "/openapi.json", "/nowhere", "/healthz/", "/healthz2"] {
            assert_eq!(check(&policy, path, &[host]), Err(ErrorCode::Unauthorized), "{path}");
            assert_eq!(check(&policy, path, &[host, KEY]), Ok(()), "{path}");
        }
        for wrong in [
            "Bearer the-right-ke",
            "Bearer the-right-key2",
            "Basic the-right-key",
            "the-right-key",
            "Bearer",
            "Bearer ",
        ] {
            assert_eq!(check(&policy, "/", &[host, ("authorization", wrong)]), Err(ErrorCode::Unauthorized), "{wrong}");
        }
        assert_eq!(check(&policy, "/", &[host, ("authorization", "bearer  the-right-key")]), Ok(()));
    }

    #[test]
    fn the_key_says_who_the_caller_is() {
        let policy = policy("127.0.0.1:8080");
        for (key, name, role) in
            [("Bearer the-right-key", "first", Role::Admin), ("Bearer another-key", "alice", Role::User)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost"));
            headers.insert(AUTHORIZATION, HeaderValue::from_static(key));
            let caller = policy.check(&Uri::from_static("/v1/sessions"), &headers).unwrap().unwrap();
            assert_eq!((caller.name().as_str(), caller.role()), (name, role));
            assert!(policy.check(&Uri::from_static("/healthz"), &headers).unwrap().is_none());
        }
    }

    #[test]
    fn a_foreign_host_is_refused_whatever_its_port() {
        let local = policy("127.0.0.1:8080");
        for ours in ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "cove.example:443"] {
            assert_eq!(check(&local, "/", &[("host", ours), KEY]), Ok(()), "{ours}");
        }
        for foreign in
            ["evil.example", "localhost.evil.example", "192.0.2.7", "127.0.0.1.evil.example", "", "[::2]", "a:b:c"]
        {
            assert_eq!(check(&local, "/", &[("host", foreign), KEY]), Err(ErrorCode::Forbidden), "{foreign}");
        }
        let open = policy("0.0.0.0:8080");
        assert_eq!(check(&open, "/", &[("host", "192.0.2.7:8080"), KEY]), Ok(()));
        assert_eq!(check(&open, "/", &[("host", "evil.example"), KEY]), Err(ErrorCode::Forbidden));
        let none = check(&local, "/", &[KEY]);
        assert_eq!(none, Err(ErrorCode::InvalidRequest));
        assert_eq!(
            check(&local, "/", &[("host", "localhost"), ("host", "localhost"), KEY]),
            Err(ErrorCode::InvalidRequest)
        );
        assert_eq!(check(&local, "http://evil.example/", &[("host", "localhost"), KEY]), Err(ErrorCode::Forbidden));
    }

    #[test]
    fn a_foreign_origin_is_refused_even_with_the_key() {
        let policy = policy("127.0.0.1:8080");
        let host = ("host", "localhost:8080");
        for ours in ["http://localhost:8080", "https://app.example"] {
            assert_eq!(check(&policy, "/", &[host, KEY, ("origin", ours)]), Ok(()), "{ours}");
        }
        for foreign in
            ["http://localhost:8081", "http://evil.example", "null", "https://app.example.evil", "ftp://localhost:8080"]
        {
            assert_eq!(check(&policy, "/", &[host, KEY, ("origin", foreign)]), Err(ErrorCode::Forbidden), "{foreign}");
        }
    }
}
