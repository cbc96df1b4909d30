//! One connection, from its first byte to its last.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::debug;

use super::stall::StallingIo;
use crate::config::ServerConfig;

/// Of a request's line and headers together; more is answered with 431.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 100;
/// What is read ahead of a handler, and written ahead of a client.
const MAX_BUFFER_BYTES: usize = 256 << 10;

pub struct Connection {
    router: Router,
    config: ServerConfig,
    stop: watch::Receiver<bool>,
}

impl Connection {
    pub fn new(router: Router, config: &ServerConfig, stop: watch::Receiver<bool>) -> Self {
        Self { router, config: config.clone(), stop }
    }

    pub async fn serve(mut self, stream: TcpStream) {
        // Answers are written whole: waiting for more would only delay them.
        if let Err(cause) = stream.set_nodelay(true) {
            debug!(%cause, "connection is gone already");
            return;
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let service = TowerToHyperService::new(self.router.clone());
        let seen = has_asked.clone();
        let service = service_fn(move |request| {
            seen.store(true, Ordering::Relaxed);
            service.call(request)
        });
        let io = StallingIo::new(TokioIo::new(stream), self.config.stall_timeout);
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
        let (mut is_new, mut stops) = (true, false);
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
                        debug!("connection brought no request in its time");
                        return;
                    }
                }
                _ = self.stop.wait_for(|stop| *stop), if !stops => {
                    stops = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
