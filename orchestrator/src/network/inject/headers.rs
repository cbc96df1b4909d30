//! What changes in a request on its way to the host, and in the response on its way back. Pure.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::http::uri::Authority;
use hyper::{Method, Uri, Version};
use network_policy::HostName;

use super::check::Injection;
use crate::secret::Secret;

/// Headers of the connection between the program and the daemon alone.
const OF_CONNECTION: [HeaderName; 4] = [
    header::CONNECTION,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What stands in a response instead of a secret.
const REDACTED: &[u8] = b"[redacted]";

/// Why a request is not sent to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It names another host, none, or several.
    OtherHost,
    /// It asks to be connected elsewhere.
    Connect,
}

/// Refuses a request that is not for this host: the header that is added to it would go elsewhere.
pub fn is_for(request: &request::Parts, host: &HostName, port: u16) -> Result<(), Refused> {
    if request.method == Method::CONNECT {
        return Err(Refused::Connect);
    }
    let is_same = |authority: &Authority| {
        let has_name = HostName::from_bytes(authority.host().as_bytes()).as_ref() == Ok(host);
        // `host@evil` and `host:` are no hosts.
        let is_plain = authority.port().is_none_or(|given| given.as_u16() == port)
            && !authority.as_str().contains('@')
            && !authority.as_str().ends_with(':');
        has_name && is_plain
    };
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let named = first.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Authority>().ok());
    let is_named = second.is_none() && named.as_ref().is_some_and(is_same);
    let is_target = request.uri.authority().is_none_or(is_same)
        && request.uri.scheme_str().is_none_or(|scheme| scheme.eq_ignore_ascii_case("https"));
    if is_named && is_target { Ok(()) } else { Err(Refused::OtherHost) }
}

/// Makes the request as it goes to the host, with the headers of these injections instead of the program's own. `None` if a value cannot be
/// a header's, which the checks before exclude.
pub fn prepare(request: &mut request::Parts, values: &[(&Injection, &Secret)]) -> Option<()> {
    let upgrade = request.headers.get(header::UPGRADE).cloned().filter(|_| asks_for_upgrade(&request.headers));
    for name in OF_CONNECTION {
        request.headers.remove(name);
    }
    match upgrade {
        Some(_) => {
            request.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        }
        None => {
            request.headers.remove(header::UPGRADE);
        }
    }
    for (injection, secret) in values {
        let value =
            zeroize::Zeroizing::new(format!("{}{}{}", injection.before, secret.value.expose(), injection.after));
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        // It replaces all values of that name, however the program wrote it.
        request.headers.insert(injection.header.clone(), value);
    }
    // The server gets a path, as from any client that speaks to it directly.
    if request.uri.authority().is_some() {
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
        request.uri = path.parse::<Uri>().ok()?;
    }
    request.version = Version::HTTP_11;
    Some(())
}

fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Takes the secrets out of the headers of a response: some servers send back what they got. Bodies are not looked at.
pub fn redact(headers: &mut HeaderMap, values: &[(&Injection, &Secret)]) {
    for value in headers.values_mut() {
        for (_, secret) in values {
            let secret = secret.value.expose().as_bytes();
            if let Some(changed) = without(value.as_bytes(), secret) {
                // What is left are bytes of a header and plain letters.
                *value = HeaderValue::from_bytes(&changed).unwrap_or_else(|_| HeaderValue::from_static(""));
            }
        }
    }
}

