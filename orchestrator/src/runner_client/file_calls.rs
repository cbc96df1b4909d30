//! The runner's file calls, one method each, with checks of the runner's answers.

use hyper::Method;
use serde::de::DeserializeOwned;
use shared_protocol::api::OkView;
use shared_protocol::runner::{FileView, ListView, WroteView};

use super::files::FileCall;
use super::{ByteRange, FileAnswer, Outgoing, RunnerClient, RunnerError};

/// The most entries in a listing, which is also the runner's limit.
const MAX_ENTRIES: usize = 10_000;

/// The longest path or link target in an answer.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// How far a listing or a deletion goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only the directory itself.
    Flat,
    /// Everything below it too.
    Recursive,
}

/// What to do with a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    Follow,
    Keep,
}

/// Whether to create missing parent directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    MustExist,
    /// Creates missing parents; the directory itself may exist already.
    Make,
}

/// What a move does if the target exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    Refuse,
    Replace,
}

impl RunnerClient {
    /// Reads a file or a part of it.
    pub async fn read_file(&self, path: &[u8], range: Option<ByteRange>) -> Result<FileAnswer, RunnerError> {
        self.send_file_call(FileCall::new(Method::GET, "files").with("path", path).with_range(range)).await
    }

    /// Writes a file: all of it, or nothing.
    pub async fn write_file(&self, path: &[u8], mode: Option<u32>, body: Outgoing) -> Result<WroteView, RunnerError> {
        let mut call = FileCall::new(Method::PUT, "files").with("path", path).with_body(body);
        if let Some(mode) = mode {
            call = call.with("mode", format!("{mode:o}").as_bytes());
        }
        self.file_document(call).await
    }

    pub async fn list_files(&self, path: &[u8], depth: Depth) -> Result<ListView, RunnerError> {
        let call = FileCall::new(Method::GET, "fs/list").with("path", path);
        let list: ListView = self.file_document(call.with_flag("recursive", depth == Depth::Recursive)).await?;
        if list.entries.len() > MAX_ENTRIES {
            return Err(RunnerError::hostile("a listing has more entries than a runner gives"));
        }
        list.entries.iter().try_for_each(check)?;
        Ok(list)
    }

    pub async fn stat_file(&self, path: &[u8], last: LastLink) -> Result<FileView, RunnerError> {
        let follow: &[u8] = if last == LastLink::Follow { b"1" } else { b"0" };
        self.file_view(FileCall::new(Method::GET, "fs/stat").with("path", path).with("follow", follow)).await
    }

    pub async fn make_directory(&self, path: &[u8], parents: Parents) -> Result<FileView, RunnerError> {
        let call = FileCall::new(Method::POST, "fs/mkdir").with("path", path);
        self.file_view(call.with_flag("parents", parents == Parents::Make)).await
    }

    pub async fn move_file(&self, from: &[u8], to: &[u8], existing: OnExisting) -> Result<FileView, RunnerError> {
        let call = FileCall::new(Method::POST, "fs/move").with("from", from).with("to", to);
        self.file_view(call.with_flag("overwrite", existing == OnExisting::Replace)).await
    }

    pub async fn delete_file(&self, path: &[u8], depth: Depth) -> Result<(), RunnerError> {
        let call = FileCall::new(Method::DELETE, "fs").with("path", path);
        let OkView { ok } = self.file_document(call.with_flag("recursive", depth == Depth::Recursive)).await?;
        if ok { Ok(()) } else { Err(RunnerError::hostile("it did and did not delete a file")) }
    }

    /// Reads a directory as a tar stream.
    pub async fn pack(&self, path: &[u8]) -> Result<FileAnswer, RunnerError> {
        self.send_file_call(FileCall::new(Method::GET, "archive").with("path", path)).await
    }

    /// Unpacks a tar stream into a directory.
    pub async fn unpack(&self, path: &[u8], body: Outgoing) -> Result<WroteView, RunnerError> {
        self.file_document(FileCall::new(Method::PUT, "archive").with("path", path).with_body(body)).await
    }

    /// Reads all files of these directories, in the runner's own form. The sandbox is held.
    pub async fn pack_disk(&self, directories: &[String]) -> Result<FileAnswer, RunnerError> {
        let list = directories.join(":");
        self.send_file_call(FileCall::new(Method::GET, "disk").with("directories", list.as_bytes())).await
    }

    /// Writes what another runner's `pack_disk` gave out, as far as it is below these directories.
    pub async fn unpack_disk(&self, directories: &[String], body: Outgoing) -> Result<WroteView, RunnerError> {
        let list = directories.join(":");
        let call = FileCall::new(Method::PUT, "disk").with("directories", list.as_bytes()).with_body(body);
        self.file_document(call).await
    }

    async fn file_view(&self, call: FileCall) -> Result<FileView, RunnerError> {
        let view = self.file_document(call).await?;
        check(&view)?;
        Ok(view)
    }

    async fn file_document<T: DeserializeOwned>(&self, call: FileCall) -> Result<T, RunnerError> {
        self.send_file_call(call).await?.document().await
    }
}

pub(super) fn check(view: &FileView) -> Result<(), RunnerError> {
    let texts = [Some(&view.path), view.path_base64.as_ref(), view.symlink_target.as_ref()];
    if texts.into_iter().flatten().any(|text| text.len() > MAX_TEXT_BYTES) {
        return Err(RunnerError::hostile("a path is longer than a path can be"));
    }
    Ok(())
}
