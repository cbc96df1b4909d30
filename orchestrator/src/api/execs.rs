//! `GET …/execs`, and `GET …/execs/{exec_id}`: what ran of late, and going on where a connection was lost.

use axum::extract::State;
use axum::response::Response;
use hyper::header::HeaderMap;
use hyper::{Uri, http::HeaderName};
use shared_protocol::api::ApiExecView;
use shared_protocol::runner::ExecView;

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::events::Format;
use super::exec::done;
use super::exec_stream::{Follow, stream};
use super::extract::SessionPath;
use super::target::{Params, exec_id, invalid, whole_number};

/// What a browser's `EventSource` sends by itself when it connects again: the last `id` that it saw.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub async fn list(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
) -> Result<axum::Json<Vec<ApiExecView>>, ApiError> {
    let activity = state.sessions.get(&id)?.begin().await?;
    let views = in_session(&activity, activity.runner().execs()).await?;
    Ok(axum::Json(views.into_iter().map(view).collect()))
}

pub async fn reattach(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let exec_id = exec_id(&uri)?;
    let params = Params::parse(&uri, &["from", "follow"])?;
    let from = match params.number("from")? {
        Some(from) => from,
        None => last_seen(&headers)?.unwrap_or(0),
    };
    let follow = params.flag("follow")?;
    let handle = state.sessions.get(&id)?;
    let activity = handle.begin().await?;
    let frames = in_session(&activity, activity.runner().reattach(&exec_id, from, follow)).await?;
    let follow = Follow { format: Format::wanted(&headers), sets_cwd: false, counts: None };
    Ok(stream(handle, activity, frames, follow))
}

fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    match whole_number(value.as_bytes()) {
        Some(offset) => Ok(Some(offset)),
        None => Err(invalid("Last-Event-ID must be the id of an event of this stream: a whole number")),
    }
}

fn view(view: ExecView) -> ApiExecView {
    ApiExecView {
        exec_id: view.exec_id,
        shell: view.shell,
        state: view.state,
        output_bytes: view.output_bytes,
        first_offset: view.first_offset,
        done: view.outcome.map(|outcome| done(outcome, view.first_offset > 0, String::new)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn a_browser_goes_on_behind_the_last_event_it_saw() {
        let mut headers = HeaderMap::new();
        assert_eq!(last_seen(&headers).unwrap(), None);
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static("42"));
        assert_eq!(last_seen(&headers).unwrap(), Some(42));
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static(""));
        assert_eq!(last_seen(&headers).unwrap(), None);
        for bad in ["-1", "4x", "99999999999999999999999"] {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_static(bad));
            assert!(last_seen(&headers).is_err(), "{bad:?}");
        }
    }
}
