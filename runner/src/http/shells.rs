//! Opens, lists and closes shells, and passes on input, signals and sizes.

use hyper::{Method, Request};
use shared_protocol::runner::{
    InputRequest, OpenShellRequest, ResizeRequest, ShellEndView, SignalRequest, decode_payload,
};
use shared_protocol::{ErrorBody, ErrorCode, ShellName};

use super::app::SharedApp;
use super::body::{self, Reply};
use super::request_body::RequestBody;
use super::{allow, request};
use crate::shell;
use crate::sys::signal::number_of;

fn ok() -> Reply {
    body::json(200, &serde_json::json!({ "ok": true }))
}

pub fn shell_name(name: &str) -> Result<ShellName, ErrorBody> {
    ShellName::new(name).map_err(|e| ErrorBody::new(ErrorCode::InvalidRequest, e.to_string()))
}

pub async fn list_or_open(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::GET, Method::POST])?;
    if request.method() == Method::GET {
        return Ok(body::json(200, &app.shells.views()));
    }
    let request: OpenShellRequest = request::json(request).await?;
    Ok(body::json(201, &app.shells.open(request).await?))
}

pub async fn close(app: &SharedApp, request: &Request<RequestBody>, name: &str) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::DELETE])?;
    app.shells.close(&shell_name(name)?).await?;
    Ok(ok())
}

pub fn end(app: &SharedApp, request: &Request<RequestBody>, name: &str) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::GET])?;
    let exit_code = app.shells.end(&shell_name(name)?)?;
    Ok(body::json(200, &ShellEndView { exit_code }))
}

pub async fn reset(app: &SharedApp, request: &Request<RequestBody>, name: &str) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::POST])?;
    let shell = app.shells.get(Some(&shell_name(name)?))?;
    shell.reset().await?;
    Ok(body::json(200, &shell.view()))
}

pub async fn input(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let request: InputRequest = request::json(request).await?;
    let Some(bytes) = decode_payload("data", request.data, request.data_base64)? else {
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, "give data or data_base64"));
    };
    app.shells.get(request.shell.as_ref())?.input(bytes).await?;
    Ok(ok())
}

pub async fn signal(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let request: SignalRequest = request::json(request).await?;
    let Some(number) = number_of(&request.signal) else {
        let shown: String = request.signal.chars().take(32).collect();
        let message = format!("{shown:?} is not a signal: give a name such as INT or a number from 1 to 64");
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    };
    let Some(id) = request.exec_id else {
        app.shells.get(request.shell.as_ref())?.signal(number, None).await?;
        return Ok(ok());
    };
    if request.shell.is_some() {
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, "give shell or exec_id, not both"));
    }
    let exec = app.execs.get(&id)?;
    if exec.outcome().is_some() {
        return Err(ErrorBody::new(ErrorCode::Conflict, format!("exec {id} has ended")));
    }
    match &exec.signals {
        Some(run) => {
            run.try_send(number).map_err(|_| ErrorBody::new(ErrorCode::Conflict, format!("exec {id} has ended")))?;
        }
        None => app.shells.get(exec.shell.as_ref())?.signal(number, Some(id)).await?,
    }
    Ok(ok())
}

pub async fn resize(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let request: ResizeRequest = request::json(request).await?;
    let size = shell::size(Some(request.cols), Some(request.rows))?;
    app.shells.get(request.shell.as_ref())?.resize(size).await?;
    Ok(ok())
}
