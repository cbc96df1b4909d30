//! Programs in a real network namespace, seen from the sockets outside of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, recvmsg, sendmsg};

use super::*;

/// Runs `test` in a new network namespace that is set up. Only root can do that.
fn in_namespace(test: impl FnOnce(SandboxSockets) + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a network namespace of its own needs root");
        return;
    }
    let work = || {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let began = Instant::now();
        let sockets = set_up().expect("set up");
        println!("set up in {:?}", began.elapsed());
        test(sockets);
    };
    std::thread::spawn(work).join().expect("the test in its own namespace");
}

fn accept(tcp: &TcpListener) -> (TcpStream, SocketAddr) {
    tcp.set_nonblocking(false).expect("blocking");
    let (stream, _) = tcp.accept().expect("a connection");
    let mut dialled = stream.local_addr().expect("an address");
    dialled.set_ip(dialled.ip().to_canonical());
    (stream, dialled)
}

#[test]
fn every_address_and_port_leads_to_the_one_listener() {
    in_namespace(|SandboxSockets { tcp, .. }| {
        for dialled in ["203.0.113.7:443", "10.1.2.3:5432", "[2001:db8::5]:22", "0.0.0.1:1", "255.1.1.1:65535"] {
            let dialled: SocketAddr = dialled.parse().unwrap();
            let mut program = TcpStream::connect_timeout(&dialled, Duration::from_secs(5)).expect("a connection");
            let (mut stream, seen) = accept(&tcp);
            assert_eq!(seen, dialled);
            program.write_all(b"up").unwrap();
            stream.write_all(b"down").unwrap();
            let (mut up, mut down) = ([0; 2], [0; 4]);
            stream.read_exact(&mut up).unwrap();
            program.read_exact(&mut down).unwrap();
            assert_eq!((&up, &down), (b"up", b"down"));
        }
    });
}

#[test]
fn programs_keep_their_ports_and_loopback() {
    in_namespace(|SandboxSockets { tcp, .. }| {
        let own = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 443)).expect("its own port");
        let _inner = TcpStream::connect(("127.0.0.1", 443)).expect("its own server");
        own.accept().expect("over loopback");
        let _outer = TcpStream::connect(("203.0.113.7", 443)).expect("a connection");
        assert_eq!(accept(&tcp).1, "203.0.113.7:443".parse().unwrap());
        own.set_nonblocking(true).unwrap();
        assert!(own.accept().is_err(), "a connection to another address reached the program's own server");
    });
}

#[test]
fn dns_to_any_address_is_answered_from_that_address_and_no_other_datagram_leaves() {
    in_namespace(|SandboxSockets { dns, .. }| {
        let dns = dns.expect("a socket for DNS");
        let program = UdpSocket::bind("0.0.0.0:0").unwrap();
        program.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for server in [NAME_SERVER, "198.51.100.9"] {
            let server = SocketAddr::new(server.parse().unwrap(), 53);
            program.send_to(b"query", server).unwrap();
            let (mut bytes, mut space) = ([0; 64], nix::cmsg_space!(libc::in6_pktinfo));
            dns.set_nonblocking(false).unwrap();
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let received =
                recvmsg::<SockaddrStorage>(dns.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).unwrap();
            let from = received.address.expect("a sender");
            let Some(ControlMessageOwned::Ipv6PacketInfo(to)) = received.cmsgs().unwrap().next() else {
                panic!("no packet info")
            };
            let answer = [IoSlice::new(b"answer")];
            let control = [ControlMessage::Ipv6PacketInfo(&to)];
            sendmsg(dns.as_raw_fd(), &answer, &control, MsgFlags::empty(), Some(&from)).unwrap();
            let mut bytes = [0; 64];
            let (length, answered_by) = program.recv_from(&mut bytes).unwrap();
            assert_eq!((&bytes[..length], answered_by), (&b"answer"[..], server));
        }
        for elsewhere in ["203.0.113.7:123", "198.51.100.9:443"] {
            let refused = program.send_to(b"x", elsewhere).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{elsewhere}");
        }
        let friend = UdpSocket::bind("127.0.0.1:0").unwrap();
        program.send_to(b"x", friend.local_addr().unwrap()).expect("datagrams over loopback");
    });
}

#[test]
fn the_next_daemon_opens_it_again() {
    in_namespace(|first| {
        let old_port = first.tcp.local_addr().unwrap().port();
        let second = set_up().expect("beside sockets that are still open");
        assert_ne!(second.tcp.local_addr().unwrap().port(), old_port);
        let _program = TcpStream::connect(("203.0.113.7", 80)).unwrap();
        assert_eq!(accept(&second.tcp).1.port(), 80);
        drop((first, second));
        let gone = TcpStream::connect_timeout(&"203.0.113.7:80".parse().unwrap(), Duration::from_secs(5)).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused, "without a daemon nothing gets out, at once");
        assert!(set_up().is_ok());
    });
}
