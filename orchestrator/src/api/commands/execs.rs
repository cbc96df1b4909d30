//! `GET …/execs` lists recent commands and runs. `GET …/execs/{exec_id}` continues their output where a connection was lost.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, LINK};
use shared_protocol::query::whole_number;
use shared_protocol::{ExecId, SessionId};

use crate::api::ApiState;
use crate::api::encode::{Format, stream};
use crate::api::error::ApiError;
use crate::api::extract::{By, ExecPath, SessionPath, query};
use crate::service::commands::{PageSpec, Until};

/// The header with the `id` of the last event that a browser's `EventSource` saw. The browser sends it when it connects
/// again.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub async fn list(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["after", "limit"])?;
    let after = query.text("after")?.map(ExecId::new).transpose()?;
    let spec = PageSpec::new(after, query.number("limit")?)?;
    let list = state.service.commands().list(&caller, &id, &spec).await?;
    let next = list.execs.last().filter(|_| list.has_more).map(|last| next_page(&id, &last.exec_id, spec.limit()));
    let mut response = Json(list.execs).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(LINK, next);
    }
    Ok(response)
}

/// The header that leads to the next page of the list.
fn next_page(session: &SessionId, last: &ExecId, limit: usize) -> String {
    format!("</v1/sessions/{session}/execs?after={last}&limit={limit}>; rel=\"next\"")
}

pub async fn reattach(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ExecPath(exec_id): ExecPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["from", "follow"])?;
    let from = match query.number("from")? {
        Some(from) => from,
        None => last_seen(&headers)?.unwrap_or(0),
    };
    let until = if query.flag("follow")?.unwrap_or(false) { Until::End } else { Until::Now };
    let events = state.service.commands().reattach(&caller, &id, &exec_id, from, until).await?;
    Ok(stream(events, Format::wanted(&headers)))
}

fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    match whole_number(value.as_bytes()) {
        Some(offset) => Ok(Some(offset)),
        None => Err(ApiError::invalid("Last-Event-ID must be the id of an event of this stream: a whole number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
