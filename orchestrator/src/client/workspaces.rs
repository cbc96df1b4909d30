//! Calls for workspaces, and the removal of layers that nothing uses.

use hyper::Method;
use shared_protocol::api::{OkView, RemovedImagesView, WorkspaceList, WorkspaceView};
use shared_protocol::{KeyName, WorkspaceId};

use super::{Client, ClientError, ReplyTimeout, empty, request};

impl Client {
    pub async fn workspaces(&self) -> Result<Vec<WorkspaceView>, ClientError> {
        Ok(self.get::<WorkspaceList>("/v1/workspaces").await?.workspaces)
    }

    /// Makes a workspace of the caller. One that exists stays as it is.
    pub async fn create_workspace(&self, id: &WorkspaceId) -> Result<(), ClientError> {
        self.change_workspace(Method::PUT, id.as_str()).await
    }

    pub async fn delete_own_workspace(&self, id: &WorkspaceId, force: bool) -> Result<(), ClientError> {
        self.change_workspace(Method::DELETE, &format!("{id}?force={}", u8::from(force))).await
    }

    /// Deletes a workspace of any owner, which only an admin may do with those of others.
    pub async fn delete_workspace(&self, owner: &KeyName, id: &WorkspaceId, force: bool) -> Result<(), ClientError> {
        self.change_workspace(Method::DELETE, &format!("{owner}:{id}?force={}", u8::from(force))).await
    }

    async fn change_workspace(&self, method: Method, address: &str) -> Result<(), ClientError> {
        let request = request(method, &format!("/v1/workspaces/{address}"), empty())?;
        self.document::<OkView>(request, ReplyTimeout::Bounded).await.map(drop)
    }

    pub async fn prune_images(&self) -> Result<RemovedImagesView, ClientError> {
        self.document(request(Method::POST, "/v1/images/prune", empty())?, ReplyTimeout::Bounded).await
    }
}
