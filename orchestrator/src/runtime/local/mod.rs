//! The embedded runtime: sandboxes from Linux namespaces. It needs no container engine and no image.
//!
//! `layout` decides which files a sandbox sees, `ids` and `users` its users, `cgroup` its limits and `seccomp` its system calls; `plan`
//! is the result. `disks` has their files. `launch` sends the plan to the `launcher`, a process that makes the sandbox, and `first_process` and
//! `root` are the sandbox's own first steps. `mount_workspace` mounts a workspace in a sandbox that runs. `create` and this
//! file are the daemon's side: they make, watch and remove sandboxes, and `running` and `sandbox_dir` know which exist.
//!
//! **Invariant:** a sandbox is recorded in its directory before any part of it exists, and the record is removed last.

mod accounts;
mod cgroup;
mod commit;
mod create;
mod disks;
mod etc;
mod first_process;
mod host;
mod host_copy;
mod host_view;
mod idmap;
mod ids;
pub mod images;
mod launch;
mod launcher;
mod layout;
mod mount_workspace;
mod plan;
mod proc_files;
mod root;
mod running;
mod sandbox_dir;
mod seccomp;
mod shown;
mod snapshots;
mod users;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use shared_protocol::api::{ImageView, NetworkSpec, SessionUser, StatsView};
use shared_protocol::runner::SandboxState;
use shared_protocol::{RuntimeName, SessionId, SnapshotId};

pub use cgroup::{Cgroups, TotalLimits};
pub use disks::{DiskReport, Disks, DisksConfig, OldContent, WORKSPACE_RECORDS, WorkspaceDisks, room_on_disk};
pub use host::{Host, Users, is_at_least};
pub use launcher::main as launcher_main;
pub use plan::Protections;

use self::images::Images;
use self::launch::{Launchers, Namespaces, Stock};
use self::running::{RunningSandbox, RunningSandboxes};
use self::sandbox_dir::{ProcessRecord, SandboxDir, SandboxRecord};
use super::{
    Origin, ProcessSample, Purpose, RootChanges, Runtime, RuntimeError, Sandbox, SandboxSpec, WayOut, WorkspaceMount,
    files, instance_name,
};
use crate::config::Protection;
use crate::disk::{DiskError, DiskThreads};
use crate::failpoint;
use crate::runner_address::RunnerAddress;
use crate::spec::{DiskPlace, LateWorkspaces, SessionSpec};
use crate::sys::pidfd;

#[derive(Debug, Clone)]
pub struct LocalConfig {
    pub data_dir: PathBuf,
    /// The directory of imported images.
    pub images_dir: PathBuf,
    /// The image for each configured name: `host`, or an imported one.
    pub images: BTreeMap<String, String>,
    pub default_image: String,
    /// Names in the host's `/etc` that sandboxes see, besides the built-in ones.
    pub etc: Vec<String>,
    /// The protections to turn off. Empty, except in tests that show what a protection is for.
    pub disabled_protections: Vec<Protection>,
    /// Where the disks of sandboxes are.
    pub disks: DisksConfig,
    /// The limits of all sandboxes together. `None` for a runtime with a single sandbox.
    pub total: Option<TotalLimits>,
}

pub struct LocalRuntime {
    images: Arc<Images>,
    host: Host,
    cgroups: Cgroups,
    disks: Disks,
    /// The threads for work in the data directory.
    disk: DiskThreads,
    /// The file that the embedded runner was written to.
    runner: PathBuf,
    protections: Protections,
    /// The names in the host's `/etc` that sandboxes see.
    etc_names: Vec<String>,
    sandboxes: PathBuf,
    /// The directory of snapshots.
    snapshots: PathBuf,
    /// The directory with a record for each workspace on a disk.
    workspace_records: PathBuf,
    running: RunningSandboxes,
    launchers: Launchers,
}

