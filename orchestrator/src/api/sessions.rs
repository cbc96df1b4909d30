//! `/v1/sessions`: create, describe, list, change, pause, resume and destroy sessions.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use hyper::{HeaderMap, StatusCode, Uri};
use shared_protocol::SessionName;
use shared_protocol::api::{
    CreateFrame, CreateSessionRequest, OkView, SessionStatus, SessionView, StatsView, UpdateSessionRequest,
};
use shared_protocol::query::Query;

use super::encode::{Format, Told, progress};
use super::error::ApiError;
use super::extract::{ApiJson, By, JsonOrNothing, SessionPath, header_text, repeated_query, shown};
use super::{ApiState, Created, CreatedLater, CreatedSender};
use crate::service::{CreateEvent, CreateStream, Creation, SessionFilter};

const LIST_PARAMETERS: &[&str] = &["status", "label", "name"];
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Answers with the session, or with events if the client asks for a stream: how far the pull of a missing image is, then the session.
pub async fn create(
    State(state): State<ApiState>,
    By(caller): By,
    headers: HeaderMap,
    JsonOrNothing(request): JsonOrNothing<CreateSessionRequest>,
) -> Result<Response, ApiError> {
    let key = header_text(&headers, IDEMPOTENCY_KEY)?;
    let Some(format) = Format::asked(&headers) else {
        let view = state.service.sessions().create(&caller, request, key).await?;
        return Ok((StatusCode::CREATED, Extension(Created::session(&view)), Json(view)).into_response());
    };
    Ok(match state.service.sessions().create_telling(&caller, request, key).await? {
        Creation::Made(view) => {
            let created = Created::session(&view);
            let mut response = progress(MadeAlready(Some(view)), format);
            *response.status_mut() = StatusCode::CREATED;
            (Extension(created), response).into_response()
        }
        Creation::Pulling(stream) => {
            let (outcome, later) = CreatedLater::channel();
            let response = progress(Following { stream, outcome: Some(outcome) }, format);
            (Extension(later), response).into_response()
        }
    })
}

/// A session that was made before the answer began.
struct MadeAlready(Option<Box<SessionView>>);

impl Told for MadeAlready {
    type Frame = CreateFrame;

    async fn next(&mut self) -> Option<CreateFrame> {
        self.0.take().map(CreateFrame::Done)
    }
}

/// A create whose events are being sent.
struct Following {
    stream: CreateStream,
    /// For the audit log.
    outcome: Option<CreatedSender>,
}

impl Told for Following {
    type Frame = CreateFrame;

    async fn next(&mut self) -> Option<CreateFrame> {
        let (frame, outcome) = match self.stream.next().await? {
            CreateEvent::Progress(progress) => return Some(CreateFrame::Progress(progress)),
            CreateEvent::Done(view) => {
                let created = Created::session(&view);
                (CreateFrame::Done(view), Ok(created))
            }
            CreateEvent::Failed(error) => {
                let body = ApiError::from(error).0;
                let code = body.error_code;
                (CreateFrame::Error(body), Err(code))
            }
        };
        if let Some(sender) = self.outcome.take() {
            // Nobody listens if there is no audit log.
            let _ = sender.send(outcome);
        }
        Some(frame)
    }
}

pub async fn list(State(state): State<ApiState>, By(caller): By, uri: Uri) -> Result<Json<Vec<SessionView>>, ApiError> {
    let filter = filter(&repeated_query(&uri, LIST_PARAMETERS)?)?;
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
        match name {
            "status" => filter.statuses.push(status(value)?),
            "name" => filter.name = Some(one_name(filter.name.as_ref(), value)?),
            _ => {
                let (key, value) =
                    value.split_once('=').ok_or_else(|| ApiError::invalid("the parameter label must be KEY=VALUE"))?;
                filter.labels.push((key.to_owned(), value.to_owned()));
            }
        }
    }
    Ok(filter)
}

/// The name that a list asks for. A second one is refused: no session has two.
fn one_name(before: Option<&SessionName>, text: &str) -> Result<SessionName, ApiError> {
    match before {
        Some(_) => Err(ApiError::invalid("the parameter name can be given once")),
        None => SessionName::new(text).map_err(|error| ApiError::invalid(error.to_string())),
    }
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
        filter(&repeated_query(&uri, LIST_PARAMETERS)?)
    }

    #[test]
    fn a_filter_takes_statuses_and_labels_and_nothing_else() {
        let given = parsed("status=running&status=pool_idle&label=a%3Db=c&label=d%3D&label=e+f%3Dg").unwrap();
        assert_eq!(given.statuses, [SessionStatus::Running, SessionStatus::PoolIdle]);
        let labels = [("a", "b=c"), ("d", ""), ("e f", "g")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(given.labels, labels);
        assert_eq!(parsed("name=agent").unwrap().name, Some(SessionName::new("agent").unwrap()));
        for (bad, word) in [
            ("status=Running", "creating"),
            ("label=x", "KEY=VALUE"),
            ("lable=x", "lable"),
            ("label=%ff", "UTF-8"),
            ("name=a%20b", "session name"),
            ("name=a&name=b", "once"),
        ] {
            assert!(parsed(bad).unwrap_err().0.message.contains(word), "{bad:?}");
        }
    }
}
