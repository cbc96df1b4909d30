//! Ports: the list of TCP servers in the sandbox, and a connection to one of them after an HTTP upgrade.

use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use shared_protocol::{ErrorBody, ErrorCode};

use super::allow;
use super::app::SharedApp;
use super::body::{self, Reply};
use super::request_body::RequestBody;
use super::{query, upgrade};
use crate::ports::{EndOfClient, PortConnection, relay};

pub async fn list(app: &SharedApp, request: &Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    query::parse(request.uri().query(), &[])?;
    Ok(body::json(200, &app.ports.list().await))
}

/// Connects to a port, answers 101, and copies bytes in both directions. With `half_close=1` a client that ends its side still
/// reads; otherwise it is gone.
pub async fn connect(app: &SharedApp, mut request: Request<RequestBody>, port: &str) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::GET])?;
    upgrade::must_be_asked(&request)?;
    let query = query::parse(request.uri().query(), &["half_close"])?;
    let end_of_client =
        if query.flag("half_close")?.unwrap_or(false) { EndOfClient::HalfClose } else { EndOfClient::Gone };
    let port: u16 = port
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| ErrorBody::new(ErrorCode::InvalidRequest, "a port is a number from 1 to 65535"))?;
    let PortConnection { stream, slot } = app.ports.connect(port).await?;
    let upgraded = hyper::upgrade::on(&mut request);
    // The task ends with the connection: it owns both of its sides, and the upgrade fails if the client is gone.
    tokio::task::spawn_local(async move {
        match upgraded.await {
            Ok(client) => drop(relay(TokioIo::new(client), stream, end_of_client).await),
            Err(error) => tracing::debug!(%error, "an upgrade to a port failed"),
        }
        drop(slot);
    });
    Ok(upgrade::switching())
}
