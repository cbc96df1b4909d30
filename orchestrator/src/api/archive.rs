//! `GET` and `PUT …/archive?path=`: a directory as a tar stream, out of the sandbox and into it. The daemon looks at none of
//! it: packing and unpacking is the runner's, inside the sandbox.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, StatusCode};

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::files::{send_body, stream};
use super::target::{Params, session_id};
use crate::runner_client::FileCall;
use crate::session::Activity;

pub async fn get(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let activity = state.sessions.get(&session_id(request.uri())?)?.begin().await?;
    pack(&state, activity, request).await
}

pub async fn put(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let activity = state.sessions.get(&session_id(request.uri())?)?.begin().await?;
    unpack(&state, activity, request).await
}

pub async fn pack(state: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let path = Params::parse(request.uri(), &["path"])?.path("path")?;
    let call = FileCall::new(Method::GET, "archive").with("path", &path);
    let archive = in_session(&activity, activity.runner().forward(call)).await?;
    let mut response = stream(activity, archive, state.metrics.clone());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

pub async fn unpack(state: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let path = Params::parse(request.uri(), &["path"])?.path("path")?;
    let call = FileCall::new(Method::PUT, "archive").with("path", &path);
    let wrote = send_body(&activity, call, request.into_body()).await?;
    state.metrics.bytes_in(wrote.bytes);
    Ok((StatusCode::CREATED, axum::Json(wrote)).into_response())
}
