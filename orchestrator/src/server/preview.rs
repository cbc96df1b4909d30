//! The gate of previews: requests to a host name of a link, `{port}-{session}.{domain}`, go to that port of that session and nowhere
//! else. Such a request never reaches the API, whatever its path, and no API key counts here.
//!
//! ```text
//!  ?cove_token=… ──valid──▶ cookie for this host, redirect to the address without the token
//!  cookie ─────────valid──▶ the server in the sandbox, without cookie and token
//!  neither ───────────────▶ 401
//! ```
//!
//! A page of another site, or of another session, may not send requests in the name of whoever has the cookie.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::Body as _;
use hyper::header::{
    CACHE_CONTROL, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE,
};
use hyper::{Method, StatusCode};
use shared_protocol::{ErrorCode, SessionId};

use super::access::{authority_of, bearer, host_of};
use super::clients::{Peer, PerClient};
use super::stall::StallingBody;
use crate::api::Held;
use crate::api::error::ApiError;
use crate::api::ports::{self, Arrival, Authorization, Form, Forward, Previews};
use crate::config::Scheme;
use crate::metrics::Metrics;
use crate::service::Service;
use crate::service::ports::{EndOfClient, LinkAccess, LinkRefused, PortAddress};

/// The cookie that stands for a link. The name begins as those of the daemon do, so no server in a sandbox sees or sets it.
const PREVIEW_COOKIE: &str = "cove_preview";

/// The most requests to previews of one session at once.
pub const MAX_REQUESTS_PER_SESSION: usize = 256;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub struct PreviewGate {
    service: Service,
    previews: Previews,
    metrics: Metrics,
    stall_timeout: Duration,
    in_flight: PerClient<SessionId>,
}

impl PreviewGate {
    pub fn new(service: Service, previews: Previews, metrics: Metrics, stall_timeout: Duration) -> Arc<Self> {
        let in_flight = PerClient::new(MAX_REQUESTS_PER_SESSION);
        Arc::new(Self { service, previews, metrics, stall_timeout, in_flight })
    }

    async fn serve(&self, address: PortAddress, authority: String, request: Request) -> Result<Response, ApiError> {
        if !self.is_own_origin(request.headers(), &address.session) {
            let message = "a page of another site may not send requests to this preview";
            return Err(ApiError::new(ErrorCode::Forbidden, message));
        }
        let (given, query) = ports::take_token(request.uri().query().unwrap_or_default());
        let token = given.map(|token| (token, self.service.ports().check_link(&address, token)));
        let asks_for_page =
            matches!(*request.method(), Method::GET | Method::HEAD) && ports::upgrade(request.headers()).is_none();
        let link = match token {
            Some((token, Ok(link))) if asks_for_page => {
                return Ok(entrance(request.uri().path(), &query, token, &link, self.previews.scheme()));
            }
            // A program that does not follow redirects, or a WebSocket.
            Some((_, Ok(link))) => link,
            Some((_, Err(refused))) => {
                self.by_cookie(&address, request.headers()).map_err(|_| unauthorized(refused))?
            }
            None => self.by_cookie(&address, request.headers())?,
        };
        self.forward(&link, authority, &query, request).await
    }

    async fn forward(
        &self,
        link: &LinkAccess,
        authority: String,
        query: &str,
        mut request: Request,
    ) -> Result<Response, ApiError> {
        let address = link.address();
        let Some(place) = self.in_flight.take(address.session.clone()) else {
            let message = format!("the session has {MAX_REQUESTS_PER_SESSION} requests to previews in flight");
            return Err(ApiError::new(ErrorCode::LimitReached, message));
        };
        let client = client(&request);
        let path = request.uri().path();
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        // What a program inside asks for is its own business, but an API key is never told to it.
        let is_key = bearer(request.headers()).is_some_and(|secret| self.service.keys().identify(secret).is_some());
        let authorization = if is_key { Authorization::Remove } else { Authorization::Keep };
        if !request.body().is_end_stream() {
            request = request.map(|body| Body::new(StallingBody::new(body, self.stall_timeout)));
        }
        let scheme = self.previews.scheme();
        let arrival = Arrival { form: Form::Preview, authority, scheme, client, port: address.port };
        let stream = self.service.ports().connect_by_link(link, EndOfClient::Gone).await?;
        let held = Held::new(Arc::new(place));
        // The stream itself ends with the link.
        let revoked = Box::pin(std::future::pending());
        let forward = Forward { arrival: &arrival, authorization, target: &target, held, revoked };
        forward.send(stream, request).await
    }

    fn by_cookie(&self, address: &PortAddress, headers: &HeaderMap) -> Result<LinkAccess, ApiError> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let token = cookies.filter_map(|cookies| ports::cookie(cookies, PREVIEW_COOKIE)).next();
        let token = token.ok_or_else(|| {
            let message = "this address needs a link: make one with `cove ports SESSION --link PORT`";
            ApiError::new(ErrorCode::Unauthorized, message)
        })?;
        self.service.ports().check_link(address, token).map_err(unauthorized)
    }

    /// Whether a request comes from a page of this session, or from no page at all.
    fn is_own_origin(&self, headers: &HeaderMap, session: &SessionId) -> bool {
        if !headers.contains_key(ORIGIN) {
            return true;
        }
        let origin = ports::origin_authority(headers).and_then(|authority| self.previews.address(host_of(authority)));
        // A page that hides where its requests come from sends the origin `null`; the browser itself sends this header.
        let is_same = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
        is_same || origin.is_some_and(|origin| origin.session == *session)
    }
}

pub async fn pass(State(gate): State<Arc<PreviewGate>>, request: Request, next: Next) -> Response {
    let named = authority_of(request.uri(), request.headers())
        .and_then(|authority| Some((gate.previews.address(host_of(authority))?, authority.to_owned())));
    let Some((address, authority)) = named else { return next.run(request).await };
    let (start, peer) = (Instant::now(), request.extensions().get::<Peer>().copied());
    let wants_page = ports::wants_page(request.headers());
    let (session_id, port) = (address.session.clone(), address.port);
    let served = gate.serve(address, authority, request).await;
    let response = served.unwrap_or_else(|error| {
        gate.metrics.error(error.0.error_code);
        ports::refusal(error, wants_page)
    });
    tracing::info!(
        %session_id,
        port = port.number(),
        status = response.status().as_u16(),
        duration_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        peer = peer.map(tracing::field::display),
        "preview request"
    );
    response
}

/// The answer to the first request of a link: a cookie for this host alone, and the address without the token.
fn entrance(path: &str, query: &str, token: &str, link: &LinkAccess, scheme: Scheme) -> Response {
    let mark = if query.is_empty() { "" } else { "?" };
    let clean = format!("{}{mark}{query}", ports::unambiguous(path));
    let secure = if scheme == Scheme::Https { "; Secure" } else { "" };
    let seconds = link.left.as_secs().max(1);
    let cookie = format!("{PREVIEW_COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    let (Ok(clean), Ok(cookie)) = (HeaderValue::try_from(clean), HeaderValue::try_from(cookie)) else {
        return ApiError::invalid("the address cannot be passed on").into_response();
    };
    let mut response = StatusCode::FOUND.into_response();
    let headers = response.headers_mut();
    headers.insert(LOCATION, clean);
    headers.insert(SET_COOKIE, cookie);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn unauthorized(refused: LinkRefused) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, format!("{refused}: make a new one with `cove ports SESSION --link PORT`"))
}

fn client(request: &Request) -> Option<std::net::IpAddr> {
    request.extensions().get::<Peer>().and_then(|peer| peer.address())
}
