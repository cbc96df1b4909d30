//! `/mcp`: the Model Context Protocol over streamable HTTP. `mcp` serves it; this takes the query apart, which says which sandbox the
//! client wants, and gives errors the shape of all others.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::header::CONTENT_TYPE;
use hyper::{StatusCode, Uri};
use shared_protocol::api::{CreateSessionRequest, NetworkSpec};
use shared_protocol::query::Query;
use shared_protocol::{ErrorCode, SessionId, SessionName, WorkspaceId};

use super::ApiState;
use super::error::ApiError;
use super::extract::{By, query};
use crate::mcp::{McpResponse, SandboxChoice};

const PARAMETERS: &[&str] = &["session", "name", "image", "network", "workspace"];
/// The most bytes of a refusal's text.
const MAX_REFUSAL_BYTES: usize = 16 << 10;

pub async fn serve(State(state): State<ApiState>, By(caller): By, request: Request) -> Result<Response, ApiError> {
    let choice = choice(request.uri())?;
    let response = state.mcp.serve(caller, choice, request).await.map_err(ApiError)?;
    Ok(shaped(response).await)
}

fn choice(uri: &Uri) -> Result<SandboxChoice, ApiError> {
    let query = query(uri, PARAMETERS)?;
    if let Some(session) = query.text("session")? {
        if query.pairs().count() > 1 {
            return Err(ApiError::invalid(
                "session names a session that exists; the other parameters are for a new one",
            ));
        }
        // Ids and names have the same form.
        return Ok(SandboxChoice::Named(SessionId::new(session)?.to_string()));
    }
    let name = query.text("name")?.map(SessionName::new).transpose()?;
    let workspace_id = query.text("workspace")?.map(WorkspaceId::new).transpose()?;
    let image = printable(&query, "image")?.map(str::to_owned);
    let network = printable(&query, "network")?.map(network).transpose()?;
    let request = CreateSessionRequest { name, image, network, workspace_id, ..CreateSessionRequest::default() };
    Ok(SandboxChoice::Made(Box::new(request)))
}

/// A parameter without control characters, which no name has.
fn printable<'a>(query: &'a Query, name: &str) -> Result<Option<&'a str>, ApiError> {
    let text = query.text(name)?;
    match text.filter(|text| text.chars().any(char::is_control)) {
        Some(_) => Err(ApiError::invalid(format!("the parameter {name} has a control character in it"))),
        None => Ok(text),
    }
}

/// The name of a preset, or rules as JSON.
fn network(text: &str) -> Result<NetworkSpec, ApiError> {
    if !text.starts_with('{') {
        return Ok(NetworkSpec::preset(text));
    }
    serde_json::from_str(text).map_err(|error| ApiError::invalid(format!("the parameter network: {error}")))
}

/// The answer, unless it is a refusal in plain text: that becomes an error like all others. Errors of the protocol stay.
async fn shaped(response: McpResponse) -> Response {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/json");
    let code = match response.status() {
        status if status.is_success() || is_json => return response.map(Body::new),
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => ErrorCode::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        status if status.is_server_error() => ErrorCode::InternalError,
        _ => ErrorCode::InvalidRequest,
    };
    let body = Limited::new(response.into_body(), MAX_REFUSAL_BYTES).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    ApiError::new(code, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(query: &str) -> Result<SandboxChoice, String> {
        choice(&format!("/mcp{query}").parse().unwrap()).map_err(|error| error.0.message)
    }

    #[test]
    fn the_query_names_a_session_or_says_what_a_new_one_is() {
        assert_eq!(chosen(""), Ok(SandboxChoice::Made(Box::default())));
        assert_eq!(chosen("?session=agent"), Ok(SandboxChoice::Named("agent".into())));
        let request = CreateSessionRequest {
            image: Some("python:3.12".into()),
            network: Some(NetworkSpec::preset("packages")),
            workspace_id: Some(WorkspaceId::new("w").unwrap()),
            name: Some(SessionName::new("n").unwrap()),
            ..CreateSessionRequest::default()
        };
        let query = "?image=python%3A3.12&network=packages&workspace=w&name=n";
        assert_eq!(chosen(query), Ok(SandboxChoice::Made(Box::new(request))));
        for (bad, word) in [
            ("?session=a&image=b", "new one"),
            ("?nope=1", "nope"),
            ("?name=a%20b", "name"),
            ("?session=a%00b", "session"),
            ("?image=a%00b", "image"),
            ("?network=%7B", "network"),
            ("?workspace=..%2Fx", "workspace"),
        ] {
            assert!(chosen(bad).unwrap_err().contains(word), "{bad}: {:?}", chosen(bad));
        }
    }
}
