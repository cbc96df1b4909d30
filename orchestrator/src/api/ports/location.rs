//! Addresses and cookies in the answers of a server in a sandbox, as they have to be outside. Pure.

use super::arrival::{Arrival, Form};

/// Cookies with this beginning belong to the daemon: no server in a sandbox sees or sets them.
pub const OWN_COOKIES: &str = "cove_";

/// The value of `Location` for the client. Addresses of other servers and relative ones stay as they are.
pub fn location(value: &str, arrival: &Arrival) -> String {
    if value.starts_with('/') && !value.starts_with("//") {
        return match &arrival.form {
            Form::Preview => value.to_owned(),
            Form::Prefix(_) => arrival.outer_path(value),
        };
    }
    let Some(rest) = after_scheme(value) else { return value.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_of_daemon = matches!(arrival.form, Form::Prefix(_)) && authority.eq_ignore_ascii_case(&arrival.authority);
    if !arrival.is_inner(authority) && !is_of_daemon {
        return value.to_owned();
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    arrival.outer_path(&path)
}

/// What follows `http://`, `https://` or a bare `//`.
fn after_scheme(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once("//")?;
    ["", "http:", "https:"].iter().any(|known| scheme.eq_ignore_ascii_case(known)).then_some(rest)
}

/// The value of `Set-Cookie` for the client, or `None` if the server may not set it. A cookie is for this host alone, and below
/// the API's path only for this port.
pub fn set_cookie(value: &str, arrival: &Arrival) -> Option<String> {
    let mut parts = value.split(';');
    let pair = parts.next().unwrap_or_default();
    if is_own_cookie(pair) {
        return None;
    }
    let mut cookie = pair.trim().to_owned();
    for part in parts {
        let (name, given) = part.split_once('=').unwrap_or((part, ""));
        let (name, given) = (name.trim(), given.trim());
        if name.eq_ignore_ascii_case("domain") {
            continue;
        }
        cookie.push_str("; ");
        match (&arrival.form, given.starts_with('/')) {
            (Form::Prefix(_), true) if name.eq_ignore_ascii_case("path") => {
                cookie.push_str("Path=");
                cookie.push_str(&arrival.outer_path(given));
            }
            _ => cookie.push_str(part.trim()),
        }
    }
    Some(cookie)
}

/// The value of `Cookie` for the server, without the daemon's own. `None` if none is left.
pub fn cookies(value: &str) -> Option<String> {
    let kept: Vec<&str> =
        value.split(';').map(str::trim).filter(|pair| !pair.is_empty() && !is_own_cookie(pair)).collect();
    if kept.is_empty() { None } else { Some(kept.join("; ")) }
}

/// The value of a cookie with this name.
pub fn cookie<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    let named = |pair: &'a str| pair.trim().strip_prefix(name)?.strip_prefix('=');
    value.split(';').find_map(named)
}

fn is_own_cookie(pair: &str) -> bool {
    let pair = pair.trim_start();
    pair.get(..OWN_COOKIES.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN_COOKIES))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arrival::tests::{prefix, preview};
    use super::*;

    #[test]
    fn a_redirect_leads_to_where_the_client_finds_it() {
        for (inner, below_prefix, on_host) in [
            ("/login?a=b", "/v1/sessions/s/ports/3000/login?a=b", "/login?a=b"),
            ("http://localhost:3000/x", "/v1/sessions/s/ports/3000/x", "/x"),
            ("HTTP://127.0.0.1:3000", "/v1/sessions/s/ports/3000/", "/"),
            ("http://[::1]:3000?q", "/v1/sessions/s/ports/3000/?q", "/?q"),
            ("//localhost:3000/x", "/v1/sessions/s/ports/3000/x", "/x"),
            ("http://localhost:3000//evil.example", "/v1/sessions/s/ports/3000//evil.example", "/.//evil.example"),
            ("relative/x", "relative/x", "relative/x"),
            ("?page=2", "?page=2", "?page=2"),
            ("https://example.com/x", "https://example.com/x", "https://example.com/x"),
            ("http://localhost:3001/x", "http://localhost:3001/x", "http://localhost:3001/x"),
        ] {
            assert_eq!(location(inner, &prefix()), below_prefix, "{inner}");
            assert_eq!(location(inner, &preview()), on_host, "{inner}");
        }
        // A server that heeds X-Forwarded-Prefix or X-Forwarded-Host.
        assert_eq!(location("/v1/sessions/s/ports/3000/x", &prefix()), "/v1/sessions/s/ports/3000/x");
        assert_eq!(
            location("/v1/sessions/s/ports/30001", &prefix()),
            "/v1/sessions/s/ports/3000/v1/sessions/s/ports/30001"
        );
        assert_eq!(location("http://localhost:8080/x", &prefix()), "/v1/sessions/s/ports/3000/x");
        assert_eq!(location("http://3000-s.localhost:8080/x", &preview()), "http://3000-s.localhost:8080/x");
    }

    #[test]
    fn a_cookie_is_for_this_host_and_below_the_prefix_for_this_port() {
        let cookie = "id=1; Path=/app; Domain=localhost; HttpOnly; SameSite=Lax";
        let below = set_cookie(cookie, &prefix()).unwrap();
        assert_eq!(below, "id=1; Path=/v1/sessions/s/ports/3000/app; HttpOnly; SameSite=Lax");
        assert_eq!(set_cookie(cookie, &preview()).unwrap(), "id=1; Path=/app; HttpOnly; SameSite=Lax");
        assert_eq!(set_cookie("id=1;path=/ ;DOMAIN = a", &prefix()).unwrap(), "id=1; Path=/v1/sessions/s/ports/3000/");
        for own in ["cove_preview=x; Path=/", " Cove_anything=1"] {
            assert_eq!(set_cookie(own, &preview()), None, "{own}");
        }
    }

    #[test]
    fn the_daemons_cookies_stay_outside() {
        assert_eq!(cookies("a=1; cove_preview=secret; b=2").as_deref(), Some("a=1; b=2"));
        assert_eq!(cookies("cove_preview=secret"), None);
        assert_eq!(cookies("; ;"), None);
        assert_eq!(cookie("a=1; cove_preview=secret; b=2", "cove_preview"), Some("secret"));
        assert_eq!(cookie("xcove_preview=1;cove_previewx=2", "cove_preview"), None);
    }

    proptest! {
        #[test]
        fn no_cookie_of_the_daemon_gets_through(text in "[a-z_=; C]{0,40}") {
            if let Some(kept) = cookies(&text) {
                prop_assert!(kept.split(';').all(|pair| !pair.trim().to_lowercase().starts_with(OWN_COOKIES)));
            }
            if let Some(set) = set_cookie(&text, &preview()) {
                prop_assert!(!set.to_lowercase().starts_with(OWN_COOKIES));
            }
        }

        #[test]
        fn below_the_prefix_no_path_leaves_it(path in "/[a-z/.?#]{0,20}") {
            prop_assert!(location(&path, &prefix()).starts_with("/v1/sessions/s/ports/3000/") || path.starts_with("//"));
        }
    }
}
