//! Files and directories of a session, as streams. Paths are bytes: a name need not be UTF-8.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use shared_protocol::SessionId;
use shared_protocol::runner::{FileView, WroteView};

use super::sessions::session_path;
use super::{Body, Client, ClientError, Patience, empty, request};

/// A slash too: an absolute path is one segment, and nothing between here and there may tidy it.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'~');

pub(super) fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

/// Bytes that come from the daemon, piece by piece.
pub struct Download(Incoming);

impl Download {
    /// `None` at the end; a body that stops before its end is an error.
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
    /// Of what the path leads to, links followed.
    pub async fn stat(&self, session: &SessionId, path: &[u8]) -> Result<FileView, ClientError> {
        self.get(&session_path(session, &format!("fs/stat?path={}", escaped(path)))).await
    }

    pub async fn read_file(&self, session: &SessionId, path: &[u8]) -> Result<Download, ClientError> {
        self.download(&file_path(session, path)).await
    }

    /// All or nothing: what was there stays until the last byte has come.
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

    /// The content of a directory as a tar stream.
    pub async fn read_archive(&self, session: &SessionId, path: &[u8]) -> Result<Download, ClientError> {
        self.download(&archive_path(session, path)).await
    }

    /// Unpacks a tar stream into a directory, which is made where it is missing.
    pub async fn write_archive(&self, session: &SessionId, path: &[u8], body: Body) -> Result<WroteView, ClientError> {
        self.upload(&archive_path(session, path), "application/x-tar", body).await
    }

    async fn download(&self, path: &str) -> Result<Download, ClientError> {
        let response = self.send(request(Method::GET, path, empty())?, Patience::AsLongAsItTakes).await?;
        Ok(Download(response.into_body()))
    }

    async fn upload(&self, path: &str, kind: &'static str, body: Body) -> Result<WroteView, ClientError> {
        let mut request = request(Method::PUT, path, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.document(request, Patience::AsLongAsItTakes).await
    }
}

fn file_path(session: &SessionId, path: &[u8]) -> String {
    session_path(session, &format!("files/{}", escaped(path)))
}

fn archive_path(session: &SessionId, path: &[u8]) -> String {
    session_path(session, &format!("archive?path={}", escaped(path)))
}
