//! The proxy for programs in a sandbox whose network namespace the daemon cannot enter: SOCKS5, and HTTP with CONNECT or whole URLs.
//! It reads what a program asks for, within bounds of size and time; `connection` decides and carries it.
//!
//! A connection carries one request. A program that wants another host, or another request for a whole URL, opens a new connection: the
//! server is asked to close after its response.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use network_policy::{HostName, Reason};
use network_wire::{Body, Connecting, HostOrAddress, NotConnected, Proxy, Step, Wants};
use shared_protocol::api::{NetworkVerdict, NetworkWish};
use tokio::time::timeout;

use super::connection::{Connection, Destination, last_words};
use super::log::Entry;
use super::session::SessionNetwork;
use super::stream::Stream;

/// The longest time from a connection to the end of its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a program asked of the proxy.
#[derive(Debug)]
pub struct ProxyRequest {
    pub destination: Destination,
    pub port: u16,
    wants: Wants,
    /// Whether the program was told that there is a connection.
    is_told: bool,
}

impl ProxyRequest {
    /// `None` if the name cannot be one.
    fn new(wants: Wants) -> Option<Self> {
        let destination = match &wants.host {
            HostOrAddress::Address(address) => Destination::Address(network_policy::canonical(*address)),
            HostOrAddress::Name(name) => Destination::Name(HostName::from_bytes(name.as_bytes()).ok()?),
        };
        Some(Self { destination, port: wants.port, wants, is_told: false })
    }

    /// The head and the body of a request for a whole URL.
    pub fn take_http(&mut self) -> Option<(Vec<u8>, Body)> {
        match &mut self.wants.connecting {
            Connecting::HttpRequest { head, body } => Some((std::mem::take(head), *body)),
            Connecting::Socks5 | Connecting::HttpConnect => None,
        }
    }

    /// Whether what comes next is for the server, so that the proxy itself cannot say anything any more.
    pub fn is_answered(&self) -> bool {
        self.is_told
    }

    /// Tells the program that there is a connection. The response of the server tells it to one that asked for a URL.
    pub async fn answer(&mut self, program: &Stream) -> io::Result<()> {
        let reply = self.wants.reply_ok();
        if !reply.is_empty() {
            program.write_all(&reply).await?;
            self.is_told = true;
        }
        Ok(())
    }

    /// What the program gets instead of a connection.
    pub fn not_connected(&self, why: &NotConnected<'_>) -> Vec<u8> {
        self.wants.reply_not_connected(why)
    }
}

/// Reads the request of a program, and carries its connection to its end.
pub async fn serve(session: Arc<SessionNetwork>, program: Stream) {
    let asked = match timeout(REQUEST_TIMEOUT, read(&program)).await {
        Ok(Ok(asked)) => asked,
        // It has gone, or says nothing.
        Ok(Err(_)) | Err(_) => return program.reset(),
    };
    let refused = match asked {
        Ok(wants) => match ProxyRequest::new(wants) {
            Some(request) => return Connection::asked(session, program, request).carry().await,
            None => Vec::new(),
        },
        Err(reply) => reply,
    };
    session.note(not_understood());
    last_words(&program, &refused).await;
}

/// Talks to the program until it has said what it wants, or until that is clearly nothing that it can have: then it gets this reply.
async fn read(program: &Stream) -> io::Result<Result<Wants, Vec<u8>>> {
    let (mut proxy, mut received) = (Proxy::new(), Vec::new());
    loop {
        match proxy.feed(&received) {
            Step::NeedMore => match program.read().await? {
                bytes if bytes.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => received.extend(bytes),
            },
            Step::Reply { reply, consumed } => {
                program.write_all(&reply).await?;
                received.drain(..consumed);
            }
            Step::Wants(wants) => {
                program.unread(received.split_off(wants.consumed));
                return Ok(Ok(wants));
            }
            Step::Refused { reply, .. } => return Ok(Err(reply)),
        }
    }
}

fn not_understood() -> Entry {
    Entry {
        wish: NetworkWish::Connect,
        host: None,
        address: None,
        port: None,
        verdict: NetworkVerdict::Denied,
        reason: Some(Reason::NotUnderstood.as_str()),
        rule: String::new(),
        is_guess: false,
        injected: false,
        bytes: None,
    }
}
