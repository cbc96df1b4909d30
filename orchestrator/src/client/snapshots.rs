//! Calls for snapshots and copies of sessions.

use hyper::Method;
use shared_protocol::api::{CreateSnapshotRequest, ForkRequest, ForkView, OkView, SnapshotList, SnapshotView};
use shared_protocol::{SessionId, SnapshotId};

use super::sessions::session_path;
use super::{Client, ClientError, ReplyTimeout, empty, request};

impl Client {
    pub async fn create_snapshot(
        &self,
        session: &SessionId,
        wanted: &CreateSnapshotRequest,
    ) -> Result<SnapshotView, ClientError> {
        self.post(&session_path(session, "snapshots"), wanted).await
    }

    pub async fn snapshots(&self) -> Result<Vec<SnapshotView>, ClientError> {
        Ok(self.get::<SnapshotList>("/v1/snapshots").await?.snapshots)
    }

    pub async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &format!("/v1/snapshots/{id}"), empty())?;
        self.document::<OkView>(request, ReplyTimeout::Bounded).await.map(drop)
    }

    pub async fn fork_session(&self, session: &SessionId, wanted: &ForkRequest) -> Result<ForkView, ClientError> {
        self.post(&session_path(session, "fork"), wanted).await
    }
}
