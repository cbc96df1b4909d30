//! Forwards the requests of one connection to the host, each with the headers of the session's injections.
//!
//! hyper reads and writes both sides, with its strict parsing: what one side could read in two ways is refused. Bodies are streamed, and a
//! slow reader slows the writer down. After `101 Switching Protocols`, bytes are copied as they are.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::ext::ReasonPhrase;
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use network_policy::HostName;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};

use super::headers::{self, Refused};
use crate::network::session::SessionNetwork;

/// The buffer of each direction after an upgrade.
const UPGRADED_BYTES: usize = 16 << 10;

/// Why a request cannot be sent to the host.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error("the connection to the host is closed")]
    Closed,
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// The connection to the host, or why there is none.
pub type Upstream<U> = Result<U, String>;

struct Forward {
    session: Arc<SessionNetwork>,
    host: HostName,
    port: u16,
    sender: Result<tokio::sync::Mutex<Sender>, String>,
    upgraded: Mutex<Option<(OnUpgrade, OnUpgrade)>>,
}

struct Sender {
    request: SendRequest<Incoming>,
    /// Whether a response has come over this connection.
    is_used: bool,
}

/// Serves the program's connection until it ends.
pub async fn forward<P, U>(
    session: Arc<SessionNetwork>,
    (host, port): (HostName, u16),
    program: P,
    upstream: Upstream<U>,
) -> Result<(), hyper::Error>
where
    P: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    U: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = match upstream {
        Ok(upstream) => {
            let mut client = hyper::client::conn::http1::Builder::new();
            let (request, connection) =
                client.preserve_header_case(true).handshake::<_, Incoming>(TokioIo::new(upstream)).await?;
            (Ok(tokio::sync::Mutex::new(Sender { request, is_used: false })), Some(connection.with_upgrades()))
        }
        Err(why) => (Err(why), None),
    };
    let forward = Arc::new(Forward { session, host, port, sender, upgraded: Mutex::default() });
    let answering = forward.clone();
    let service = service_fn(move |request| {
        let forward = answering.clone();
        async move { forward.answer(request).await }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    let serving = server.preserve_header_case(true).half_close(true).serve_connection(TokioIo::new(program), service);
    let mut serving = std::pin::pin!(serving.with_upgrades());
    // When the host closes, the answer that is on its way is still sent, and then the program's connection is closed too.
    let mut connection = std::pin::pin!(async {
        if let Some(connection) = connection {
            let _ = connection.await;
        }
    });
    let mut is_open = forward.sender.is_ok();
    let served = loop {
        tokio::select! {
            served = &mut serving => break served,
            () = &mut connection, if is_open => {
                is_open = false;
                serving.as_mut().graceful_shutdown();
            }
        }
    };
    let upgraded = forward.upgraded.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((program, host)) = upgraded else { return served };
    let rest = async {
        if is_open {
            connection.await;
        }
    };
    if let (Ok(program), Ok(host), ()) = tokio::join!(program, host, rest) {
        let (mut program, mut host) = (TokioIo::new(program), TokioIo::new(host));
        // How it ends is between the two.
        let _ = copy_bidirectional_with_sizes(&mut program, &mut host, UPGRADED_BYTES, UPGRADED_BYTES).await;
    }
    Ok(())
}

impl Forward {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, ForwardError> {
        let (mut parts, body) = request.into_parts();
        match headers::is_for(&parts, &self.host, self.port) {
            Ok(()) => {}
            Err(Refused::OtherHost) => {
                let text =
                    format!("This connection is for {} alone: the Host of each request must be that.", self.host);
                return Ok(page(StatusCode::MISDIRECTED_REQUEST, "other_host", &text));
            }
            Err(Refused::Connect) => {
                let text = "A connection for which headers are injected carries no CONNECT.";
                return Ok(page(StatusCode::METHOD_NOT_ALLOWED, "connect", text));
            }
        }
        let sender = match &self.sender {
            Ok(sender) => sender,
            Err(why) => {
                let text = format!("The daemon could not connect to {} safely: {why}", self.host);
                return Ok(page(StatusCode::BAD_GATEWAY, "upstream", &text));
            }
        };
        let injections = self.session.injections_for(&self.host, self.port);
        let mut secrets = Vec::new();
        for injection in &injections {
            let secret = self.session.secret(&injection.secret).filter(|secret| secret.may_be_sent_to(&self.host));
            let Some(secret) = secret else {
                let text =
                    format!("The secret {} is gone, or may no longer be sent to {}.", injection.secret, self.host);
                return Ok(page(StatusCode::BAD_GATEWAY, "no_secret", &text));
            };
            secrets.push(secret);
        }
        let values: Vec<_> = injections.iter().zip(secrets.iter().map(|secret| &**secret)).collect();
        let program = parts.extensions.remove::<OnUpgrade>();
        if headers::prepare(&mut parts, &values).is_none() {
            return Ok(page(StatusCode::BAD_REQUEST, "bad_request", "This request cannot be sent on."));
        }
        let mut response = match self.send(sender, Request::from_parts(parts, body)).await {
            Ok(response) => response,
            // A program that used this connection before sends the request again, over another one.
            Err((error, IsUsed(true))) => return Err(error),
            Err((error, IsUsed(false))) => {
                let text = format!("{} closed the connection, or its answer is not HTTP: {error}", self.host);
                return Ok(page(StatusCode::BAD_GATEWAY, "upstream", &text));
            }
        };
        headers::redact(response.headers_mut(), &values);
        response.extensions_mut().remove::<ReasonPhrase>();
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(program) = program
        {
            let host = hyper::upgrade::on(&mut response);
            *self.upgraded.lock().unwrap_or_else(PoisonError::into_inner) = Some((program, host));
        }
        Ok(response.map(Either::Left))
    }

    async fn send(
        &self,
        sender: &tokio::sync::Mutex<Sender>,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, (ForwardError, IsUsed)> {
        // The program's requests come one after another, so nobody waits here.
        let mut sender = sender.lock().await;
        let is_used = IsUsed(sender.is_used);
        sender.request.ready().await.map_err(|_| (ForwardError::Closed, is_used))?;
        let response = sender.request.send_request(request).await.map_err(|error| (error.into(), is_used))?;
        sender.is_used = true;
        Ok(response)
    }
}

#[derive(Debug, Clone, Copy)]
struct IsUsed(bool);

/// An answer of the daemon itself. The connection ends after it.
fn page(status: StatusCode, code: &'static str, text: &str) -> Answer {
    let mut page = Response::new(Either::Right(Full::new(Bytes::from(format!("{text}\n")))));
    *page.status_mut() = status;
    let fields = page.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(CONNECTION, HeaderValue::from_static("close"));
    fields.insert("x-cove-inject", HeaderValue::from_static(code));
    page
}
