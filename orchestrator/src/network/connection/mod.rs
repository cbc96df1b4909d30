//! One TCP connection of a program: decide, dial, copy both ways, until one side ends it or the policy no longer allows it.
//!
//! ```text
//!  accepted ─▶ connect? ─ no ───────────────────────────────▶ refuse: a page for plain HTTP, else a reset
//!                 │ yes
//!                 ├─ Free, Any ─────────────────▶ dial ─▶ copy, and look at what the program sends
//!                 └─ Named, Unnamed ─▶ first bytes ─▶ spoken? ─▶ dial ─▶ copy
//! ```
//!
//! A program dials an address, or asks a proxy for a name: then the name is resolved first, if it may be. A client of a proxy speaks
//! only when it was told that there is a connection, so one whose address is clear is dialled before the first bytes come; none of
//! them passes before `spoken`.
//! On a port for which the session has an injection, the first bytes are always read; if they name its host, `inject` takes the place of
//! copy.
//!
//! The address that was checked is the one that is dialled.

mod open;
mod refusal;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use network_policy::{HostName, Opening, Policy, Reason, Spoken, Target};
use shared_protocol::api::NetworkVerdict;

use super::copy::{self, Stopped};
use super::dns;
use super::inject;
use super::inspector::Inspector;
use super::log::Entry;
use super::proxy::ProxyRequest;
use super::session::{PolicyWatch, SessionNetwork};
use super::stream::Stream;
use refusal::Refusal;
pub(super) use refusal::last_words;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

pub struct Connection {
    session: Arc<SessionNetwork>,
    program: Stream,
    destination: Destination,
    port: u16,
    /// The address that was dialled or found. It is unspecified until the name of the destination is resolved.
    address: IpAddr,
    names: Vec<HostName>,
    policies: PolicyWatch,
    /// What the program said that it speaks, most recently.
    spoken: Option<Spoken>,
    /// What the program asked of the proxy, if it came by it.
    request: Option<ProxyRequest>,
    /// Whether headers are added to what the program sends.
    is_injected: bool,
}

/// Where a program wants to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Address(IpAddr),
    Name(HostName),
}

impl Connection {
    /// A connection that a program dialled.
    pub fn dialled(session: Arc<SessionNetwork>, program: Stream, dialled: SocketAddr) -> Self {
        let destination = Destination::Address(network_policy::canonical(dialled.ip()));
        Self::new(session, program, destination, dialled.port(), None)
    }

    /// A connection that a program asked the proxy for.
    pub fn asked(session: Arc<SessionNetwork>, program: Stream, request: ProxyRequest) -> Self {
        let (destination, port) = (request.destination.clone(), request.port);
        Self::new(session, program, destination, port, Some(request))
    }

    fn new(
        session: Arc<SessionNetwork>,
        program: Stream,
        destination: Destination,
        port: u16,
        request: Option<ProxyRequest>,
    ) -> Self {
        let (address, names) = match &destination {
            Destination::Address(address) => (*address, session.names_of(*address)),
            Destination::Name(name) => (Ipv4Addr::UNSPECIFIED.into(), vec![name.clone()]),
        };
        let policies = session.watch_policy();
        Self {
            session,
            program,
            destination,
            port,
            address,
            names,
            policies,
            spoken: None,
            request,
            is_injected: false,
        }
    }

    /// Carries the connection to its end.
    pub async fn carry(mut self) {
        let (mut inspector, mut first) = (Inspector::new(), Vec::new());
        if let Some((head, body)) = self.request.as_mut().and_then(ProxyRequest::take_http) {
            // The proxy wrote the head, so it is for the host that the program asked for.
            let name = match &self.destination {
                Destination::Name(name) => Some(name.clone()),
                Destination::Address(_) => None,
            };
            (self.spoken, first, inspector) = (Some(Spoken::Http(name)), head, Inspector::for_body(body));
        }
        let upstream = match self.open(&mut inspector, &mut first).await {
            Ok(upstream) => upstream,
            Err(Refusal::NameDenied(denial)) => {
                dns::note_denied(&self.session, &self.names[0], denial.clone());
                return self.refuse(denial, &inspector, first).await;
            }
            Err(Refusal::Denied(denial)) => {
                self.deny(&denial);
                return self.refuse(denial, &inspector, first).await;
            }
            Err(Refusal::Failed(why)) => {
                self.note(NetworkVerdict::Failed, Some(Reason::Unreachable), None);
                return self.fail(why).await;
            }
            Err(Refusal::Gone) => return,
        };
        match self.injected_host() {
            None => {
                self.note(NetworkVerdict::Allowed, None, None);
                self.copy(upstream, inspector, first).await;
            }
            Some(host) => {
                self.is_injected = true;
                self.note(NetworkVerdict::Allowed, None, None);
                self.inject(host, upstream, first).await;
            }
        }
    }

    /// The host that the program speaks to, if headers are injected there.
    fn injected_host(&self) -> Option<HostName> {
        let Some(Spoken::Tls(Some(name))) = &self.spoken else { return None };
        let injections = self.session.injections_for(name, self.port);
        (!injections.is_empty()).then(|| name.clone())
    }

