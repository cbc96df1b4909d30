//! Claims a pooled sandbox for a session, with the session's variables. It works once.

use hyper::{Method, Request};
use shared_protocol::runner::{ClaimRequest, MAX_ENV_BYTES, MAX_ENV_VALUE_BYTES, check_variables};
use shared_protocol::{ErrorBody, ErrorCode};

use super::app::SharedApp;
use super::body::{self, Reply};
use super::request_body::RequestBody;
use super::{allow, request};

pub async fn claim(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let request: ClaimRequest = request::json(request).await?;
    check(&request)?;
    if !app.environment.claim(request.env) {
        return Err(ErrorBody::new(ErrorCode::Conflict, "this sandbox was claimed before"));
    }
    app.shells.get(None)?.claim().await?;
    Ok(body::json(200, &serde_json::json!({ "ok": true })))
}

/// Checks the request. Pure: a refusal has no effect.
fn check(request: &ClaimRequest) -> Result<(), ErrorBody> {
    check_variables(&request.env)?;
    let size = |(name, value): (&String, &String)| name.len() + value.len();
    if request.env.iter().map(size).any(|bytes| bytes > MAX_ENV_VALUE_BYTES) {
        let message = format!("a variable is longer than {MAX_ENV_VALUE_BYTES} bytes");
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    if request.env.iter().map(size).sum::<usize>() > MAX_ENV_BYTES {
        let message = format!("the variables have more than {MAX_ENV_BYTES} bytes");
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bounded_one_by_one_and_together() {
        let with = |count: usize, bytes: usize| ClaimRequest {
            env: (0..count).map(|n| (format!("V{n:03}"), "x".repeat(bytes - 4))).collect(),
        };
        assert!(check(&with(1, MAX_ENV_VALUE_BYTES)).is_ok());
        assert!(check(&with(1, MAX_ENV_VALUE_BYTES + 1)).is_err());
        assert!(check(&with(16, MAX_ENV_BYTES / 16)).is_ok());
        assert!(check(&with(17, MAX_ENV_BYTES / 16)).is_err());
    }
}
