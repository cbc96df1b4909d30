//! Opens a connection: finds its address and name, decides, and dials. The address that was checked is the one that is dialled.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use network_policy::{Denial, Opening, Policy, Reason, Spoken, Target};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::super::inspector::Inspector;
use super::super::resolver::ResolveError;
use super::super::stream::Stream;
use super::refusal::{NotReached, Refusal};
use super::{Connection, Destination, HTTP_PORT, HTTPS_PORT, spoken_name};

/// The longest wait for the first bytes of a program that has to say whom it wants to speak to.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most addresses of one name that are tried.
const MAX_DIALS: usize = 4;

impl Connection {
    /// Decides, and dials. `first` gets the bytes that the program has sent so far and that may pass. If the policy changes
    /// meanwhile, it decides again, so that a silent connection is not judged by a policy that is gone.
    pub(super) async fn open(&mut self, inspector: &mut Inspector, first: &mut Vec<u8>) -> Result<Stream, Refusal> {
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
    ) -> Result<Stream, Refusal> {
        let has_spoken = !first.is_empty();
        if !has_spoken && !inspector.holds_bytes() {
            *inspector = Inspector::new();
        }
        self.find_address(policy).await?;
        let opening = policy.connect(&self.target())?;
        let mut dialled = None;
        if !has_spoken && self.request.as_ref().is_some_and(|request| !request.is_answered()) {
            // Without a name, the address is not known to be allowed before the program has spoken.
            if opening != Opening::Unnamed {
                dialled = Some(self.dial(policy).await?);
            }
            if let Some(request) = &mut self.request {
                request.answer(&self.program).await.map_err(|_| Refusal::Gone)?;
            }
        }
        let is_read_first = self.session.injects_at(self.port);
        match opening {
            // Whatever is spoken is allowed, and passes as it is.
            Opening::Free if !has_spoken && is_read_first => {
                *first = match self.first_bytes(policy, inspector).await {
                    Err(Refusal::Gone) => return Err(Refusal::Gone),
                    read => read.unwrap_or_default(),
                };
                first.extend(inspector.let_pass());
            }
            Opening::Any if !has_spoken && is_read_first => *first = self.first_bytes(policy, inspector).await?,
            Opening::Free if !has_spoken && !inspector.holds_bytes() => *inspector = Inspector::listening(),
            Opening::Free | Opening::Any if !has_spoken => {}
            Opening::Named | Opening::Unnamed if !has_spoken => *first = self.first_bytes(policy, inspector).await?,
            // It spoke under an earlier policy.
            _ => {
                let spoken = self.spoken.as_ref().unwrap_or(&Spoken::Other);
                policy.spoken(&self.target(), spoken)?;
            }
        }
        if opening == Opening::Unnamed {
            self.find_name().await?;
            policy.connect(&self.target())?;
        }
        match dialled {
            Some(upstream) => Ok(upstream),
            None => self.dial(policy).await,
        }
    }

    fn target(&self) -> Target<'_> {
        self.session.target(&self.names, self.address, self.port)
    }

    /// Finds an address of the name that the program asked for, if it may be resolved, to which it may connect.
    async fn find_address(&mut self, policy: &Policy) -> Result<(), Refusal> {
        let Destination::Name(name) = &self.destination else { return Ok(()) };
        let for_port = |mut denial: Denial| {
            if !matches!(self.port, HTTP_PORT | HTTPS_PORT) {
                denial.wanted = format!("{}:{}", denial.wanted, self.port);
            }
            Refusal::NameDenied(denial)
        };
        policy.may_resolve(name).map_err(for_port)?;
        let found = self.session.resolve(name, Some(self.port)).await.map_err(|error| match error {
            ResolveError::Denied(denial) => for_port(denial),
            ResolveError::NoSuchName | ResolveError::Failed => Refusal::Failed(NotReached::Unreachable),
        })?;
        let mut denied = None;
        for address in found.iter().copied() {
            match policy.connect(&self.session.target(&self.names, address, self.port)) {
                Ok(_) => {
                    self.address = address;
                    return Ok(());
                }
                Err(denial) => denied = denied.or(Some((address, denial))),
            }
        }
        let (address, denial) = denied.ok_or(Refusal::Failed(NotReached::Unreachable))?;
        self.address = address;
        Err(denial.into())
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
                match self.program.read().await {
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
        match self.session.resolve(&name, Some(self.port)).await {
            Err(ResolveError::Denied(denial)) => Err(denial),
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
    async fn dial(&mut self, policy: &Policy) -> Result<Stream, Refusal> {
        let mut candidates = vec![self.address];
        if let Some(name) = self.names.first().cloned() {
            let found = match self.session.resolve(&name, Some(self.port)).await {
                Err(ResolveError::Denied(denial)) => return Err(denial.into()),
                found => found,
            };
            let names = std::slice::from_ref(&name);
            let addresses = found.as_deref().unwrap_or_default();
            let others = addresses.iter().copied().filter(|other| *other != self.address);
            candidates
                .extend(others.filter(|other| policy.connect(&self.session.target(names, *other, self.port)).is_ok()));
        }
        let mut why = NotReached::Unreachable;
        for address in candidates.into_iter().take(MAX_DIALS) {
            let is_own_host = self.session.target(&self.names, address, self.port).is_own_host;
            match dial(SocketAddr::new(address, self.port), is_own_host).await {
                Ok(stream) => {
                    self.address = address;
                    return Ok(stream.into());
                }
                Err(failed) => why = failed,
            }
        }
        Err(Refusal::Failed(why))
    }
}

/// Connects to an address that was checked. A connection that ends at this host itself, although no interface has the address, is
/// given up: the check did not know that.
async fn dial(address: SocketAddr, is_own_host: bool) -> Result<TcpStream, NotReached> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.map_err(|_| NotReached::Unreachable)?;
    let stream = match timeout(DIAL_TIMEOUT, socket.connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(NotReached::Refused),
        Ok(Err(_)) => return Err(NotReached::Unreachable),
        Err(_) => return Err(NotReached::TimedOut),
    };
    // The kernel takes the address itself as the source only if it is local.
    let is_elsewhere = stream.local_addr().is_ok_and(|local| local.ip() != address.ip());
    if !is_own_host && !is_elsewhere {
        let _ = stream.set_zero_linger();
        return Err(NotReached::Unreachable);
    }
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