impl LocalRuntime {
    /// Finds out what the host can do, and prepares what all sandboxes share. It blocks; the daemon calls it once at its
    /// start.
    pub fn new(config: LocalConfig) -> Result<Self, RuntimeError> {
        let sandboxes = config.data_dir.join("sandboxes");
        files::private_directory(&sandboxes).map_err(|e| failed("making the directory of sandboxes", e))?;
        let snapshots = config.data_dir.join("snapshots");
        files::private_directory(&snapshots).map_err(|e| failed("making the directory of snapshots", e))?;
        let workspace_records = config.data_dir.join(WORKSPACE_RECORDS);
        let content = snapshots::old_content(&snapshots, &sandboxes, &workspace_records);
        let content = content.map_err(|e| failed("looking for workspaces, snapshots and stopped sessions", e))?;
        let runner = files::write_runner(&config.data_dir).map_err(|e| failed("writing the runner", e))?;
        let mut host = Host::look(&config.data_dir).map_err(|e| failed("looking at the host", e))?;
        let name = instance_name(&config.data_dir);
        // With this file, an operator can find the cgroup of a daemon that was killed.
        std::fs::write(config.data_dir.join("cgroup"), &name).map_err(|e| failed("writing the cgroup's name", e))?;
        let cgroups = Cgroups::open(&name);
        if let Cgroups::None { why } = &cgroups {
            tracing::warn!(%why, "memory, cpu and process limits of sandboxes are not enforced by cgroups");
        }
        if let Some(total) = &config.total {
            cgroups.limit_all(total);
        }
        let mut protections = Protections::ALL;
        for protection in &config.disabled_protections {
            tracing::warn!(protection = protection.name(), "a protection of sandboxes is off");
            protections = protections.without(*protection);
        }
        if !protections.own_inodes {
            host.shown = host.shown.without_overlays();
        }
        for (directory, why) in host.shown.impossible() {
            tracing::warn!(%directory, %why, "sandboxes share the inodes of a directory with the host");
        }
        let etc_names = etc::names(&config.etc);
        let running = RunningSandboxes::new(&name);
        let disks = Disks::open(&config.disks, &config.data_dir, content)?;
        let LocalConfig { images_dir, images, default_image, total, .. } = config;
        let images = Arc::new(Images::new(images_dir, images, default_image));
        images.warn_of_missing();
        images.tell_of_host();
        let disk = DiskThreads::default();
        let namespaces = match host.users {
            Users::Root if protections.network => Namespaces::Ahead,
            _ => Namespaces::WithPlan,
        };
        let launchers = Launchers::new(namespaces, if total.is_some() { Stock::One } else { Stock::None });
        Ok(Self {
            images,
            host,
            cgroups,
            disks,
            disk,
            runner,
            protections,
            etc_names,
            sandboxes,
            snapshots,
            workspace_records,
            running,
            launchers,
        })
    }

    fn directory(&self, id: &SessionId) -> SandboxDir {
        SandboxDir::new(&self.sandboxes, id)
    }

    /// Adds a sandbox to the table. From now on its end is noticed.
    fn watch(&self, id: &SessionId, pid: i32, pidfd: Arc<std::os::fd::OwnedFd>, network: Option<WayOut>) -> Sandbox {
        let (cgroups, name) = (self.cgroups.clone(), id.to_string());
        let why = move || match cgroups.oom_kills(&name) {
            0 => "its first process ended".to_owned(),
            kills => format!("its first process ended, after the kernel killed {kills} for memory"),
        };
        let ended = self.running.insert(id, RunningSandbox { pid, pidfd }, why);
        Sandbox {
            address: RunnerAddress::Unix(self.directory(id).socket()),
            ended,
            network,
            start_dir: None,
            state: None,
            newer_variables: BTreeMap::new(),
        }
    }

