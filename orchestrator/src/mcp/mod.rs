//! The front for the Model Context Protocol (MCP): the tools of the service for programs that speak MCP, at `/mcp`.
//!
//! ```text
//!  POST initialize ─▶ an MCP session ──first tool call──▶ its sandbox (made now, or `?session=`)
//!  POST tools/call ─▶ handler ─▶ service.tools()          progress and the result come as events
//!  GET  + Last-Event-ID ─▶ the events that the client missed
//!  DELETE, idleness, the daemon's stop ─▶ the end of the MCP session, and of a sandbox that was made for it
//! ```
//!
//! The protocol itself is the library's, `rmcp`, which is named only below this folder. This module decides whose an MCP session is,
//! how many there are and when they end (`sessions`), which sandbox a session uses (`sandbox`), what is kept for a client that was
//! cut off (`events`), and what each request means (`handler`, with `tools`, `resources` and `prompts`).
//!
//! Who may send requests at all is not decided here: `server::gate` checks Host, Origin and the key of every request before. So the
//! library's own list of hosts, which knows loopback addresses alone, is switched off.

mod events;
mod handler;
mod prompts;
mod resources;
mod sandbox;
mod sessions;
mod tools;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::Body;
use hyper::{Method, Request, Response, StatusCode};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::sync::watch;

use crate::service::tools::LinkUrl;
use crate::service::{Caller, Service};
use handler::Handler;
pub use sandbox::SandboxChoice;
use sandbox::{End, Sandbox};
#[cfg(test)]
pub use sessions::{IDLE_LIMIT, MAX_SESSIONS_PER_CALLER};
use sessions::{Opening, Presence, SessionTable};

/// The header by which a client names its MCP session.
const SESSION_ID: &str = "mcp-session-id";
/// The most bytes of one message of a client, as for other JSON bodies.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// How often a stream without events shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often idle MCP sessions are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The answer to a request of an MCP client.
pub type McpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The MCP front of a daemon. Cheap to clone.
#[derive(Clone)]
pub struct Mcp {
    service: Service,
    /// Where links to ports lead.
    link_url: LinkUrl,
    sessions: Arc<SessionTable>,
    config: StreamableHttpServerConfig,
}

impl Mcp {
    /// A front whose streams without an end close when `stop` turns true.
    pub fn new(service: Service, link_url: LinkUrl, stop: watch::Receiver<bool>) -> Self {
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES);
        Self { service, link_url, sessions: Arc::new(SessionTable::new(stop)), config }
    }

    /// Serves one request. `choice` is used by requests that open an MCP session, and by those of protocol versions that have none.
    pub async fn serve<B>(
        &self,
        caller: Caller,
        choice: SandboxChoice,
        request: Request<B>,
    ) -> Result<McpResponse, ErrorBody>
    where
        B: Body + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let known = request.headers().get(SESSION_ID).map(|id| id.to_str().unwrap_or_default());
        let choice = match known {
            Some(id) if !self.sessions.has(&caller, id) => {
                return Err(ErrorBody::new(ErrorCode::NotFound, "there is no such MCP session; initialize another"));
            }
            // Its handler knows its sandbox.
            Some(_) => choice,
            None => choice.found(&self.service, &caller)?,
        };
        let sandbox = Arc::new(Sandbox::new(self.service.clone(), caller.clone(), choice));
        let presence = Arc::new(Presence::default());
        let handler = Handler::new(self.service.clone(), self.link_url.clone(), sandbox.clone(), presence.clone());
        let opening = Arc::new(Opening::new(self.sessions.clone(), caller, sandbox, presence));
        let server = StreamableHttpService::new(move || Ok(handler.clone()), opening.clone(), self.config.clone());
        let is_end = request.method() == Method::DELETE;
        let mut response = server.handle(request).await;
        if is_end && response.status() == StatusCode::ACCEPTED {
            // The session is over by now, and clients take 202 for a failure.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        match opening.refusal() {
            Some(limit) => Err(ErrorBody::new(ErrorCode::LimitReached, limit.to_string())),
            None => Ok(response),
        }
    }

    /// Ends MCP sessions that nobody uses any more. Never returns.
    pub async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            ticks.tick().await;
            self.close_idle().await;
        }
    }

    pub async fn close_idle(&self) {
        self.sessions.close_idle().await;
    }

    /// Ends every MCP session, because the daemon stops.
    pub async fn close(&self) {
        self.sessions.close_all(End::DaemonStops).await;
        self.config.cancellation_token.cancel();
    }
}
