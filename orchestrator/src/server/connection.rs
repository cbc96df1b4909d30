//! Serves one connection: limits its time and size, and ends it when the daemon stops.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tracing::debug;

use super::clients::Peer;
use super::linger::{LingeringIo, Unread, WatchedBody};
use super::listener::Stream;
use super::stall::StallingIo;
use crate::config::ServerConfig;

/// The largest request line with all headers. A larger one gets a 431.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 100;
/// The most bytes that are read before a handler takes them, or written before the client takes them.
const MAX_BUFFER_BYTES: usize = 256 << 10;

pub struct Connection {
    router: Router,
    config: ServerConfig,
    stop: watch::Receiver<bool>,
    /// Where it comes from. Every request of the connection gets it.
    peer: Peer,
}

impl Connection {
    pub fn new(router: Router, config: &ServerConfig, stop: watch::Receiver<bool>, peer: Peer) -> Self {
        Self { router, config: config.clone(), stop, peer }
    }

    pub async fn serve(self, stream: Stream) {
        match stream {
            Stream::Unix(stream) => self.serve_io(stream).await,
            // Each answer is written as a whole, so waiting for more data would only delay it.
            Stream::Tcp(stream) => match stream.set_nodelay(true) {
                Ok(()) => self.serve_io(stream).await,
                Err(cause) => debug!(%cause, "the connection has ended already"),
            },
        }
    }

    async fn serve_io(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let has_asked = Arc::new(AtomicBool::new(false));
        let service = TowerToHyperService::new(self.router.clone());
        let (seen, unread, peer) = (has_asked.clone(), Unread::default(), self.peer);
        let of_body = unread.clone();
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            seen.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(peer);
            service.call(request.map(|body| WatchedBody::new(body, of_body.clone())))
        });
        let io = StallingIo::new(TokioIo::new(stream), self.config.stall_timeout);
        let io = LingeringIo::new(io, unread.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.config.idle_timeout)
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(MAX_BUFFER_BYTES)
            .serve_connection(io, service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut first_request = pin!(tokio::time::sleep(self.config.first_request_timeout));
        let (mut is_new, mut is_stopping) = (true, false);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(cause) = ended {
                        debug!(%cause, "connection failed");
                    }
                    return;
                }
                () = first_request.as_mut(), if is_new => {
                    is_new = false;
                    if !has_asked.load(Ordering::Relaxed) {
                        debug!("no request came in time");
                        return;
                    }
                }
                _ = self.stop.wait_for(|stop| *stop), if !is_stopping => {
                    is_stopping = true;
                    unread.stop_waiting();
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
