//! Parts of a request, taken so that whatever is wrong with them is answered in the error shape.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use shared_protocol::{ErrorCode, SessionId, WorkspaceId};

use super::error::ApiError;
use super::intake::Intake;

/// Anything of size goes through `files` and `archive`, as a stream.
pub const MAX_JSON_BODY_BYTES: usize = 16 << 20;
/// For the whole of it, however busily it trickles.
const JSON_BODY_DEADLINE: Duration = Duration::from_secs(120);
/// Bounds the answer's size, not the client's imagination.
const MAX_SHOWN_CHARS: usize = 64;

/// A JSON document of one type, with no field that the type has not.
pub struct ApiJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let body = json_body(request).await?;
        parse(&body).map(Self)
    }
}

/// As `ApiJson`; an empty body is as good as `{}`.
pub struct JsonOrNothing<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for JsonOrNothing<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let body = json_body(request).await?;
        if body.is_empty() { Ok(Self(T::default())) } else { parse(&body).map(Self) }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // Serde would read a list as the fields of a struct, in their order.
    if body.trim_ascii_start().first().is_some_and(|first| *first == b'[') {
        return Err(ApiError::invalid("the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|e| ApiError::invalid(format!("the body is not what this call takes: {e}")))
}

async fn json_body(request: Request) -> Result<Bytes, ApiError> {
    let too_large =
        || ApiError::new(ErrorCode::TooLarge, format!("a JSON body has at most {MAX_JSON_BODY_BYTES} bytes"));
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let content_type = check_content_type(request.headers());
    let (intake, passing) = Intake::new(request.into_body());
    let read = async {
        // Before a byte of it is kept, where the client says how many there are.
        if length.is_some_and(|length| length > MAX_JSON_BODY_BYTES as u64) {
            return Err(too_large());
        }
        content_type?;
        let body = Limited::new(passing, MAX_JSON_BODY_BYTES);
        match tokio::time::timeout(JSON_BODY_DEADLINE, body.collect()).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(error)) => Err(ApiError::invalid(format!("the body could not be read: {error}"))),
            Err(_) => {
                Err(ApiError::invalid(format!("the body was not there after {} s", JSON_BODY_DEADLINE.as_secs())))
            }
        }
    };
    let read = read.await;
    if read.is_err() {
        intake.drain().await;
    }
    read
}

/// A client that does not say what it sends is believed to send JSON; one that says otherwise is not.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    Err(ApiError::invalid("send the body as JSON, with the header Content-Type: application/json"))
}

/// The session that the path names, `/v1/sessions/{session_id}/…`. Whether there is one is the registry's to say.
pub struct SessionPath(pub SessionId);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(SessionId::new(named_in(parts.uri.path()))?))
    }
}

/// The workspace that the path names, `/v1/workspaces/{workspace_id}/…`.
pub struct WorkspacePath(pub WorkspaceId);

impl<S: Send + Sync> FromRequestParts<S> for WorkspacePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(WorkspaceId::new(named_in(parts.uri.path()))?))
    }
}

/// The image that the path names, `/v1/pools/{image}`. A name may have any character, escaped.
pub struct ImagePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for ImagePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        decoded(named_in(parts.uri.path())).map(Self)
    }
}

/// As it came: an id has no character that needs an escape.
fn named_in(path: &str) -> &str {
    path.split('/').nth(3).unwrap_or_default()
}

/// The parameters behind the `?`, in their order. Which may be there is the handler's to say.
pub struct QueryPairs(pub Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for QueryPairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        });
        pairs.collect::<Result<_, ApiError>>().map(Self)
    }
}

fn decoded(text: &str) -> Result<String, ApiError> {
    let well_escaped = text.split('%').skip(1).all(|after| {
        let digits = after.as_bytes();
        digits.len() >= 2 && digits[..2].iter().all(u8::is_ascii_hexdigit)
    });
    let spaced = text.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(text) if well_escaped => Ok(text.into_owned()),
        _ => Err(ApiError::invalid(format!("{:?} in the query is not percent-encoded UTF-8", shown(text)))),
    }
}

/// Refuses a parameter that the call has not: one that is misspelt must not be silently ignored.
pub fn unknown_parameter(name: &str, known: &str) -> ApiError {
    ApiError::invalid(format!("unknown parameter {:?}; this call has: {known}", shown(name)))
}

pub fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// A header as text, where it is there.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::invalid(format!("the header {name} must be plain ASCII")))?;
    Ok(Some(text))
}

/// All headers, for handlers that want a few.
pub struct Headers(pub HeaderMap);

impl<S: Send + Sync> FromRequestParts<S> for Headers {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.clone()))
    }
}
