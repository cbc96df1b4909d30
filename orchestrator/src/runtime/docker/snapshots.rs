//! Snapshots of containers, and sandboxes that are stopped.
//!
//! ```text
//!  hold: the runner stops all processes ─▶ its files come as a stream ─▶ its root, if it is writable, becomes an image ─▶ release
//! ```
//!
//! The files of a container are in memory, where the engine does not reach them; only the changes of a writable root are the engine's. A
//! stopped sandbox has no container: a start makes a new one from what was kept.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::InspectContainerOptionsBuilder;
use bytes::Bytes;
use shared_protocol::runner::{HealthView, SandboxState};
use shared_protocol::{ErrorCode, SessionId, SnapshotId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::Inner;
use super::kept::{Kept, KeptRecord, SandboxRecord};
use super::kernel::Kernel;
use super::tags::Holder;
use crate::failpoint;
use crate::runner_client::{Outgoing, RunnerClient, RunnerError};
use crate::runtime::local::room_on_disk;
use crate::runtime::{RunnerAddress, RuntimeError, SandboxSpec, files};

/// The longest time for a runner to give its disk out, and to take one.
const PACK_TIMEOUT: Duration = Duration::from_secs(60);
const UNPACK_TIMEOUT: Duration = Duration::from_secs(50);
/// How many bytes of a disk are read at once.
const READ_BYTES: usize = 256 << 10;
/// The most bytes of names and numbers beside the content of files: as much as the content, and this.
const OVERHEAD_BYTES: u64 = 64 << 20;

const KEEPING: &str = "keeping the container's files";
const MAKING: &str = "making the snapshot";
const REMOVING: &str = "removing the snapshot";
const STOPPING: &str = "stopping the sandbox";
const STARTING: &str = "giving the container its files";

impl Inner {
    fn runner_client(&self, id: &SessionId) -> RunnerClient {
        RunnerClient::new(RunnerAddress::Unix(self.socket(id)))
    }

    pub(super) fn kept_snapshot(&self, id: &SnapshotId) -> Kept {
        Kept::new(self.snapshots.join(id.as_str()))
    }

    pub(super) fn kept_sandbox(&self, id: &SessionId) -> Kept {
        Kept::new(self.directory(id).join("kept"))
    }

    /// Stops all processes of a container. Its runner still answers.
    pub(super) async fn hold(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let runner = self.runner_client(id);
        let health = runner.health().await.map_err(|e| RuntimeError::failed("asking the runner", e))?;
        must_copy(&health)?;
        runner.hold().await.map_err(|e| RuntimeError::failed("stopping all processes", e))
    }

    pub(super) async fn release(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let released = self.runner_client(id).release().await;
        released.map_err(|e| RuntimeError::failed("continuing all processes", e))
    }

    pub(super) async fn take_snapshot(
        &self,
        id: &SessionId,
        snapshot: &SnapshotId,
        state: Arc<SandboxState>,
    ) -> Result<u64, RuntimeError> {
        let at = |error| RuntimeError::failed(MAKING, error);
        let record = self.record(id)?;
        let made = self.kept_snapshot(snapshot);
        made.make().map_err(at)?;
        failpoint::at("docker.snapshot.directory").map_err(at)?;
        let disk_bytes = self.copy_disk(id, &record, &made.disk()).await?;
        failpoint::at("docker.snapshot.disk").map_err(at)?;
        made.write_state(&state).map_err(at)?;
        failpoint::at("docker.snapshot.state").map_err(at)?;
        let root_bytes = self.keep_root(id, &record, Holder::Snapshot(snapshot)).await?;
        failpoint::at("docker.snapshot.image").map_err(at)?;
        let bytes = disk_bytes + root_bytes;
        made.write(&kept_record(&record, bytes)).map_err(at)?;
        Ok(bytes)
    }

    pub(super) async fn sync_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        let made = self.kept_snapshot(snapshot);
        let has_own_image = made.read()?.has_own_image;
        blocking("writing the snapshot to the disk", move || {
            made.sync()?;
            if has_own_image {
                // The engine does not wait for the disk, and its files may be anywhere on this host.
                nix::unistd::sync();
            }
            failpoint::at("docker.snapshot.synced")
        })
        .await
    }

    pub(super) async fn drop_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.release_image(Holder::Snapshot(snapshot)).await?;
        failpoint::at("docker.snapshot.removed").map_err(|e| RuntimeError::failed(REMOVING, e))?;
        let found = self.kept_snapshot(snapshot);
        blocking(REMOVING, move || found.remove()).await
    }

    pub(super) async fn snapshot_ids(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        let names = files::names(&self.snapshots).map_err(|e| RuntimeError::failed("listing snapshots", e))?;
        let mut ids: Vec<SnapshotId> = names.into_iter().filter_map(|name| SnapshotId::new(name).ok()).collect();
        // An engine may finish a request after the daemon that sent it has died.
        ids.extend(self.snapshots_with_image().await?);
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    /// Keeps everything of a sandbox that is about to be stopped. Its processes stay held: what they did afterwards would be lost.
    pub(super) async fn keep(&self, id: &SessionId, state: Arc<SandboxState>) -> Result<(), RuntimeError> {
        let record = self.record(id)?;
        self.hold(id).await?;
        let kept = self.keep_held(id, &record, &state).await;
        if kept.is_err()
            && let Err(error) = self.release(id).await
        {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(session_id = %id, error = cause, "a sandbox that was not stopped does not go on");
        }
        kept
    }

    async fn keep_held(
        &self,
        id: &SessionId,
        record: &SandboxRecord,
        state: &SandboxState,
    ) -> Result<(), RuntimeError> {
        let at = |error| RuntimeError::failed(STOPPING, error);
        let made = self.kept_sandbox(id);
        made.make().map_err(at)?;
        let disk_bytes = self.copy_disk(id, record, &made.disk()).await?;
        made.write_state(state).map_err(at)?;
        failpoint::at("docker.stop.disk").map_err(at)?;
        self.note_image(id).map_err(at)?;
        let root_bytes = self.keep_root(id, record, Holder::Session(id)).await?;
        failpoint::at("docker.stop.image").map_err(at)?;
        made.write(&kept_record(record, disk_bytes + root_bytes)).map_err(at)?;
        let (is_own, directory) = (record.writable_root, self.directory(id));
        blocking(STOPPING, move || {
            made.sync()?;
            // The record of the sandbox and its directory's own name were made without waiting for the disk.
            std::fs::File::open(&directory)?.sync_all()?;
            if is_own {
                nix::unistd::sync();
            }
            failpoint::at("docker.stop.state")
        })
        .await
    }

    /// Ends all processes of a sandbox and keeps what `keep` has kept.
    pub(super) async fn halt(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.remove_container(id).await?;
        failpoint::at("docker.stop.ended").map_err(|e| RuntimeError::failed(STOPPING, e))?;
        if !self.kept_sandbox(id).is_complete() {
            return Err(RuntimeError::Gone(id.clone()));
        }
        let run_dir = self.run_dir(id);
        blocking(STOPPING, move || files::remove_directory(&run_dir)).await
    }

    /// Removes what was kept of a sandbox that runs again.
    pub(super) async fn forget_kept(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let kept = self.kept_sandbox(id);
        blocking("removing what was kept of the sandbox", move || kept.remove()).await
    }

    /// Writes the files of a kept disk into a container whose shells have not started.
    pub(super) async fn fill(
        &self,
        spec: &SandboxSpec,
        directories: &[String],
        kept: &Kept,
        health: &HealthView,
    ) -> Result<SandboxState, RuntimeError> {
        must_copy(health)?;
        let state = kept.read_state()?;
        let file = tokio::fs::File::open(kept.disk()).await.map_err(|e| RuntimeError::failed(STARTING, e))?;
        let length = file.metadata().await.map_err(|e| RuntimeError::failed(STARTING, e))?.len();
        let body = Outgoing::stream(chunks(file), Some(length));
        let runner = self.runner_client(&spec.id);
        let filled = timeout(UNPACK_TIMEOUT, runner.unpack_disk(directories, body)).await;
        match filled {
            Ok(Ok(_)) => Ok(state),
            Ok(Err(RunnerError::Refused(refused))) if refused.error_code == ErrorCode::LimitReached => {
                let resources = &spec.session.resources;
                Err(RuntimeError::Unsupported(format!(
                    "the files do not fit into disk_mb {} and memory_mb {} ({}): ask for more of both",
                    resources.disk_mb, resources.memory_mb, refused.message
                )))
            }
            Ok(Err(error)) => Err(RuntimeError::failed(STARTING, error)),
            Err(_) => Err(late(STARTING, UNPACK_TIMEOUT)),
        }
    }

    fn record(&self, id: &SessionId) -> Result<SandboxRecord, RuntimeError> {
        let read = SandboxRecord::read(&self.directory(id));
        let read = read.map_err(|e| RuntimeError::failed("reading the sandbox's record", e))?;
        let record = read.ok_or_else(|| {
            RuntimeError::Unsupported("an older version of cove made this session, and cannot copy it".into())
        })?;
        if record.writable_root && self.kernel == Kernel::Gvisor {
            return Err(RuntimeError::Unsupported(
                "gVisor keeps the changes of a writable root to itself, where the container engine cannot copy them: create the session \
                 without writable_root, or with another runtime of the engine"
                    .into(),
            ));
        }
        Ok(record)
    }

    /// Writes the files of a held container to a file of the host. Returns its length.
    async fn copy_disk(&self, id: &SessionId, record: &SandboxRecord, to: &Path) -> Result<u64, RuntimeError> {
        let failed = |error: std::io::Error| RuntimeError::failed(KEEPING, error);
        let room = room_on_disk(&self.config.data_dir, self.config.reserve_mb).map_err(failed)?;
        let most = record.max_bytes.saturating_mul(2).saturating_add(OVERHEAD_BYTES);
        let file = std::fs::File::options().create_new(true).write(true).mode(0o600).open(to).map_err(failed)?;
        let mut file = tokio::fs::File::from_std(file);
        let runner = self.runner_client(id);
        let copying = async {
            let lost = |error: RunnerError| RuntimeError::failed(KEEPING, error);
            let mut answer = runner.pack_disk(&record.directories).await.map_err(lost)?;
            let mut bytes = 0u64;
            while let Some(chunk) = answer.chunk().await {
                let chunk = chunk.map_err(lost)?;
                bytes = bytes.saturating_add(chunk.len() as u64);
                if bytes > room {
                    return Err(RuntimeError::Full(format!(
                        "the disk of the data directory has room for {} MiB, and the session's files need more: remove something first",
                        room >> 20
                    )));
                }
                if bytes > most {
                    return Err(RuntimeError::failed(KEEPING, "the runner sends more than its sandbox can have"));
                }
                file.write_all(&chunk).await.map_err(failed)?;
            }
            file.flush().await.map_err(failed)?;
            Ok(bytes)
        };
        timeout(PACK_TIMEOUT, copying).await.unwrap_or_else(|_| Err(late(KEEPING, PACK_TIMEOUT)))
    }

    /// Gives the holder the root of a container: an image of it if it is writable, or else a name of its own for its image. Returns
    /// the bytes of the changes.
    async fn keep_root(&self, id: &SessionId, record: &SandboxRecord, holder: Holder<'_>) -> Result<u64, RuntimeError> {
        if !record.writable_root {
            self.hold_image(&record.image, holder).await?;
            return Ok(0);
        }
        let options = InspectContainerOptionsBuilder::new().size(true).build();
        let inspected = self.docker.inspect_container(&self.name(id), Some(options)).await;
        let inspected = inspected.map_err(|error| self.gone_or(id, "inspecting the container", error))?;
        self.commit(id, holder).await?;
        Ok(inspected.size_rw.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0))
    }
}

