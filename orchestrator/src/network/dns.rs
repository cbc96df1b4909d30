//! Answers the DNS queries of one sandbox, over UDP and TCP.
//!
//! A name that the policy does not allow does not exist: the answer comes at once, and nothing is asked outside. Only addresses
//! are answered, so that other record types carry nothing in or out.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use network_policy::{Denial, HostName};
use network_wire::dns::{Answer, MAX_TCP_ANSWER_BYTES, Query, take_tcp_message, tcp_frame};
use shared_protocol::api::{NetworkVerdict, NetworkWish};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::copy;
use super::log::Entry;
use super::resolver::{self, ResolveError};
use super::session::SessionNetwork;

/// How long a TCP connection for queries may be silent.
const TCP_IDLE: Duration = Duration::from_secs(10);
/// The most queries of one TCP connection.
const MAX_TCP_QUERIES: usize = 1000;

/// The answer to one message, or `None` if it deserves none.
pub async fn answer(session: &SessionNetwork, message: &[u8], limit: Option<usize>) -> Option<Vec<u8>> {
    let query = match Query::parse(message) {
        Ok(query) => query,
        Err(failure) => return failure.reply,
    };
    let limit = limit.unwrap_or_else(|| query.udp_limit());
    let found = look_up(session, &query.name).await;
    let ttl_seconds = u32::try_from(resolver::TTL.as_secs()).unwrap_or(u32::MAX);
    Some(match &found {
        Ok(ips) => query.answer(Answer::Addresses { ips, ttl_seconds }, limit),
        Err(Answered::NoSuchName) => query.answer(Answer::NoSuchName, limit),
        Err(Answered::Failure) => query.answer(Answer::ServerFailure, limit),
    })
}

enum Answered {
    NoSuchName,
    Failure,
}

/// The addresses of a name that this sandbox may be told.
async fn look_up(session: &SessionNetwork, text: &str) -> Result<Vec<IpAddr>, Answered> {
    let Ok(name) = HostName::from_bytes(text.as_bytes()) else { return Err(Answered::NoSuchName) };
    let policy = session.policy();
    if let Err(denial) = policy.may_resolve(&name) {
        note_denied(session, &name, denial);
        return Err(Answered::NoSuchName);
    }
    let found = match session.resolve(&name).await {
        Ok(found) => found,
        Err(error) => {
            session.note(entry(&name, NetworkVerdict::Failed, None, name.to_string()));
            return Err(match error {
                ResolveError::NoSuchName => Answered::NoSuchName,
                ResolveError::Failed => Answered::Failure,
            });
        }
    };
    let (mut told, mut refused) = (Vec::new(), None);
    for address in found.iter().copied() {
        match policy.may_reach(&session.target(std::slice::from_ref(&name), address, 0)) {
            Ok(()) => {
                session.add_name(&name, address);
                told.push(address);
            }
            Err(denial) => refused = Some(denial),
        }
    }
    match refused {
        Some(denial) if told.is_empty() => {
            note_denied(session, &name, denial);
            Err(Answered::NoSuchName)
        }
        _ => Ok(told),
    }
}

fn note_denied(session: &SessionNetwork, name: &HostName, denial: Denial) {
    session.note(entry(name, NetworkVerdict::Denied, Some(denial.reason.as_str()), denial.wanted));
}

fn entry(name: &HostName, verdict: NetworkVerdict, reason: Option<&'static str>, rule: String) -> Entry {
    Entry {
        wish: NetworkWish::Resolve,
        host: Some(name.to_string()),
        address: None,
        port: None,
        verdict,
        reason,
        rule,
        bytes: None,
    }
}

/// Answers the queries of one TCP connection until the program closes it.
pub async fn serve_tcp(session: Arc<SessionNetwork>, mut program: TcpStream) -> io::Result<()> {
    let mut received = Vec::new();
    for _ in 0..MAX_TCP_QUERIES {
        let message = loop {
            match take_tcp_message(&received) {
                Ok(Some(taken)) => {
                    let (message, consumed) = (taken.message.to_vec(), taken.consumed);
                    received.drain(..consumed);
                    break message;
                }
                Ok(None) => {}
                Err(_) => return Ok(()),
            }
            let bytes = timeout(TCP_IDLE, copy::read(&program)).await??;
            if bytes.is_empty() {
                return Ok(());
            }
            received.extend(bytes);
        };
        let Some(answer) = answer(&session, &message, Some(MAX_TCP_ANSWER_BYTES)).await else { return Ok(()) };
        timeout(TCP_IDLE, program.write_all(&tcp_frame(&answer))).await??;
    }
    Ok(())
}
