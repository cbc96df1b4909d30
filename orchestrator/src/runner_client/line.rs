//! One connection to a runner, for one request after the other.
//!
//! hyper gives a handle and a connection that somebody has to poll. Here nobody is spawned for that: whoever waits for an
//! answer polls both, so that a command costs no hop between tasks. A line at rest is polled by nobody and cannot notice that
//! the other side hung up; `is_usable` looks before it is used again.

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

/// An answer's head. A runner's has five headers.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 32;

/// What a line reads at once, and what it holds unsent.
const BUFFER_BYTES: usize = 128 << 10;

type Connection = http1::Connection<TokioIo<Socket>, Outgoing>;

pub struct Line {
    sender: http1::SendRequest<Outgoing>,
    /// `None` once it is over.
    connection: Option<Connection>,
    /// One of the connections that a sandbox may have; given back with the line.
    slot: OwnedSemaphorePermit,
}

/// Why no answer came.
pub enum SendError {
    /// Not a byte of it was written: it can be sent again on another line, whatever it is.
    NotSent(Box<Request<Outgoing>>, hyper::Error),
    /// The line broke after the request may have been read.
    Broken(hyper::Error),
}

impl From<hyper::Error> for RunnerError {
    fn from(error: hyper::Error) -> Self {
        let (mut whole, mut is_malformed) = (error.to_string(), error.is_parse());
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            whole = format!("{whole}: {inner}");
            // A chunk that is none comes as an error of the input.
            is_malformed |= inner
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData));
            cause = inner.source();
        }
        if is_malformed { Self::Hostile(whole) } else { Self::Lost(whole) }
    }
}

impl Line {
    pub async fn new(stream: UnixStream, slot: OwnedSemaphorePermit) -> Result<Self, RunnerError> {
        let (sender, connection) = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(Socket::new(stream)))
            .await?;
        Ok(Self { sender, connection: Some(connection), slot })
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

    /// The next bytes of an answer's body.
    pub fn poll_body(&mut self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        let mut driven = false;
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    // Trailers say nothing to us.
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

    /// Whether another request can be sent: the last answer is over, and the other side has neither hung up nor said
    /// anything unasked.
    pub fn is_usable(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.connection, cx);
        self.connection.is_some() && self.sender.is_ready()
    }

    pub fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Sends a request that asks for the bare socket.
    pub async fn upgrade(mut self, request: Request<Outgoing>) -> Result<Upgrade, RunnerError> {
        let answer = {
            let mut answer = pin!(self.sender.send_request(request));
            std::future::poll_fn(|cx| {
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                // Without closing the socket where HTTP ends.
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
                Ok(Upgrade::Done { socket: parts.io.into_inner().into_inner(), ahead: parts.read_buf, slot: self.slot })
            }
            _ => Ok(Upgrade::Refused(Box::new((answer, self)))),
        }
    }
}

/// What became of a request for the bare socket.
pub enum Upgrade {
    Done {
        socket: UnixStream,
        /// What came behind the head already.
        ahead: Bytes,
        slot: OwnedSemaphorePermit,
    },
    Refused(Box<(Response<Incoming>, Line)>),
}

/// Polls a connection that is still there. What becomes of it is told by the answer's own future.
fn drive(connection: &mut Option<Connection>, cx: &mut Context<'_>) {
    if let Some(open) = connection
        && Pin::new(open).poll(cx).is_ready()
    {
        *connection = None;
    }
}
