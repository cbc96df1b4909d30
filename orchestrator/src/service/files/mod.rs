//! The files of a session or a workspace: read, write, list, stat, mkdir, move, delete, pack, unpack, upload,
//! gather, watch.
//!
//! The files of a workspace are accessed through a sandbox that has the workspace mounted, so every call works in both
//! places. Bytes are passed on as they arrive, in both directions. No file is held in memory, unless it arrived in a JSON
//! document.

mod call;
mod content;
mod gather;
mod upload;
mod watch;

use shared_protocol::runner::{FileView, ListView, WroteView};

pub use crate::runner_client::{
    ByteRange, Depth, GatherCall, Gathered, LastLink, ListedName, OnExisting, Outgoing as FileSource, Parents, Part,
};
pub use call::{FileMode, Place, SandboxPath, SmallFile};
pub use content::FileContent;
pub use gather::GatheredFiles;
pub use upload::{FileName, Upload, UploadError};
pub use watch::Changes;

use super::access::Access;
use super::in_sandbox::in_session;
use super::{CallError, Caller};
use crate::metrics::Metrics;
use crate::session::SessionError;

pub struct Files {
    access: Access,
    metrics: Metrics,
}

impl Files {
    pub(super) fn new(access: Access, metrics: Metrics) -> Self {
        Self { access, metrics }
    }

    /// Reads a file or a part of it.
    pub async fn read(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        range: Option<ByteRange>,
    ) -> Result<FileContent, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        let answer = in_session(&activity, activity.runner().read_file(path.as_bytes(), range)).await?;
        Ok(FileContent::new(activity, answer, self.metrics.clone()))
    }

    /// Writes a file: all of it, or nothing.
    pub async fn write(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        mode: Option<FileMode>,
        source: FileSource,
    ) -> Result<WroteView, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        let mode = mode.map(FileMode::bits);
        let wrote = in_session(&activity, activity.runner().write_file(path.as_bytes(), mode, source)).await?;
        self.metrics.bytes_in(wrote.bytes);
        Ok(wrote)
    }

    /// Writes a file whose content came with the call.
    pub async fn write_small(&self, caller: &Caller, place: &Place, file: SmallFile) -> Result<WroteView, CallError> {
        let source = FileSource::full(file.content);
        self.write(caller, place, &file.path, /* mode */ None, source).await
    }

    pub async fn list(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        depth: Depth,
    ) -> Result<ListView, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        in_session(&activity, activity.runner().list_files(path.as_bytes(), depth)).await
    }

    pub async fn stat(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        last: LastLink,
    ) -> Result<FileView, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        in_session(&activity, activity.runner().stat_file(path.as_bytes(), last)).await
    }

    pub async fn make_directory(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        parents: Parents,
    ) -> Result<FileView, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        in_session(&activity, activity.runner().make_directory(path.as_bytes(), parents)).await
    }

    pub async fn rename(
        &self,
        caller: &Caller,
        place: &Place,
        from: &SandboxPath,
        to: &SandboxPath,
        existing: OnExisting,
    ) -> Result<FileView, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        in_session(&activity, activity.runner().move_file(from.as_bytes(), to.as_bytes(), existing)).await
    }

    pub async fn delete(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        depth: Depth,
    ) -> Result<(), CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        in_session(&activity, activity.runner().delete_file(path.as_bytes(), depth)).await
    }

    /// Reads a directory as a tar stream. The runner packs it inside the sandbox.
    pub async fn pack(&self, caller: &Caller, place: &Place, path: &SandboxPath) -> Result<FileContent, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        let answer = in_session(&activity, activity.runner().pack(path.as_bytes())).await?;
        Ok(FileContent::new(activity, answer, self.metrics.clone()))
    }

    /// Unpacks a tar stream into a directory.
    pub async fn unpack(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        source: FileSource,
    ) -> Result<WroteView, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        let wrote = in_session(&activity, activity.runner().unpack(path.as_bytes(), source)).await?;
        self.metrics.bytes_in(wrote.bytes);
        Ok(wrote)
    }

    /// Lists directories and reads files, each with a result of its own.
    pub async fn gather(&self, caller: &Caller, place: &Place, call: GatherCall) -> Result<GatheredFiles, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        let stream = in_session(&activity, activity.runner().gather(call)).await?;
        Ok(GatheredFiles::new(activity, stream))
    }

    /// Watches a directory. Everything that changes after this has returned will be told.
    pub async fn watch(
        &self,
        caller: &Caller,
        place: &Place,
        path: &SandboxPath,
        depth: Depth,
    ) -> Result<Changes, CallError> {
        let activity = self.access.begin_in(caller, place).await?;
        let frames = in_session(&activity, activity.runner().watch_files(path.as_bytes(), depth)).await?;
        Ok(Changes::new(&activity, frames))
    }

    /// Prepares an upload of several files into one directory. The upload touches the session when it writes its first file.
    pub fn upload<'a>(&'a self, caller: &'a Caller, place: &'a Place) -> Result<Upload<'a>, SessionError> {
        if let Place::Session(id) = place {
            self.access.session(caller, id)?;
        }
        Ok(Upload::new(self, caller, place))
    }
}
