//! One connection to a runner, which carries one request after the other.
//!
//! hyper returns a handle and a connection future that has to be polled. There is no task for that: the caller that waits
//! for an answer polls both, so a command needs no switch between tasks. Nothing polls an idle connection, so it cannot
//! notice that the runner closed it; `is_usable` checks that before the next use.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::RunnerError;
use super::outgoing::Outgoing;
use super::socket::Socket;

/// The largest head of an answer. A runner's answer has five headers.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 32;

/// The most bytes that a connection reads at once, and the most that it holds unsent.
const BUFFER_BYTES: usize = 128 << 10;

type Http1 = http1::Connection<TokioIo<Socket>, Outgoing>;

pub struct Connection {
    sender: http1::SendRequest<Outgoing>,
    /// The connection future. `None` when it has ended.
    connection: Option<Http1>,
    /// The permit for one of the sandbox's connections. It is returned with the connection.
    permit: OwnedSemaphorePermit,
}

/// Why no answer came.
pub enum SendError {
    /// Nothing of the request was written, so any request can be sent again on another connection.
    NotSent(Box<Request<Outgoing>>, hyper::Error),
    /// The connection broke after the request may have been read.
    Broken(hyper::Error),
}

impl From<hyper::Error> for RunnerError {
    fn from(error: hyper::Error) -> Self {
        let (mut whole, mut is_malformed) = (error.to_string(), error.is_parse());
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            whole = format!("{whole}: {inner}");
            // hyper reports an invalid chunk as one of these I/O errors.
            is_malformed |= inner
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData));
            cause = inner.source();
        }
        if is_malformed { Self::Hostile(whole) } else { Self::Lost(whole) }
    }
}

impl Connection {
    pub async fn new(stream: UnixStream, permit: OwnedSemaphorePermit) -> Result<Self, RunnerError> {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(Socket::new(stream)))
            .await?;
        Ok(Self { sender, connection: Some(connection), permit })
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(&mut self, request: Request<Outgoing>) -> Result<Response<Incoming>, SendError> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let connection = &mut self.connection;
        let sent = std::future::poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            drive(connection, cx);
            answer.as_mut().poll(cx)
        });
        sent.await.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::NotSent(Box::new(request), error.into_error()),
            None => SendError::Broken(error.into_error()),
        })
    }

    /// Polls for the next bytes of an answer's body.
    pub fn poll_body(&mut self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        let mut driven = false;
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    // Trailers are ignored.
                    Err(_) => {}
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if driven => return Poll::Pending,
                Poll::Pending => {
                    drive(&mut self.connection, cx);
                    driven = true;
                }
            }
        }
    }

    /// Whether another request can be sent: the last answer is complete, and the runner has neither closed the connection
    /// nor sent anything without being asked.
    pub fn is_usable(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.connection, cx);
        self.connection.is_some() && self.sender.is_ready()
    }

    pub fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Sends a request for an upgrade, after which the socket carries bare bytes.
    pub async fn upgrade(mut self, request: Request<Outgoing>) -> Result<Upgrade, RunnerError> {
        let answer = {
            let mut answer = pin!(self.sender.send_request(request));
            std::future::poll_fn(|cx| {
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                // The socket stays open when HTTP ends.
                if let Some(open) = &mut self.connection
                    && let Poll::Ready(Err(_)) = open.poll_without_shutdown(cx)
                {
                    self.connection = None;
                }
                answer.as_mut().poll(cx)
            })
            .await?
        };
        match self.connection {
            Some(connection) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let parts = connection.into_parts();
                Ok(Upgrade::Done {
                    socket: parts.io.into_inner().into_inner(),
                    ahead: parts.read_buf,
                    permit: self.permit,
                })
            }
            _ => Ok(Upgrade::Refused(Box::new((answer, self)))),
        }
    }
}

/// The result of a request for an upgrade.
pub enum Upgrade {
    Done {
        socket: UnixStream,
        /// The bytes that already arrived after the head.
        ahead: Bytes,
        permit: OwnedSemaphorePermit,
    },
    Refused(Box<(Response<Incoming>, Connection)>),
}

/// Polls the connection if it has not ended. The answer's own future reports its errors.
fn drive(connection: &mut Option<Http1>, cx: &mut Context<'_>) {
    if let Some(open) = connection
        && Pin::new(open).poll(cx).is_ready()
    {
        *connection = None;
    }
}
