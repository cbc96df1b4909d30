//! `/v1/sessions`: create, describe, list, change, pause, resume and destroy sessions.

use axum::extract::State;
use axum::{Extension, Json};
use hyper::{HeaderMap, StatusCode, Uri};
use shared_protocol::api::{CreateSessionRequest, OkView, SessionStatus, SessionView, StatsView, UpdateSessionRequest};
use shared_protocol::query::Query;

use super::error::ApiError;
use super::extract::{ApiJson, By, JsonOrNothing, SessionPath, header_text, repeated_query, shown};
use super::{ApiState, Created};
use crate::service::SessionFilter;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub async fn create(
    State(state): State<ApiState>,
    By(caller): By,
    headers: HeaderMap,
    JsonOrNothing(request): JsonOrNothing<CreateSessionRequest>,
) -> Result<(StatusCode, Extension<Created>, Json<SessionView>), ApiError> {
    let key = header_text(&headers, IDEMPOTENCY_KEY)?;
    let view = state.service.sessions().create(&caller, request, key).await?;
    let created = Created { kind: "session_id", id: view.id.to_string() };
    Ok((StatusCode::CREATED, Extension(created), Json(view)))
}

pub async fn list(State(state): State<ApiState>, By(caller): By, uri: Uri) -> Result<Json<Vec<SessionView>>, ApiError> {
    let filter = filter(&repeated_query(&uri, &["status", "label"])?)?;
    Ok(Json(state.service.sessions().list(&caller, &filter)))
}

pub async fn get(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.service.sessions().get(&caller, &id)?))
}

pub async fn update(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<UpdateSessionRequest>,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.service.sessions().update(&caller, &id, request).await?))
}

pub async fn destroy(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<OkView>, ApiError> {
    state.service.sessions().destroy(&caller, &id).await?;
    Ok(Json(OkView::new()))
}

pub async fn pause(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.service.sessions().pause(&caller, &id).await?))
}

pub async fn resume(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.service.sessions().resume(&caller, &id).await?))
}

pub async fn stats(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<StatsView>, ApiError> {
    Ok(Json(state.service.sessions().stats(&caller, &id).await?))
}

fn filter(query: &Query) -> Result<SessionFilter, ApiError> {
    let mut filter = SessionFilter::default();
    for (name, value) in query.pairs() {
        let value =
            std::str::from_utf8(value).map_err(|_| ApiError::invalid(format!("the parameter {name} must be UTF-8")))?;
        if name == "status" {
            filter.statuses.push(status(value)?);
        } else {
            let (key, value) =
                value.split_once('=').ok_or_else(|| ApiError::invalid("the parameter label must be KEY=VALUE"))?;
            filter.labels.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok(filter)
}

fn status(text: &str) -> Result<SessionStatus, ApiError> {
    SessionStatus::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        let known = SessionStatus::ALL.map(SessionStatus::as_str).join(", ");
        ApiError::invalid(format!("no status {:?}; there are: {known}", shown(text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<SessionFilter, ApiError> {
        let uri: Uri = format!("/v1/sessions?{text}").parse().unwrap();
        filter(&repeated_query(&uri, &["status", "label"])?)
    }

    #[test]
    fn a_filter_takes_statuses_and_labels_and_nothing_else() {
        let given = parsed("status=running&status=pool_idle&label=a%3Db=c&label=d%3D&label=e+f%3Dg").unwrap();
        assert_eq!(given.statuses, [SessionStatus::Running, SessionStatus::PoolIdle]);
        let labels = [("a", "b=c"), ("d", ""), ("e f", "g")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(given.labels, labels);
        for (bad, word) in
            [("status=Running", "creating"), ("label=x", "KEY=VALUE"), ("lable=x", "lable"), ("label=%ff", "UTF-8")]
        {
            assert!(parsed(bad).unwrap_err().0.message.contains(word), "{bad:?}");
        }
    }
}
