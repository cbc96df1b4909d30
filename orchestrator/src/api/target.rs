//! What a request's address names, taken from it as it came: a file's name can have any bytes, and a decoded string cannot.
//!
//! Parameters are strict: one that is not known, given twice or badly escaped is an error that names it, since one that is
//! silently ignored is a file deleted that should have been kept. In a parameter a `+` is a space, as every client library
//! encodes it; in the path it is a plus.

use hyper::Uri;
use percent_encoding::percent_decode;
use shared_protocol::{ErrorBody, ErrorCode, ExecId, SessionId, ShellName};

use super::error::ApiError;

pub fn invalid(message: impl Into<String>) -> ApiError {
    ApiError(ErrorBody::new(ErrorCode::InvalidRequest, message))
}

/// `/v1/KIND/ID/REST`: the part of that number, counted from `v1` as 0; the last one has all that follows.
fn part(uri: &Uri, number: usize, parts: usize) -> &str {
    uri.path().strip_prefix('/').unwrap_or_default().splitn(parts, '/').nth(number).unwrap_or_default()
}

pub fn session_id(uri: &Uri) -> Result<SessionId, ApiError> {
    Ok(SessionId::new(part(uri, 2, 4))?)
}

/// Of `/v1/sessions/{id}/shells/{name}` and what lies below.
pub fn shell_name(uri: &Uri) -> Result<ShellName, ApiError> {
    Ok(ShellName::new(part(uri, 4, 6))?)
}

/// Of `/v1/sessions/{id}/execs/{exec_id}`.
pub fn exec_id(uri: &Uri) -> Result<ExecId, ApiError> {
    Ok(ExecId::new(part(uri, 4, 6))?)
}

/// Of `/v1/sessions/{id}/files/{path}`: everything behind `files/`, so that an absolute path begins with a second slash.
pub fn file_path(uri: &Uri) -> Result<Vec<u8>, ApiError> {
    let raw = part(uri, 4, 5);
    if !is_well_escaped(raw) {
        return Err(invalid("the path has a % without two hexadecimal digits after it"));
    }
    checked_path("the path", percent_decode(raw.as_bytes()).collect())
}

pub fn checked_path(what: &str, path: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    match path.as_slice() {
        b"" => Err(invalid(format!("{what} is empty"))),
        path if path.contains(&0) => Err(invalid(format!("{what} has a NUL byte in it"))),
        _ => Ok(path),
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params(Vec<(&'static str, Vec<u8>)>);

impl Params {
    /// Only the names in `known` may be there.
    pub fn parse(uri: &Uri, known: &[&'static str]) -> Result<Self, ApiError> {
        let mut given: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let shown: String = name.chars().take(64).collect();
                return Err(invalid(format!("unknown parameter {shown:?}; this call has: {}", known.join(", "))));
            };
            if given.iter().any(|(other, _)| other == name) {
                return Err(invalid(format!("the parameter {name} is given twice")));
            }
            if !is_well_escaped(value) {
                return Err(invalid(format!("the parameter {name} has a % without two hexadecimal digits after it")));
            }
            let spaced: Vec<u8> = value.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
            given.push((name, percent_decode(&spaced).collect()));
        }
        Ok(Self(given))
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_slice())
    }

    /// A path that must be there.
    pub fn path(&self, name: &str) -> Result<Vec<u8>, ApiError> {
        let given = self.get(name).ok_or_else(|| invalid(format!("the parameter {name} is missing")))?;
        checked_path(&format!("the parameter {name}"), given.to_vec())
    }

    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some(b"0" | b"false") => Ok(false),
            Some(b"1" | b"true") => Ok(true),
            Some(_) => Err(invalid(format!("the parameter {name} must be 1, 0, true or false"))),
        }
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match whole_number(value) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(format!("the parameter {name} must be a whole number"))),
        }
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(value).map_err(|_| invalid(format!("the parameter {name} must be UTF-8")))?;
        Ok(Some(text))
    }
}

/// Digits alone; a sign, which the parser of numbers would take, is none.
pub fn whole_number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

fn is_well_escaped(value: &str) -> bool {
    value.split('%').skip(1).all(|after| {
        let mut digits = after.bytes();
        [digits.next(), digits.next()].iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    fn message(error: ApiError) -> String {
        error.0.message
    }

    #[test]
    fn a_file_path_is_whatever_follows() {
        let path = |text: &str| file_path(&uri(&format!("/v1/sessions/s/files/{text}"))).unwrap();
        assert_eq!(path("a/b"), b"a/b");
        assert_eq!(path("/etc/passwd"), b"/etc/passwd");
        assert_eq!(path("%2Fetc/passwd"), b"/etc/passwd");
        assert_eq!(path("a//b/"), b"a//b/");
        assert_eq!(path("a+b%20c%0A%ff%3F"), b"a+b c\n\xff?");
        assert_eq!(path("files/x/files/y"), b"files/x/files/y");
    }

    #[test]
    fn a_path_that_is_none_is_refused() {
        let refused = |text: &str| message(file_path(&uri(&format!("/v1/sessions/s/files{text}"))).unwrap_err());
        assert!(refused("").contains("empty"));
        assert!(refused("/").contains("empty"));
        assert!(refused("/a%00b").contains("NUL"));
        assert!(refused("/a%zz").contains('%'));
    }

    #[test]
    fn ids_stand_where_they_stand() {
        let uri = uri("/v1/sessions/7183cb80-d6c/shells/main/reset");
        assert_eq!(session_id(&uri).unwrap().as_str(), "7183cb80-d6c");
        assert_eq!(shell_name(&uri).unwrap().as_str(), "main");
        assert!(session_id(&"/v1/sessions".parse().unwrap()).is_err());
        assert!(exec_id(&"/v1/sessions/s/execs/a%2Fb".parse().unwrap()).is_err());
    }

    #[test]
    fn what_is_wrong_with_a_parameter_is_named() {
        let parse = |query: &str| Params::parse(&uri(&format!("/?{query}")), &["path", "follow"]);
        let refused = |query: &str| message(parse(query).unwrap_err());
        assert!(refused("path=a&pth=b").contains("\"pth\""));
        assert!(refused("path=a&path=b").contains("twice"));
        assert!(refused("path=%4").contains('%'));
        assert!(message(parse("follow=yes").unwrap().flag("follow").unwrap_err()).contains("follow"));
        assert!(message(parse("follow=-1").unwrap().number("follow").unwrap_err()).contains("whole"));
        assert!(message(parse("path=").unwrap().path("path").unwrap_err()).contains("empty"));
        assert_eq!(parse("path=a+b%2B%ff").unwrap().path("path").unwrap(), b"a b+\xff");
    }

    proptest! {
        #[test]
        fn every_path_survives_being_encoded(path in proptest::collection::vec(1u8.., 1..40)) {
            let encoded: String = path.iter().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(&file_path(&uri(&format!("/v1/sessions/s/files/{encoded}"))).unwrap(), &path);
            let params = Params::parse(&uri(&format!("/?path={encoded}")), &["path"]).unwrap();
            prop_assert_eq!(params.path("path").unwrap(), path);
        }
    }
}
