//! How a request for a server in a sandbox arrived: below the API's path, or under a host name of its own. Pure.

use std::net::IpAddr;

use crate::config::Scheme;
use crate::service::ports::Port;

/// What a request's address looks like from outside.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub form: Form,
    /// The host and port that the client named.
    pub authority: String,
    pub scheme: Scheme,
    /// The client's address. `None` over a Unix socket.
    pub client: Option<IpAddr>,
    pub port: Port,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// `/v1/sessions/{id}/ports/{port}/…`, with an API key. The prefix has no slash at its end.
    Prefix(String),
    /// A host name of its own, with a link's token.
    Preview,
}

impl Arrival {
    /// The host and port by which the server in the sandbox knows itself.
    pub fn inner_authority(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Whether an authority names the server in the sandbox.
    pub fn is_inner(&self, authority: &str) -> bool {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, "80"),
        };
        let hosts = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"];
        hosts.iter().any(|known| host.eq_ignore_ascii_case(known)) && port.parse() == Ok(self.port.number())
    }

    /// Where the client finds a path of the server.
    pub fn outer_path(&self, path: &str) -> String {
        match &self.form {
            Form::Preview => unambiguous(path),
            Form::Prefix(prefix) => {
                // A server that heeds X-Forwarded-Prefix names its paths as they are outside.
                let rest = path.strip_prefix(prefix.as_str());
                let is_outer = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
                if is_outer { path.to_owned() } else { format!("{prefix}{path}") }
            }
        }
    }
}

/// A path that cannot be taken for the address of another host, which `//host` and `/\host` can.
pub fn unambiguous(path: &str) -> String {
    let is_ambiguous = path.starts_with("//") || path.starts_with("/\\");
    if is_ambiguous { format!("/.{path}") } else { path.to_owned() }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn prefix() -> Arrival {
        let form = Form::Prefix("/v1/sessions/s/ports/3000".into());
        Arrival { form, authority: "localhost:8080".into(), ..preview() }
    }

    pub fn preview() -> Arrival {
        Arrival {
            form: Form::Preview,
            authority: "3000-s.localhost:8080".into(),
            scheme: Scheme::Http,
            client: Some([127, 0, 0, 1].into()),
            port: Port::parse("3000").unwrap(),
        }
    }

    #[test]
    fn the_server_has_several_names_inside() {
        let arrival = preview();
        for inner in ["localhost:3000", "127.0.0.1:3000", "[::1]:3000", "LOCALHOST:3000", "0.0.0.0:3000"] {
            assert!(arrival.is_inner(inner), "{inner}");
        }
        for other in ["localhost", "localhost:3001", "example.com:3000", "[::1]", "localhost:3000.evil", ""] {
            assert!(!arrival.is_inner(other), "{other}");
        }
        let arrival = Arrival { port: Port::parse("80").unwrap(), ..arrival };
        assert!(arrival.is_inner("localhost") && arrival.is_inner("[::1]") && arrival.is_inner("127.0.0.1:80"));
    }

    #[test]
    fn a_path_never_becomes_another_host() {
        assert_eq!(unambiguous("/a//b"), "/a//b");
        assert_eq!(unambiguous("//evil.example/x"), "/.//evil.example/x");
        assert_eq!(unambiguous("/\\evil.example"), "/./\\evil.example");
    }
}
