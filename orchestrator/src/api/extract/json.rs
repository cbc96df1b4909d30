//! Reads JSON bodies, limited in size and time. The error of a refused body says what is wrong with it.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use serde::de::DeserializeOwned;
use shared_protocol::ErrorCode;

use super::intake::Intake;
use crate::api::error::ApiError;

/// The largest JSON body. Larger content goes through `files`, `archive` and `runs/{exec_id}/stdin`, as a stream.
pub const MAX_JSON_BODY_BYTES: usize = 16 << 20;
/// The longest time in which a whole body must arrive, even if it arrives steadily.
const JSON_BODY_DEADLINE: Duration = Duration::from_secs(120);

/// A JSON document of one type. A field that the type does not have is refused.
pub struct ApiJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let body = json_body(request).await?;
        parse(&body).map(Self)
    }
}

/// The same as `ApiJson`, but an empty body means `{}`.
pub struct JsonOrNothing<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for JsonOrNothing<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let body = json_body(request).await?;
        if body.is_empty() { Ok(Self(T::default())) } else { parse(&body).map(Self) }
    }
}

pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // Serde would accept a list as the fields of a struct, in order.
    if body.trim_ascii_start().first().is_some_and(|first| *first == b'[') {
        return Err(ApiError::invalid("the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|e| ApiError::invalid(format!("the body is not what this call takes: {e}")))
}

async fn json_body(request: Request) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!(
            "a JSON body has at most {MAX_JSON_BODY_BYTES} bytes; write larger content to a file with PUT …/files/PATH, or \
             send it to the open standard input of a run with POST …/runs/EXEC_ID/stdin"
        );
        ApiError::new(ErrorCode::TooLarge, message)
    };
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let content_type = check_content_type(request.headers());
    let (intake, body) = Intake::new(request.into_body());
    let read = async {
        // If the client announces the length, a body that is too long is refused before any of it is stored.
        if length.is_some_and(|length| length > MAX_JSON_BODY_BYTES as u64) {
            return Err(too_large());
        }
        content_type?;
        let body = Limited::new(body, MAX_JSON_BODY_BYTES);
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

/// Refuses a body that is not JSON. A client that sends no content type is assumed to send JSON.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    Err(ApiError::invalid("send the body as JSON, with the header Content-Type: application/json"))
}
