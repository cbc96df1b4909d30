//! The gate that every request passes. It gives the request an id, lets it in or refuses it, attaches the caller, counts it
//! among the caller's requests in flight, writes one log line and, if the request changes something, one line of the audit
//! log, counts the error, and ends a body that stalls. It never looks into bodies, and logs no keys, queries or headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, HeaderName,
    HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode};
use shared_protocol::{ErrorBody, ErrorCode, KeyName, SessionId};

use super::access::AccessPolicy;
use super::audit::{AuditLog, AuditRecord, bounded, ids_in};
use super::clients::{Peer, PerClient};
use super::held::{HeldBody, InFlight};
use super::stall::StallingBody;
use crate::api::error::ApiError;
use crate::api::{ClientAddress, Created, CreatedLater, Held};
use crate::metrics::Metrics;
use crate::service::Caller;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest request id that a client may choose. A longer one is replaced.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// What a client waits that has too many requests in flight, in seconds.
const RETRY_SECONDS: &str = "1";

/// The parts that a gate is made of.
pub struct GateParts {
    pub policy: AccessPolicy,
    pub metrics: Metrics,
    pub stall_timeout: Duration,
    /// The most requests in flight of one key.
    pub max_requests_per_key: usize,
    /// `None` for a private daemon, whose one caller knows what it did.
    pub audit: Option<AuditLog>,
    /// The paths whose `get` changes something, from the table of routes.
    pub gets_that_change: Vec<&'static str>,
}

pub struct Gate {
    parts: GateParts,
    in_flight: PerClient<KeyName>,
    /// The random part of the request ids of this daemon process. A number follows it.
    run: u32,
    made: AtomicU64,
}

impl Gate {
    pub fn new(parts: GateParts) -> Arc<Self> {
        // Ids must be different, not secret.
        let run = getrandom::u32().unwrap_or_else(|_| std::process::id());
        let in_flight = PerClient::new(parts.max_requests_per_key);
        Arc::new(Self { parts, in_flight, run, made: AtomicU64::new(0) })
    }

    /// Serves a request of a caller, which has a place among its requests in flight until the answer was sent.
    async fn serve(&self, mut request: Request, caller: &Caller, next: Next) -> Response {
        let Some(place) = self.in_flight.take(caller.name().clone()) else {
            let message = format!("the API key has {} requests in flight, which is its limit", self.in_flight.limit());
            let mut response = ApiError::new(ErrorCode::LimitReached, message).into_response();
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
            return response;
        };
        let place: InFlight = Arc::new(place);
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(Held::new(place.clone()));
        let response = self.pass_on(request, next).await;
        response.map(|body| Body::new(HeldBody::new(body, caller.clone(), place)))
    }

    async fn pass_on(&self, mut request: Request, next: Next) -> Response {
        if !request.body().is_end_stream() {
            request = request.map(|body| Body::new(StallingBody::new(body, self.parts.stall_timeout)));
        }
        next.run(request).await
    }

    /// Whether a request belongs into the audit log.
    fn is_change(&self, method: &Method, route: &str) -> bool {
        match *method {
            Method::GET => self.parts.gets_that_change.contains(&route),
            Method::HEAD | Method::OPTIONS => false,
            _ => true,
        }
    }

    /// The client's own request id if a log line can contain it; otherwise a new one.
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
    let peer = request.extensions().get::<Peer>().copied();
    request.extensions_mut().insert(ClientAddress(peer.and_then(Peer::address)));
    let ids = route.as_ref().filter(|route| gate.is_change(&method, route.as_str()));
    let ids = ids.map(|route| ids_in(route.as_str(), request.uri().path()));
    let shared_with = gate.parts.policy.shared_with(request.headers()).cloned();

    let mut caller = None;
    let mut response = match gate.parts.policy.check(request.uri(), request.headers()) {
        // This is a browser's preflight request, which cannot carry the key.
        Err(ErrorBody { error_code: ErrorCode::Unauthorized, .. })
            if shared_with.is_some() && is_preflight(&request) =>
        {
            preflight()
        }
        Err(body) => refusal(body),
        Ok(None) => gate.pass_on(request, next).await,
        Ok(Some(known)) => {
            let response = gate.serve(request, &known, next).await;
            caller = Some(known);
            response
        }
    };
    let status = response.status();
    let code = response.extensions().get::<ErrorCode>().copied();
    if let Some(code) = code {
        gate.parts.metrics.error(code);
    }
    tracing::info!(
        request_id = id.to_str().unwrap_or_default(),
        method = %short(&method),
        route = route.as_ref().map_or("-", MatchedPath::as_str),
        status = status.as_u16(),
        duration_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        caller = caller.as_ref().map(|caller| caller.name().as_str()),
        peer = peer.map(tracing::field::display),
        session_id = session_id.as_ref().map(SessionId::as_str),
        error_code = code.map(tracing::field::debug),
        "request"
    );
    if let (Some(audit), Some(caller), Some(route), Some(mut ids)) = (&gate.parts.audit, &caller, &route, ids) {
        if let Some(Created { kind, id }) = response.extensions().get() {
            ids.insert((*kind).to_owned(), bounded(id).into());
        }
        let mut record = AuditRecord {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            request_id: id.to_str().unwrap_or_default().to_owned(),
            caller: caller.name().to_string(),
            role: caller.role().as_str(),
            remote: peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
            method: short(&method),
            route: route.as_str().to_owned(),
            ids,
            status: status.as_u16(),
            error_code: code.and_then(name_of),
        };
        match response.extensions().get::<CreatedLater>().and_then(CreatedLater::take) {
            None => audit.add(record).await,
            Some(later) => {
                let audit = audit.clone();
                // It ends with the answer, which has the other end of the channel.
                tokio::spawn(async move {
                    match later.await {
                        Ok(Ok(Created { kind, id })) => {
                            record.ids.insert(kind.to_owned(), bounded(&id).into());
                        }
                        Ok(Err(code)) => record.error_code = name_of(code),
                        // The client has left: there is no session.
                        Err(_) => {}
                    }
                    audit.add(record).await;
                });
            }
        }
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    if let Some(origin) = shared_with {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("mcp-session-id, x-request-id"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// An error code as clients see it.
fn name_of(code: ErrorCode) -> Option<String> {
    serde_json::to_value(code).ok()?.as_str().map(str::to_owned)
}

/// The answer to a client that is refused. It also closes the connection, so that such a client cannot hold one open.
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
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, PATCH, DELETE"),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key, last-event-id, mcp-protocol-version, mcp-session-id, range, x-request-id",
        ),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// A method as the log shows it: a client can invent a method of any length.
fn short(method: &Method) -> String {
    method.as_str().chars().take(16).collect()
}

fn session_in(path: &str) -> Option<SessionId> {
    let id = path.strip_prefix("/v1/sessions/")?.split('/').next()?;
    SessionId::new(id).ok()
}
