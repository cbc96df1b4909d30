//! The part of a request's address after `?`, strictly: what is not known, given twice or badly escaped is an error that
//! names it, since a parameter that is silently ignored is a file deleted that should have been kept.
//!
//! Values are bytes: a name in a filesystem need not be UTF-8. A `+` is a plus.

use percent_encoding::percent_decode_str;
use shared_protocol::{ErrorBody, ErrorCode};

/// Bits that a `mode` parameter can set.
const MAX_MODE: u32 = 0o777;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Vec<(&'static str, Vec<u8>)>);

fn invalid(message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, message)
}

impl Query {
    /// Takes a query apart. Only the names in `known` may be in it.
    pub fn parse(query: &str, known: &[&'static str]) -> Result<Self, ErrorBody> {
        let mut given: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                return Err(invalid(format!("unknown parameter {name:?}; this call has: {}", known.join(", "))));
            };
            if given.iter().any(|(other, _)| other == name) {
                return Err(invalid(format!("the parameter {name} is given twice")));
            }
            if !is_well_escaped(value) {
                return Err(invalid(format!("the parameter {name} has a % without two hexadecimal digits after it")));
            }
            given.push((name, percent_decode_str(value).collect()));
        }
        Ok(Self(given))
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_slice())
    }

    /// A path that must be there.
    pub fn path(&self, name: &str) -> Result<Vec<u8>, ErrorBody> {
        match self.get(name) {
            None => Err(invalid(format!("the parameter {name} is missing"))),
            Some(b"") => Err(invalid(format!("the parameter {name} is empty"))),
            Some(path) if path.contains(&0) => Err(invalid(format!("the parameter {name} has a NUL byte in it"))),
            Some(path) => Ok(path.to_vec()),
        }
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>, ErrorBody> {
        match self.get(name) {
            None => Ok(None),
            Some(b"1") => Ok(Some(true)),
            Some(b"0") => Ok(Some(false)),
            Some(_) => Err(invalid(format!("the parameter {name} must be 0 or 1"))),
        }
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, ErrorBody> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match digits(value).and_then(|text| text.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(format!("the parameter {name} must be a whole number"))),
        }
    }

    /// Permission bits in octal.
    pub fn mode(&self, name: &str) -> Result<Option<u32>, ErrorBody> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match digits(value).and_then(|text| u32::from_str_radix(text, 8).ok()) {
            Some(mode) if mode <= MAX_MODE => Ok(Some(mode)),
            _ => Err(invalid(format!("the parameter {name} must be permission bits in octal, from 0 to 777"))),
        }
    }
}

/// A sign, which the parsers of numbers would take, is not a digit.
fn digits(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_well_escaped(value: &str) -> bool {
    value.split('%').skip(1).all(|after| {
        let mut digits = after.bytes();
        [digits.next(), digits.next()].iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(query: &str) -> String {
        Query::parse(query, &["path", "mode"]).unwrap_err().message
    }

    #[test]
    fn a_value_is_bytes_and_a_plus_is_a_plus() {
        let query = Query::parse("path=a+b%20c%ff&mode=", &["path", "mode"]).unwrap();
        assert_eq!(query.path("path").unwrap(), b"a+b c\xff");
        assert_eq!(query.get("mode"), Some(&b""[..]));
        assert_eq!(Query::parse("", &[]).unwrap(), Query(vec![]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(error("path=a&pth=b").contains("\"pth\""));
        assert!(error("path=a&path=b").contains("twice"));
        assert!(error("path=%zz").contains('%'));
        assert!(error("path=%4").contains('%'));
        let query = Query::parse("path=a%00b&mode=0999", &["path", "mode"]).unwrap();
        assert!(query.path("path").unwrap_err().message.contains("NUL"));
        assert!(query.path("to").unwrap_err().message.contains("missing"));
        assert!(query.mode("mode").unwrap_err().message.contains("octal"));
        assert!(query.flag("mode").unwrap_err().message.contains("0 or 1"));
        assert_eq!(query.number("mode").unwrap(), Some(999));
        assert!(query.number("path").unwrap_err().message.contains("whole number"));
        assert_eq!(query.number("from").unwrap(), None);
    }

    #[test]
    fn modes_are_octal_and_have_no_setuid() {
        let mode = |text: &str| Query::parse(&format!("mode={text}"), &["mode"]).unwrap().mode("mode");
        assert_eq!(mode("644").unwrap(), Some(0o644));
        assert_eq!(mode("0755").unwrap(), Some(0o755));
        for refused in ["4755", "8", "", "+644", "-1", "777777777777777"] {
            assert!(mode(refused).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn every_path_survives_being_encoded(path in proptest::collection::vec(1u8.., 1..40)) {
            let encoded: String = path.iter().map(|byte| format!("%{byte:02X}")).collect();
            let query = Query::parse(&format!("path={encoded}"), &["path"]).unwrap();
            prop_assert_eq!(query.path("path").unwrap(), path);
        }

        #[test]
        fn no_query_makes_it_panic(query: String) {
            let _ = Query::parse(&query, &["path"]);
        }
    }
}
