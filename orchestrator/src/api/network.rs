//! `…/network`: what a session may reach, and what was decided; `/v1/network/packages`: the registries of this host.

use std::convert::Infallible;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Uri};
use shared_protocol::api::{NetworkDecision, NetworkLogView, NetworkView, PackagesView, SetNetworkRequest};

use super::ApiState;
use super::encode::{Format, KEEP_ALIVE};
use super::error::ApiError;
use super::extract::{ApiJson, By, SessionPath, query};
use crate::service::{DecisionStream, Refresh};

pub async fn get(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<NetworkView>, ApiError> {
    Ok(Json(state.service.networks().get(&caller, &id)?))
}

pub async fn set(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<SetNetworkRequest>,
) -> Result<Json<NetworkView>, ApiError> {
    Ok(Json(state.service.networks().set(&caller, &id, request).await?))
}

pub async fn log(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["follow", "after"])?;
    let after = query.number("after")?.unwrap_or(0);
    if !query.flag("follow")?.unwrap_or(false) {
        let mut decisions = state.service.networks().log(&caller, &id)?;
        decisions.retain(|decision| decision.sequence > after);
        return Ok(Json(NetworkLogView { decisions }).into_response());
    }
    let format = Format::wanted(&headers);
    let following = Following { decisions: state.service.networks().follow(&caller, &id, after)?, format };
    let body = Body::from_stream(futures_util::stream::unfold(following, Following::next));
    let mut response = body.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

pub async fn packages(State(state): State<ApiState>, By(caller): By) -> Result<Json<PackagesView>, ApiError> {
    Ok(Json(state.service.networks().packages(&caller, Refresh::IfUnknown).await?))
}

pub async fn detect(State(state): State<ApiState>, By(caller): By) -> Result<Json<PackagesView>, ApiError> {
    Ok(Json(state.service.networks().packages(&caller, Refresh::Now).await?))
}

/// A stream of decisions that is being sent.
struct Following {
    decisions: DecisionStream,
    format: Format,
}

impl Following {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let bytes = tokio::select! {
            biased;
            decisions = self.decisions.next() => {
                decisions?.iter().flat_map(|decision| encode(decision, self.format)).collect()
            }
            () = tokio::time::sleep(KEEP_ALIVE) => match self.format {
                Format::Sse => b": keep-alive\n\n".to_vec(),
                Format::Ndjson => b"\n".to_vec(),
            },
        };
        Some((Ok(Bytes::from(bytes)), self))
    }
}

fn encode(decision: &NetworkDecision, format: Format) -> Vec<u8> {
    // Its fields are texts and numbers, which always can be written.
    let data = serde_json::to_string(decision).unwrap_or_default();
    match format {
        Format::Sse => format!("event: decision\nid: {}\ndata: {data}\n\n", decision.sequence).into_bytes(),
        Format::Ndjson => format!("{data}\n").into_bytes(),
    }
}
