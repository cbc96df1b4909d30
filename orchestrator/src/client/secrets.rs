//! Calls for secrets: set, list, remove.

use hyper::Method;
use shared_protocol::SecretName;
use shared_protocol::api::{OkView, SecretList, SecretView, SetSecretRequest};

use super::{Client, ClientError, ReplyTimeout, empty, post_request, request};

impl Client {
    pub async fn set_secret(&self, name: &SecretName, wanted: &SetSecretRequest) -> Result<SecretView, ClientError> {
        let mut request = post_request(&format!("/v1/secrets/{name}"), wanted)?;
        *request.method_mut() = Method::PUT;
        self.document(request, ReplyTimeout::Bounded).await
    }

    pub async fn secrets(&self) -> Result<Vec<SecretView>, ClientError> {
        Ok(self.get::<SecretList>("/v1/secrets").await?.secrets)
    }

    pub async fn remove_secret(&self, name: &SecretName) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &format!("/v1/secrets/{name}"), empty())?;
        self.document::<OkView>(request, ReplyTimeout::Bounded).await.map(drop)
    }
}
