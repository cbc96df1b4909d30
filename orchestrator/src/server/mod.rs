//! The daemon's front door: accepts connections, bounds them, and lets them finish when it is told to stop.
//!
//! Owns every connection's task. Knows nothing of what is asked (`api`) and decides who may ask in one place (`access`).

pub mod access;
mod connection;
pub mod data_dir;
pub mod gate;
pub mod logs;
pub mod signals;
pub mod stall;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::config::ServerConfig;
use crate::metrics::Metrics;
use connection::Connection;

/// When the host gives no more descriptors, trying again at once would only burn the cpu.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What one more connection than there may be is told. It has the error shape, and costs neither a task nor a parser.
const FULL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n\
content-length: 82\r\n\r\n{\"error_code\":\"LIMIT_REACHED\",\"message\":\"the daemon has no room for a connection\"}";

/// Serves until `stop` turns true, then lets requests in flight come to their end.
pub struct Server {
    pub listener: TcpListener,
    pub router: Router,
    pub config: ServerConfig,
    pub metrics: Metrics,
}

/// Connections that were open when the server stopped.
pub struct Remaining {
    tasks: JoinSet<()>,
}

impl Server {
    /// Returns once it accepts no more. Open connections have been told to end with the request they are at.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Remaining {
        let Self { listener, router, config, metrics } = self;
        let places = Arc::new(Semaphore::new(config.max_connections));
        let mut tasks = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = tasks.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(cause) => {
                    if !is_of_the_client(&cause) {
                        warn!(%cause, "no connection could be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                refuse(&stream);
                continue;
            };
            let open = metrics.connection();
            let connection = Connection::new(router.clone(), &config, stop.clone());
            tasks.spawn(async move {
                connection.serve(stream).await;
                drop((place, open));
            });
        }
        Remaining { tasks }
    }
}

impl Remaining {
    /// Waits for those that are left, so long; the rest stay, and can be waited for again.
    pub async fn finish(&mut self, within: Duration) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let finished = timeout(within, all).await.is_ok();
        if !finished {
            info!(connections = self.tasks.len(), "requests are still in flight");
        }
        finished
    }
}

/// Gone before it was accepted; nothing is wrong with us.
fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// As much as fits at once; nobody waits for a client that is not let in.
fn refuse(stream: &TcpStream) {
    let _ = stream.try_write(FULL);
}

#[cfg(test)]
#[path = "server_test.rs"]
mod tests;
