//! One TCP connection of a program: decide, dial, copy both ways, until one side ends it or the policy no longer allows it.
//!
//! ```text
//!  accepted ─▶ connect? ─ no ───────────────────────────────▶ refuse: a page for plain HTTP, else a reset
//!                 │ yes
//!                 ├─ Free, Any ─────────────────▶ dial ─▶ copy, and look at what the program sends
//!                 └─ Named, Unnamed ─▶ first bytes ─▶ spoken? ─▶ dial ─▶ copy
//! ```
//!
//! The address that was checked is the one that is dialled.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use network_policy::{Denial, HostName, Opening, Policy, Reason, Spoken, Target};
use network_wire::denied_page;
use shared_protocol::api::{NetworkVerdict, NetworkWish};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::copy::{self, Stopped};
use super::inspector::Inspector;
use super::log::Entry;
use super::session::{PolicyWatch, SessionNetwork};

/// The longest wait for the first bytes of a program that has to say whom it wants to speak to.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is denied may take to show that it speaks plain HTTP, and so can be told why.
const PAGE_PATIENCE: Duration = Duration::from_millis(300);
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most addresses of one name that are tried.
const MAX_DIALS: usize = 4;
const HTTPS_PORT: u16 = 443;

pub struct Connection {
    session: Arc<SessionNetwork>,
    program: TcpStream,
    address: IpAddr,
    port: u16,
    names: Vec<HostName>,
    policies: PolicyWatch,
    /// What the program said that it speaks, most recently.
    spoken: Option<Spoken>,
}

