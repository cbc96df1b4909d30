//! Carries one HTTP request to a server in a sandbox and its answer back: bodies are streamed in both directions, and an upgrade,
//! such as a WebSocket, becomes a stream of bytes.
//!
//! Each request has a connection of its own, which its answer owns: when the answer has been sent, or the client is gone, the
//! connection is closed, and nothing is left. The server may be hostile; the size of its head is limited.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use shared_protocol::ErrorCode;
use tokio::task::JoinHandle;

use super::arrival::Arrival;
use super::headers::{self, Authorization};
use crate::api::error::ApiError;
use crate::api::extract::Held;
use crate::relay::{CLOSING_SILENCE, relay};
use crate::service::ports::PortStream;

/// The largest head of an answer, with all of its headers.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 256;
/// The most bytes that wait in a connection, in each direction.
const MAX_BUFFER_BYTES: usize = 128 << 10;
/// The longest wait for the head of an answer. A page may take long to build.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

/// Resolves when the right to use the port ends.
pub type Revoked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request on its way.
pub struct Forward<'a> {
    pub arrival: &'a Arrival,
    pub authorization: Authorization,
    /// The path and query for the server.
    pub target: &'a str,
    /// What the answer holds until its end.
    pub held: Held,
    /// Ends an upgraded connection. An answer's body has its own end.
    pub revoked: Revoked,
}

impl Forward<'_> {
    pub async fn send(self, stream: PortStream, mut request: Request) -> Result<Response, ApiError> {
        let Self { arrival, authorization, target, held, revoked } = self;
        if request.method() == Method::CONNECT {
            return Err(ApiError::new(ErrorCode::MethodNotAllowed, "CONNECT is not possible here"));
        }
        let upgrade = headers::upgrade(request.headers()).map(|_| hyper::upgrade::on(&mut request));
        let request = inner(request, target, arrival, authorization)?;
        let (mut sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(arrival, &error))?;
        let driven = Driven(tokio::spawn(async move { drop(connection.with_upgrades().await) }));
        let answering = tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await;
        let answer = answering
            .map_err(|_| ApiError::new(ErrorCode::PortClosed, "the server did not answer in time"))?
            .map_err(|error| failed(arrival, &error))?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(upgrade) = upgrade else {
                return Err(ApiError::new(
                    ErrorCode::PortClosed,
                    "the server changed the protocol without being asked",
                ));
            };
            return Ok(upgraded(answer, upgrade, arrival, driven, held, revoked));
        }
        let (head, body) = answer.into_parts();
        let mut response = Response::new(Body::new(ForwardedBody { inner: body, _driven: driven, _held: held }));
        *response.status_mut() = head.status;
        *response.headers_mut() = headers::answer(&head.headers, arrival);
        Ok(response)
    }
}

/// The request for the server.
fn inner(
    request: Request,
    target: &str,
    arrival: &Arrival,
    authorization: Authorization,
) -> Result<hyper::Request<Body>, ApiError> {
    let (head, body) = request.into_parts();
    let uri: Uri = target.parse().map_err(|_| ApiError::invalid("the path cannot be passed on"))?;
    let mut inner = hyper::Request::new(body);
    *inner.method_mut() = head.method;
    *inner.uri_mut() = uri;
    *inner.version_mut() = Version::HTTP_11;
    *inner.headers_mut() = headers::request(&head.headers, arrival, authorization);
    Ok(inner)
}

/// Joins the client's side and the server's side of an upgraded connection. The task owns both, and ends with either.
fn upgraded(
    answer: hyper::Response<Incoming>,
    client: OnUpgrade,
    arrival: &Arrival,
    driven: Driven,
    held: Held,
    revoked: Revoked,
) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers::answer(answer.headers(), arrival);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = answer.headers().get(UPGRADE) {
        response.headers_mut().insert(UPGRADE, protocol.clone());
    }
    let server = hyper::upgrade::on(answer);
    tokio::spawn(async move {
        let carried = async {
            let (client, server) = (client.await?, server.await?);
            let _ = relay(TokioIo::new(client), TokioIo::new(server), CLOSING_SILENCE).await;
            Ok::<_, hyper::Error>(())
        };
        tokio::select! {
            carried = carried => if let Err(cause) = carried {
                tracing::debug!(%cause, "an upgraded connection did not begin");
            },
            () = revoked => tracing::debug!("the right to an upgraded connection ended"),
        }
        drop((driven, held));
    });
    response
}

fn failed(arrival: &Arrival, error: &hyper::Error) -> ApiError {
    let port = arrival.port;
    let message = if error.is_parse() {
        format!("the server on port {port} of the sandbox did not answer with HTTP")
    } else {
        format!("the server on port {port} of the sandbox closed the connection without an answer")
    };
    ApiError::new(ErrorCode::PortClosed, message)
}

/// The task that drives a connection to a server. It ends with this value.
struct Driven(JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of an answer, with its connection.
struct ForwardedBody {
    inner: Incoming,
    _driven: Driven,
    _held: Held,
}

impl http_body::Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
