//! Calls for ports: list them, make a link, take links back, connect to one.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use shared_protocol::SessionId;
use shared_protocol::api::{OkView, PortUrlRequest, PortUrlView};
use shared_protocol::runner::{PortList, TCP_PROTOCOL};

use super::sessions::session_path;
use super::{ApiError, Client, ClientError, MAX_ERROR_BYTES, REPLY_TIMEOUT, ReplyTimeout, empty, request};

/// The bytes of a connection to a port.
pub type PortBytes = TokioIo<Upgraded>;

impl Client {
    pub async fn ports(&self, id: &SessionId) -> Result<PortList, ClientError> {
        self.get(&session_path(id, "ports")).await
    }

    pub async fn port_url(
        &self,
        id: &SessionId,
        port: u16,
        wanted: &PortUrlRequest,
    ) -> Result<PortUrlView, ClientError> {
        self.post(&session_path(id, &format!("ports/{port}/url")), wanted).await
    }

    /// Takes back all links to a port.
    pub async fn take_links_back(&self, id: &SessionId, port: u16) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &session_path(id, &format!("ports/{port}/url")), empty())?;
        self.document::<OkView>(request, ReplyTimeout::Bounded).await.map(drop)
    }

    /// Opens a TCP connection to a port in the session's sandbox.
    pub async fn connect_port(&self, id: &SessionId, port: u16) -> Result<PortBytes, ClientError> {
        let path = session_path(id, &format!("ports/{port}/connect"));
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(&path)
            .body(Empty::<Bytes>::new())
            .map_err(|e| ClientError::Protocol(format!("cannot ask for {path}: {e}")))?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization()?);
        headers.insert(HOST, self.endpoint.host_header()?);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(TCP_PROTOCOL));
        let stream = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::lost)?;
        // This task ends with the answer: the upgrade takes the connection out of it.
        tokio::spawn(connection.with_upgrades());
        let answer = tokio::time::timeout(REPLY_TIMEOUT, sender.send_request(request))
            .await
            .map_err(|_| ClientError::Lost(format!("no answer within {} s", REPLY_TIMEOUT.as_secs())))?
            .map_err(ClientError::lost)?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgraded = hyper::upgrade::on(answer).await.map_err(ClientError::lost)?;
            return Ok(TokioIo::new(upgraded));
        }
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MAX_ERROR_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(ClientError::Api(ApiError::parse(status, &body)))
    }
}
