//! Writes several files into one directory, which is created if it is missing.
//!
//! The directory should be named first: files before it are held in memory until it is known, up to a limit. The first file
//! that is written touches the session; a mistake before that touches nothing.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::sync::mpsc;

use super::{FileSource, Files, Parents, Place, SandboxPath};
use crate::service::in_sandbox::in_session;
use crate::service::{CallError, Caller, InvalidRequest};
use crate::session::{Activity, SessionError};

/// The most files in one upload.
const MAX_FILES: usize = 1000;

/// The most bytes of files that arrive before their directory is known.
const MAX_EARLY_BYTES: usize = 4 << 20;

/// The most pieces of a file that wait between the client and the runner.
const MAX_PIECES: usize = 2;

/// The most characters of a refused file name that an error shows.
const MAX_SHOWN_CHARS: usize = 64;

/// The directory of an upload that names no directory.
const DEFAULT_DIRECTORY: &str = "/workspace";

/// Why an upload failed.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Too many bytes arrived before the directory was known.
    #[error("send the field path before files of more than {MAX_EARLY_BYTES} bytes")]
    TooMuchEarly,
    #[error(transparent)]
    Call(#[from] CallError),
}

impl From<SessionError> for UploadError {
    fn from(error: SessionError) -> Self {
        Self::Call(error.into())
    }
}

impl From<UploadError> for ErrorBody {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Invalid(error) => error.into(),
            UploadError::TooMuchEarly => Self::new(ErrorCode::TooLarge, error.to_string()),
            UploadError::Call(error) => error.into(),
        }
    }
}

/// The name of a file inside the upload's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName(String);

impl FileName {
    /// Takes the last part of the given name, because some clients send the file's whole path.
    fn new(given: &str) -> Result<Self, InvalidRequest> {
        let name = given.rsplit(['/', '\\']).next().unwrap_or_default();
        if matches!(name, "" | "." | "..") || name.contains('\0') {
            let shown: String = given.chars().take(MAX_SHOWN_CHARS).collect();
            return Err(InvalidRequest::new(format!("{shown:?} is no name of a file")));
        }
        Ok(Self(name.to_owned()))
    }
}

/// The error that ends a cut upload, so that the runner does not take half a file for a whole one.
#[derive(Debug, thiserror::Error)]
#[error("the upload was cut")]
struct CutError;

/// One upload, which takes file after file.
pub struct Upload<'a> {
    files: &'a Files,
    caller: &'a Caller,
    place: &'a Place,
    directory: Option<String>,
    /// The activity in the session, from the first written file on.
    activity: Option<Activity>,
    /// The files that arrived before their directory was known.
    early: Vec<(FileName, Bytes)>,
    paths: Vec<String>,
}

impl<'a> Upload<'a> {
    pub(super) fn new(files: &'a Files, caller: &'a Caller, place: &'a Place) -> Self {
        Self { files, caller, place, directory: None, activity: None, early: Vec::new(), paths: Vec::new() }
    }

    /// Sets the directory. It can be set once.
    pub fn set_directory(&mut self, path: &[u8]) -> Result<(), InvalidRequest> {
        if self.directory.is_some() {
            return Err(InvalidRequest::new("the field path is given twice"));
        }
        SandboxPath::new("the field path", path)?;
        let path = String::from_utf8(path.to_vec());
        self.directory = Some(path.map_err(|_| InvalidRequest::new("the field path must be UTF-8"))?);
        Ok(())
    }

    /// Checks whether the upload can take one more file with this name.
    pub fn admit(&self, name: &str) -> Result<FileName, InvalidRequest> {
        let name = FileName::new(name)?;
        if self.paths.len() + self.early.len() >= MAX_FILES {
            let message = format!("a form may have {MAX_FILES} files; an archive can have more");
            return Err(InvalidRequest::new(message));
        }
        Ok(name)
    }

