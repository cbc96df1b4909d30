//! Calls for API keys: create, list, remove.

use hyper::Method;
use shared_protocol::KeyName;
use shared_protocol::api::{CreateKeyRequest, KeyList, KeyView, NewKeyView, OkView};

use super::{Client, ClientError, ReplyTimeout, empty, request};

impl Client {
    pub async fn create_key(&self, wanted: &CreateKeyRequest) -> Result<NewKeyView, ClientError> {
        self.post("/v1/keys", wanted).await
    }

    pub async fn keys(&self) -> Result<Vec<KeyView>, ClientError> {
        Ok(self.get::<KeyList>("/v1/keys").await?.keys)
    }

    pub async fn remove_key(&self, name: &KeyName) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &format!("/v1/keys/{name}"), empty())?;
        self.document::<OkView>(request, ReplyTimeout::Bounded).await.map(drop)
    }
}
