//! The host names of previews: `{port}-{session}.{domain}`. Pure.

use std::sync::Arc;

use shared_protocol::SessionId;

use crate::config::{PreviewConfig, Scheme};
use crate::service::ports::{LinkToken, Port, PortAddress};
use crate::service::tools::LinkUrl;

/// The parameter of an address that has a link's token.
pub const TOKEN_PARAMETER: &str = "cove_token";

/// Where previews are.
#[derive(Debug, Clone)]
pub struct Previews {
    config: PreviewConfig,
    /// The port that the daemon listens on.
    listening: u16,
}

impl Previews {
    pub fn new(config: PreviewConfig, listening: u16) -> Self {
        Self { config, listening }
    }

    pub fn scheme(&self) -> Scheme {
        self.config.scheme
    }

    /// The port that a host name stands for. `None` if it is not the name of a preview.
    pub fn address(&self, host: &str) -> Option<PortAddress> {
        // Most requests are for the API, whose host has no port in front. Nothing is copied for them.
        if !host.starts_with(|first: char| first.is_ascii_digit()) || !host.contains('-') {
            return None;
        }
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let label = host.strip_suffix(self.config.domain.as_str())?.strip_suffix('.')?;
        let (port, session) = label.split_once('-')?;
        let is_plain = session.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let session = SessionId::new(session).ok().filter(|_| is_plain)?;
        Some(PortAddress { session, port: Port::parse(port).ok()? })
    }

    /// Makes addresses of links, for tools.
    pub fn link_url(&self) -> LinkUrl {
        let previews = self.clone();
        Arc::new(move |address, token| previews.url(address, token))
    }

    /// The address of a link.
    pub fn url(&self, address: &PortAddress, token: &LinkToken) -> String {
        let label = format!("{}-{}", address.port, address.session);
        let authority = self.config.authority(&label, self.listening);
        format!("{}://{authority}/?{TOKEN_PARAMETER}={}", self.config.scheme.as_str(), token.to_text())
    }
}

/// The token in a query, and the query without it.
pub fn take_token(query: &str) -> (Option<&str>, String) {
    let token = |pair: &&str| pair.split('=').next() == Some(TOKEN_PARAMETER);
    let found = query.split('&').find(token).and_then(|pair| pair.split_once('=')).map(|(_, value)| value);
    let rest: Vec<&str> = query.split('&').filter(|pair| !token(pair)).collect();
    (found, rest.join("&"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn previews(domain: &str) -> Previews {
        Previews::new(PreviewConfig { domain: domain.into(), ..PreviewConfig::default() }, 8080)
    }

    fn read(host: &str, domain: &str) -> Option<(String, u16)> {
        previews(domain).address(host).map(|address| (address.session.to_string(), address.port.number()))
    }

    #[test]
    fn a_name_says_port_and_session() {
        let expected = Some(("7183cb80-d6c".to_owned(), 3000));
        assert_eq!(read("3000-7183cb80-d6c.localhost", "localhost"), expected);
        assert_eq!(read("3000-7183CB80-D6C.LOCALHOST.", "localhost"), expected);
        assert_eq!(read("3000-7183cb80-d6c.p.example.com", "p.example.com"), expected);
        for wrong in [
            "localhost",
            "127.0.0.1",
            "[::1]",
            ".localhost",
            "3000.localhost",
            "3000-.localhost",
            "-s.localhost",
            "0-s.localhost",
            "65536-s.localhost",
            "x-s.localhost",
            "3000-s.evil.example",
            "3000-slocalhost",
            "a.3000-s.localhost",
            "3000-s.a.localhost",
            "3000-s_t.localhost",
            "3000-s.localhost.evil.example",
        ] {
            assert_eq!(read(wrong, "localhost"), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_is_taken_out_of_a_query_and_the_rest_stays() {
        for (query, token, rest) in [
            ("cove_token=abc", Some("abc"), ""),
            ("a=1&cove_token=abc&b=%20", Some("abc"), "a=1&b=%20"),
            ("cove_token=a&cove_token=b&c", Some("a"), "c"),
            ("cove_token", None, ""),
            ("xcove_token=1&cove_tokenx=2", None, "xcove_token=1&cove_tokenx=2"),
            ("", None, ""),
        ] {
            assert_eq!(take_token(query), (token, rest.to_owned()), "{query}");
        }
    }

    proptest! {
        #[test]
        fn what_was_named_is_found_again(port in 1u16.., id in "[a-z0-9][a-z0-9-]{0,40}") {
            prop_assert_eq!(read(&format!("{port}-{id}.localhost"), "localhost"), Some((id, port)));
        }

        #[test]
        fn the_token_never_stays_in_a_query(query in "[a-z_=&%]{0,30}(cove_token=secret)?[a-z&=]{0,10}") {
            let (_, rest) = take_token(&query);
            prop_assert!(rest.split('&').all(|pair| !pair.starts_with("cove_token=")));
        }

        #[test]
        fn no_host_is_too_strange(host in ".{0,60}") {
            let _ = read(&host, "localhost");
        }
    }
}
