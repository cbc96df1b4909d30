//! Calls for sessions and pools: create, list, pause, end.

use hyper::Method;
use shared_protocol::SessionId;
use shared_protocol::api::{
    OkView, PoolView, SessionStatus, SessionView, SetPoolRequest, StatsView, UpdateSessionRequest,
};

use super::files::escaped;
use super::{Client, ClientError, ReplyTimeout, empty, post_request, request};

/// The path of a session's resource.
pub(super) fn session_path(id: &SessionId, resource: &str) -> String {
    format!("/v1/sessions/{id}/{resource}")
}

impl Client {
    /// Lists sessions that have not ended, or those with a given status. Labels are `k=v`; a session must have all of them.
    pub async fn sessions(
        &self,
        status: Option<SessionStatus>,
        labels: &[String],
    ) -> Result<Vec<SessionView>, ClientError> {
        let mut query: Vec<String> =
            labels.iter().map(|label| format!("label={}", escaped(label.as_bytes()))).collect();
        query.extend(status.map(|status| format!("status={}", status.as_str())));
        let mark = if query.is_empty() { "" } else { "?" };
        self.get(&format!("/v1/sessions{mark}{}", query.join("&"))).await
    }

    /// The sessions that have not ended and have this name: for an admin, there may be one of each owner.
    pub async fn sessions_named(&self, name: &str) -> Result<Vec<SessionView>, ClientError> {
        self.get(&format!("/v1/sessions?name={}", escaped(name.as_bytes()))).await
    }

    pub async fn session(&self, id: &SessionId) -> Result<SessionView, ClientError> {
        self.get(&format!("/v1/sessions/{id}")).await
    }

    pub async fn stats(&self, id: &SessionId) -> Result<StatsView, ClientError> {
        self.get(&session_path(id, "stats")).await
    }

    /// Changes what a session does: `change` is `pause`, `resume`, `stop` or `start`.
    pub async fn change_session(&self, id: &SessionId, change: &str) -> Result<SessionView, ClientError> {
        let request = request(Method::POST, &session_path(id, change), empty())?;
        self.document(request, ReplyTimeout::Bounded).await
    }

    pub async fn update_session(
        &self,
        id: &SessionId,
        wanted: &UpdateSessionRequest,
    ) -> Result<SessionView, ClientError> {
        let mut request = post_request(&format!("/v1/sessions/{id}"), wanted)?;
        *request.method_mut() = Method::PATCH;
        self.document(request, ReplyTimeout::Bounded).await
    }

    pub async fn pools(&self) -> Result<Vec<PoolView>, ClientError> {
        self.get("/v1/pools").await
    }

    pub async fn set_pool(&self, image: &str, wanted: &SetPoolRequest) -> Result<PoolView, ClientError> {
        let mut request = post_request(&format!("/v1/pools/{}", escaped(image.as_bytes())), wanted)?;
        *request.method_mut() = Method::PUT;
        self.document(request, ReplyTimeout::Bounded).await
    }

    pub async fn destroy_session(&self, id: &SessionId) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &format!("/v1/sessions/{id}"), empty())?;
        self.document::<OkView>(request, ReplyTimeout::Bounded).await.map(drop)
    }
}
