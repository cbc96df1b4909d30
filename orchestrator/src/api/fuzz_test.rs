//! What the fuzzer of HTTP requests asserts; see `fuzz/`. The test replays its inputs.

use std::fmt::Debug;

use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared_protocol::ErrorCode;
use shared_protocol::api::{ApiExecRequest, ApiRunRequest, CreateSessionRequest};

use super::error::ApiError;
use super::extract::{
    self, ExecPath, FilePath, ImagePath, PlacePath, SessionPath, ShellPath, WorkspacePath, byte_range, query,
    repeated_query,
};
use super::paths_without_key;
use crate::server::access::AccessPolicy;
use crate::service::{Caller, Role};

const KEY: &str = "the-right-key";

/// An error shows at most as much as the client sent, and a little more.
const LONGEST_ERROR: usize = 1024;

/// Any request is taken apart or refused as an error of the client, and nobody comes in without the key.
///
/// The first line of an input is the address, the lines up to an empty one are headers, the rest is the body.
pub fn http(bytes: &[u8]) {
    let (head, body) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &b""[..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let Ok(uri) = Uri::try_from(lines.next().unwrap_or_default()) else { return };
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    nobody_comes_in_without_the_key(&uri, &headers);
    let is_the_clients = |error: ApiError| {
        let body = error.0;
        assert!(
            body.error_code != ErrorCode::InternalError && body.message.len() < bytes.len() + LONGEST_ERROR,
            "{body:?}"
        );
    };
    if let Err(error) = byte_range(&headers) {
        is_the_clients(error);
    }
    for parsed in [query(&uri, &["path", "from"]), repeated_query(&uri, &["label", "status"])] {
        if let Err(error) = parsed {
            assert!(error.to_string().len() < LONGEST_ERROR);
        }
    }
    for refused in addresses(&uri) {
        is_the_clients(refused);
    }
    survives::<CreateSessionRequest>(body, is_the_clients);
    survives::<ApiExecRequest>(body, is_the_clients);
    survives::<ApiRunRequest>(body, is_the_clients);
}

fn nobody_comes_in_without_the_key(uri: &Uri, headers: &HeaderMap) {
    let policy = AccessPolicy {
        identify: Box::new(|secret| (secret == KEY.as_bytes()).then(|| Caller::of("somebody", Role::Admin))),
        open_paths: paths_without_key(),
        listen: ([127, 0, 0, 1], 8080).into(),
        allowed_hosts: vec!["cove.example".into()],
        allowed_origins: vec!["https://app.example".into()],
    };
    let holds_key = |value: &HeaderValue| value.as_bytes().ends_with(KEY.as_bytes());
    match policy.check(uri, headers) {
        Ok(Some(_)) => assert!(headers.get_all(AUTHORIZATION).iter().any(holds_key)),
        Ok(None) => assert!(paths_without_key().contains(&uri.path())),
        Err(refused) => assert_ne!(refused.error_code, ErrorCode::InternalError),
    }
}

/// The errors of everything that can be read from an address.
fn addresses(uri: &Uri) -> impl Iterator<Item = ApiError> {
    let errors = [
        SessionPath::read(uri).err(),
        WorkspacePath::read(uri).err(),
        PlacePath::read(uri).err(),
        ImagePath::read(uri).err(),
        ShellPath::read(uri).err(),
        ExecPath::read(uri).err(),
        FilePath::read(uri).err(),
    ];
    errors.into_iter().flatten()
}

/// What was read from a body is the same when it is written and read again.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8], refused: impl Fn(ApiError)) {
    match extract::parse_json::<T>(body) {
        Err(error) => refused(error),
        Ok(request) => {
            let again = serde_json::to_vec(&request).expect("a request can be written");
            assert_eq!(extract::parse_json::<T>(&again).ok().as_ref(), Some(&request));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("http", http);
    }
}
