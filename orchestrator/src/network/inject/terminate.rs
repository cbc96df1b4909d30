//! Ends the TLS of a program at the daemon, and begins another one to the host.
//!
//! The host's certificate is checked as any client does, for the name that the program dialled. If that fails, the program's requests are
//! answered with why, and nothing of them is sent.

use std::sync::Arc;
use std::time::Duration;

use network_policy::HostName;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::counted::Counted;
use super::forward::{Upstream, forward};
use crate::network::copy::{Meter, Stopped};
use crate::network::session::SessionNetwork;
use crate::network::stream::{Shared, Stream};

/// The longest time for each of the two handshakes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection whose TLS ends at the daemon.
pub struct Terminated {
    pub session: Arc<SessionNetwork>,
    pub host: HostName,
    pub port: u16,
    pub program: Arc<Stream>,
    pub upstream: Arc<Stream>,
    /// What the program has sent so far.
    pub first: Vec<u8>,
    pub meter: Arc<Meter>,
}

/// Carries the connection to its end.
pub async fn carry(connection: Terminated) -> Stopped {
    let Terminated { session, host, port, program, upstream, first, meter } = connection;
    let server = match session.authority().await.and_then(|authority| authority.server(&host)) {
        Ok(server) => server,
        Err(error) => {
            tracing::warn!(session_id = %session.id(), error = &error as &dyn std::error::Error, "no certificate for a session");
            return Stopped::Broken;
        }
    };
    let (program, forbidden) = Counted::new(Shared::from(program), first, meter);
    let accepting = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(server).accept(program));
    let (accepted, upstream) = tokio::join!(accepting, connect(&session, &host, upstream));
    let carried = match accepted {
        Ok(Ok(program)) => forward(session, (host, port), program, upstream).await.is_ok(),
        Ok(Err(_)) | Err(_) => false,
    };
    match forbidden.reason() {
        Some(reason) => Stopped::Forbidden(reason),
        None if carried => Stopped::Ended,
        None => Stopped::Broken,
    }
}

async fn connect(session: &SessionNetwork, host: &HostName, stream: Arc<Stream>) -> Upstream<TlsStream<Shared>> {
    let client = session.roots().client().await?;
    let name = ServerName::try_from(host.to_string()).map_err(|error| error.to_string())?;
    match timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(client).connect(name, Shared::from(stream))).await {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no TLS within {} s", HANDSHAKE_TIMEOUT.as_secs())),
    }
}
