//! The connections to one sandbox's runner: their limit, and the few idle ones that are kept for the next request.
//!
//! A connection is kept only after its answer was read to the end. After `KEEP` it is closed, well before the runner would
//! close it, so that a request does not meet a closed connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use shared_protocol::ErrorCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::RunnerError;
use super::connect::Connector;
use super::connection::Connection;
use super::pulse::Pulse;

/// The most idle connections that are kept: as many as an agent has commands running at once. Further requests open new
/// connections.
pub const MAX_IDLE: usize = 8;

/// How long an idle connection is kept. The runner closes a silent one after 30 seconds.
pub const KEEP: Duration = Duration::from_secs(15);

/// The most connections, used and idle together. The runner accepts 1024; the rest is for the question whether it answers, and
/// for a person who debugs it by hand.
pub const MAX_CONNECTIONS: usize = 1000;

/// The most connections beside these, for the question whether the runner answers.
const MAX_EXTRA: usize = 4;

/// The most connections beside these that carry what programs send to the network. The limit of a session is smaller; this one keeps
/// the runner within the files that it may open, two for each.
const MAX_NETWORK: usize = 8000;

pub struct Connections {
    connector: Connector,
    permits: Arc<Semaphore>,
    network_permits: Arc<Semaphore>,
    extra_permits: Arc<Semaphore>,
    idle: Mutex<Idle>,
    pulse: Pulse,
}

#[derive(Default)]
struct Idle {
    /// The idle connections; the one that is idle longest comes first.
    connections: VecDeque<(Instant, Connection)>,
    /// Whether a task runs that closes connections after `KEEP`. It ends when no idle connection is left.
    is_swept: bool,
}

impl Connections {
    pub fn new(connector: Connector) -> Arc<Self> {
        Arc::new(Self {
            connector,
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            network_permits: Arc::new(Semaphore::new(MAX_NETWORK)),
            extra_permits: Arc::new(Semaphore::new(MAX_EXTRA)),
            idle: Mutex::default(),
            pulse: Pulse::default(),
        })
    }

    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// The idle connection that was used last and still works, if there is one.
    pub async fn kept(&self) -> Option<Connection> {
        std::future::poll_fn(|cx| {
            loop {
                let Some((since, mut connection)) = self.idle().connections.pop_back() else {
                    return Poll::Ready(None);
                };
                if since.elapsed() < KEEP && connection.is_usable(cx) {
                    return Poll::Ready(Some(connection));
                }
            }
        })
        .await
    }

    /// Opens a new connection.
    pub async fn fresh(&self) -> Result<Connection, RunnerError> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            // Idle connections hold permits too.
            Err(_) if !std::mem::take(&mut self.idle().connections).is_empty() => {
                self.permits.clone().try_acquire_owned().map_err(|_| full())?
            }
            Err(_) => return Err(full()),
        };
        Connection::new(self.connector.connect().await?, permit).await
    }

    /// Opens a connection that does not count as one of `MAX_CONNECTIONS`.
    pub async fn extra(&self) -> Result<Connection, RunnerError> {
        let permit = self.extra_permits.clone().try_acquire_owned().map_err(|_| full())?;
        Connection::new(self.connector.connect().await?, permit).await
    }

    /// Opens a connection for what a program sends to the network. Waits if there are too many.
    pub async fn for_network(&self) -> Result<Connection, RunnerError> {
        let permit = self.network_permits.clone().acquire_owned().await.map_err(|_| full())?;
        Connection::new(self.connector.connect().await?, permit).await
    }

    /// Keeps a connection whose last answer was read to the end.
    pub fn put_back(self: &Arc<Self>, connection: Connection) {
        if !connection.is_open() {
            return;
        }
        let mut idle = self.idle();
        idle.connections.push_back((Instant::now(), connection));
        if idle.connections.len() > MAX_IDLE {
            idle.connections.pop_front();
        }
        if !idle.is_swept {
            idle.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // A panic under this lock leaves nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn count_idle(&self) -> usize {
        self.idle().connections.len()
    }
}

fn full() -> RunnerError {
    let message = format!("{MAX_CONNECTIONS} requests to this session are under way; wait for some to end");
    RunnerError::refused(ErrorCode::LimitReached, message)
}

/// Closes idle connections when their time is up. It holds the pool only while it looks, so it also ends when the pool is
/// gone.
async fn sweep(connections: Weak<Connections>) {
    loop {
        let wake = {
            let Some(connections) = connections.upgrade() else { return };
            let mut idle = connections.idle();
            while idle.connections.front().is_some_and(|(since, _)| since.elapsed() >= KEEP) {
                idle.connections.pop_front();
            }
            match idle.connections.front() {
                Some((since, _)) => *since + KEEP,
                None => {
                    idle.is_swept = false;
                    return;
                }
            }
        };
        tokio::time::sleep_until(wake).await;
    }
}
