//! Calls for the network of sessions.

use hyper::Method;
use shared_protocol::SessionId;
use shared_protocol::api::{NetworkDecision, NetworkLogView, NetworkView, PackagesView, SetNetworkRequest};

use super::sessions::session_path;
use super::{Client, ClientError, ReplyTimeout, empty, post_request, request};

impl Client {
    pub async fn network(&self, id: &SessionId) -> Result<NetworkView, ClientError> {
        self.get(&session_path(id, "network")).await
    }

    pub async fn set_network(&self, id: &SessionId, wanted: &SetNetworkRequest) -> Result<NetworkView, ClientError> {
        let mut request = post_request(&session_path(id, "network"), wanted)?;
        *request.method_mut() = Method::PUT;
        self.document(request, ReplyTimeout::None).await
    }

    pub async fn network_log(&self, id: &SessionId) -> Result<Vec<NetworkDecision>, ClientError> {
        Ok(self.get::<NetworkLogView>(&session_path(id, "network/log")).await?.decisions)
    }

    /// The registries of the daemon's host: what was found out before, or asked for now.
    pub async fn packages(&self, cached: bool) -> Result<PackagesView, ClientError> {
        let method = if cached { Method::GET } else { Method::POST };
        self.document(request(method, "/v1/network/packages", empty())?, ReplyTimeout::None).await
    }
}
