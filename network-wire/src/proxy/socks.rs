//! SOCKS5 (RFC 1928), without authentication and for CONNECT alone. A client that offers nothing but a user name and a password
//! (RFC 1929) gets in with any: the proxy listens inside the sandbox, and whoever reaches it may use it.
//!
//! A message is at most 515 bytes, so it is read from its start each time.

use std::net::IpAddr;

use super::{Connecting, NotConnected, State, Step, Wants, refused};
use crate::HostOrAddress;
use crate::cursor::Cursor;

pub const VERSION: u8 = 5;
pub const VERSION_4: u8 = 4;
const PASSWORD_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const RESERVED: u8 = 0;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
/// SOCKS4's reply "rejected", with an empty port and address.
const REJECTED_4: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

/// The codes of replies.
#[derive(Debug, Clone, Copy)]
pub enum Code {
    Succeeded = 0,
    Failure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

/// A reply to a request. It gives no address that the proxy bound: clients do not use it, and it is not the sandbox's business.
pub fn reply(code: Code) -> Vec<u8> {
    vec![VERSION, code as u8, RESERVED, IPV4, 0, 0, 0, 0, 0, 0]
}

pub fn not_connected(why: &NotConnected<'_>) -> Vec<u8> {
    reply(match why {
        NotConnected::Denied(_) => Code::NotAllowed,
        NotConnected::Unreachable => Code::HostUnreachable,
        NotConnected::ConnectionRefused => Code::ConnectionRefused,
        NotConnected::TimedOut => Code::TimedOut,
    })
}

pub fn version_4() -> Step {
    refused(REJECTED_4.to_vec(), "SOCKS4 is not supported; use SOCKS5")
}

/// `05 count methods…`: the ways to authenticate that the client offers.
pub fn greeting(received: &[u8]) -> (State, Step) {
    let mut cursor = Cursor::new(received);
    let (Some(_version), Some(methods)) = (cursor.u8(), cursor.field_u8()) else {
        return (State::Start, Step::NeedMore);
    };
    let consumed = received.len() - cursor.len();
    let choose = |method| Step::Reply { reply: vec![VERSION, method], consumed };
    if methods.contains(&NO_AUTHENTICATION) {
        (State::SocksRequest, choose(NO_AUTHENTICATION))
    } else if methods.contains(&PASSWORD) {
        (State::SocksPassword, choose(PASSWORD))
    } else {
        (
            State::Start,
            refused(vec![VERSION, NO_METHOD], "the SOCKS5 client offers no way to authenticate that is supported"),
        )
    }
}

/// `01 length name length password`.
pub fn password(received: &[u8]) -> Step {
    let mut cursor = Cursor::new(received);
    if cursor.u8() != Some(PASSWORD_VERSION) {
        return refused(Vec::new(), "the SOCKS5 client does not send a user name and a password");
    }
    let (Some(_name), Some(_password)) = (cursor.field_u8(), cursor.field_u8()) else { return Step::NeedMore };
    Step::Reply { reply: vec![PASSWORD_VERSION, 0], consumed: received.len() - cursor.len() }
}

/// `05 command 00 type address port`. A part that cannot be served is refused as soon as it is there.
pub fn request(received: &[u8]) -> Step {
    let mut cursor = Cursor::new(received);
    match read(&mut cursor) {
        None => Step::NeedMore,
        Some(Err(refusal)) => refusal,
        Some(Ok((host, port))) => {
            Step::Wants(Wants { host, port, consumed: received.len() - cursor.len(), connecting: Connecting::Socks5 })
        }
    }
}

fn read(cursor: &mut Cursor<'_>) -> Option<Result<(HostOrAddress, u16), Step>> {
    let fail = |code, why| Some(Err(refused(reply(code), why)));
    if cursor.u8()? != VERSION {
        return Some(Err(refused(Vec::new(), "the SOCKS5 client sends a request of another version")));
    }
    if cursor.u8()? != CONNECT {
        return fail(Code::CommandNotSupported, "only the SOCKS5 command CONNECT is supported");
    }
    if cursor.u8()? != RESERVED {
        return fail(Code::Failure, "the SOCKS5 request has a value in its reserved byte");
    }
    let host = match cursor.u8()? {
        IPV4 => Ok(HostOrAddress::Address(IpAddr::from(cursor.array::<4>()?))),
        IPV6 => Ok(HostOrAddress::Address(IpAddr::from(cursor.array::<16>()?))),
        NAME => HostOrAddress::parse(cursor.field_u8()?),
        _ => return fail(Code::AddressTypeNotSupported, "the SOCKS5 request has an unknown type of address"),
    };
    match (host, cursor.u16()?) {
        (Err(why), _) => Some(Err(Step::Refused { reply: reply(Code::Failure), why })),
        (_, 0) => fail(Code::Failure, "the SOCKS5 request is for port 0"),
        (Ok(host), port) => Some(Ok((host, port))),
    }
}