fn without(text: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let find = |text: &[u8]| text.windows(secret.len()).position(|window| window == secret);
    find(text)?;
    let (mut rest, mut changed) = (text, Vec::new());
    while let Some(at) = find(rest) {
        changed.extend_from_slice(&rest[..at]);
        changed.extend_from_slice(REDACTED);
        rest = &rest[at + secret.len()..];
    }
    changed.extend_from_slice(rest);
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::inject::read_all;
    use crate::secret::SecretValue;
    use hyper::Request;
    use proptest::prelude::*;
    use shared_protocol::api::InjectionSpec;
    use std::time::SystemTime;

    fn parts(target: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn host() -> HostName {
        HostName::parse("api.example.com").unwrap()
    }

    fn injection(header: &str, format: &str) -> Injection {
        let spec = InjectionSpec {
            host: "api.example.com".into(),
            header: header.into(),
            value_from: "secret:token".into(),
            format: Some(format.into()),
        };
        read_all(&[spec]).unwrap().remove(0)
    }

    fn secret(text: &str) -> Secret {
        let value = SecretValue::new(text.into()).unwrap();
        Secret { value, hosts: Vec::new(), updated_at: SystemTime::UNIX_EPOCH }
    }

    #[test]
    fn only_requests_for_the_host_are_sent() {
        for (target, hosts) in [
            ("/x", vec!["api.example.com"]),
            ("/x", vec!["API.Example.Com:443"]),
            ("/x", vec!["api.example.com."]),
            ("https://api.example.com/x", vec!["api.example.com"]),
        ] {
            let fields: Vec<_> = hosts.into_iter().map(|host| ("host", host)).collect();
            assert_eq!(is_for(&parts(target, &fields), &host(), 443), Ok(()), "{target} {fields:?}");
        }
        for (target, hosts) in [
            ("/x", vec![]),
            ("/x", vec!["evil.example.com"]),
            ("/x", vec!["api.example.com", "evil.example.com"]),
            ("/x", vec!["api.example.com", "api.example.com"]),
            ("/x", vec!["api.example.com, evil.example.com"]),
            ("/x", vec!["api.example.com:8443"]),
            ("/x", vec!["api.example.com:"]),
            ("/x", vec!["user@api.example.com"]),
            ("/x", vec!["x.api.example.com"]),
            ("/x", vec![""]),
            ("https://evil.example.com/x", vec!["api.example.com"]),
            ("https://api.example.com/x", vec!["evil.example.com"]),
            ("http://api.example.com/x", vec!["api.example.com"]),
        ] {
            let fields: Vec<_> = hosts.into_iter().map(|host| ("host", host)).collect();
            let refused = is_for(&parts(target, &fields), &host(), 443);
            assert_eq!(refused, Err(Refused::OtherHost), "{target} {fields:?}");
        }
        let mut connect = parts("api.example.com:443", &[("host", "api.example.com")]);
        connect.method = Method::CONNECT;
        assert_eq!(is_for(&connect, &host(), 443), Err(Refused::Connect));
        assert_eq!(is_for(&parts("/", &[("host", "api.example.com:8443")]), &host(), 8443), Ok(()));
    }

    #[test]
    fn our_header_replaces_the_programs_and_those_of_the_connection_stay_behind() {
        let mut request = parts(
            "https://api.example.com/x?y=1",
            &[
                ("host", "api.example.com"),
                ("AUTHORIZATION", "mine"),
                ("authorization", "mine too"),
                ("connection", "keep-alive, authorization"),
                ("keep-alive", "timeout=5"),
                ("expect", "100-continue"),
                ("accept", "*/*"),
            ],
        );
        let (injection, secret) = (injection("Authorization", "Bearer {}"), secret("hunter2"));
        prepare(&mut request, &[(&injection, &secret)]).unwrap();
        let values: Vec<_> = request.headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["Bearer hunter2"]);
        assert!(values[0].is_sensitive() && !format!("{:?}", request.headers).contains("hunter2"));
        for gone in ["connection", "keep-alive", "expect", "upgrade"] {
            assert!(!request.headers.contains_key(gone), "{gone}");
        }
        assert_eq!((request.uri.to_string().as_str(), &request.headers["accept"]), ("/x?y=1", &"*/*".parse().unwrap()));
    }

    #[test]
    fn an_upgrade_is_passed_on() {
        let fields = [("host", "api.example.com"), ("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let mut request = parts("/ws", &fields);
        prepare(&mut request, &[]).unwrap();
        assert_eq!(
            (&request.headers["connection"], &request.headers["upgrade"]),
            (&HeaderValue::from_static("Upgrade"), &HeaderValue::from_static("websocket"))
        );
        let mut request = parts("/ws", &fields[..1]);
        request.headers.insert(header::UPGRADE, HeaderValue::from_static("h2c"));
        prepare(&mut request, &[]).unwrap();
        assert!(!request.headers.contains_key("upgrade"), "an upgrade that the connection does not ask for");
    }

    proptest! {
        #[test]
        fn no_header_of_a_response_contains_the_secret(
            pieces in prop::collection::vec(prop::sample::select(vec!["hunter2", "hunter", "2", "x", "hunhunter2ter2"]), 0..8),
        ) {
            let mut headers = HeaderMap::new();
            let text = pieces.concat();
            headers.insert("x-echo", HeaderValue::from_str(&text).unwrap());
            let (injection, secret) = (injection("X-Key", "{}"), secret("hunter2"));
            redact(&mut headers, &[(&injection, &secret)]);
            let shown = headers["x-echo"].to_str().unwrap().to_owned();
            prop_assert!(!shown.contains("hunter2"), "{}", shown);
            prop_assert_eq!(text.contains("hunter2"), shown.contains("[redacted]"));
        }
    }
}
