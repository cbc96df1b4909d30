//! The headers of a request on its way to a server in a sandbox, and of its answer on the way back. Pure.
//!
//! The server sees itself under its own name, `localhost:PORT`, because development servers refuse other hosts and origins. The
//! address that the client used is in `X-Forwarded-*`. The API key and the token of a link never pass.

use hyper::header::{
    ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_LOCATION, CONTENT_SECURITY_POLICY, COOKIE, EXPECT, FORWARDED, HOST,
    HeaderMap, HeaderName, HeaderValue, LOCATION, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE,
    STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::arrival::{Arrival, Form};
use super::location;

/// Headers about one connection and not about the message.
const OF_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers in which a client could pretend to be somebody else.
const ABOUT_CLIENT: [HeaderName; 7] = [
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// Headers of an answer that would act on the daemon's own origin, where the path-prefix form is.
const ABOUT_ORIGIN: [HeaderName; 2] =
    [HeaderName::from_static("clear-site-data"), HeaderName::from_static("service-worker-allowed")];

/// What to do with the client's `Authorization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    /// It is the API key.
    Remove,
    /// It is meant for the server inside.
    Keep,
}

/// The protocol that a request asks to upgrade to.
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = list(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

/// The headers for the server inside.
pub fn request(given: &HeaderMap, arrival: &Arrival, authorization: Authorization) -> HeaderMap {
    let mut headers = without_connection(given);
    for name in &ABOUT_CLIENT {
        headers.remove(name);
    }
    // The daemon has already answered it.
    headers.remove(EXPECT);
    if authorization == Authorization::Remove {
        headers.remove(AUTHORIZATION);
    }
    keep_cookies(&mut headers);
    let own = arrival.inner_authority();
    set(&mut headers, HOST, &own);
    if is_same_origin(&headers, &arrival.authority) {
        set(&mut headers, ORIGIN, &format!("http://{own}"));
    }
    if let Some(client) = arrival.client {
        set(&mut headers, HeaderName::from_static("x-forwarded-for"), &client.to_canonical().to_string());
    }
    set(&mut headers, HeaderName::from_static("x-forwarded-proto"), arrival.scheme.as_str());
    set(&mut headers, HeaderName::from_static("x-forwarded-host"), &arrival.authority);
    if let Form::Prefix(prefix) = &arrival.form {
        set(&mut headers, HeaderName::from_static("x-forwarded-prefix"), prefix);
    }
    match upgrade(given) {
        Some(protocol) => {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        }
        None => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
    }
    headers
}

/// The headers for the client.
pub fn answer(given: &HeaderMap, arrival: &Arrival) -> HeaderMap {
    let mut headers = without_connection(given);
    for name in [ALT_SVC, STRICT_TRANSPORT_SECURITY] {
        headers.remove(name);
    }
    for name in [LOCATION, CONTENT_LOCATION] {
        if let Some(value) = headers.get(&name).and_then(|value| value.to_str().ok()) {
            let value = location::location(value, arrival);
            set(&mut headers, name, &value);
        }
    }
    let cookies: Vec<HeaderValue> = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter_map(|value| HeaderValue::try_from(location::set_cookie(value.to_str().ok()?, arrival)?).ok())
        .collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
    if matches!(arrival.form, Form::Prefix(_)) {
        for name in &ABOUT_ORIGIN {
            headers.remove(name);
        }
        // A page from a sandbox must not act as a page of the daemon.
        headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    }
    headers
}

/// Whether a request's `Origin`, of any scheme, is this host and port.
pub fn is_same_origin(headers: &HeaderMap, authority: &str) -> bool {
    origin_authority(headers).is_some_and(|origin| origin.eq_ignore_ascii_case(authority))
}

/// The host and port in `Origin`.
pub fn origin_authority(headers: &HeaderMap) -> Option<&str> {
    let (scheme, authority) = headers.get(ORIGIN)?.to_str().ok()?.split_once("://")?;
    matches!(scheme, "http" | "https").then_some(authority)
}

fn without_connection(given: &HeaderMap) -> HeaderMap {
    let mut headers = given.clone();
    for named in list(given, &CONNECTION) {
        headers.remove(named);
    }
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
    headers
}

fn keep_cookies(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for value in all {
        // Cookies that are not text cannot be told from the daemon's own, so they do not pass.
        let kept = value.to_str().ok().and_then(location::cookies).and_then(|kept| HeaderValue::try_from(kept).ok());
        if let Some(kept) = kept {
            headers.append(COOKIE, kept);
        }
    }
}

/// The words of a header that is a list.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Sets a header. What cannot be a header's value is left out.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    match HeaderValue::try_from(value) {
        Ok(value) => drop(headers.insert(name, value)),
        Err(_) => drop(headers.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arrival::tests::{prefix, preview};
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        headers
    }

    fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
        let mut all: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        all.sort();
        all
    }

    fn text(headers: &HeaderMap, name: &str) -> Option<String> {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_server_is_told_where_it_is_and_nothing_that_is_not_its() {
        let given = map(&[
            ("host", "localhost:8080"),
            ("authorization", "Bearer the-key"),
            ("cookie", "a=1; cove_preview=t"),
            ("connection", "keep-alive, X-Secret-Hop"),
            ("x-secret-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-prefix", "/evil"),
            ("forwarded", "for=203.0.113.9"),
            ("origin", "http://localhost:8080"),
            ("accept", "*/*"),
        ]);
        let sent = request(&given, &prefix(), Authorization::Remove);
        let expected = [
            ("accept", "*/*"),
            ("connection", "close"),
            ("cookie", "a=1"),
            ("host", "localhost:3000"),
            ("origin", "http://localhost:3000"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-host", "localhost:8080"),
            ("x-forwarded-prefix", "/v1/sessions/s/ports/3000"),
            ("x-forwarded-proto", "http"),
        ];
        assert_eq!(pairs(&sent), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let sent = request(&given, &preview(), Authorization::Keep);
        assert_eq!(text(&sent, "authorization").as_deref(), Some("Bearer the-key"));
        assert_eq!(text(&sent, "x-forwarded-prefix"), None);
        // An origin that is not the server's own stays as it is.
        assert_eq!(text(&sent, "origin").as_deref(), Some("http://localhost:8080"));
    }

    #[test]
    fn an_upgrade_is_passed_on_and_only_if_it_was_asked_for() {
        let websocket = map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&websocket).unwrap(), "websocket");
        let sent = request(&websocket, &preview(), Authorization::Keep);
        assert_eq!(text(&sent, "connection").as_deref(), Some("upgrade"));
        assert_eq!(text(&sent, "upgrade").as_deref(), Some("websocket"));
        let half = map(&[("connection", "close"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&half), None);
        assert_eq!(text(&request(&half, &preview(), Authorization::Keep), "upgrade"), None);
    }

    #[test]
    fn an_answer_below_the_prefix_cannot_act_as_the_daemon() {
        let given = map(&[
            ("location", "/login"),
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "cove_preview=x"),
            ("set-cookie", "b=2; Domain=localhost"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("strict-transport-security", "max-age=1"),
            ("clear-site-data", "\"*\""),
            ("content-security-policy", "default-src 'self'"),
        ]);
        let got = answer(&given, &prefix());
        assert_eq!(text(&got, "location").as_deref(), Some("/v1/sessions/s/ports/3000/login"));
        let cookies: Vec<_> = got.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(cookies, ["a=1; Path=/v1/sessions/s/ports/3000/", "b=2"]);
        let policies: Vec<_> = got.get_all("content-security-policy").iter().collect();
        assert_eq!(policies, ["default-src 'self'", "sandbox"]);
        for gone in ["connection", "transfer-encoding", "strict-transport-security", "clear-site-data"] {
            assert_eq!(text(&got, gone), None, "{gone}");
        }
        let got = answer(&given, &preview());
        assert_eq!(text(&got, "location").as_deref(), Some("/login"));
        assert_eq!(got.get_all("content-security-policy").iter().count(), 1);
        assert!(got.contains_key("clear-site-data"));
    }

    proptest! {
        #[test]
        fn the_key_never_passes_below_the_prefix(names in prop::collection::vec("[a-z-]{1,20}|authorization|connection", 0..8)) {
            let mut given = map(&[("authorization", "Bearer secret")]);
            for name in names.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()) {
                given.append(name, HeaderValue::from_static("authorization, x"));
            }
            let sent = request(&given, &prefix(), Authorization::Remove);
            prop_assert!(!sent.contains_key(AUTHORIZATION));
            prop_assert!(sent.values().all(|value| !value.to_str().unwrap().contains("secret")));
        }
    }
}
