//! Reads a request's JSON, with limits of size and time.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::Request;
use serde::de::DeserializeOwned;
use shared_protocol::{ErrorBody, ErrorCode};

use super::request_body::RequestBody;

/// The most bytes of a request: the 16 MiB that the daemon takes from a client, and room for the fields that it adds.
pub const MAX_JSON_BYTES: usize = (16 << 20) + (64 << 10);

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn json<T: DeserializeOwned>(request: Request<RequestBody>) -> Result<T, ErrorBody> {
    let too_large = || {
        ErrorBody::new(ErrorCode::TooLarge, format!("a request may have {MAX_JSON_BYTES} bytes; use files for more"))
    };
    if http_body::Body::size_hint(request.body()).lower() > MAX_JSON_BYTES as u64 {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(request.into_body(), MAX_JSON_BYTES).collect())
        .await
        .map_err(|_| ErrorBody::new(ErrorCode::InvalidRequest, "the request's body did not arrive in time"))?;
    match collected {
        Ok(body) => decode(&body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ErrorBody::new(ErrorCode::InvalidRequest, format!("the request was cut off: {error}"))),
    }
}

/// Decodes a JSON request. Pure, and fuzzed.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(bytes)
        .map_err(|error| ErrorBody::new(ErrorCode::InvalidRequest, format!("the request is not valid: {error}")))
}
