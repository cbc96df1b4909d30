//! The way out of a sandbox whose network namespace the daemon cannot enter: programs connect to one port of the loopback, and
//! the runner hands each connection to the daemon as it is. The daemon asks for the next one beforehand (`NetworkListener::next`).
//!
//! The runner reads nothing and decides nothing. At most one connection waits here for the daemon; further ones wait in the kernel's
//! backlog. If nobody has asked for connections for `DAEMON_PATIENCE`, the daemon is gone, and each connection is reset at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::{ErrorBody, ErrorCode};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// The most questions for the next connection at the same time.
pub const MAX_WAITING: usize = 64;
/// How long connections wait for a daemon that does not ask. A daemon that was started again asks within this time.
const DAEMON_PATIENCE: Duration = Duration::from_secs(1);
/// The connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;
/// The pause after a failed accept: descriptors may have run out, and a retry at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Gives connections of programs to whoever asks. All clones are one.
#[derive(Clone)]
pub struct NetworkListener(Rc<Shared>);

struct Shared {
    /// Those who wait for a connection. The one that waits longest comes first.
    waiting: RefCell<VecDeque<oneshot::Sender<TcpStream>>>,
    /// Wakes a connection that waits for somebody who asks.
    asked: Notify,
    /// When somebody waited last.
    last_waited: Cell<Instant>,
}

impl Default for NetworkListener {
    fn default() -> Self {
        Self(Rc::new(Shared {
            waiting: RefCell::default(),
            asked: Notify::new(),
            last_waited: Cell::new(Instant::now()),
        }))
    }
}

/// Records when a question ended, also if its client has gone.
struct Waited<'a>(&'a Shared);

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        self.0.last_waited.set(Instant::now());
    }
}

impl NetworkListener {
    /// Listens on both loopback addresses, or on the first if the sandbox has no IPv6, and accepts as long as the runner runs.
    pub fn start(port: u16) -> io::Result<Self> {
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on port {port} of the loopback: {e}"));
        let listener = Self::default();
        let first = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map_err(named)?;
        tokio::task::spawn_local(listener.clone().accept(first));
        match listen(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
            Ok(second) => drop(tokio::task::spawn_local(listener.clone().accept(second))),
            Err(error) => tracing::debug!(%error, "the network's port has no IPv6 address"),
        }
        Ok(listener)
    }

    /// The next connection of a program.
    pub async fn next(&self) -> Result<TcpStream, ErrorBody> {
        let connection = {
            let mut waiting = self.0.waiting.borrow_mut();
            waiting.retain(|waiting| !waiting.is_closed());
            if waiting.len() >= MAX_WAITING {
                let message = format!("{MAX_WAITING} requests wait for a connection already");
                return Err(ErrorBody::new(ErrorCode::LimitReached, message));
            }
            let (sender, connection) = oneshot::channel();
            waiting.push_back(sender);
            connection
        };
        let _waited = Waited(&self.0);
        self.0.asked.notify_waiters();
        connection.await.map_err(|_| ErrorBody::new(ErrorCode::SandboxLost, "the runner is ending"))
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    self.hand_over(stream).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection of a program could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Gives the connection to whoever waits longest, or waits for somebody. If nobody asks in time, the connection is reset.
    async fn hand_over(&self, mut stream: TcpStream) {
        loop {
            let asked = self.0.asked.notified();
            while let Some(waiting) = self.next_waiting() {
                match waiting.send(stream) {
                    Ok(()) => return,
                    Err(back) => stream = back,
                }
            }
            if timeout_at(self.0.last_waited.get() + DAEMON_PATIENCE, asked).await.is_err() {
                let _ = stream.set_zero_linger();
                return;
            }
        }
    }

    fn next_waiting(&self) -> Option<oneshot::Sender<TcpStream>> {
        self.0.waiting.borrow_mut().pop_front()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::task::LocalSet;

    /// A listener on a free port.
    async fn start() -> (NetworkListener, SocketAddr) {
        let (listener, socket) = (NetworkListener::default(), listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap());
        let address = socket.local_addr().unwrap();
        tokio::task::spawn_local(listener.clone().accept(socket));
        (listener, address)
    }

    #[tokio::test]
    async fn a_connection_goes_to_one_who_asks_before_or_shortly_after() {
        LocalSet::new()
            .run_until(async {
                let (listener, address) = start().await;
                let (taken, program) = tokio::join!(listener.next(), TcpStream::connect(address));
                assert_eq!(taken.unwrap().peer_addr().unwrap(), program.unwrap().local_addr().unwrap());
                let program = TcpStream::connect(address).await.unwrap();
                tokio::task::yield_now().await;
                assert_eq!(listener.next().await.unwrap().peer_addr().unwrap(), program.local_addr().unwrap());
            })
            .await;
    }

    #[tokio::test]
    async fn a_question_whose_client_has_gone_gets_no_connection() {
        LocalSet::new()
            .run_until(async {
                let (listener, address) = start().await;
                let gone = listener.next();
                assert!(tokio::time::timeout(Duration::ZERO, gone).await.is_err());
                let (taken, program) = tokio::join!(listener.next(), TcpStream::connect(address));
                assert_eq!(taken.unwrap().peer_addr().unwrap(), program.unwrap().local_addr().unwrap());
            })
            .await;
    }

    #[tokio::test]
    async fn if_nobody_asks_for_a_while_connections_are_reset_at_once() {
        LocalSet::new()
            .run_until(async {
                let (listener, address) = start().await;
                listener.0.last_waited.set(Instant::now() - DAEMON_PATIENCE);
                let began = Instant::now();
                for _ in 0..20 {
                    let mut program = TcpStream::connect(address).await.unwrap();
                    let read = program.read(&mut [0; 1]).await;
                    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
                }
                assert!(began.elapsed() < DAEMON_PATIENCE, "each waited");
            })
            .await;
    }

    #[tokio::test]
    async fn the_questions_that_wait_are_bounded() {
        LocalSet::new()
            .run_until(async {
                let (listener, _) = start().await;
                let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(listener.next())).collect();
                for one in &mut waiting {
                    assert!(tokio::time::timeout(Duration::ZERO, one).await.is_err());
                }
                assert_eq!(listener.next().await.unwrap_err().error_code, ErrorCode::LimitReached);
                drop(waiting);
                assert!(tokio::time::timeout(Duration::ZERO, listener.next()).await.is_err());
            })
            .await;
    }
}
