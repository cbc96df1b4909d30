//! What every request passes: an id, the decision whether it may, one line in the log, a count of errors, and a bound on how
//! long its body may stall. Never looks into bodies, and logs neither keys nor queries nor headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, HeaderName,
    HeaderValue, VARY, WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode};
use shared_protocol::{ErrorBody, ErrorCode, SessionId};

use super::access::AccessPolicy;
use super::stall::StallingBody;
use crate::api::error::ApiError;
use crate::metrics::Metrics;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Past this, a client's own request id is replaced.
const MAX_REQUEST_ID_BYTES: usize = 64;

pub struct Gate {
    policy: AccessPolicy,
    metrics: Metrics,
    stall_timeout: Duration,
    /// Ids of requests: a random part for this start of the daemon, and a number.
    run: u32,
    made: AtomicU64,
}

impl Gate {
    pub fn new(policy: AccessPolicy, metrics: Metrics, stall_timeout: Duration) -> Arc<Self> {
        // Ids need to differ, not to be secret.
        let run = getrandom::u32().unwrap_or_else(|_| std::process::id());
        Arc::new(Self { policy, metrics, stall_timeout, run, made: AtomicU64::new(0) })
    }

    /// The client's own, if it is one that can stand in a log line.
    fn request_id(&self, request: &Request) -> HeaderValue {
        let given = request.headers().get(&REQUEST_ID).filter(|value| {
            let bytes = value.as_bytes();
            let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(plain)
        });
        given.cloned().unwrap_or_else(|| {
            let id = format!("{:08x}-{}", self.run, self.made.fetch_add(1, Ordering::Relaxed));
            HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("-"))
        })
    }
}

pub async fn pass(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = gate.request_id(&request);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let session_id = session_in(request.uri().path());
    let shared_with = gate.policy.shared_with(request.headers()).cloned();

    let mut response = match gate.policy.check(request.uri(), request.headers()) {
        // A browser asks first, and cannot send the key with that.
        Err(ErrorBody { error_code: ErrorCode::Unauthorized, .. })
            if shared_with.is_some() && is_preflight(&request) =>
        {
            preflight()
        }
        Err(body) => refusal(body),
        Ok(()) => {
            if !request.body().is_end_stream() {
                request = request.map(|body| Body::new(StallingBody::new(body, gate.stall_timeout)));
            }
            next.run(request).await
        }
    };
    let status = response.status();
    let code = response.extensions().get::<ErrorCode>().copied();
    if let Some(code) = code {
        gate.metrics.error(code);
    }
    tracing::info!(
        request_id = id.to_str().unwrap_or_default(),
        method = %short(&method),
        route = route.as_ref().map_or("-", MatchedPath::as_str),
        status = status.as_u16(),
        duration_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        session_id = session_id.as_ref().map(SessionId::as_str),
        error_code = code.map(tracing::field::debug),
        "request"
    );
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(origin) = shared_with {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// A stranger gets an answer and no second request on the same connection: it could be kept open for nothing.
fn refusal(body: ErrorBody) -> Response {
    let unauthorized = body.error_code == ErrorCode::Unauthorized;
    let mut response = ApiError(body).into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if unauthorized {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight() -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, DELETE"),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key, last-event-id, range, x-request-id",
        ),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// A method is the client's to invent, at any length.
fn short(method: &Method) -> String {
    method.as_str().chars().take(16).collect()
}

fn session_in(path: &str) -> Option<SessionId> {
    let id = path.strip_prefix("/v1/sessions/")?.split('/').next()?;
    SessionId::new(id).ok()
}