enum Refusal {
    Denied(Denial),
    /// It was allowed, and nothing answered.
    Unreachable,
    /// The program has gone.
    Gone,
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl Connection {
    pub fn new(session: Arc<SessionNetwork>, program: TcpStream, dialled: SocketAddr) -> Self {
        let address = network_policy::canonical(dialled.ip());
        let (names, policies) = (session.names_of(address), session.watch_policy());
        Self { session, program, address, port: dialled.port(), names, policies, spoken: None }
    }

    /// Carries the connection to its end.
    pub async fn carry(mut self) {
        let (mut inspector, mut first) = (Inspector::new(), Vec::new());
        let upstream = match self.open(&mut inspector, &mut first).await {
            Ok(upstream) => upstream,
            Err(Refusal::Denied(denial)) => return self.refuse(denial, &inspector, first).await,
            Err(Refusal::Unreachable) => {
                self.note(NetworkVerdict::Failed, Some(Reason::Unreachable), None);
                return reset(&self.program);
            }
            Err(Refusal::Gone) => return,
        };
        self.note(NetworkVerdict::Allowed, None, None);
        self.copy(upstream, inspector, first).await;
    }

    /// Decides, and dials. `first` gets the bytes that the program has sent so far and that may pass. If the policy changes
    /// meanwhile, it decides again, so that a silent connection is not judged by a policy that is gone.
    async fn open(&mut self, inspector: &mut Inspector, first: &mut Vec<u8>) -> Result<TcpStream, Refusal> {
        loop {
            let policy = self.policies.current();
            let mut changes = self.policies.clone();
            tokio::select! {
                biased;
                () = changes.changed() => {}
                opened = self.open_under(&policy, inspector, first) => return opened,
            }
        }
    }

    async fn open_under(
        &mut self,
        policy: &Policy,
        inspector: &mut Inspector,
        first: &mut Vec<u8>,
    ) -> Result<TcpStream, Refusal> {
        let has_spoken = !first.is_empty();
        if !has_spoken && !inspector.holds_bytes() {
            *inspector = Inspector::new();
        }
        let opening = policy.connect(&self.session.target(&self.names, self.address, self.port))?;
        match opening {
            Opening::Free if !has_spoken && !inspector.holds_bytes() => *inspector = Inspector::off(),
            Opening::Free | Opening::Any if !has_spoken => {}
            Opening::Named | Opening::Unnamed if !has_spoken => *first = self.first_bytes(policy, inspector).await?,
            // It spoke under an earlier policy.
            _ => {
                let spoken = self.spoken.as_ref().unwrap_or(&Spoken::Other);
                policy.spoken(&self.session.target(&self.names, self.address, self.port), spoken)?;
            }
        }
        if opening == Opening::Unnamed {
            self.find_name().await?;
            policy.connect(&self.session.target(&self.names, self.address, self.port))?;
        }
        self.dial(policy).await
    }

    /// Reads until the program has said whom it wants to speak to, and that is allowed.
    async fn first_bytes(&mut self, policy: &Policy, inspector: &mut Inspector) -> Result<Vec<u8>, Refusal> {
        let (session, names, address, port) = (self.session.clone(), self.names.clone(), self.address, self.port);
        let mut said = None;
        let mut judge = |spoken: &Spoken| {
            said = Some(spoken.clone());
            policy.spoken(&session.target(&names, address, port), spoken)
        };
        let reading = async {
            loop {
                match copy::read(&self.program).await {
                    Ok(bytes) if !bytes.is_empty() => {
                        let passed = inspector.take(bytes, &mut judge)?;
                        if !passed.is_empty() {
                            return Ok(passed);
                        }
                    }
                    // It has said all, and that names no host.
                    Ok(_) if inspector.holds_bytes() => return inspector.give_up(&mut judge).map_err(Refusal::Denied),
                    _ => return Err(Refusal::Gone),
                }
            }
        };
        let read = timeout(FIRST_BYTES_TIMEOUT, reading).await;
        let result = match read {
            Ok(result) => result,
            // It waits for the other side to speak first: neither TLS nor HTTP.
            Err(_) => inspector.give_up(&mut judge).map_err(Refusal::Denied),
        };
        self.spoken = said;
        result
    }

    /// Finds out whether the name that was said is one of the address, which this sandbox has not resolved before.
    async fn find_name(&mut self) -> Result<(), Denial> {
        let denied = |reason| Denial { reason, wanted: String::new() };
        let Some(name) = self.spoken.as_ref().and_then(spoken_name).cloned() else {
            return Err(denied(Reason::ProtocolNotAllowed));
        };
        match self.session.resolve(&name).await {
            Ok(addresses) if addresses.contains(&self.address) => {
                self.session.add_name(&name, self.address);
                self.names = vec![name];
                Ok(())
            }
            // A rule for the name does not help: the address is not one of its addresses.
            _ => {
                let wanted = SocketAddr::new(self.address, self.port).to_string();
                Err(Denial { reason: Reason::UnknownName, wanted })
            }
        }
    }

    /// Dials the address. If nothing answers there, dials other addresses of the same name: the program cannot try them itself,
    /// because its connection was accepted.
    async fn dial(&mut self, policy: &Policy) -> Result<TcpStream, Refusal> {
        let mut candidates = vec![self.address];
        if let Some(name) = self.names.first().cloned()
            && let Ok(addresses) = self.session.resolve(&name).await
        {
            let names = std::slice::from_ref(&name);
            let others = addresses.iter().copied().filter(|other| *other != self.address);
            candidates
                .extend(others.filter(|other| policy.connect(&self.session.target(names, *other, self.port)).is_ok()));
        }
        for address in candidates.into_iter().take(MAX_DIALS) {
            let is_own_host = self.session.target(&self.names, address, self.port).is_own_host;
            if let Some(stream) = dial(SocketAddr::new(address, self.port), is_own_host).await {
                self.address = address;
                return Ok(stream);
            }
        }
        Err(Refusal::Unreachable)
    }

    async fn copy(mut self, upstream: TcpStream, inspector: Inspector, first: Vec<u8>) {
        let session = self.session.clone();
        let (names, address, port) = (self.names.clone(), self.address, self.port);
        let mut policies = self.policies.clone();
        let spoken = std::sync::Mutex::new(self.spoken.take());
        let said = || spoken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let judge = |speaks: &Spoken| {
            *said() = Some(speaks.clone());
            session.policy().spoken(&session.target(&names, address, port), speaks)
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
                reset(&self.program);
                self.note(NetworkVerdict::Allowed, None, bytes);
            }
            Stopped::Forbidden(reason) => {
                reset(&self.program);
                reset(&upstream);
                self.note(NetworkVerdict::Cut, Some(reason), bytes);
            }
            Stopped::Denied(denial) => {
                reset(&self.program);
                reset(&upstream);
                self.deny(&denial);
            }
        }
    }