    /// Kills the processes of a sandbox. Returns its record.
    async fn end_processes(&self, id: &SessionId) -> Result<Option<SandboxRecord>, RuntimeError> {
        let directory = self.directory(id);
        let read = self.disk.run_for(id.as_str(), {
            let directory = directory.clone();
            move || directory.read().ok()
        });
        let recorded = read.await.map_err(|e| failed("reading the sandbox's record", e.into()))?;
        let running = self.running.remove(id);
        // This is the pidfd in the table, or a new one for the recorded process if it is still the same process.
        let held = match &running {
            Some(running) => Some(running.pidfd.clone()),
            None => recorded.as_ref().and_then(|record| record.process.as_ref()).filter(|p| p.is_alive()).and_then(
                // The check comes after the open, so no other process can have got the number in between.
                |process| pidfd::open(process.pid).ok().filter(|_| process.is_alive()).map(Arc::new),
            ),
        };
        let (cgroups, name) = (&self.cgroups, id.as_str());
        if let Some(pidfd) = held {
            // A frozen process does not react to SIGKILL, and one without processor time is slow to close its files.
            let _ = cgroups.thaw(name);
            cgroups.lift_cpu_limit(name);
            match pidfd::kill(pidfd.as_fd()) {
                Ok(()) => {
                    running::wait_for_end(&pidfd).await.map_err(|e| failed("waiting for the sandbox to end", e))?
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(failed("ending the sandbox", error)),
            }
        }
        Ok(recorded)
    }

    async fn remove(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let recorded = self.end_processes(id).await?;
        failpoint::at("local.destroy.killed").map_err(|e| failed("ending the sandbox", e))?;
        let (directory, cgroups, disks, name) =
            (self.directory(id), self.cgroups.clone(), self.disks.clone(), id.to_string());
        let images = self.images.clone();
        let work = move || {
            cgroups.remove(&name).map_err(|e| failed("removing the cgroup", e))?;
            failpoint::at("local.destroy.cgroup").map_err(|e| failed("removing the cgroup", e))?;
            images.end_use(&directory.0);
            disks.remove(&name).map_err(|e| failed(REMOVING_DISK, e))?;
            failpoint::at("local.destroy.disk").map_err(|e| failed(REMOVING_DISK, e))?;
            directory.remove().map_err(|e| failed(REMOVING_DIRECTORY, e))?;
            failpoint::at("local.destroy.directory").map_err(|e| failed(REMOVING_DIRECTORY, e))
        };
        self.disk.run_for(id.as_str(), work).await.map_err(|e| failed(REMOVING_DIRECTORY, e.into()))??;
        if let Some(record) = recorded.filter(|record| !record.is_stopped) {
            self.running.free(record.block);
        }
        Ok(())
    }

    /// What needs the disks although no process of theirs runs. A directory that cannot be read counts as needed.
    fn old_content(&self) -> OldContent {
        snapshots::old_content(&self.snapshots, &self.sandboxes, &self.workspace_records).unwrap_or(OldContent::Needed)
    }
}

#[async_trait]
impl Runtime for LocalRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::local()
    }

    fn unenforced_limits(&self) -> Option<String> {
        match &self.cgroups {
            Cgroups::None { why } => {
                Some(format!("memory, cpu and process limits of sandboxes are not enforced: {why}"))
            }
            Cgroups::V2(_) | Cgroups::V1(_) => None,
        }
    }

    fn trusts_authorities(&self, _network: &NetworkSpec) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn opens_network(&self, _network: &NetworkSpec) -> Result<(), RuntimeError> {
        if self.protections.network {
            return Ok(());
        }
        Err(RuntimeError::Unsupported("the protection `network` is off: sandboxes have the host's own network".into()))
    }

    fn disks(&self) -> DiskPlace {
        if self.disks.are_in_memory() { DiskPlace::Memory } else { DiskPlace::Disk }
    }

    fn disk_total_mb(&self) -> Option<u64> {
        self.disks.total_bytes().map(|bytes| bytes >> 20)
    }

    async fn images(&self) -> Vec<ImageView> {
        let (images, name) = (self.images.clone(), self.name());
        // If the disk does not answer, no images are offered.
        self.disk.run(move || images.views(&name)).await.unwrap_or_default()
    }

    async fn check(&self, spec: &SessionSpec, origin: &Origin) -> Result<(), RuntimeError> {
        self.checked_image(spec, origin).await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        let Some(block) = self.running.take_block() else {
            return Err(RuntimeError::Full(format!("all {} blocks of user ids are taken", ids::BLOCKS)));
        };
        match self.start(spec, block).await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) => {
                let cleaned = match spec.origin {
                    // Its disk is all that there is of the session.
                    Origin::Stopped => self.halt(&spec.id).await,
                    Origin::Empty | Origin::Snapshot(_) => self.remove(&spec.id).await,
                };
                if let Err(cleanup) = cleaned {
                    tracing::error!(session_id = %spec.id, error = &cleanup as &dyn std::error::Error, "a failed create left something behind");
                }
                self.running.free(block);
                Err(error)
            }
        }
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        let directory = self.directory(id);
        let read = self.disk.run_for(id.as_str(), move || directory.read()).await;
        let read = read.map_err(|e| failed("reading the sandbox's record", e.into()))?;
        let record = read.map_err(|_| RuntimeError::Gone(id.clone()))?;
        let process = record.process.filter(ProcessRecord::is_alive).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        let pidfd = pidfd::open(process.pid).map_err(|_| RuntimeError::Gone(id.clone()))?;
        if !process.is_alive() {
            return Err(RuntimeError::Gone(id.clone()));
        }
        self.running.reserve_block(record.block);
        let network = self.open_network(id, Purpose::Session, pidfd.try_clone()).await;
        Ok(self.watch(id, process.pid, Arc::new(pidfd), network))
    }

    fn workspace_disks(&self) -> Option<WorkspaceDisks> {
        self.disks.workspaces()
    }

    fn late_workspaces(&self) -> LateWorkspaces {
        // Without idmapped mounts, a sandbox with a workspace has to be started with the shared user.
        if self.host.users != Users::Root || self.host.idmap {
            LateWorkspaces::Mountable
        } else {
            LateWorkspaces::AtStartOnly
        }
    }

    async fn mount_workspace(&self, id: &SessionId, workspace: &WorkspaceMount) -> Result<(), RuntimeError> {
        if self.late_workspaces() == LateWorkspaces::AtStartOnly {
            return Err(RuntimeError::Unsupported(
                "a workspace for a sandbox that runs needs a data directory on a file system with idmapped mounts"
                    .into(),
            ));
        }
        let (pid, pidfd) = self.running.process(id).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        let sandbox = pidfd.try_clone().map_err(|e| failed("copying the sandbox's pidfd", e))?;
        if self.host.users != Users::Root {
            return mount_workspace::by_process(workspace, None, sandbox).await;
        }
        let directory = self.directory(id);
        let record = settled(self.disk.run_for(id.as_str(), move || directory.read()).await);
        let record = record.map_err(|e| failed("reading the sandbox's record", e))?;
        // No root session is in a pool.
        let user = record.image.as_ref().and_then(|image| image.user());
        if let Some(user) = users::user_of_image(&self.host, SessionUser::Default, user) {
            let map = users::workspace_map(record.block, user);
            return mount_workspace::by_process(workspace, Some(&map), sandbox).await;
        }
        mount_workspace::by_thread(workspace.clone(), pid, sandbox).await
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        let (pid, _) = self.running.process(id).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        let (cgroups, disks, name) = (self.cgroups.clone(), self.disks.clone(), id.to_string());
        let directory = self.directory(id);
        blocking(move || {
            let mut stats = cgroups.stats(&name)?;
            let in_memory = || files::used_tmpfs_bytes(Path::new(&format!("/proc/{pid}/root/tmp")));
            let inherited = directory.read().map_or(0, |record| record.inherited);
            stats.disk_bytes = disks.held_bytes(&name, inherited).or_else(in_memory);
            Ok(stats)
        })
        .await
        .map_err(|e| host_error("reading the cgroup's statistics", e))
    }

    async fn runner_process(&self, id: &SessionId) -> Option<ProcessSample> {
        // Another process can have the number only after the sandbox has ended, which is noticed by its pidfd.
        let (pid, _) = self.running.process(id)?;
        ProcessSample::of(pid.into())
    }

    async fn continue_runner(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let (_, pidfd) = self.running.process(id).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        pidfd::resume(pidfd.as_fd()).map_err(|e| failed("continuing the sandbox's first process", e))
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let (cgroups, name) = (self.cgroups.clone(), id.to_string());
        let frozen = blocking(move || cgroups.freeze(&name)).await;
        frozen.map_err(|e| match e.kind() {
            std::io::ErrorKind::Unsupported => {
                RuntimeError::Unsupported(format!("sessions cannot be paused on this host: {e}"))
            }
            _ => failed("freezing the cgroup", e),
        })
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.cgroups.thaw(id.as_str()).map_err(|e| host_error("thawing the cgroup", e))
    }

    fn keeps_disks(&self) -> Result<(), RuntimeError> {
        self.disks.check_lasting()
    }

    async fn flush(&self, _id: &SessionId) {
        let disks = self.disks.clone();
        if let Err(error) = blocking(move || disks.sync()).await {
            tracing::warn!(%error, "the disks could not be written before a snapshot");
        }
    }

    async fn snapshot(
        &self,
        id: &SessionId,
        snapshot: &SnapshotId,
        state: Arc<SandboxState>,
    ) -> Result<u64, RuntimeError> {
        self.take_snapshot(id, snapshot, state).await
    }

    async fn keep_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.sync_snapshot(snapshot).await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.drop_snapshot(snapshot).await
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        self.snapshot_ids().await
    }

    fn commits(&self, spec: &SessionSpec) -> Result<(), RuntimeError> {
        self.check_commit(spec)
    }

    async fn root_changes(&self, snapshot: &SnapshotId, spec: &SessionSpec) -> Result<RootChanges, RuntimeError> {
        self.changes_in(snapshot, spec).await
    }

    async fn save_state(&self, id: &SessionId, state: Arc<SandboxState>) -> Result<(), RuntimeError> {
        self.keep_state(id, state).await
    }

    async fn stop(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.halt(id).await
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.remove(id).await
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        let sandboxes = self.sandboxes.clone();
        let disks = self.disks.clone();
        let list = move || Ok(files::names(&sandboxes)?.into_iter().chain(disks.names()?).collect::<Vec<_>>());
        let listed = self.disk.run(list).await;
        let mut names = settled(listed).map_err(|e| failed("listing sandboxes", e))?;
        names.extend(self.cgroups.list().map_err(|e| failed("listing cgroups", e))?);
        names.sort();
        names.dedup();
        Ok(names.into_iter().filter_map(|name| SessionId::new(name).ok()).collect())
    }

    fn close(&self) {
        self.cgroups.close();
        self.disks.close(self.old_content());
    }
}

impl Drop for LocalRuntime {
    fn drop(&mut self) {
        self.cgroups.close();
        self.disks.close(self.old_content());
    }
}

const MAKING_DIRECTORY: &str = "making the sandbox's directory";
const REMOVING_DIRECTORY: &str = "removing the sandbox's directory";
const REMOVING_DISK: &str = "removing the sandbox's disk";
const GIVING_WORKSPACE: &str = "giving the workspace to its user";

/// Work that the disk threads did not do counts as failed.
fn settled<T>(done: Result<std::io::Result<T>, DiskError>) -> std::io::Result<T> {
    done?
}

fn failed(step: &str, error: std::io::Error) -> RuntimeError {
    RuntimeError::failed(step, error)
}

/// Distinguishes what this host cannot do from what has failed.
fn host_error(step: &str, error: std::io::Error) -> RuntimeError {
    match error.kind() {
        std::io::ErrorKind::Unsupported => RuntimeError::Unsupported(error.to_string()),
        _ => failed(step, error),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