    /// Takes one file: writes it as it arrives, or holds it until the directory is known.
    pub async fn add<S>(&mut self, name: FileName, content: S) -> Result<(), UploadError>
    where
        S: Stream<Item = Result<Bytes, InvalidRequest>> + Unpin,
    {
        if self.directory.is_some() {
            return self.write_stream(&name, content).await;
        }
        let kept: usize = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        let bytes = read_whole(content, MAX_EARLY_BYTES.saturating_sub(kept)).await?;
        self.early.push((name, bytes));
        Ok(())
    }

    /// Writes the held files and returns the paths of all files.
    pub async fn finish(mut self) -> Result<Vec<String>, UploadError> {
        if self.paths.is_empty() && self.early.is_empty() {
            return Err(InvalidRequest::new("the form has no field file").into());
        }
        // The held files came first, so their paths come first.
        let late = std::mem::take(&mut self.paths);
        for (name, bytes) in std::mem::take(&mut self.early) {
            let path = self.path_of(&name);
            let activity = self.begin().await?;
            let source = FileSource::full(bytes);
            let wrote = activity.runner().write_file(path.as_bytes(), /* mode */ None, source);
            let wrote = in_session(activity, wrote).await?;
            self.wrote(path, wrote.bytes);
        }
        self.paths.extend(late);
        Ok(self.paths)
    }

    async fn write_stream<S>(&mut self, name: &FileName, mut content: S) -> Result<(), UploadError>
    where
        S: Stream<Item = Result<Bytes, InvalidRequest>> + Unpin,
    {
        let path = self.path_of(name);
        let activity = self.begin().await?;
        let (sender, mut receiver) = mpsc::channel(MAX_PIECES);
        let source = FileSource::stream(futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx)), None);
        let feed = async move {
            while let Some(piece) = content.next().await {
                let (piece, cut) = match piece {
                    Ok(piece) => (Ok(piece), None),
                    Err(error) => (Err(CutError), Some(error)),
                };
                let is_wanted = sender.send(piece).await.is_ok();
                if let Some(error) = cut {
                    return Err(error);
                }
                // The runner stopped reading: its reply says why.
                if !is_wanted {
                    break;
                }
            }
            Ok(())
        };
        let wrote = in_session(activity, activity.runner().write_file(path.as_bytes(), /* mode */ None, source));
        let (wrote, fed) = tokio::join!(wrote, feed);
        fed?;
        self.wrote(path, wrote?.bytes);
        Ok(())
    }

    /// Begins the activity of this upload, and creates the directory.
    async fn begin(&mut self) -> Result<&Activity, CallError> {
        let activity = match self.activity.take() {
            Some(activity) => activity,
            None => {
                let activity = self.files.access.begin_in(self.caller, self.place).await?;
                let directory = self.directory.as_deref().unwrap_or(DEFAULT_DIRECTORY);
                in_session(&activity, activity.runner().make_directory(directory.as_bytes(), Parents::Make)).await?;
                activity
            }
        };
        Ok(self.activity.insert(activity))
    }

    fn path_of(&self, name: &FileName) -> String {
        let directory = self.directory.as_deref().unwrap_or(DEFAULT_DIRECTORY);
        format!("{}/{}", directory.trim_end_matches('/'), name.0)
    }

    fn wrote(&mut self, path: String, bytes: u64) {
        self.files.metrics.bytes_in(bytes);
        self.paths.push(path);
    }
}

async fn read_whole<S>(mut content: S, limit: usize) -> Result<Bytes, UploadError>
where
    S: Stream<Item = Result<Bytes, InvalidRequest>> + Unpin,
{
    let mut whole = BytesMut::new();
    while let Some(piece) = content.next().await.transpose()? {
        if whole.len() + piece.len() > limit {
            return Err(UploadError::TooMuchEarly);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cannot_name_its_way_out_of_the_directory() {
        let name = |given| FileName::new(given).map(|name| name.0);
        assert_eq!(name("a b.txt").unwrap(), "a b.txt");
        assert_eq!(name("../../etc/passwd").unwrap(), "passwd");
        assert_eq!(name("C:\\Users\\x\\a.txt").unwrap(), "a.txt");
        for bad in ["", "..", ".", "a/", "a/..", "x\0y"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
