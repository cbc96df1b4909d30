//! The daemon's server: it accepts connections, limits them, and lets them finish when the daemon stops.
//!
//! It owns the task of every connection. `api` knows what requests mean, and `access` decides who may make them.

pub mod access;
pub mod audit;
pub mod banner;
pub mod clients;
mod connection;
pub mod data_dir;
pub mod gate;
mod held;
mod linger;
pub mod listen;
pub mod listener;
pub mod logs;
pub mod preview;
pub mod signals;
pub mod stall;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::config::ServerConfig;
use crate::metrics::Metrics;
use clients::PerClient;
use connection::Connection;
use listener::{Listener, Stream};

/// The pause after a failed accept: if the host has no descriptors left, trying again at once would only use CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The answer to a connection beyond a limit. It is an error body like any other, and needs neither a task nor a parser.
const FULL: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 1\r\n\
content-length: 82\r\n\r\n{\"error_code\":\"LIMIT_REACHED\",\"message\":\"the daemon has no room for a connection\"}";

/// Serves until `stop` becomes true, then lets the running requests finish.
pub struct Server {
    pub listener: Listener,
    pub router: Router,
    pub config: ServerConfig,
    pub metrics: Metrics,
}

/// The connections that were open when the server stopped.
pub struct Remaining {
    tasks: JoinSet<()>,
}

impl Server {
    /// Serves, and returns when it accepts no more connections. Each open connection then closes after its current request.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Remaining {
        let Self { listener, router, config, metrics } = self;
        let places = Arc::new(Semaphore::new(config.max_connections));
        let clients = PerClient::new(config.max_connections_per_client);
        let mut tasks = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = tasks.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(cause) => {
                    if !is_of_the_client(&cause) {
                        warn!(%cause, "no connection could be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                    continue;
                }
            };
            let place = places.clone().try_acquire_owned().ok();
            let Some(place) = place.zip(clients.take(peer.client())) else {
                refuse(&stream);
                continue;
            };
            let open = metrics.connection();
            let connection = Connection::new(router.clone(), &config, stop.clone(), peer);
            tasks.spawn(async move {
                connection.serve(stream).await;
                drop((place, open));
            });
        }
        Remaining { tasks }
    }
}

impl Remaining {
    /// Waits up to `within` for the remaining connections. Those that are still open can be waited for again.
    pub async fn finish(&mut self, within: Duration) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let finished = timeout(within, all).await.is_ok();
        if !finished {
            info!(connections = self.tasks.len(), "requests are still in flight");
        }
        finished
    }
}

/// Whether accepting failed because the client had already gone. Then nothing is wrong with the daemon.
fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Writes as much of the answer as fits at once: the daemon does not wait for a client that it refuses.
fn refuse(stream: &Stream) {
    let _ = stream.try_write(FULL);
}

#[cfg(test)]
#[path = "server_test.rs"]
mod tests;
