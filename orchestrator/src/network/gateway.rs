//! The gateway of one sandbox: the task that takes every connection and every DNS query of its programs, from sockets of the
//! sandbox that the daemon holds, or from its runner.
//!
//! It ends with the session, and all connections with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use network_policy::Reason;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use shared_protocol::api::{NetworkVerdict, NetworkWish};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::warn;

use super::connection::Connection;
use super::limits::Place;
use super::log::Entry;
use super::session::SessionNetwork;
use super::stream::Stream;
use super::{dns, proxy};
use crate::runner_client::{RunnerClient, RunnerError};
use crate::runtime::SandboxSockets;

/// The most DNS queries over UDP that are answered at the same time. Further ones wait in the socket.
const MAX_QUERIES: usize = 64;
const MAX_DATAGRAM_BYTES: usize = 4096;
/// How many connections and queries a sandbox may begin at once, and how many a second after that: each costs the daemon work.
const BURST: u32 = 2000;
const PER_SECOND: u32 = 1000;
/// How long the gateway waits after it could not accept: the daemon may have too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const DNS_PORT: u16 = 53;
/// How many connections of programs the runner is asked for at the same time. Each program that connects uses one up, and the next
/// question takes a moment.
const WAITING_ACCEPTS: usize = 16;

/// A running gateway. It ends when this is dropped.
#[derive(Debug)]
pub struct Gateway(Vec<AbortHandle>);

impl Drop for Gateway {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Gateway {
    pub fn start(session: &Arc<SessionNetwork>, sockets: SandboxSockets) -> io::Result<Self> {
        let tcp = TcpListener::from_std(sockets.tcp)?;
        let mut tasks = vec![tokio::spawn(accept(session.clone(), tcp)).abort_handle()];
        match sockets.dns {
            Some(dns) => {
                let dns = UdpSocket::from_std(dns)?;
                tasks.push(tokio::spawn(answer(session.clone(), dns)).abort_handle());
            }
            None => {
                warn!(session_id = %session.id(), "a program in the sandbox has the port of DNS; names are not resolved")
            }
        }
        Ok(Self(tasks))
    }

