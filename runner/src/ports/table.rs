//! Reads the kernel's tables of TCP sockets, `/proc/net/tcp` and `/proc/net/tcp6`, and finds those that listen.
//!
//! The kernel lists listening sockets first, so reading a bounded part of each table finds them however many connections there
//! are.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most that is read of one table: about 1,700 sockets.
const MAX_TABLE_BYTES: u64 = 256 << 10;

/// The kernel's number for the state of a socket that listens.
const LISTEN: &str = "0A";

/// One socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    pub address: IpAddr,
    pub port: u16,
    /// The number by which `/proc/PID/fd` names the socket.
    pub inode: u64,
}

impl Listening {
    /// Whether a connection to `127.0.0.1` or `::1` arrives at this socket.
    pub fn is_reachable(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_unspecified() || address == Ipv4Addr::LOCALHOST,
            IpAddr::V6(address) => {
                address.is_unspecified()
                    || address == Ipv6Addr::LOCALHOST
                    || address.to_ipv4_mapped() == Some(Ipv4Addr::LOCALHOST)
            }
        }
    }
}

/// The sockets that listen in this network namespace. A table that cannot be read counts as empty: a kernel may lack IPv6.
pub fn read() -> Vec<Listening> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().flat_map(|path| parse(&read_bounded(path))).collect()
}

fn read_bounded(path: &str) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_TABLE_BYTES).read_to_end(&mut bytes));
    // What was read before an error is as good as the rest.
    let _ = read;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Finds the listening sockets in a table. Lines that are not as expected are left out, such as the head and a cut last one.
fn parse(table: &str) -> Vec<Listening> {
    table.lines().filter_map(parse_line).collect()
}

/// Parses `sl: LOCAL:PORT REMOTE:PORT STATE … uid timeout inode …`.
fn parse_line(line: &str) -> Option<Listening> {
    let mut fields = line.split_ascii_whitespace();
    let (_, local, _, state) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if state != LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Listening { address: parse_address(address)?, port, inode })
}

/// Parses an address. The kernel prints it as 32-bit words in the byte order of the machine.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (number, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * number)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0000000000000000 100 0 0 10 0
   2: 0200007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0000000000000000 100 0 0 10 0
   3: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0000000000000000 20 4 30 10 -1
   4: 0100007F:1F91 00000000:0000 0A 0000";
    const TCP6: &str = "\
   0: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 99 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000000000000:0BB9 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 100 1 0000000000000000 100 0 0 10 0";

    fn shown(table: &str) -> Vec<(String, u16, u64, bool)> {
        parse(table).iter().map(|s| (s.address.to_string(), s.port, s.inode, s.is_reachable())).collect()
    }

    #[test]
    fn sockets_that_listen_are_found_and_connections_are_not() {
        let expected = [
            ("127.0.0.1".to_owned(), 8080, 4711, true),
            ("0.0.0.0".to_owned(), 22, 12, true),
            ("127.0.0.2".to_owned(), 80, 13, false),
        ];
        assert_eq!(shown(TCP), expected);
        assert_eq!(shown(TCP6), [("::1".to_owned(), 3000, 99, true), ("::".to_owned(), 3001, 100, true)]);
    }

    #[test]
    fn a_real_listener_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let bound = listener.local_addr().unwrap();
            let found = read().into_iter().find(|socket| socket.port == bound.port() && socket.address == bound.ip());
            assert!(found.is_some_and(|socket| socket.is_reachable()), "{bound}");
        }
    }

    proptest! {
        #[test]
        fn no_table_is_too_strange(text in ".{0,400}", cut in 0usize..600) {
            let _ = parse(&text);
            let cut = TCP.floor_char_boundary(cut.min(TCP.len()));
            prop_assert!(parse(&TCP[..cut]).len() <= 3);
        }
    }
}
