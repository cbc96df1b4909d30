//! `cove forward`: makes ports of a session's sandbox reachable on this machine's loopback, until Ctrl-C.
//!
//! Each connection to a local port becomes one connection to the daemon, and one to the server in the sandbox. Either side may
//! end first.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use shared_protocol::SessionId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::interrupt::Interrupts;
use super::output::{print, say};
use super::session_ref::SessionRef;
use crate::client::{Client, ClientError};
use crate::relay::{HALF_CLOSED_SILENCE, relay};

const EXAMPLES: &str = "\
Examples:
  cove forward 7183cb80-d6c 3000
  cove forward 7183cb80-d6c 8080:3000 5432

REMOTE is the port in the sandbox, LOCAL the one on this machine. Without LOCAL the same number is used if
it is free, and any other free one if it is not. 0 as LOCAL means any free one.";

/// The most connections at once. Further ones wait.
const MAX_CONNECTIONS: usize = 512;

/// The pause after a failed accept: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Forward ports of a session to this machine, until Ctrl-C
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ForwardArgs {
    /// Id or name of the session
    session: SessionRef,
    /// Ports to forward
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    ports: Vec<Forwarding>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// One port to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// The port on this machine, and 0 for any free one. `None` means the same number, or any free one if it is taken.
    local: Option<u16>,
    remote: NonZeroU16,
}

impl FromStr for Forwarding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is not a port from 0 to 65535"));
        let (local, remote) = match text.split_once(':') {
            Some((local, remote)) => (Some(port(local)?), remote),
            None => (None, text),
        };
        let remote = NonZeroU16::new(port(remote)?).ok_or("the port in the sandbox cannot be 0")?;
        Ok(Self { local, remote })
    }
}

pub async fn forward(args: ForwardArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let session = args.session.find(&client).await?;
    // A wrong id, and a daemon that does not answer, are told now and not at the first connection.
    client.ports(&session).await?;
    let mut interrupts = Interrupts::new()?;
    let (mut forwards, lines) = Forwards::open(&client, &session, &args.ports).await?;
    print(&lines)?;
    tokio::select! {
        _ = interrupts.next() => Ok(0),
        error = forwards.failed() => Err(error.into()),
    }
}

/// Ports that are forwarded until this is dropped.
pub struct Forwards {
    _accepting: JoinSet<()>,
    failure: mpsc::Receiver<ClientError>,
}

impl Forwards {
    /// Listens on all ports, or on none. Also returns a line for each, which says where it listens.
    pub async fn open(client: &Client, session: &SessionId, ports: &[Forwarding]) -> Result<(Self, String), Failure> {
        let (failed, failure) = mpsc::channel(1);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (mut accepting, mut lines) = (JoinSet::new(), String::new());
        for wanted in ports {
            let listener = listen(*wanted).await?;
            let local = listener.local_addr().map_err(|e| Failure::failed(e.to_string()))?;
            lines.push_str(&format!("{local} -> port {} of {session}\n", wanted.remote));
            let port = Remote { client: client.clone(), session: session.clone(), port: wanted.remote.get() };
            accepting.spawn(accept(listener, port, places.clone(), failed.clone()));
        }
        Ok((Self { _accepting: accepting, failure }, lines))
    }

    /// Waits until no later connection can work either.
    async fn failed(&mut self) -> ClientError {
        match self.failure.recv().await {
            Some(error) => error,
            // Every port still has a sender.
            None => std::future::pending().await,
        }
    }
}

async fn listen(wanted: Forwarding) -> Result<TcpListener, Failure> {
    let bind = async |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let cannot =
        |port: u16, error: std::io::Error| Failure::failed(format!("cannot listen on 127.0.0.1:{port}: {error}"));
    match wanted.local {
        Some(local) => bind(local).await.map_err(|error| cannot(local, error)),
        None => match bind(wanted.remote.get()).await {
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
                say(format!("port {} of this machine cannot be used ({error}); another one is", wanted.remote));
                bind(0).await.map_err(|error| cannot(0, error))
            }
            other => other.map_err(|error| cannot(wanted.remote.get(), error)),
        },
    }
}

/// A port in a sandbox.
#[derive(Clone)]
struct Remote {
    client: Client,
    session: SessionId,
    port: u16,
}

/// Accepts connections until the session has ended. Its own tasks end with it.
async fn accept(listener: TcpListener, remote: Remote, places: Arc<Semaphore>, failed: mpsc::Sender<ClientError>) {
    let mut open = JoinSet::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    say(format!("a connection could not be accepted: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (remote, failed) = (remote.clone(), failed.clone());
        open.spawn(async move {
            if let Err(error) = carry(stream, &remote).await {
                match is_final(&error) {
                    true => drop(failed.try_send(error)),
                    false => say(format!("port {}: {error}", remote.port)),
                }
            }
            drop(place);
        });
    }
}

async fn carry(stream: TcpStream, remote: &Remote) -> Result<(), ClientError> {
    let connection = remote.client.connect_port(&remote.session, remote.port).await?;
    let _ = stream.set_nodelay(true);
    // How a connection ends is between its two sides.
    let _ = relay(stream, connection, HALF_CLOSED_SILENCE).await;
    Ok(())
}

/// Whether no later connection can work either.
fn is_final(error: &ClientError) -> bool {
    ["SESSION_NOT_FOUND", "SESSION_EXPIRED", "SANDBOX_LOST", "UNAUTHORIZED"].iter().any(|code| error.is(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarding_is_one_port_or_two() {
        let parse = |text: &str| text.parse::<Forwarding>().map(|f| (f.local, f.remote.get()));
        assert_eq!(parse("3000"), Ok((None, 3000)));
        assert_eq!(parse("8080:3000"), Ok((Some(8080), 3000)));
        assert_eq!(parse("0:3000"), Ok((Some(0), 3000)));
        for wrong in ["", "0", "8080:0", "x", "1:2:3", ":3000", "3000:", "65536", "-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_taken_port_is_refused_if_it_was_asked_for_and_replaced_if_not() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = NonZeroU16::new(taken.local_addr().unwrap().port()).unwrap();
        assert!(listen(Forwarding { local: Some(port.get()), remote: port }).await.is_err());
        for local in [None, Some(0)] {
            let other = listen(Forwarding { local, remote: port }).await.unwrap();
            assert_ne!(other.local_addr().unwrap().port(), port.get());
        }
    }
}
