//! What a registry says in `WWW-Authenticate`: how to prove who asks. Pure.

/// The first scheme of an answer 401 that we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    /// A token of `realm` is wanted, for `service` and `scope`.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads one header. A token is preferred: a registry that offers both means it for programs.
    pub fn parse(header: &str) -> Option<Self> {
        let mut found = None;
        for (scheme, parameters) in schemes(header) {
            if scheme.eq_ignore_ascii_case("bearer") {
                let of = |name: &str| {
                    parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
                };
                if let Some(realm) = of("realm") {
                    return Some(Self::Bearer { realm, service: of("service"), scope: of("scope") });
                }
            } else if scheme.eq_ignore_ascii_case("basic") {
                found = Some(Self::Basic);
            }
        }
        found
    }
}

type Parameters = Vec<(String, String)>;

/// Takes a header apart: `SCHEME name=value, name="quoted", SCHEME …`.
fn schemes(header: &str) -> Vec<(String, Parameters)> {
    let mut found: Vec<(String, Parameters)> = Vec::new();
    let mut rest = header.trim_start_matches([' ', ',']);
    while !rest.is_empty() {
        let end = rest.find([' ', '=', ',']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_parameter = after.trim_start().starts_with('=') && !word.is_empty();
        if is_parameter {
            let value_at = after.trim_start().get(1..).unwrap_or_default().trim_start();
            let (value, after) = value(value_at);
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((word.to_owned(), value));
            }
            rest = after;
        } else {
            if !word.is_empty() {
                found.push((word.to_owned(), Vec::new()));
            }
            rest = after;
        }
        rest = rest.trim_start_matches([' ', ',']);
        // Whatever else stands there is passed over, so that every turn of the loop gets further.
        rest = rest.strip_prefix('=').unwrap_or(rest);
    }
    found
}

/// A value, quoted or not, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        let (service, scope) = (service.map(str::to_owned), scope.map(str::to_owned));
        Some(Challenge::Bearer { realm: realm.into(), service, scope })
    }

    #[test]
    fn a_token_is_asked_for_with_realm_service_and_scope() {
        let header = r#"Bearer realm="https://auth.example.com/token",service="registry.example.com",scope="repository:a/b:pull,push""#;
        let expected =
            bearer("https://auth.example.com/token", Some("registry.example.com"), Some("repository:a/b:pull,push"));
        assert_eq!(Challenge::parse(header), expected);
        assert_eq!(Challenge::parse(r#"bearer REALM = "x\"y" , scope=z"#), bearer("x\"y", None, Some("z")));
    }

    #[test]
    fn a_token_is_preferred_to_a_password_and_the_unknown_is_passed_over() {
        assert_eq!(Challenge::parse("Basic realm=\"r\""), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Basic realm=\"r\", Bearer realm=\"t\""), bearer("t", None, None));
        assert_eq!(Challenge::parse("Negotiate, Basic realm=x"), Some(Challenge::Basic));
        for nothing in ["", "Negotiate", "Bearer", "Bearer service=x", "=,=", "\"", "realm=x"] {
            assert_eq!(Challenge::parse(nothing), None, "{nothing:?}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_to_its_end(header in "[ -~]{0,60}") {
            let _ = Challenge::parse(&header);
        }
    }
}