    /// Ends a connection that is not allowed. A program that speaks plain HTTP is told why.
    async fn refuse(mut self, denial: Denial, inspector: &Inspector, first: Vec<u8>) {
        self.deny(&denial);
        let is_http = match &self.spoken {
            Some(spoken) => matches!(spoken, Spoken::Http(_)),
            None if self.port == HTTPS_PORT || inspector.holds_bytes() || !first.is_empty() => false,
            None => timeout(PAGE_PATIENCE, self.speaks_http()).await.unwrap_or(false),
        };
        if is_http {
            let page = denied_page(&network_wire::Denial {
                code: denial.reason.as_str(),
                sentence: &denial.reason.to_string(),
                wanted_rule: if denial.reason.can_be_allowed() { &denial.wanted } else { "" },
            });
            let _ = self.program.write_all(&page).await;
            let _ = self.program.shutdown().await;
            // A reset would take the page away from a program that has not read it yet.
            let _ = timeout(PAGE_PATIENCE, copy::drain(&self.program)).await;
            return;
        }
        reset(&self.program);
    }

    async fn speaks_http(&self) -> bool {
        let (mut inspector, mut is_http) = (Inspector::new(), false);
        let mut judge = |spoken: &Spoken| {
            is_http = matches!(spoken, Spoken::Http(_));
            Ok(())
        };
        while let Ok(bytes) = copy::read(&self.program).await {
            if bytes.is_empty() || inspector.take(bytes, &mut judge).map_or(true, |passed| !passed.is_empty()) {
                break;
            }
        }
        is_http
    }

    fn deny(&self, denial: &Denial) {
        let mut entry = self.entry(NetworkVerdict::Denied, Some(denial.reason), None);
        if !denial.wanted.is_empty() {
            entry.rule.clone_from(&denial.wanted);
        }
        self.session.note(entry);
    }

    fn note(&self, verdict: NetworkVerdict, reason: Option<Reason>, bytes: Option<(u64, u64)>) {
        self.session.note(self.entry(verdict, reason, bytes));
    }

    fn entry(&self, verdict: NetworkVerdict, reason: Option<Reason>, bytes: Option<(u64, u64)>) -> Entry {
        let spoken = self.spoken.as_ref().and_then(spoken_name);
        let host = spoken.or_else(|| self.names.first()).map(ToString::to_string);
        let rule = match &host {
            Some(host) if matches!(self.port, 80 | HTTPS_PORT) => host.clone(),
            Some(host) => format!("{host}:{}", self.port),
            None => SocketAddr::new(self.address, self.port).to_string(),
        };
        Entry {
            wish: NetworkWish::Connect,
            host,
            address: Some(self.address.to_string()),
            port: Some(self.port),
            verdict,
            reason: reason.map(Reason::as_str),
            rule,
            bytes,
        }
    }
}

fn spoken_name(spoken: &Spoken) -> Option<&HostName> {
    match spoken {
        Spoken::Tls(name) | Spoken::Http(name) => name.as_ref(),
        Spoken::Other => None,
    }
}

/// Whether an open connection may go on under a new policy. `said` is what the program spoke, if it did; nobody knows if nobody
/// looked at it.
fn may_go_on(policy: &Policy, target: &Target<'_>, said: Option<&Spoken>, is_looked_at: bool) -> bool {
    match policy.connect(target) {
        Ok(Opening::Free) => true,
        Ok(Opening::Any) => is_looked_at && said.is_none_or(|spoken| policy.spoken(target, spoken).is_ok()),
        Ok(Opening::Named) => said.is_some_and(|spoken| policy.spoken(target, spoken).is_ok()),
        // It has no name that a rule could be for.
        Ok(Opening::Unnamed) | Err(_) => false,
    }
}

/// Connects to an address that was checked. A connection that ends at this host itself, although no interface has the address, is
/// given up: the check did not know that.
async fn dial(address: SocketAddr, is_own_host: bool) -> Option<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let stream = timeout(DIAL_TIMEOUT, socket.ok()?.connect(address)).await.ok()?.ok()?;
    // The kernel takes the address itself as the source only if it is local.
    if !is_own_host && stream.local_addr().ok()?.ip() == address.ip() {
        reset(&stream);
        return None;
    }
    let _ = stream.set_nodelay(true);
    Some(stream)
}

/// Closes the connection with a reset, so that the other side sees at once that it is over.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