    /// Serves a sandbox whose runner hands over the connections of programs.
    pub fn start_proxy(session: &Arc<SessionNetwork>, runner: RunnerClient) -> Self {
        Self(vec![tokio::spawn(accept_from_runner(session.clone(), runner)).abort_handle()])
    }
}

async fn accept(session: Arc<SessionNetwork>, listener: TcpListener) {
    // Dropping the set ends all connections.
    let (mut connections, mut pace) = (JoinSet::new(), Pace::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((program, _)) => {
                    pace.wait().await;
                    take(&session, program, &mut connections);
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

fn take(session: &Arc<SessionNetwork>, program: TcpStream, connections: &mut JoinSet<()>) {
    let Ok(dialled) = program.local_addr() else { return };
    // The listener's own port is no way out.
    if network_policy::canonical(dialled.ip()).is_loopback() {
        let _ = program.set_zero_linger();
        return;
    }
    let Some(place) = enter(session, Some(dialled)) else {
        let _ = program.set_zero_linger();
        return;
    };
    let _ = program.set_nodelay(true);
    let (session, program) = (session.clone(), Stream::from(program));
    connections.spawn(async move {
        if dialled.port() == DNS_PORT {
            let _ = dns::serve_tcp(session, program).await;
        } else {
            Connection::dialled(session, program, dialled).carry().await;
        }
        drop(place);
    });
}

/// Takes a place for a connection. If there is none, that is in the log.
fn enter(session: &Arc<SessionNetwork>, dialled: Option<SocketAddr>) -> Option<(Place, Place)> {
    if session.is_used_up() {
        note_limit(session, dialled, Reason::ByteLimit);
        return None;
    }
    session.enter().map_err(|limit| note_limit(session, dialled, limit)).ok()
}

/// Takes the connections that the runner hands over, as long as the session lives.
async fn accept_from_runner(session: Arc<SessionNetwork>, runner: RunnerClient) {
    let (mut connections, mut pace) = (JoinSet::new(), Pace::new());
    let next = || async {
        let accepted = runner.accept().await;
        if let Err(RunnerError::Lost(_)) = accepted {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        accepted
    };
    let mut waiting: FuturesUnordered<_> = (0..WAITING_ACCEPTS).map(|_| next()).collect();
    loop {
        tokio::select! {
            Some(accepted) = waiting.next() => match accepted {
                Ok(program) => {
                    waiting.push(next());
                    pace.wait().await;
                    let (program, session) = (Stream::from(program), session.clone());
                    // Without a place, the program sees that its connection is broken off.
                    if let Some(place) = enter(&session, None) {
                        connections.spawn(async move {
                            proxy::serve(session, program).await;
                            drop(place);
                        });
                    }
                }
                Err(RunnerError::Lost(_)) => waiting.push(next()),
                Err(error) => {
                    return warn!(session_id = %session.id(), %error, "the runner hands over no connections; the session has no network");
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

fn note_limit(session: &SessionNetwork, dialled: Option<SocketAddr>, limit: Reason) {
    session.note(Entry {
        wish: NetworkWish::Connect,
        host: None,
        address: dialled.map(|dialled| network_policy::canonical(dialled.ip()).to_string()),
        port: dialled.map(|dialled| dialled.port()),
        verdict: NetworkVerdict::Cut,
        reason: Some(limit.as_str()),
        rule: String::new(),
        is_guess: false,
        injected: false,
        bytes: None,
    });
}

async fn answer(session: Arc<SessionNetwork>, socket: UdpSocket) {
    let (socket, permits) = (Arc::new(socket), Arc::new(Semaphore::new(MAX_QUERIES)));
    let (mut queries, mut pace) = (JoinSet::new(), Pace::new());
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let Ok(query) = socket.async_io(Interest::READABLE, || receive(&socket)).await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        pace.wait().await;
        while queries.try_join_next().is_some() {}
        let (session, socket) = (session.clone(), socket.clone());
        queries.spawn(async move {
            if let Some(answer) = dns::answer(&session, &query.message, None).await {
                // If there is no room for it, the program asks again.
                let _ = send(&socket, &answer, &query);
            }
            drop(permit);
        });
    }
}

struct Datagram {
    message: Vec<u8>,
    from: SockaddrStorage,
    /// The address that the query was sent to. The answer must come from it.
    to: Option<To>,
}

enum To {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

fn receive(socket: &UdpSocket) -> io::Result<Datagram> {
    let mut message = vec![0; MAX_DATAGRAM_BYTES];
    let mut parts = [IoSliceMut::new(&mut message)];
    let mut space = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())?;
    let (length, from) = (received.bytes, received.address.ok_or(io::ErrorKind::InvalidData)?);
    let mut to = None;
    for control in received.cmsgs()? {
        match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => to = Some(To::V4(info)),
            ControlMessageOwned::Ipv6PacketInfo(info) => to = Some(To::V6(info)),
            _ => {}
        }
    }
    message.truncate(length);
    Ok(Datagram { message, from, to })
}

fn send(socket: &UdpSocket, answer: &[u8], query: &Datagram) -> io::Result<()> {
    let parts = [IoSlice::new(answer)];
    let control: &[ControlMessage<'_>] = match &query.to {
        Some(To::V4(info)) => &[ControlMessage::Ipv4PacketInfo(info)],
        Some(To::V6(info)) => &[ControlMessage::Ipv6PacketInfo(info)],
        None => &[],
    };
    sendmsg(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_DONTWAIT, Some(&query.from))?;
    Ok(())
}

/// Slows down a sandbox that begins too many things.
struct Pace {
    left: u32,
    counted_from: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { left: BURST, counted_from: Instant::now() }
    }

    async fn wait(&mut self) {
        if self.left == 0 {
            let next = Duration::from_secs(1) / PER_SECOND;
            tokio::time::sleep(next.saturating_sub(self.counted_from.elapsed())).await;
        }
        let earned = (self.counted_from.elapsed().as_secs_f64() * f64::from(PER_SECOND)).min(f64::from(BURST));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and BURST")]
        let earned = earned as u32;
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.counted_from = Instant::now();
        }
        self.left = self.left.saturating_sub(1);
    }
}
