//! What `server::gate` attached to a request: its `Caller`, and its place among the requests in flight.

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use hyper::http::request::Parts;
use shared_protocol::ErrorCode;

use crate::api::error::ApiError;
use crate::service::Caller;

/// The caller of a request that passed the gate with a key.
pub struct By(pub Caller);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        // Only routes that need no key have no caller, and their handlers do not use this extractor.
        caller.map(Self).ok_or_else(|| ApiError::new(ErrorCode::InternalError, "the request has no caller"))
    }
}

/// The address that a request came from. `None` over a Unix socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientAddress(pub Option<IpAddr>);

impl<S: Send + Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().copied().unwrap_or_default())
    }
}

/// A place among the requests in flight. Whoever serves a request longer than its answer takes, such as a terminal, keeps it.
#[derive(Clone, Default)]
pub struct Held(#[expect(dead_code, reason = "it is kept, not read")] Option<Arc<dyn Any + Send + Sync>>);

impl Held {
    pub fn new(place: Arc<impl Any + Send + Sync>) -> Self {
        Self(Some(place))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Held {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
