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
use tokio::time::timeout;

use super::log::Entry;
use super::resolver::{self, ResolveError};
use super::session::SessionNetwork;
use super::stream::Stream;

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
    let service = service_host(text);
    let Ok(name) = HostName::from_bytes(service.unwrap_or(text).as_bytes()) else { return Err(Answered::NoSuchName) };
    let policy = session.policy();
    if let Err(denial) = policy.may_resolve(&name) {
        note_denied(session, &name, denial);
        return Err(Answered::NoSuchName);
    }
    if service.is_some() {
        // It has no address of its own, so nothing is asked outside.
        return Ok(Vec::new());
    }
    let found = match session.resolve(&name, None).await {
        Ok(found) => found,
        Err(ResolveError::Denied(denial)) => {
            note_denied(session, &name, denial);
            return Err(Answered::NoSuchName);
        }
        Err(error) => {
            session.note(entry(&name, NetworkVerdict::Failed, None, name.to_string()));
            return Err(match error {
                ResolveError::NoSuchName => Answered::NoSuchName,
                _ => Answered::Failure,
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

/// The host of a service's name, as `example.com` of `_http._tcp.example.com`. Some programs, such as apt, ask for it before they ask
/// for the host. What they want is the host, so that is what is allowed or denied.
fn service_host(name: &str) -> Option<&str> {
    let (service, rest) = name.split_once('.')?;
    let (protocol, host) = rest.split_once('.')?;
    let is_known = ["_tcp", "_udp"].iter().any(|known| protocol.eq_ignore_ascii_case(known));
    (service.starts_with('_') && is_known && !host.is_empty()).then_some(host)
}

pub fn note_denied(session: &SessionNetwork, name: &HostName, denial: Denial) {
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
        is_guess: false,
        injected: false,
        bytes: None,
    }
}

/// Answers the queries of one TCP connection until the program closes it.
pub async fn serve_tcp(session: Arc<SessionNetwork>, program: Stream) -> io::Result<()> {
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
            let bytes = timeout(TCP_IDLE, program.read()).await??;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_service_is_what_is_behind_service_and_protocol() {
        assert_eq!(service_host("_http._tcp.example.com"), Some("example.com"));
        assert_eq!(service_host("_ldap._UDP.dc.example.com."), Some("dc.example.com."));
        for name in [
            "example.com",
            "_dmarc.example.com",
            "_http._tcp",
            "_http._tcp.",
            "http._tcp.example.com",
            "_http._sctp.a.b",
        ] {
            assert_eq!(service_host(name), None, "{name}");
        }
    }
}
