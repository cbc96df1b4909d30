//! `…/ports`: the servers in a sandbox. Lists them, gives links to them, carries HTTP requests and bare TCP connections to them.
//!
//! | where | what |
//! |---|---|
//! | `arrival`, `headers`, `location`, `previews` | what changes on the way in and out (pure) |
//! | `forward` | carries one request, or one upgraded connection |
//! | `page` | the answer if that fails |
//!
//! `server::preview` serves the host names of links, and uses `forward` too.

mod arrival;
mod forward;
mod headers;
mod location;
mod page;
mod previews;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use hyper::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use shared_protocol::api::{OkView, PortUrlRequest, PortUrlView};
use shared_protocol::runner::{PortList, TCP_PROTOCOL};

pub use arrival::{Arrival, Form, unambiguous};
pub use forward::Forward;
pub use headers::{Authorization, origin_authority, upgrade};
pub use location::cookie;
pub use page::{refusal, wants_page};
pub use previews::{Previews, take_token};

use super::ApiState;
use super::error::ApiError;
use super::extract::{By, ClientAddress, Held, JsonOrNothing, PortPath, SessionPath};
use crate::config::Scheme;
use crate::relay::{HALF_CLOSED_SILENCE, relay};
use crate::service::Caller;
use crate::service::ports::{EndOfClient, LinkSpec, PortAddress};

pub async fn list(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<PortList>, ApiError> {
    Ok(Json(state.service.ports().list(&caller, &id).await?))
}

/// Takes back all links to a port.
pub async fn take_links_back(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    PortPath(port): PortPath,
) -> Result<Json<OkView>, ApiError> {
    state.service.ports().take_links_back(&caller, &PortAddress { session, port }).await?;
    Ok(Json(OkView::new()))
}

/// `POST …/url` makes a link, and `DELETE` takes links back. Any other method is for the server's own path `/url`.
pub async fn url(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    PortPath(port): PortPath,
    held: Held,
    client: ClientAddress,
    request: Request,
) -> Result<Response, ApiError> {
    let address = PortAddress { session, port };
    if request.method() != Method::POST {
        return Ok(proxied(&state, &caller, address, held, client, request).await);
    }
    let JsonOrNothing(wanted) = JsonOrNothing::<PortUrlRequest>::from_request(request, &state).await?;
    let spec = state.checked(&caller, &address.session, LinkSpec::new(&wanted))?;
    let link = state.service.ports().link(&caller, &address, spec)?;
    let view = PortUrlView { url: state.previews.url(&address, &link.token), expires_at: link.expires_at };
    Ok(Json(view).into_response())
}

/// A request that asks for an upgrade to `cove-tcp` gets a bare connection to the port. Any other is for the server's own path
/// `/connect`.
pub async fn connect(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    PortPath(port): PortPath,
    held: Held,
    client: ClientAddress,
    mut request: Request,
) -> Result<Response, ApiError> {
    let address = PortAddress { session, port };
    let wanted = upgrade(request.headers());
    if !wanted.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(TCP_PROTOCOL.as_bytes())) {
        return Ok(proxied(&state, &caller, address, held, client, request).await);
    }
    let stream = state.service.ports().connect(&caller, &address, EndOfClient::HalfClose).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    // The task owns both sides of the connection, and ends with them, with the session, or with the caller's key.
    tokio::spawn(async move {
        let carried = async {
            match upgrade.await {
                Ok(upgraded) => drop(relay(TokioIo::new(upgraded), stream, HALF_CLOSED_SILENCE).await),
                Err(cause) => tracing::debug!(%cause, "an upgrade to a port failed"),
            }
        };
        tokio::select! {
            () = carried => {}
            () = caller.removed() => {}
        }
        drop(held);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(TCP_PROTOCOL));
    Ok(response)
}

pub async fn proxy(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    PortPath(port): PortPath,
    held: Held,
    client: ClientAddress,
    request: Request,
) -> Response {
    proxied(&state, &caller, PortAddress { session, port }, held, client, request).await
}

/// Leads from `…/ports/{port}` to `…/ports/{port}/`, against which relative addresses of a page are resolved.
pub async fn with_slash(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    PortPath(port): PortPath,
    uri: Uri,
) -> Result<Response, ApiError> {
    state.service.sessions().get(&caller, &session)?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(Redirect::permanent(&format!("/v1/sessions/{session}/ports/{port}/{query}")).into_response())
}

async fn proxied(
    state: &ApiState,
    caller: &Caller,
    address: PortAddress,
    held: Held,
    ClientAddress(client): ClientAddress,
    request: Request,
) -> Response {
    let wants_page = wants_page(request.headers());
    let prefix = format!("/v1/sessions/{}/ports/{}", address.session, address.port);
    let authority = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let target = target(request.uri(), &prefix);
    let form = Form::Prefix(prefix);
    let arrival = Arrival { form, authority, scheme: Scheme::Http, client, port: address.port };
    let sent = async {
        let stream = state.service.ports().connect(caller, &address, EndOfClient::Gone).await?;
        let revoked = caller.clone();
        let forward = Forward {
            arrival: &arrival,
            authorization: Authorization::Remove,
            target: &target,
            held,
            revoked: Box::pin(async move { revoked.removed().await }),
        };
        forward.send(stream, request).await
    };
    sent.await.unwrap_or_else(|error| refusal(error, wants_page))
}

/// The path and query for the server: what follows the prefix, as the client wrote it.
fn target(uri: &Uri, prefix: &str) -> String {
    let path = uri.path().strip_prefix(prefix).filter(|path| path.starts_with('/')).unwrap_or("/");
    match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gets_what_follows_the_prefix() {
        let of = |uri: &str| target(&uri.parse().unwrap(), "/v1/sessions/s/ports/80");
        assert_eq!(of("/v1/sessions/s/ports/80/"), "/");
        assert_eq!(of("/v1/sessions/s/ports/80/a%20b//c?d=%2F"), "/a%20b//c?d=%2F");
        assert_eq!(of("/v1/sessions/s/ports/80/?q"), "/?q");
    }
}
