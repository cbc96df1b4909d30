//! The client that commands use to talk to the daemon: typed calls over HTTP/1.1, streams as NDJSON, terminals over WebSocket.
//!
//! Each call makes a new connection: commands make few calls, and a new connection cannot be stale. It
//! retries nothing; `cli::follow` asks again for the output of an exec when a connection is lost.

mod endpoint;
mod error;
mod execs;
mod files;
mod find;
mod frames;
mod images;
mod keys;
mod mcp;
mod network;
mod ports;
mod secrets;
mod sessions;
mod snapshots;
mod terminal;
mod tls;
mod workspaces;

pub use endpoint::{Endpoint, InvalidUrl};
pub use error::{ApiError, ClientError};
pub use execs::InputEnd;
pub use files::Download;
pub use find::{ApiKey, FindError, Found, Hints, default_data_dir, find};
pub use frames::{FrameReader, Piece, StreamDone, StreamFrame};
pub use mcp::{EventReader, McpAnswer, McpHeaders, mcp_path, mcp_session};
pub use terminal::{TerminalEvent, TerminalReader, TerminalTarget, TerminalWriter};

use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connection to a daemon, over TCP or a Unix socket.
trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

type Stream = Box<dyn Io>;

pub type Body = BoxBody<Bytes, std::io::Error>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for an answer that is a document. It is long, because a create can take a while.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest document that is read. The reply to an exec contains as much output as the client asked for.
const MAX_DOCUMENT_BYTES: usize = 256 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;
const AGENT: &str = concat!("cove/", env!("CARGO_PKG_VERSION"));

/// A client of one daemon. It holds no connection and is cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    key: ApiKey,
}

/// How long to wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyTimeout {
    Bounded,
    /// As long as the command runs; the daemon enforces its time limit.
    None,
}

impl Client {
    pub fn new(endpoint: Endpoint, key: ApiKey) -> Self {
        Self { endpoint, key }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    async fn connect(&self) -> Result<Stream, ClientError> {
        let unreachable = |source| ClientError::Unreachable { url: self.endpoint.to_string(), source };
        let connecting = async {
            let stream: Stream = match &self.endpoint {
                Endpoint::Unix { path } => Box::new(UnixStream::connect(path).await?),
                Endpoint::Tcp { host, port, is_tls } => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    // Typed keys are sent at once.
                    stream.set_nodelay(true)?;
                    if *is_tls { Box::new(tls::encrypted(stream, host).await?) } else { Box::new(stream) }
                }
            };
            Ok(stream)
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| unreachable(std::io::ErrorKind::TimedOut.into()))?
            .map_err(unreachable)
    }

    fn authorization(&self) -> Result<HeaderValue, ClientError> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.key.as_str()))
            .map_err(|_| ClientError::BadKey("it has characters that an HTTP header cannot carry".into()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Sends one request and returns once the head of a successful answer has come.
    async fn send(&self, request: Request<Body>, timeout: ReplyTimeout) -> Result<Response<Incoming>, ClientError> {
        let response = self.exchange(request, timeout).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(ClientError::Api(ApiError::parse(status, &body)))
    }

    /// Sends one request and returns once the head of any answer has come.
    async fn exchange(
        &self,
        mut request: Request<Body>,
        timeout: ReplyTimeout,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = self.connect().await?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization()?);
        headers.insert(HOST, self.endpoint.host_header()?);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::lost)?;
        // This task ends with the body of the answer, or when the answer is dropped.
        tokio::spawn(connection);
        let answering = sender.send_request(request);
        match timeout {
            ReplyTimeout::None => answering.await,
            ReplyTimeout::Bounded => tokio::time::timeout(REPLY_TIMEOUT, answering)
                .await
                .map_err(|_| ClientError::Lost(format!("no answer within {} s", REPLY_TIMEOUT.as_secs())))?,
        }
        .map_err(ClientError::lost)
    }

    async fn document<T: DeserializeOwned>(
        &self,
        request: Request<Body>,
        timeout: ReplyTimeout,
    ) -> Result<T, ClientError> {
        let response = self.send(request, timeout).await?;
        let body = Limited::new(response.into_body(), MAX_DOCUMENT_BYTES);
        let bytes = body.collect().await.map_err(|e| ClientError::Lost(e.to_string()))?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Protocol(format!("its answer is not as expected: {e}")))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.document(request(Method::GET, path, empty())?, ReplyTimeout::Bounded).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.document(post_request(path, body)?, ReplyTimeout::Bounded).await
    }
}

fn request(method: Method, path: &str, body: Body) -> Result<Request<Body>, ClientError> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, "application/json")
        .body(body)
        .map_err(|e| ClientError::Protocol(format!("cannot ask for {path}: {e}")))
}

fn post_request(path: &str, body: &impl Serialize) -> Result<Request<Body>, ClientError> {
    let bytes = serde_json::to_vec(body).map_err(|e| ClientError::Protocol(e.to_string()))?;
    let mut request = request(Method::POST, path, full(bytes))?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request)
}

fn empty() -> Body {
    full(Bytes::new())
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}
