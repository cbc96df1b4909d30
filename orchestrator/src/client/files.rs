//! Calls for files and directories of a session, as streams. Paths are bytes, because a name need not be UTF-8.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use shared_protocol::SessionId;
use shared_protocol::runner::{FileView, WatchFrame, WroteView};

use super::sessions::session_path;
use super::{ApiError, Body, Client, ClientError, ReplyTimeout, empty, request};

/// The characters that are escaped in a path. A slash is one of them, so that a path is one segment of the URL and no proxy
/// changes it.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'~');

pub(super) fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

/// A response body, piece by piece.
pub struct Download(Incoming);

impl Download {
    /// The next piece; `None` at the end. A body that is cut off is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(bytes) = frame.map_err(ClientError::lost)?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Describes the file that a path leads to. Links are followed.
    pub async fn stat(&self, session: &SessionId, path: &[u8]) -> Result<FileView, ClientError> {
        self.get(&session_path(session, &format!("fs/stat?path={}", escaped(path)))).await
    }

    pub async fn read_file(&self, session: &SessionId, path: &[u8]) -> Result<Download, ClientError> {
        self.download(&file_path(session, path)).await
    }

    /// Writes a file. An existing file is replaced only when the last byte has arrived.
    pub async fn write_file(
        &self,
        session: &SessionId,
        path: &[u8],
        mode: Option<u32>,
        body: Body,
    ) -> Result<WroteView, ClientError> {
        let mode = mode.map(|mode| format!("?mode={mode:o}")).unwrap_or_default();
        self.upload(&format!("{}{mode}", file_path(session, path)), "application/octet-stream", body).await
    }

    /// Reads the content of a directory as a tar stream.
    pub async fn read_archive(&self, session: &SessionId, path: &[u8]) -> Result<Download, ClientError> {
        self.download(&archive_path(session, path)).await
    }

    /// Unpacks a tar stream into a directory, which is created if it is missing.
    pub async fn write_archive(&self, session: &SessionId, path: &[u8], body: Body) -> Result<WroteView, ClientError> {
        self.upload(&archive_path(session, path), "application/x-tar", body).await
    }

    /// Tells what changes in a directory, until `tell` returns something.
    pub async fn watch_files<T>(
        &self,
        session: &SessionId,
        path: &[u8],
        recursive: bool,
        mut tell: impl FnMut(WatchFrame) -> Option<T>,
    ) -> Result<T, ClientError> {
        let query = format!("fs/watch?path={}&recursive={}", escaped(path), u8::from(recursive));
        let next = |frame| match frame {
            WatchFrame::Error(error) => Err(ClientError::Api(ApiError::in_stream(&error))),
            frame => Ok(tell(frame)),
        };
        self.follow(request(Method::GET, &session_path(session, &query), empty())?, "the watch did", next).await
    }

    async fn download(&self, path: &str) -> Result<Download, ClientError> {
        let response = self.send(request(Method::GET, path, empty())?, ReplyTimeout::None).await?;
        Ok(Download(response.into_body()))
    }

    async fn upload(&self, path: &str, kind: &'static str, body: Body) -> Result<WroteView, ClientError> {
        let mut request = request(Method::PUT, path, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.document(request, ReplyTimeout::None).await
    }
}

fn file_path(session: &SessionId, path: &[u8]) -> String {
    session_path(session, &format!("files/{}", escaped(path)))
}

fn archive_path(session: &SessionId, path: &[u8]) -> String {
    session_path(session, &format!("archive?path={}", escaped(path)))
}