    async fn copy(mut self, upstream: Stream, inspector: Inspector, first: Vec<u8>) {
        let session = self.session.clone();
        let (names, address, port) = (self.names.clone(), self.address, self.port);
        let mut policies = self.policies.clone();
        let spoken = std::sync::Mutex::new(self.spoken.take());
        let said = || spoken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let judge = |speaks: &Spoken| {
            *said() = Some(speaks.clone());
            session.policy().spoken(&session.target(&names, address, port), speaks)?;
            if let Some(name) = spoken_name(speaks) {
                session.note_used(&used_rule(Some(name), address, port));
            }
            Ok(())
        };
        let meter = session.meter();
        let is_looked_at = inspector.is_on();
        let copying = copy::both(&self.program, &upstream, first, inspector, judge, &meter);
        tokio::pin!(copying);
        let stopped = loop {
            tokio::select! {
                biased;
                // First: no byte passes that the policy of now forbids.
                () = policies.changed() => {
                    let policy = policies.current();
                    let target = session.target(&names, address, port);
                    if !may_go_on(&policy, &target, said().as_ref(), is_looked_at) {
                        break Stopped::Forbidden(Reason::PolicyChanged);
                    }
                }
                stopped = &mut copying => break stopped,
            }
        };
        let bytes = Some(meter.bytes());
        self.spoken = said().take();
        match stopped {
            Stopped::Ended => self.note(NetworkVerdict::Allowed, None, bytes),
            Stopped::Broken => {
                self.program.reset();
                self.note(NetworkVerdict::Allowed, None, bytes);
            }
            Stopped::Forbidden(reason) => {
                self.program.reset();
                upstream.reset();
                self.note(NetworkVerdict::Cut, Some(reason), bytes);
            }
            Stopped::Denied(denial) => {
                self.program.reset();
                upstream.reset();
                self.deny(&denial);
            }
        }
    }

    /// Carries a connection whose TLS ends at the daemon.
    async fn inject(self, host: HostName, upstream: Stream, first: Vec<u8>) {
        let log = Noted { entry: self.entry(NetworkVerdict::Allowed, None, None), session: self.session.clone() };
        let Self { session, program, address, port, names, mut policies, spoken, .. } = self;
        let (program, upstream, meter) = (Arc::new(program), Arc::new(upstream), Arc::new(session.meter()));
        let carrying = inject::carry(inject::Terminated {
            session: session.clone(),
            host: host.clone(),
            port,
            program: program.clone(),
            upstream: upstream.clone(),
            first,
            meter: meter.clone(),
        });
        tokio::pin!(carrying);
        let stopped = loop {
            tokio::select! {
                biased;
                () = policies.changed() => {
                    let (policy, target) = (policies.current(), session.target(&names, address, port));
                    let is_injected = !session.injections_for(&host, port).is_empty();
                    if !is_injected || !may_go_on(&policy, &target, spoken.as_ref(), true) {
                        break Stopped::Forbidden(Reason::PolicyChanged);
                    }
                }
                stopped = &mut carrying => break stopped,
            }
        };
        let bytes = Some(meter.bytes());
        match stopped {
            Stopped::Ended | Stopped::Denied(_) => log.note(NetworkVerdict::Allowed, None, bytes),
            Stopped::Broken => {
                program.reset();
                log.note(NetworkVerdict::Allowed, None, bytes);
            }
            Stopped::Forbidden(reason) => {
                program.reset();
                upstream.reset();
                log.note(NetworkVerdict::Cut, Some(reason), bytes);
            }
        }
    }
}

/// Whether an open connection may go on under a new policy. `said` is what the program spoke, if it did. If nothing was held back so
/// far, that is sure only for protocols that name their server once: a later request over plain HTTP may have named another host.
fn may_go_on(policy: &Policy, target: &Target<'_>, said: Option<&Spoken>, is_looked_at: bool) -> bool {
    let is_known = is_looked_at || matches!(said, Some(Spoken::Tls(_) | Spoken::Other));
    match policy.connect(target) {
        Ok(Opening::Free) => true,
        Ok(Opening::Any) => is_known && said.is_none_or(|spoken| policy.spoken(target, spoken).is_ok()),
        Ok(Opening::Named) => is_known && said.is_some_and(|spoken| policy.spoken(target, spoken).is_ok()),
        // It has no name that a rule could be for.
        Ok(Opening::Unnamed) | Err(_) => false,
    }
}

/// The rule that allows what was used.
fn used_rule(host: Option<&HostName>, address: IpAddr, port: u16) -> String {
    match host {
        Some(host) if matches!(port, HTTP_PORT | HTTPS_PORT) => host.to_string(),
        Some(host) => format!("{host}:{port}"),
        None => SocketAddr::new(address, port).to_string(),
    }
}

fn spoken_name(spoken: &Spoken) -> Option<&HostName> {
    match spoken {
        Spoken::Tls(name) | Spoken::Http(name) => name.as_ref(),
        Spoken::Other => None,
    }
}

/// A connection as the log has it.
struct Noted {
    entry: Entry,
    session: Arc<SessionNetwork>,
}

impl Noted {
    fn note(self, verdict: NetworkVerdict, reason: Option<Reason>, bytes: Option<(u64, u64)>) {
        self.session.note(Entry { verdict, reason: reason.map(Reason::as_str), bytes, ..self.entry });
    }
}
