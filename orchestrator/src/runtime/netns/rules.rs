//! The routes and packet rules of a sandbox's network namespace.
//!
//! Every address is made local, and every TCP connection that is not to loopback goes to one listening socket, whatever its
//! address and port. That socket is transparent: the local address of an accepted connection is the address that the program
//! dialled. Nothing is translated and no connection is tracked, so programs keep all ports but the listener's own, and a
//! sandbox cannot fill a table of the kernel.
//!
//! ```text
//!  table inet cove
//!    chain steer    prerouting   to loopback: accept · tcp: tproxy to :PORT
//!    chain confine  output       to loopback: accept · tcp: accept · udp from or to port 53: accept · the rest: drop
//! ```
//!
//! A dropped packet fails at once: `sendto` gives EPERM.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{Batch, Body, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, request};

const RTM_NEWROUTE: u16 = 24;
const RTA_OIF: u16 = 4;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
/// The index of `lo` in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const RTM_NEWADDR: u16 = 20;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Addresses of `lo` besides 127.0.0.1 and ::1, reserved for documentation. Without one, libc takes it that there is no network,
/// and does not resolve names for programs that ask for one kind of address.
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

pub fn add_addresses() -> io::Result<()> {
    for address in ADDRESSES {
        let (family, prefix, bytes) = match address {
            IpAddr::V4(v4) => (AF_INET, 32, v4.octets().to_vec()),
            IpAddr::V6(v6) => (AF_INET6, 128, v6.octets().to_vec()),
        };
        let mut batch = Batch::default();
        batch.message(RTM_NEWADDR, Some(NLM_F_CREATE | NLM_F_EXCL), |body| {
            // struct ifaddrmsg: family, prefix length, flags, scope, index.
            let [a, b, c, d] = LOOPBACK_INDEX.to_ne_bytes();
            body.fixed(&[family, prefix, 0, 0, a, b, c, d]);
            body.attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes);
        });
        match request(SockProtocol::NetlinkRoute, &batch) {
            // An earlier daemon has added it.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) if family == AF_INET6 && is_without_ipv6(&error) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Makes every IPv4 address local, and every IPv6 address if the kernel has IPv6.
pub fn make_all_addresses_local() -> io::Result<()> {
    local_route(AF_INET)?;
    match local_route(AF_INET6) {
        Err(error) if is_without_ipv6(&error) => Ok(()),
        result => result,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let codes = [libc::EAFNOSUPPORT, libc::EOPNOTSUPP, libc::EACCES, libc::EINVAL, libc::ENODEV, libc::EPERM];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

fn local_route(family: u8) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.message(RTM_NEWROUTE, Some(NLM_F_CREATE | NLM_F_EXCL), |body| {
        // struct rtmsg: family, both prefix lengths, tos, table, protocol, scope, type, flags.
        let kind = [family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0];
        body.fixed(&kind).attribute(RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes());
    });
    match request(SockProtocol::NetlinkRoute, &batch) {
        // An earlier daemon has set it.
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result,
    }
}

const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;

const TABLE: &str = "cove";
const STEER: &str = "steer";
const CONFINE: &str = "confine";
const PREROUTING: u32 = 0;
const OUTPUT: u32 = 3;
/// Before the routing decision, as tproxy wants it.
const MANGLE_PRIORITY: i32 = -150;
const FILTER_PRIORITY: i32 = 0;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DNS_PORT: u16 = 53;

/// Sets the packet rules for a listener on this port, in place of those of an earlier daemon.
pub fn set_packet_rules(port: u16) -> io::Result<()> {
    let set = |before| request(SockProtocol::NetlinkNetFilter, &packet_rules(port, before));
    let set = match set(Before::Nothing) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => set(Before::OldRules),
        set => set,
    };
    set.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        // The kernel lacks nf_tables or tproxy, and could not load the module.
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT) => io::ErrorKind::Unsupported.into(),
        _ => error,
    })
}

/// What is in the namespace before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Rules of an earlier daemon. To delete them takes the kernel ten milliseconds, because it waits until nobody uses them.
    OldRules,
}

