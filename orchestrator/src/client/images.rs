//! Calls for images, and the create that may have to pull one.

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::header::{ACCEPT, HeaderValue};
use shared_protocol::api::{
    CommitImageRequest, CreateFrame, CreateSessionRequest, ImageDetailsView, ImageView, PullFrame, PullProgress,
    SessionView,
};
use tokio::time::timeout;

use super::{ApiError, Body, Client, ClientError, REPLY_TIMEOUT, ReplyTimeout, post_request};

/// The longest line of an answer. The last one describes the whole session.
const MAX_LINE_BYTES: usize = 1 << 20;

impl Client {
    /// The images that a session can be created from.
    pub async fn images(&self) -> Result<Vec<ImageView>, ClientError> {
        self.get("/v1/images").await
    }

    /// Creates a session. If its image is one of a registry that is not here, the daemon pulls it first, and `tell` gets how far that is.
    pub async fn create_session(
        &self,
        wanted: &CreateSessionRequest,
        mut tell: impl FnMut(&PullProgress),
    ) -> Result<SessionView, ClientError> {
        let request = post_request("/v1/sessions", wanted)?;
        let next = |frame| match frame {
            CreateFrame::Progress(progress) => {
                tell(&progress);
                Ok(None)
            }
            CreateFrame::Done(session) => Ok(Some(*session)),
            CreateFrame::Error(error) => Err(ClientError::Api(ApiError::in_stream(&error))),
        };
        self.follow(request, "the session was created", next).await
    }

    /// Makes an image from a session's root. `tell` gets how far that is.
    pub async fn commit_image(
        &self,
        wanted: &CommitImageRequest,
        mut tell: impl FnMut(&PullProgress),
    ) -> Result<ImageDetailsView, ClientError> {
        let request = post_request("/v1/images/commit", wanted)?;
        let next = |frame| match frame {
            PullFrame::Progress(progress) => {
                tell(&progress);
                Ok(None)
            }
            PullFrame::Done(image) => Ok(Some(image)),
            PullFrame::Error(error) => Err(ClientError::Api(ApiError::in_stream(&error))),
        };
        self.follow(request, "the image was committed", next).await
    }

    /// Reads an answer line by line until one of them is the result. `what` has not happened if the connection ends before.
    pub(super) async fn follow<F: serde::de::DeserializeOwned, T>(
        &self,
        mut request: Request<Body>,
        what: &str,
        mut next: impl FnMut(F) -> Result<Option<T>, ClientError>,
    ) -> Result<T, ClientError> {
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/x-ndjson"));
        let mut body = self.send(request, ReplyTimeout::Bounded).await?.into_body();
        let mut buffer = BytesMut::new();
        loop {
            let silent = || ClientError::Lost(format!("silent for {} s", REPLY_TIMEOUT.as_secs()));
            let Some(frame) = timeout(REPLY_TIMEOUT, body.frame()).await.map_err(|_| silent())? else {
                return Err(ClientError::Lost(format!("the connection ended before {what}")));
            };
            let Ok(bytes) = frame.map_err(ClientError::lost)?.into_data() else { continue };
            buffer.extend_from_slice(&bytes);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                match serde_json::from_slice(&line) {
                    Ok(frame) => {
                        if let Some(result) = next(frame)? {
                            return Ok(result);
                        }
                    }
                    // An empty line shows that the connection is alive.
                    Err(_) if line.trim_ascii().is_empty() => {}
                    Err(error) => return Err(ClientError::Protocol(format!("its answer is not as expected: {error}"))),
                }
            }
            if buffer.len() > MAX_LINE_BYTES {
                return Err(ClientError::Protocol("a line of its answer is too long".into()));
            }
        }
    }
}
