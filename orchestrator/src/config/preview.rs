//! `[preview]`: the addresses of links that open a server inside a sandbox.

use super::ConfigError;
use super::settings::Settings;

/// Browsers resolve every name below it to this host, without any set-up.
const DEFAULT_DOMAIN: &str = "localhost";
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// The longest domain: with a port and a session's id in front, a name has at most 253 characters.
const MAX_DOMAIN_BYTES: usize = 180;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewConfig {
    /// The domain below which each port of each session has a name. It is in lower case.
    pub domain: String,
    /// The scheme of links: `https` if a proxy in front of the daemon ends TLS.
    pub scheme: Scheme,
    /// The port of links. `None` means the daemon's own for `http`, and 443 for `https`.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => HTTP_PORT,
            Self::Https => HTTPS_PORT,
        }
    }
}

impl std::str::FromStr for Scheme {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Http, Self::Https].into_iter().find(|scheme| scheme.as_str() == text).ok_or(())
    }
}

/// A domain name in lower case.
struct Domain(String);

impl std::str::FromStr for Domain {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_label = |label: &str| {
            let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            (1..=63).contains(&label.len()) && is_plain && !label.starts_with('-') && !label.ends_with('-')
        };
        let is_number = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if text.len() <= MAX_DOMAIN_BYTES && text.split('.').all(is_label) && !is_number {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(())
        }
    }
}

impl Default for PreviewConfig {
    fn default() -> Self {
        Self { domain: DEFAULT_DOMAIN.to_owned(), scheme: Scheme::Http, port: None }
    }
}

impl PreviewConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let domain: Option<Domain> = settings.parsed("preview.domain", "a domain name such as preview.example.com")?;
        let scheme: Option<Scheme> = settings.parsed("preview.scheme", "http or https")?;
        let port = settings.optional_whole("preview.port", 1..=u64::from(u16::MAX))?;
        Ok(Self {
            domain: domain.map_or_else(|| DEFAULT_DOMAIN.to_owned(), |domain| domain.0),
            scheme: scheme.unwrap_or(Scheme::Http),
            port: port.and_then(|port| u16::try_from(port).ok()),
        })
    }

    /// The host and port of a link to the name `label`, if the daemon listens on `listening`.
    pub fn authority(&self, label: &str, listening: u16) -> String {
        let of_scheme = self.scheme.default_port();
        let port = self.port.unwrap_or(match self.scheme {
            Scheme::Http => listening,
            Scheme::Https => of_scheme,
        });
        let domain = &self.domain;
        if port == of_scheme { format!("{label}.{domain}") } else { format!("{label}.{domain}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_daemons_port_unless_something_is_in_front_of_it() {
        let config = PreviewConfig::default();
        assert_eq!(config.authority("3000-s", 8080), "3000-s.localhost:8080");
        assert_eq!(config.authority("3000-s", 80), "3000-s.localhost");
        let config = PreviewConfig { domain: "p.example.com".into(), scheme: Scheme::Https, port: None };
        assert_eq!(config.authority("3000-s", 8080), "3000-s.p.example.com");
        let config = PreviewConfig { port: Some(8443), ..config };
        assert_eq!(config.authority("3000-s", 8080), "3000-s.p.example.com:8443");
    }

    #[test]
    fn a_domain_is_a_name() {
        let domain = |text: &str| text.parse::<Domain>().map(|domain| domain.0);
        assert_eq!(domain("Preview.Example.com"), Ok("preview.example.com".to_owned()));
        for wrong in ["", ".", "a..b", "-a.com", "a.com:80", "https://a.com", "127.0.0.1", "a b", "*.a.com", "a.com."] {
            assert!(domain(wrong).is_err(), "{wrong}");
        }
    }
}
