//! The HTTP API. A handler takes a request apart (`extract`), calls one use case of the service, and builds the answer
//! (`encode`). `service` defines what a call means; `server::gate` decides beforehand whether the client may make any call.
//!
//! | where | what |
//! |---|---|
//! | `routes/` | the table of all routes, which makes the router and the OpenAPI document |
//! | `daemon`, `keys`, `sessions`, `snapshots`, `network`, `tools`, `workspaces`, `commands/`, `files/`, `ports/`, `mcp` | the handlers, by resource |
//! | `extract/` | reads the parts of a request: the caller, the address, the query, JSON, a streamed body |
//! | `encode/` | writes the parts of an answer: events, files as bodies, files as JSON documents |
//! | `error` | the one file that maps errors to HTTP |

mod commands;
mod daemon;
mod encode;
pub mod error;
mod extract;
mod files;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod images;
mod keys;
mod mcp;
mod network;
pub mod ports;
mod routes;
mod secrets;
mod sessions;
mod snapshots;
mod tools;
mod workspaces;

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use hyper::Method;
use shared_protocol::api::SessionView;
use shared_protocol::{ErrorCode, SessionId};
use tokio::sync::oneshot;

pub use extract::{ClientAddress, Held};
pub use routes::{gets_that_change, paths_without_key};

use crate::mcp::Mcp;
use crate::service::files::Place;
use crate::service::{Caller, InvalidRequest, Service};
use error::ApiError;
use ports::Previews;

/// What a request created. A handler attaches it to its answer, and `server::gate` writes it to the audit log.
#[derive(Debug, Clone)]
pub struct Created {
    /// What it is, as the routes name it: `session_id` or `key_name`.
    pub kind: &'static str,
    pub id: String,
}

impl Created {
    fn session(view: &SessionView) -> Self {
        Self { kind: "session_id", id: view.id.to_string() }
    }
}

/// What a request has created, or why not.
pub type CreatedSender = oneshot::Sender<Result<Created, ErrorCode>>;
pub type CreatedReceiver = oneshot::Receiver<Result<Created, ErrorCode>>;

/// What a request will have created when its answer, a stream, is over. Nothing comes if the client has left before.
#[derive(Debug, Clone)]
pub struct CreatedLater(Arc<Mutex<Option<CreatedReceiver>>>);

impl CreatedLater {
    fn channel() -> (CreatedSender, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Arc::new(Mutex::new(Some(receiver)))))
    }

    /// The place where it will be told, for the first who asks.
    pub fn take(&self) -> Option<CreatedReceiver> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The state that all handlers share. It is cheap to clone, because axum clones it for every request.
#[derive(Clone)]
pub struct ApiState {
    pub service: Service,
    /// Where links to ports lead.
    pub previews: Previews,
    /// What `/mcp` is served by.
    pub mcp: Mcp,
}

impl ApiState {
    /// A checked request, or its error: an unknown session's first, since mending the request would not help. Looking a session
    /// up touches nothing.
    fn checked<T>(&self, caller: &Caller, id: &SessionId, checked: Result<T, InvalidRequest>) -> Result<T, ApiError> {
        if checked.is_err() {
            self.service.sessions().get(caller, id)?;
        }
        Ok(checked?)
    }

    /// As `checked`, for a call about files.
    fn checked_in<T>(&self, caller: &Caller, place: &Place, checked: Result<T, InvalidRequest>) -> Result<T, ApiError> {
        match place {
            Place::Session(id) => self.checked(caller, id, checked),
            Place::Workspace(_) => Ok(checked?),
        }
    }
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
mod tests;
