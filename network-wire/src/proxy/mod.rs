//! The server side of proxies: SOCKS5, and HTTP with CONNECT or whole URLs. By the first byte: 0x05 is SOCKS5, 0x04 is SOCKS4 and
//! is refused, a letter is HTTP.
//!
//! ```text
//!               ┌── Reply: send it, drop the bytes it consumed, feed again ──┐
//! Proxy::feed ──┼── NeedMore: feed again with more ──────────────────────────┘
//!               ├── Wants: decide, dial, send the reply, relay
//!               └── Refused: send the reply, close
//! ```
//!
//! The caller keeps the bytes, and feeds all that are not consumed. It drops the [`Proxy`] after `Wants` and `Refused`.

mod http;
mod socks;

use crate::http_head::{Body, HeadScan};
use crate::{Denial, HostOrAddress, Malformed};

/// Reads what one client asks of the proxy.
#[derive(Debug, Default)]
pub struct Proxy {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Start,
    /// SOCKS5: the client sends any user name and password.
    SocksPassword,
    /// SOCKS5: the client says where it wants to.
    SocksRequest,
    Http(HeadScan),
}

/// What the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    NeedMore,
    /// Send the reply, drop the consumed bytes, and feed what is left.
    Reply {
        reply: Vec<u8>,
        consumed: usize,
    },
    Wants(Wants),
    /// Send the reply, which may be empty, and close.
    Refused {
        reply: Vec<u8>,
        why: Malformed,
    },
}

/// Where a client wants to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wants {
    pub host: HostOrAddress,
    pub port: u16,
    /// The bytes that the request took. What follows belongs to the server.
    pub consumed: usize,
    pub connecting: Connecting,
}

/// How the client goes on when there is a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connecting {
    /// By SOCKS5. The client gets [`Wants::reply_ok`], then everything is relayed.
    Socks5,
    /// By HTTP CONNECT. The client gets [`Wants::reply_ok`], then everything is relayed.
    HttpConnect,
    /// By a request for a whole URL. The server gets `head`, then the body and no more: the client may mean the next request for
    /// another host. `head` asks the server to close the connection after its response.
    HttpRequest { head: Vec<u8>, body: Body },
}

/// Why there is no connection for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotConnected<'a> {
    Denied(Denial<'a>),
    /// The name does not exist, or there is no way to the host.
    Unreachable,
    /// The host refused the connection.
    ConnectionRefused,
    TimedOut,
}

impl Proxy {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads everything that was received and not consumed.
    pub fn feed(&mut self, received: &[u8]) -> Step {
        loop {
            match (&mut self.state, received) {
                (_, []) => return Step::NeedMore,
                (State::SocksPassword, _) => return self.then(State::SocksRequest, socks::password(received)),
                (State::SocksRequest, _) => return socks::request(received),
                (State::Http(scan), _) => return http::request(scan, received),
                (State::Start, [socks::VERSION, ..]) => {
                    let (next, step) = socks::greeting(received);
                    return self.then(next, step);
                }
                (State::Start, [socks::VERSION_4, ..]) => return socks::version_4(),
                (State::Start, [first, ..]) if first.is_ascii_alphabetic() => {
                    self.state = State::Http(HeadScan::default())
                }
                (State::Start, _) => return refused(Vec::new(), "it speaks neither SOCKS5 nor HTTP to the proxy"),
            }
        }
    }

    /// Goes on to `next` if the step is a reply.
    fn then(&mut self, next: State, step: Step) -> Step {
        if matches!(step, Step::Reply { .. }) {
            self.state = next;
        }
        step
    }
}

impl Wants {
    /// What the client gets when there is a connection.
    pub fn reply_ok(&self) -> Vec<u8> {
        match self.connecting {
            Connecting::Socks5 => socks::reply(socks::Code::Succeeded),
            Connecting::HttpConnect => http::CONNECTED.to_vec(),
            // The server's response is the reply.
            Connecting::HttpRequest { .. } => Vec::new(),
        }
    }

    /// What the client gets when there is none, before the caller closes.
    pub fn reply_not_connected(&self, why: &NotConnected<'_>) -> Vec<u8> {
        match self.connecting {
            Connecting::Socks5 => socks::not_connected(why),
            Connecting::HttpConnect | Connecting::HttpRequest { .. } => http::not_connected(why),
        }
    }
}

const fn refused(reply: Vec<u8>, why: &'static str) -> Step {
    Step::Refused { reply, why: Malformed(why) }
}

#[cfg(test)]
#[path = "proxy_test.rs"]
mod tests;
