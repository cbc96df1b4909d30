//! `/v1/sessions`: create, look at, list, pause, destroy.

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use shared_protocol::api::{CreateSessionRequest, OkView, SessionStatus, SessionView, StatsView};

use super::ApiState;
use super::error::ApiError;
use super::extract::{Headers, JsonOrNothing, QueryPairs, SessionPath, header_text, shown, unknown_parameter};
use crate::session::SessionFilter;

pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub async fn create(
    State(state): State<ApiState>,
    Headers(headers): Headers,
    JsonOrNothing(request): JsonOrNothing<CreateSessionRequest>,
) -> Result<(StatusCode, Json<SessionView>), ApiError> {
    let key = header_text(&headers, IDEMPOTENCY_KEY)?;
    let view = state.sessions.create(request, key).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

pub async fn list(
    State(state): State<ApiState>,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    Ok(Json(state.sessions.list(&filter(&pairs)?)))
}

pub async fn get(State(state): State<ApiState>, SessionPath(id): SessionPath) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.sessions.get(&id)?.view()))
}

pub async fn destroy(State(state): State<ApiState>, SessionPath(id): SessionPath) -> Result<Json<OkView>, ApiError> {
    state.sessions.destroy(&id).await?;
    Ok(Json(OkView::new()))
}

pub async fn pause(State(state): State<ApiState>, SessionPath(id): SessionPath) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.sessions.get(&id)?.pause().await?))
}

pub async fn resume(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.sessions.get(&id)?.resume().await?))
}

pub async fn stats(State(state): State<ApiState>, SessionPath(id): SessionPath) -> Result<Json<StatsView>, ApiError> {
    Ok(Json(state.sessions.stats(&id).await?))
}

fn filter(pairs: &[(String, String)]) -> Result<SessionFilter, ApiError> {
    let mut filter = SessionFilter::default();
    for (name, value) in pairs {
        match name.as_str() {
            "status" => filter.statuses.push(status(value)?),
            "label" => {
                let (key, value) =
                    value.split_once('=').ok_or_else(|| ApiError::invalid("the parameter label must be KEY=VALUE"))?;
                filter.labels.push((key.to_owned(), value.to_owned()));
            }
            other => return Err(unknown_parameter(other, "status, label")),
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

    fn parsed(pairs: &[(&str, &str)]) -> Result<SessionFilter, ApiError> {
        filter(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn a_filter_takes_statuses_and_labels_and_nothing_else() {
        let given =
            parsed(&[("status", "running"), ("status", "pool_idle"), ("label", "a=b=c"), ("label", "d=")]).unwrap();
        assert_eq!(given.statuses, [SessionStatus::Running, SessionStatus::PoolIdle]);
        assert_eq!(given.labels, [("a".into(), "b=c".into()), ("d".into(), String::new())]);
        for (bad, word) in
            [(("status", "Running"), "creating"), (("label", "x"), "KEY=VALUE"), (("lable", "x"), "lable")]
        {
            assert!(parsed(&[bad]).unwrap_err().0.message.contains(word), "{bad:?}");
        }
    }
}
