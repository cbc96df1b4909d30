//! Ports: the list of TCP servers in the sandbox, and a connection to one of them after an HTTP upgrade.

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use shared_protocol::runner::TCP_PROTOCOL;
use shared_protocol::{ErrorBody, ErrorCode};

use super::allow;
use super::app::SharedApp;
use super::body::{self, Body, Reply};
use super::query;
use crate::ports::{EndOfClient, PortConnection, relay};

pub async fn list(app: &SharedApp, request: &Request<Incoming>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    query::parse(request.uri().query(), &[])?;
    Ok(body::json(200, &app.ports.list().await))
}

/// Connects to a port, answers 101, and copies bytes in both directions. With `half_close=1` a client that ends its side still
/// reads; otherwise it is gone.
pub async fn connect(app: &SharedApp, mut request: Request<Incoming>, port: &str) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::GET])?;
    let invalid = |message: String| ErrorBody::new(ErrorCode::InvalidRequest, message);
    let wanted =
        request.headers().get(UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(TCP_PROTOCOL.as_bytes()));
    if !wanted {
        return Err(invalid(format!("connect needs the headers Connection: Upgrade and Upgrade: {TCP_PROTOCOL}")));
    }
    let query = query::parse(request.uri().query(), &["half_close"])?;
    let end_of_client =
        if query.flag("half_close")?.unwrap_or(false) { EndOfClient::HalfClose } else { EndOfClient::Gone };
    let port: u16 = port
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| invalid("a port is a number from 1 to 65535".to_owned()))?;
    let PortConnection { stream, slot } = app.ports.connect(port).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    // The task ends with the connection: it owns both of its sides, and the upgrade fails if the client is gone.
    tokio::task::spawn_local(async move {
        match upgrade.await {
            Ok(upgraded) => relay(TokioIo::new(upgraded), stream, end_of_client).await,
            Err(error) => tracing::debug!(%error, "an upgrade to a port failed"),
        }
        drop(slot);
    });
    let mut reply = body::with_type(200, "application/octet-stream", Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(TCP_PROTOCOL));
    Ok(reply)
}
