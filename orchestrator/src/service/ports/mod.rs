//! Use cases for the servers in a sandbox: list their ports, connect to one, and give away a link to one.
//!
//! A connection counts as activity: it wakes a paused session, and keeps it from expiring. If the session ends, so does the
//! connection.

mod link;
mod stream;

use std::num::NonZeroU16;
use std::time::{Duration, SystemTime};

use shared_protocol::SessionId;
use shared_protocol::api::{DEFAULT_LINK_SECONDS, MAX_LINK_SECONDS, PortUrlRequest};
use shared_protocol::runner::PortList;

pub use crate::runner_client::EndOfClient;
pub use link::{LinkKey, LinkRefused, LinkToken};
pub use stream::PortStream;

use super::access::Access;
use super::in_sandbox::in_session;
use super::{CallError, Caller, InvalidRequest};
use crate::metrics::Metrics;
use crate::session::{Update, show_wall};

/// The number of a TCP port: 1 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Port(NonZeroU16);

impl Port {
    pub fn parse(text: &str) -> Result<Self, InvalidRequest> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse().ok().filter(|_| is_plain);
        number.map(Self).ok_or_else(|| InvalidRequest::new("a port is a number from 1 to 65535"))
    }

    pub fn number(self) -> u16 {
        self.0.get()
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One port of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAddress {
    pub session: SessionId,
    pub port: Port,
}

/// How long a link is to be good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpec {
    life: Duration,
}

impl LinkSpec {
    pub fn new(request: &PortUrlRequest) -> Result<Self, InvalidRequest> {
        let seconds = request.ttl_seconds.unwrap_or(DEFAULT_LINK_SECONDS);
        if !(1..=MAX_LINK_SECONDS).contains(&seconds) {
            return Err(InvalidRequest::new(format!("ttl_seconds must be from 1 to {MAX_LINK_SECONDS}")));
        }
        Ok(Self { life: Duration::from_secs(seconds) })
    }
}

/// A link that was made: its token is the secret part of its address.
pub struct Link {
    pub token: LinkToken,
    pub expires_at: String,
}

/// The right to use one port, which a link gave.
#[derive(Debug, Clone)]
pub struct LinkAccess {
    address: PortAddress,
    generation: u64,
    /// How long the link is still good, if it is not taken back.
    pub left: Duration,
}

impl LinkAccess {
    pub fn address(&self) -> &PortAddress {
        &self.address
    }
}

pub struct Ports {
    access: Access,
    metrics: Metrics,
    link_key: LinkKey,
}

impl Ports {
    pub(super) fn new(access: Access, metrics: Metrics, link_key: LinkKey) -> Self {
        Self { access, metrics, link_key }
    }

    pub async fn list(&self, caller: &Caller, id: &SessionId) -> Result<PortList, CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().ports()).await
    }

    pub async fn connect(
        &self,
        caller: &Caller,
        address: &PortAddress,
        end_of_client: EndOfClient,
    ) -> Result<PortStream, CallError> {
        let activity = self.access.begin(caller, &address.session).await?;
        let bytes = in_session(&activity, activity.runner().connect(address.port.number(), end_of_client)).await?;
        Ok(PortStream::new(bytes, activity, self.metrics.clone(), None))
    }

    /// Makes a link to a port. It does not wake the session, and the port need not be open yet.
    pub fn link(&self, caller: &Caller, address: &PortAddress, spec: LinkSpec) -> Result<Link, CallError> {
        let session = self.access.session(caller, &address.session)?;
        let generation = session.links().borrow().of(address.port.number());
        let expires = SystemTime::now() + spec.life;
        let token = self.link_key.token(address, generation, expires);
        // The token has whole seconds.
        Ok(Link { expires_at: show_wall(token.expires()), token })
    }

    /// Takes back all links to a port, whoever made them. Connections that came by them end.
    pub async fn take_links_back(&self, caller: &Caller, address: &PortAddress) -> Result<(), CallError> {
        let session = self.access.session(caller, &address.session)?;
        let mut links = session.links().borrow().clone();
        links.take_back(address.port.number());
        session.update(Update { links: Some(links), ..Update::default() }).await?;
        Ok(())
    }

    /// Checks a link's token. This changes nothing, and does not tell whether the session exists.
    pub fn check_link(&self, address: &PortAddress, token: &str) -> Result<LinkAccess, LinkRefused> {
        let generation = self.access.link_generation(address);
        let left = self.link_key.check(address, generation, token, SystemTime::now())?;
        Ok(LinkAccess { address: address.clone(), generation, left })
    }

    /// Connects for the holder of a link. The connection ends with the link, also if that is taken back.
    pub async fn connect_by_link(
        &self,
        link: &LinkAccess,
        end_of_client: EndOfClient,
    ) -> Result<PortStream, CallError> {
        let (activity, mut links) = self.access.begin_by_link(&link.address.session).await?;
        let connecting = activity.runner().connect(link.address.port.number(), end_of_client);
        let bytes = in_session(&activity, connecting).await?;
        let (left, port, generation) = (link.left, link.address.port.number(), link.generation);
        let over = async move {
            let taken_back = links.wait_for(|links| links.of(port) != generation);
            // The session has gone if this fails, and the connection with it.
            let _ = tokio::time::timeout(left, taken_back).await;
        };
        Ok(PortStream::new(bytes, activity, self.metrics.clone(), Some(Box::pin(over))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_plain_number() {
        assert_eq!(Port::parse("3000").unwrap().number(), 3000);
        assert_eq!(Port::parse("65535").unwrap().to_string(), "65535");
        for wrong in ["", "0", "00", "080", "65536", "-1", "+80", " 80", "80 ", "http", "8o", "٣"] {
            assert!(Port::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_link_lives_an_hour_or_as_long_as_was_asked_within_bounds() {
        let life = |ttl_seconds| LinkSpec::new(&PortUrlRequest { ttl_seconds }).map(|spec| spec.life.as_secs());
        assert_eq!(life(None), Ok(3600));
        assert_eq!(life(Some(1)), Ok(1));
        assert_eq!(life(Some(MAX_LINK_SECONDS)), Ok(MAX_LINK_SECONDS));
        for wrong in [0, MAX_LINK_SECONDS + 1, u64::MAX] {
            assert!(life(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