fn kept_record(record: &SandboxRecord, bytes: u64) -> KeptRecord {
    let variables = if record.writable_root { record.variables.clone() } else { Vec::new() };
    KeptRecord { bytes, has_own_image: record.writable_root, variables }
}

/// Refuses a runner that cannot copy its disk: an image may bring an older one.
fn must_copy(health: &HealthView) -> Result<(), RuntimeError> {
    if health.copies_disk {
        return Ok(());
    }
    Err(RuntimeError::Unsupported(format!(
        "the image brings its own runner, version {}, which is too old for snapshots, forks and stops: build the image again with the \
         runner of this version",
        health.version
    )))
}

fn late(step: &str, after: Duration) -> RuntimeError {
    RuntimeError::failed(step, format!("it took longer than {} s", after.as_secs()))
}

/// The content of a file, piece by piece.
fn chunks(file: tokio::fs::File) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures_util::stream::try_unfold(file, async |mut file| {
        let mut buffer = bytes::BytesMut::with_capacity(READ_BYTES);
        let read = file.read_buf(&mut buffer).await?;
        Ok((read > 0).then(|| (buffer.freeze(), file)))
    })
}

async fn blocking<T: Send + 'static>(
    step: &str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, RuntimeError> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    done.map_err(|error| RuntimeError::failed(step, error))
}
