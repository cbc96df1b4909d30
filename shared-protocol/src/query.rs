//! The parser of query strings, for the daemon and the runner alike. Pure: text in, checked values or an error out.
//!
//! It is strict. A parameter that is unknown, badly escaped, or given twice where one is expected is an error that names the
//! parameter: a misspelt option that is silently ignored deletes a file that should have been kept.
//!
//! Values are bytes, because a file name need not be UTF-8. [`Query::text`] asks for UTF-8.

use std::borrow::Cow;
use std::fmt;

use crate::{ErrorBody, ErrorCode};

/// Permission bits that a `mode` parameter can set: no setuid, setgid or sticky bit.
const MAX_MODE: u32 = 0o777;

/// An unknown name is shown up to this length, so that an error is never larger than a request.
const MAX_SHOWN_CHARS: usize = 64;

/// What a `+` in a value stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plus {
    /// A space, as HTML forms and most client libraries encode it.
    Space,
    /// A plus sign.
    Plus,
}

/// Whether a parameter may be given more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    Refused,
    Allowed,
}

/// The parameters that a call has, and how they are written.
#[derive(Debug, Clone, Copy)]
pub struct Grammar<'a> {
    pub known: &'a [&'static str],
    pub plus: Plus,
    pub repeats: Repeats,
}

/// What is wrong with a query string. The first field is the parameter's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    Unknown { name: String, known: String },
    Repeated(String),
    BadEscape(String),
    Missing(String),
    Empty(String),
    HasNul(String),
    NotAFlag(String),
    NotANumber(String),
    NotAMode(String),
    NotUtf8(String),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, problem) = match self {
            Self::Unknown { name, known } => {
                return write!(f, "unknown parameter {name:?}; this call has: {known}");
            }
            Self::Repeated(name) => (name, "is given twice"),
            Self::BadEscape(name) => (name, "has a % without two hexadecimal digits after it"),
            Self::Missing(name) => (name, "is missing"),
            Self::Empty(name) => (name, "is empty"),
            Self::HasNul(name) => (name, "has a NUL byte in it"),
            Self::NotAFlag(name) => (name, "must be 1, 0, true or false"),
            Self::NotANumber(name) => (name, "must be a whole number"),
            Self::NotAMode(name) => (name, "must be permission bits in octal, from 0 to 777"),
            Self::NotUtf8(name) => (name, "must be UTF-8"),
        };
        write!(f, "the parameter {name} {problem}")
    }
}

impl std::error::Error for QueryError {}

impl From<QueryError> for ErrorBody {
    fn from(error: QueryError) -> Self {
        Self::new(ErrorCode::InvalidRequest, error.to_string())
    }
}

/// The parameters of one request, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Vec<(&'static str, Vec<u8>)>);

impl Query {
    /// Takes the text after `?` apart.
    pub fn parse(text: &str, grammar: Grammar<'_>) -> Result<Self, QueryError> {
        let mut given: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (raw_name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let unescaped = unescape(raw_name).unwrap_or(Cow::Borrowed(raw_name.as_bytes()));
            let Some(name) = grammar.known.iter().find(|known| known.as_bytes() == &*unescaped) else {
                let name = raw_name.chars().take(MAX_SHOWN_CHARS).collect();
                return Err(QueryError::Unknown { name, known: grammar.known.join(", ") });
            };
            if grammar.repeats == Repeats::Refused && given.iter().any(|(other, _)| other == name) {
                return Err(QueryError::Repeated((*name).to_owned()));
            }
            let spaced = match grammar.plus {
                Plus::Space if value.contains('+') => Cow::Owned(value.replace('+', " ")),
                _ => Cow::Borrowed(value),
            };
            let Some(value) = unescape(&spaced) else { return Err(QueryError::BadEscape((*name).to_owned())) };
            given.push((name, value.into_owned()));
        }
        Ok(Self(given))
    }

    /// Every parameter that was given, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.0.iter().map(|(name, value)| (*name, value.as_slice()))
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_slice())
    }

    /// A path that must be there: not empty, and without a NUL byte.
    pub fn path(&self, name: &str) -> Result<Vec<u8>, QueryError> {
        match self.get(name) {
            None => Err(QueryError::Missing(name.to_owned())),
            Some(b"") => Err(QueryError::Empty(name.to_owned())),
            Some(path) if path.contains(&0) => Err(QueryError::HasNul(name.to_owned())),
            Some(path) => Ok(path.to_vec()),
        }
    }

    pub fn flag(&self, name: &str) -> Result<Option<bool>, QueryError> {
        match self.get(name) {
            None => Ok(None),
            Some(b"1" | b"true") => Ok(Some(true)),
            Some(b"0" | b"false") => Ok(Some(false)),
            Some(_) => Err(QueryError::NotAFlag(name.to_owned())),
        }
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, QueryError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        whole_number(value).map(Some).ok_or_else(|| QueryError::NotANumber(name.to_owned()))
    }

    /// Permission bits in octal.
    pub fn mode(&self, name: &str) -> Result<Option<u32>, QueryError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match digits(value).and_then(|text| u32::from_str_radix(text, 8).ok()) {
            Some(mode) if mode <= MAX_MODE => Ok(Some(mode)),
            _ => Err(QueryError::NotAMode(name.to_owned())),
        }
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>, QueryError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        std::str::from_utf8(value).map(Some).map_err(|_| QueryError::NotUtf8(name.to_owned()))
    }
}

