//! The HTTP API. One file a resource; all routes in one table (`routes`), from which come both the router and the OpenAPI
//! document, so that the two cannot differ.
//!
//! Who may speak at all is decided before (`server::gate`). Handlers decide nothing about sessions: they take a request apart,
//! ask the registry, and put the answer together.

pub mod alive;
pub mod archive;
pub mod detached;
pub mod error;
pub mod events;
pub mod exec;
pub mod exec_stream;
pub mod execs;
pub mod extract;
pub mod files;
pub mod fs;
pub mod fs_read;
pub mod health;
pub mod images;
pub mod input;
pub mod intake;
pub mod openapi;
pub mod output;
pub mod pools;
pub mod route;
mod routes;
pub mod run;
pub mod sessions;
pub mod shells;
pub mod target;
pub mod terminal;
pub mod upload;
pub mod workspaces;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use hyper::Method;
use shared_protocol::ErrorCode;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::session::Registry;
use crate::workspace::Workspaces;
use error::ApiError;

/// What handlers share. Cheap to clone: axum does for every request.
#[derive(Clone)]
pub struct ApiState {
    pub sessions: Registry,
    pub config: Arc<Config>,
    pub metrics: Metrics,
    pub workspaces: Workspaces,
}

pub fn router(state: ApiState) -> Router {
    let router = routes::all().into_iter().fold(Router::new(), |router, route| {
        let (path, handler) = route.into_handler();
        router.route(path, handler)
    });
    router.fallback(no_route).method_not_allowed_fallback(no_method).with_state(state)
}

async fn no_route(request: Request) -> ApiError {
    let path = extract::shown(request.uri().path());
    ApiError::new(ErrorCode::NotFound, format!("there is nothing at {path:?}; /openapi.json lists what there is"))
}

async fn no_method(method: Method) -> ApiError {
    let method = extract::shown(method.as_str());
    ApiError::new(ErrorCode::MethodNotAllowed, format!("{method} is not possible here; the header Allow says what is"))
}

#[cfg(test)]
mod live;
#[cfg(test)]
mod live_test;
#[cfg(test)]
#[path = "api_test.rs"]
mod tests;