fn packet_rules(port: u16, before: Before) -> Batch {
    let mut batch = Batch::default();
    batch.message(BATCH_BEGIN, None, |body| {
        body.fixed(&general(0, SUBSYSTEM));
    });
    if before == Before::OldRules {
        batch.message(DELETE_TABLE, Some(0), |body| {
            body.fixed(&general(NFPROTO_INET, 0)).text(1, TABLE);
        });
    }
    batch.message(NEW_TABLE, Some(NLM_F_CREATE | NLM_F_EXCL), |body| {
        body.fixed(&general(NFPROTO_INET, 0)).text(1, TABLE);
    });
    chain(&mut batch, STEER, PREROUTING, MANGLE_PRIORITY);
    chain(&mut batch, CONFINE, OUTPUT, FILTER_PRIORITY);
    for name in [STEER, CONFINE] {
        rule(&mut batch, name, |rule| {
            rule.family(NFPROTO_IPV4).compare_packet(IPV4_DESTINATION, &[127]).accept();
        });
        rule(&mut batch, name, |rule| {
            rule.family(NFPROTO_IPV6).compare_packet(IPV6_DESTINATION, &LOOPBACK_IPV6).accept();
        });
    }
    for family in [NFPROTO_IPV4, NFPROTO_IPV6] {
        rule(&mut batch, STEER, |rule| {
            rule.family(family).protocol(TCP).tproxy(family, port).accept();
        });
    }
    rule(&mut batch, CONFINE, |rule| rule.protocol(TCP).accept());
    for place in [SOURCE_PORT, DESTINATION_PORT] {
        rule(&mut batch, CONFINE, |rule| {
            rule.protocol(UDP).compare_packet(place, &DNS_PORT.to_be_bytes()).accept();
        });
    }
    rule(&mut batch, CONFINE, |rule| rule.drop_packet());
    batch.message(BATCH_END, None, |body| {
        body.fixed(&general(0, SUBSYSTEM));
    });
    batch
}

/// struct nfgenmsg
fn general(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

fn chain(batch: &mut Batch, name: &str, hook: u32, priority: i32) {
    batch.message(NEW_CHAIN, Some(NLM_F_CREATE), |body| {
        body.fixed(&general(NFPROTO_INET, 0)).text(1, TABLE).text(3, name);
        body.nested(4, |hooked| {
            hooked.number(1, hook).attribute(2, &priority.to_be_bytes());
        });
        body.text(7, "filter");
    });
}

fn rule(batch: &mut Batch, chain: &str, expressions: impl FnOnce(&mut Expressions<'_, '_>)) {
    batch.message(NEW_RULE, Some(NLM_F_CREATE | NLM_F_APPEND), |body| {
        body.fixed(&general(NFPROTO_INET, 0)).text(1, TABLE).text(2, chain);
        body.nested(4, |list| expressions(&mut Expressions(list)));
    });
}

/// A place in a packet: the header it is counted from (network or transport) and the offset.
#[derive(Clone, Copy)]
struct Place {
    header: u32,
    offset: u32,
}

const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const IPV4_DESTINATION: Place = Place { header: NETWORK_HEADER, offset: 16 };
const IPV6_DESTINATION: Place = Place { header: NETWORK_HEADER, offset: 24 };
const SOURCE_PORT: Place = Place { header: TRANSPORT_HEADER, offset: 0 };
const DESTINATION_PORT: Place = Place { header: TRANSPORT_HEADER, offset: 2 };
const LOOPBACK_IPV6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

const REGISTER: u32 = 1;
const VERDICT: u32 = 0;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const ACCEPT: u32 = 1;
const DROP: u32 = 0;

/// The expressions of one rule. Each one must match for the next to be looked at.
struct Expressions<'a, 'b>(&'a mut Body<'b>);

impl Expressions<'_, '_> {
    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Body<'_>)) -> &mut Self {
        self.0.nested(1, |element| {
            element.text(1, name).nested(2, data);
        });
        self
    }

    fn equals(&mut self, value: &[u8]) -> &mut Self {
        self.expression("cmp", |data| {
            data.number(1, REGISTER).number(2, 0).nested(3, |wanted| {
                wanted.attribute(1, value);
            });
        })
    }

    fn meta(&mut self, key: u32, value: u8) -> &mut Self {
        self.expression("meta", |data| {
            data.number(1, REGISTER).number(2, key);
        });
        self.equals(&[value])
    }

    fn family(&mut self, family: u8) -> &mut Self {
        self.meta(META_FAMILY, family)
    }

    fn protocol(&mut self, protocol: u8) -> &mut Self {
        self.meta(META_PROTOCOL, protocol)
    }

    fn compare_packet(&mut self, place: Place, value: &[u8]) -> &mut Self {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.expression("payload", |data| {
            data.number(1, REGISTER).number(2, place.header).number(3, place.offset).number(4, length);
        });
        self.equals(value)
    }

    fn tproxy(&mut self, family: u8, port: u16) -> &mut Self {
        self.expression("immediate", |data| {
            data.number(1, REGISTER).nested(2, |value| {
                value.attribute(1, &port.to_be_bytes());
            });
        });
        self.expression("tproxy", |data| {
            data.number(1, family.into()).number(3, REGISTER);
        })
    }

    fn accept(&mut self) {
        self.verdict(ACCEPT);
    }

    fn drop_packet(&mut self) {
        self.verdict(DROP);
    }

    fn verdict(&mut self, code: u32) {
        self.expression("immediate", |data| {
            data.number(1, VERDICT).nested(2, |value| {
                value.nested(2, |verdict| {
                    verdict.number(1, code);
                });
            });
        });
    }
}
