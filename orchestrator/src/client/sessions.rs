//! Sessions: made, listed, ended.

use hyper::Method;
use shared_protocol::SessionId;
use shared_protocol::api::{CreateSessionRequest, OkView, PoolView, SessionStatus, SessionView, SetPoolRequest};

use super::files::escaped;
use super::{Client, ClientError, Patience, empty, post_request, request};

/// The path of a session's resource.
pub(super) fn session_path(id: &SessionId, resource: &str) -> String {
    format!("/v1/sessions/{id}/{resource}")
}

impl Client {
    pub async fn create_session(&self, wanted: &CreateSessionRequest) -> Result<SessionView, ClientError> {
        self.post("/v1/sessions", wanted).await
    }

    /// Live ones; of another status where that is asked for. Labels are `k=v`, and all of them must be there.
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

    /// `pause` or `resume`.
    pub async fn change_session(&self, id: &SessionId, change: &str) -> Result<SessionView, ClientError> {
        let request = request(Method::POST, &session_path(id, change), empty())?;
        self.document(request, Patience::Bounded).await
    }

    pub async fn pools(&self) -> Result<Vec<PoolView>, ClientError> {
        self.get("/v1/pools").await
    }

    pub async fn set_pool(&self, image: &str, wanted: &SetPoolRequest) -> Result<PoolView, ClientError> {
        let mut request = post_request(&format!("/v1/pools/{}", escaped(image.as_bytes())), wanted)?;
        *request.method_mut() = Method::PUT;
        self.document(request, Patience::Bounded).await
    }

    pub async fn destroy_session(&self, id: &SessionId) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &format!("/v1/sessions/{id}"), empty())?;
        self.document::<OkView>(request, Patience::Bounded).await.map(drop)
    }
}
