//! TCP servers in the sandbox: the list of what listens, and connections to one of them for clients outside.
//!
//! The runner connects over the sandbox's own loopback, so this works the same in every runtime and needs no network interface.
//! It refuses other addresses, ports of Cove's own, and more than `MAX_PORT_CONNECTIONS` connections at once.

mod owners;
mod relay;
mod table;

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::{MAX_LISTED_PORTS, MAX_PROGRAM_BYTES, PortList, PortView, RESERVED_PORTS};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub use relay::{EndOfClient, relay};
use table::Listening;

/// The most connections to ports at once. Each takes two descriptors and two buffers.
pub const MAX_PORT_CONNECTIONS: usize = 512;

/// The longest time for a server to accept a connection. It is on the same host, so a longer time means that it is stuck.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Lists ports and connects to them.
#[derive(Default)]
pub struct Ports {
    /// The number of connections that exist.
    open: Rc<Cell<usize>>,
}

/// A connection to a port, which counts as one of `MAX_PORT_CONNECTIONS` until it is dropped.
pub struct PortConnection {
    pub stream: TcpStream,
    pub slot: Slot,
}

/// One of the `MAX_PORT_CONNECTIONS`.
pub struct Slot(Rc<Cell<usize>>);

impl Slot {
    fn take(open: &Rc<Cell<usize>>) -> Result<Self, ErrorBody> {
        if open.get() >= MAX_PORT_CONNECTIONS {
            let message = format!("{MAX_PORT_CONNECTIONS} connections to ports of this sandbox are open");
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        open.set(open.get() + 1);
        Ok(Self(open.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl Ports {
    /// Lists the sockets that listen, by port. Processes are told where the kernel shows them.
    pub async fn list(&self) -> PortList {
        let mut listening = table::read();
        listening.retain(|socket| !RESERVED_PORTS.contains(&socket.port));
        listening.sort_by_key(|socket| (socket.port, socket.address));
        listening.dedup_by_key(|socket| (socket.port, socket.address));
        listening.truncate(MAX_LISTED_PORTS);
        let owners = owners::of(listening.iter().map(|socket| socket.inode).collect()).await;
        let view = |socket: &Listening| {
            let owner = owners.get(&socket.inode);
            PortView {
                port: socket.port,
                address: socket.address.to_string(),
                reachable: socket.is_reachable(),
                pid: owner.and_then(|owner| u32::try_from(owner.pid).ok()),
                program: owner.map(|owner| crate::text::cut(owner.program.clone(), MAX_PROGRAM_BYTES - '…'.len_utf8())),
            }
        };
        PortList { ports: listening.iter().map(view).collect() }
    }

    /// Connects to `127.0.0.1:port`, or else to `[::1]:port`.
    pub async fn connect(&self, port: u16) -> Result<PortConnection, ErrorBody> {
        if RESERVED_PORTS.contains(&port) {
            return Err(ErrorBody::new(ErrorCode::PortClosed, format!("port {port} of the sandbox is Cove's own")));
        }
        let slot = Slot::take(&self.open)?;
        let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
        let mut failed = None;
        for address in addresses {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small messages, such as those of a WebSocket, are sent at once.
                    let _ = stream.set_nodelay(true);
                    return Ok(PortConnection { stream, slot });
                }
                // The first error is about the address that most servers use.
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(_) => {
                    let message = format!("the server on port {port} did not accept a connection in time");
                    return Err(ErrorBody::new(ErrorCode::PortClosed, message));
                }
            }
        }
        let refused = failed.filter(|error| error.kind() != io::ErrorKind::ConnectionRefused);
        let message = match refused {
            None => format!("nothing listens on port {port} of the sandbox"),
            Some(error) => format!("port {port} of the sandbox cannot be reached: {error}"),
        };
        Err(ErrorBody::new(ErrorCode::PortClosed, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_connections_as_the_bound_says_and_an_end_makes_room() {
        let open = Rc::new(Cell::new(0));
        let mut slots: Vec<Slot> = (0..MAX_PORT_CONNECTIONS).map(|_| Slot::take(&open).unwrap()).collect();
        assert_eq!(Slot::take(&open).err().unwrap().error_code, ErrorCode::LimitReached);
        slots.pop();
        assert!(Slot::take(&open).is_ok());
        drop(slots);
        assert_eq!(open.get(), 0);
    }

    #[tokio::test]
    async fn a_port_of_coves_own_is_not_connected_to() {
        for port in RESERVED_PORTS {
            let refused = Ports::default().connect(port).await.err().unwrap();
            assert!(refused.error_code == ErrorCode::PortClosed && refused.message.contains("own"), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_server_is_reached_on_either_loopback_and_a_closed_port_is_told() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = tokio::net::TcpListener::bind(address).await else { continue };
            let port = listener.local_addr().unwrap().port();
            let ports = Ports::default();
            let connection = ports.connect(port).await.unwrap_or_else(|error| panic!("{address}: {error}"));
            assert_eq!(ports.open.get(), 1);
            drop((connection, listener));
            assert_eq!(ports.open.get(), 0);
            assert_eq!(ports.connect(port).await.err().unwrap().error_code, ErrorCode::PortClosed);
        }
    }
}
