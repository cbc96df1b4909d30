//! Gives out the state of the shells, and takes it in another sandbox: for snapshots and for sessions that are stopped.

use hyper::{Method, Request};
use shared_protocol::ErrorBody;
use shared_protocol::runner::{RestoreRequest, SandboxState, check_variables};

use super::app::SharedApp;
use super::body::{self, Reply};
use super::request_body::RequestBody;
use super::{allow, request};

pub async fn give(app: &SharedApp, request: &Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    let shells = app.shells.states().await;
    let env = app.environment.of_session().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(body::json(200, &SandboxState { env, shells }))
}

pub async fn restore(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let request: RestoreRequest = request::json(request).await?;
    check_variables(&request.env)?;
    app.shells.restore(request)?;
    Ok(body::json(200, &serde_json::json!({ "ok": true })))
}
