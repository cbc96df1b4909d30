//! The two sockets inside a sandbox's network namespace over which its programs reach the daemon: one accepts every TCP
//! connection, the other gets every DNS query over UDP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, setsockopt, socket, sockopt};
use shared_protocol::runner::RESERVED_PORTS;

const DNS_PORT: u16 = 53;
/// The most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// What a program inside reaches instead of a network.
#[derive(Debug)]
pub struct SandboxSockets {
    /// Accepts every TCP connection. The local address of an accepted one is the address that the program dialled.
    pub tcp: TcpListener,
    /// Gets the DNS queries to any address. `None` if a program inside has the port.
    pub dns: Option<UdpSocket>,
}

/// Opens both sockets in this thread's network namespace. Returns the port of the listener too.
pub fn open() -> io::Result<(SandboxSockets, u16)> {
    let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
    // Few programs want one of these ports. The list of a sandbox's servers leaves them out.
    for port in RESERVED_PORTS {
        match listener(port) {
            Ok(tcp) => return Ok((SandboxSockets { tcp, dns: dns().ok() }, port)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

fn listener(port: u16) -> io::Result<TcpListener> {
    let socket = bound(SockType::Stream, port)?;
    // nix refuses more than the libc's SOMAXCONN, which is 128 in musl; the kernel has a limit of its own.
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn dns() -> io::Result<UdpSocket> {
    let socket = bound(SockType::Datagram, DNS_PORT)?;
    // The answer has to come from the address that was asked.
    if setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true).is_err() {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    Ok(socket.into())
}

/// A socket for both address families on every address, or for IPv4 alone where the kernel has no IPv6. It is transparent: it
/// may have any local address.
fn bound(kind: SockType, port: u16) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let prepare = |socket: &OwnedFd| {
        if kind == SockType::Stream {
            setsockopt(socket, sockopt::ReuseAddr, &true)?;
        }
        setsockopt(socket, sockopt::IpTransparent, &true)
    };
    let Ok(both) = socket(AddressFamily::Inet6, kind, flags, None) else {
        let only = socket(AddressFamily::Inet, kind, flags, None)?;
        prepare(&only)?;
        bind(only.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)))?;
        return Ok(only);
    };
    setsockopt(&both, sockopt::Ipv6V6Only, &false)?;
    prepare(&both)?;
    bind(both.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)))?;
    Ok(both)
}