/// A number written in digits alone: the standard parser would also take a sign.
pub fn whole_number(value: &[u8]) -> Option<u64> {
    digits(value)?.parse().ok()
}

fn digits(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Decodes percent escapes; `None` where a `%` has no two hexadecimal digits after it.
pub fn unescape(text: &str) -> Option<Cow<'_, [u8]>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = behind;
            continue;
        }
        let (escape, behind) = behind.split_first_chunk::<2>()?;
        bytes.push((hex_digit(escape[0])? << 4) | hex_digit(escape[1])?);
        rest = behind;
    }
    Some(Cow::Owned(bytes))
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grammar<'a>(known: &'a [&'static str], plus: Plus) -> Grammar<'a> {
        Grammar { known, plus, repeats: Repeats::Refused }
    }

    fn parse(text: &str) -> Result<Query, QueryError> {
        Query::parse(text, grammar(&["path", "mode"], Plus::Plus))
    }

    #[test]
    fn a_value_is_bytes_and_a_plus_is_what_the_grammar_says() {
        let query = parse("path=a+b%20c%ff&mode=").unwrap();
        assert_eq!(query.path("path").unwrap(), b"a+b c\xff");
        assert_eq!(query.get("mode"), Some(&b""[..]));
        let query = Query::parse("path=a+b%2B%ff", grammar(&["path"], Plus::Space)).unwrap();
        assert_eq!(query.path("path").unwrap(), b"a b+\xff");
        assert_eq!(parse("").unwrap(), Query(vec![]));
        assert_eq!(parse("p%61th=x").unwrap().get("path"), Some(&b"x"[..]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let unknown = QueryError::Unknown { name: "pth".into(), known: "path, mode".into() };
        assert_eq!(parse("path=a&pth=b"), Err(unknown));
        assert_eq!(parse("path=a&path=b"), Err(QueryError::Repeated("path".into())));
        for bad in ["path=%zz", "path=%4", "path=%", "path=%é"] {
            assert_eq!(parse(bad), Err(QueryError::BadEscape("path".into())), "{bad}");
        }
        let query = parse("path=a%00b&mode=0999").unwrap();
        assert_eq!(query.path("path"), Err(QueryError::HasNul("path".into())));
        assert_eq!(query.path("to"), Err(QueryError::Missing("to".into())));
        assert_eq!(query.mode("mode"), Err(QueryError::NotAMode("mode".into())));
        assert_eq!(query.flag("mode"), Err(QueryError::NotAFlag("mode".into())));
        assert_eq!(query.number("mode"), Ok(Some(999)));
        assert_eq!(query.number("path"), Err(QueryError::NotANumber("path".into())));
        assert_eq!(query.number("from"), Ok(None));
        assert_eq!(parse("path=%ff").unwrap().text("path"), Err(QueryError::NotUtf8("path".into())));
        assert_eq!(parse("path=").unwrap().path("path"), Err(QueryError::Empty("path".into())));
        let shown = parse(&format!("{}=1", "x".repeat(1000))).unwrap_err().to_string();
        assert!(shown.len() < 200, "{shown}");
    }

    #[test]
    fn a_parameter_may_repeat_where_the_call_says_so() {
        let grammar = Grammar { known: &["label", "status"], plus: Plus::Space, repeats: Repeats::Allowed };
        let query = Query::parse("label=a&status=b&label=c", grammar).unwrap();
        let pairs: Vec<_> = query.pairs().collect();
        assert_eq!(pairs, [("label", &b"a"[..]), ("status", b"b"), ("label", b"c")]);
    }

    #[test]
    fn modes_are_octal_and_have_no_setuid() {
        let mode = |text: &str| parse(&format!("mode={text}")).unwrap().mode("mode");
        assert_eq!(mode("644").unwrap(), Some(0o644));
        assert_eq!(mode("0755").unwrap(), Some(0o755));
        for refused in ["4755", "8", "", "+644", "-1", "777777777777777"] {
            assert!(mode(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn flags_are_written_in_two_ways() {
        for (text, expected) in [("1", true), ("true", true), ("0", false), ("false", false)] {
            assert_eq!(parse(&format!("mode={text}")).unwrap().flag("mode"), Ok(Some(expected)));
        }
    }

    proptest! {
        #[test]
        fn every_path_survives_being_encoded(path in proptest::collection::vec(1u8.., 1..40)) {
            let encoded: String = path.iter().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(parse(&format!("path={encoded}")).unwrap().path("path").unwrap(), path);
        }

        #[test]
        fn no_query_makes_it_panic(query: String) {
            let _ = parse(&query);
            let _ = parse(&format!("path={query}"));
        }
    }
}
