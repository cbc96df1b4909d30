//! The connections of programs to the network: the daemon asks for the next one, and gets its bytes after an HTTP upgrade.

use hyper::{Method, Request};
use shared_protocol::{ErrorBody, ErrorCode};

use super::allow;
use super::app::SharedApp;
use super::body::Reply;
use super::request_body::RequestBody;
use super::{query, upgrade};
use crate::ports::{EndOfClient, relay};

/// Waits for a connection, answers 101, and copies bytes in both directions. If the client goes while it waits, nothing is lost.
pub async fn accept(app: &SharedApp, mut request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::GET])?;
    upgrade::must_be_asked(&request)?;
    query::parse(request.uri().query(), &[])?;
    let Some(listener) = &app.network else {
        let message = "this runner has no port for connections to the network (--network-proxy-port)";
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    };
    let mut program = listener.next().await?;
    let upgraded = hyper::upgrade::on(&mut request);
    // The task ends with the connection: it owns both of its sides, and the upgrade fails if the client is gone.
    tokio::task::spawn_local(async move {
        let client = match upgraded.await {
            Ok(upgraded) => upgrade::FramedPeer::new(upgraded),
            Err(error) => return tracing::debug!(%error, "a connection to the network was not taken"),
        };
        let relayed = match client {
            Some(client) => relay(client, &mut program, EndOfClient::HalfClose).await,
            None => Err(std::io::ErrorKind::Unsupported.into()),
        };
        if relayed.is_err() {
            // The program sees that it was broken off.
            let _ = program.set_zero_linger();
        }
    });
    Ok(upgrade::switching())
}
