//! The embedded runtime: Linux namespaces, no daemon and no image needed.
//!
//! `layout` decides what a sandbox sees, `ids` who is who, `cgroup` what it may use, `plan` puts it into words, `launcher` and
//! `inside` carry it out in a process of their own. Here is the daemon's side: what exists, and making, watching and
//! removing it.
//!
//! **Invariant:** a sandbox is in its own directory's record before any part of it exists, and the record goes last.

mod cgroup;
mod graft;
mod host;
mod idmap;
mod ids;
mod inside;
mod launch;
mod launcher;
mod layout;
mod live;
mod plan;
mod record;
mod root;
mod seccomp;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use nix::sys::signal::Signal;
use shared_protocol::api::{ImageView, NetworkMode, StatsView};
use shared_protocol::{RuntimeName, SessionId};

pub use cgroup::Cgroups;
pub use host::{Host, Users};
pub use launcher::main as launcher_main;
pub use plan::Protections;

use self::layout::{Layout, Owners, WorkspaceSource};
use self::live::{Live, LiveTable};
use self::plan::{LaunchPlan, Owner, RootPlan, UserNamespace, UserPlan};
use self::record::{ProcessRecord, Record, SandboxDir};
use super::policy::SCRATCH;
use super::{Runtime, RuntimeError, Sandbox, SandboxSpec, WorkspaceMount, files, instance_name};
use crate::failpoint;
use crate::image;
use crate::sys::pidfd;

/// Names that every daemon knows without configuration; on this runtime all are the host's own system.
const BUILT_IN_IMAGES: [&str; 4] = ["base", "python", "node", HOST_IMAGE];

const HOST_IMAGE: &str = "host";

#[derive(Debug, Clone)]
pub struct LocalConfig {
    pub data_dir: PathBuf,
    /// Imported root file systems; usually below the data directory.
    pub images_dir: PathBuf,
    /// What a name stands for: `host`, or an imported image.
    pub images: BTreeMap<String, String>,
    pub default_image: String,
    /// All but in a test's control.
    pub disabled_protections: Vec<String>,
}

pub struct LocalRuntime {
    config: LocalConfig,
    host: Host,
    cgroups: Cgroups,
    /// Where the embedded runner was written to.
    runner: PathBuf,
    protections: Protections,
    sandboxes: PathBuf,
    live: LiveTable,
}

impl LocalRuntime {
    /// Looks at the host and prepares what all sandboxes share. Blocking; for the daemon's start.
    pub fn new(config: LocalConfig) -> Result<Self, RuntimeError> {
        let sandboxes = config.data_dir.join("sandboxes");
        files::private_directory(&sandboxes).map_err(|e| failed("making the directory of sandboxes", e))?;
        files::write_shared(&config.data_dir).map_err(|e| failed("writing the files that sandboxes share", e))?;
        let runner = files::write_runner(&config.data_dir).map_err(|e| failed("writing the runner", e))?;
        let host = Host::look(&config.data_dir).map_err(|e| failed("looking at the host", e))?;
        let name = instance_name(&config.data_dir);
        // For an operator, and for whoever looks after a daemon that was killed.
        std::fs::write(config.data_dir.join("cgroup"), &name).map_err(|e| failed("writing the cgroup's name", e))?;
        let cgroups = Cgroups::open(&name);
        if let Cgroups::None { why } = &cgroups {
            tracing::warn!(%why, "memory, cpu and process limits of sandboxes are not enforced by cgroups");
        }
        let mut protections = Protections::ALL;
        for name in &config.disabled_protections {
            tracing::warn!(protection = %name, "a protection of sandboxes is off");
            protections = protections.disable(name).map_err(RuntimeError::Unsupported)?;
        }
        let live = LiveTable::new(&name);
        Ok(Self { config, host, cgroups, runner, protections, sandboxes, live })
    }

    fn directory(&self, id: &SessionId) -> SandboxDir {
        SandboxDir::new(&self.sandboxes, id)
    }

    /// What the name of an image stands for.
    fn resolve(&self, name: &str) -> Result<Option<PathBuf>, RuntimeError> {
        let unknown = || {
            let known: Vec<String> = self.images().into_iter().map(|image| image.name).collect();
            RuntimeError::InvalidImage(format!(
                "there is no image {name:?}; known are {}. Import one with: cove image import NAME TAR|DIR",
                known.join(", ")
            ))
        };
        let source = match self.config.images.get(name) {
            Some(source) => source.as_str(),
            None if image::exists(&self.config.images_dir, name) => name,
            None if BUILT_IN_IMAGES.contains(&name) => HOST_IMAGE,
            None => return Err(unknown()),
        };
        if source == HOST_IMAGE {
            return Ok(None);
        }
        image::rootfs(&self.config.images_dir, source).map(Some).ok_or_else(unknown)
    }

    fn plan(&self, spec: &SandboxSpec, block: u32, placement: &cgroup::Placement) -> Result<LaunchPlan, RuntimeError> {
        let directory = self.directory(&spec.id);
        let users = self.users(block, spec.workspace.is_some());
        let workspace = spec.workspace.as_ref().map(|workspace| WorkspaceSource {
            path: workspace.path.clone(),
            idmap: self.host.idmap.then(|| ids::same_inside(block)),
        });
        let owners = match users.how {
            UserNamespace::Last => {
                let user = if self.host.idmap || spec.workspace.is_none() {
                    ids::block_base(block) + ids::SANDBOX_USER
                } else {
                    ids::SHARED_USER
                };
                Owners::outside(ids::block_base(block), user)
            }
            UserNamespace::FirstSelf => Owners::inside(ids::SANDBOX_USER, false),
            UserNamespace::FirstSubordinate => Owners::inside(ids::SANDBOX_USER, true),
        };
        let shared = files::shared_directory(&self.config.data_dir);
        let layout = Layout { owners, files: &shared, workspace, cgroups: &placement.visible };
        let (root, steps) = match self.resolve(&spec.image)? {
            None => (RootPlan::Empty, layout.host(&self.host.tops)),
            Some(path) if spec.writable_root => {
                let idmap = self.host.idmap.then(|| ids::root_is_user(block));
                (RootPlan::Overlay { path, idmap }, layout.image())
            }
            Some(path) => {
                let idmap = self.host.idmap.then(|| ids::same_inside(block));
                (RootPlan::Image { path, idmap }, layout.image())
            }
        };
        let user = ids::SANDBOX_USER.to_string();
        let arguments = ["--socket-fd", "3", "--scratch", SCRATCH, "--uid", &user, "--gid", &user];
        Ok(LaunchPlan {
            hostname: spec.id.to_string(),
            mount_point: directory.mount_point(),
            root,
            host_owner: owners.host,
            steps,
            users,
            cgroup_procs: placement.procs.clone(),
            limits: layout::limits(&spec.resources, !placement.procs.is_empty()),
            runner: self.runner.clone(),
            arguments: arguments.map(str::to_owned).into(),
            environment: spec.env.clone(),
            socket: directory.socket(),
            log: directory.log(),
            protections: self.protections,
        })
    }

    fn users(&self, block: u32, has_workspace: bool) -> UserPlan {
        let root = Owner { uid: 0, gid: 0 };
        match &self.host.users {
            Users::Root => {
                let map = if self.host.idmap || !has_workspace {
                    ids::block_map(block)
                } else {
                    ids::block_map_with_shared_user(block)
                };
                UserPlan { how: UserNamespace::Last, uids: map.clone(), gids: map, runner: root }
            }
            Users::Own { uid, gid } => UserPlan {
                how: UserNamespace::FirstSelf,
                uids: ids::self_map(*uid),
                gids: ids::self_map(*gid),
                runner: Owner { uid: ids::SANDBOX_USER, gid: ids::SANDBOX_USER },
            },
            Users::Subordinate { uid, gid, uids, gids } => UserPlan {
                how: UserNamespace::FirstSubordinate,
                uids: ids::subordinate_map(*uid, uids.0, uids.1),
                gids: ids::subordinate_map(*gid, gids.0, gids.1),
                runner: root,
            },
        }
    }

    async fn start(&self, spec: &SandboxSpec, block: u32) -> Result<Sandbox, RuntimeError> {
        let directory = self.directory(&spec.id);
        let record = Record { block, process: None };
        directory.make(&record).map_err(|e| failed("making the sandbox's directory", e))?;
        failpoint::at("local.create.directory").map_err(|e| failed("making the sandbox's directory", e))?;
        let placement = {
            let (cgroups, id, resources) = (self.cgroups.clone(), spec.id.to_string(), spec.resources);
            blocking(move || cgroups.create(&id, &resources)).await.map_err(|e| failed("making the cgroup", e))?
        };
        failpoint::at("local.create.cgroup").map_err(|e| failed("making the cgroup", e))?;
        if let (Some(workspace), Users::Root) = (&spec.workspace, &self.host.users) {
            // Through a mapping each sandbox sees its own user as the owner; without one they have to share one.
            let user = if self.host.idmap { ids::SANDBOX_USER } else { ids::SHARED_USER };
            files::give(&workspace.path, user).map_err(|e| failed("giving the workspace to its user", e))?;
        }
        let plan = self.plan(spec, block, &placement)?;
        let launched = launch::launch(&plan).await?;
        failpoint::at("local.create.launched").map_err(|e| failed("launching the sandbox", e))?;
        let process = ProcessRecord::of(launched.pid).map_err(|e| failed("reading the sandbox's start time", e))?;
        directory
            .write(&Record { block, process: Some(process) })
            .map_err(|e| failed("recording the sandbox's process", e))?;
        failpoint::at("local.create.recorded").map_err(|e| failed("recording the sandbox's process", e))?;
        let (pid, pidfd) = launched.keep().await?;
        failpoint::at("local.create.kept").map_err(|e| failed("letting the launcher go", e))?;
        Ok(self.watch(&spec.id, pid, Arc::new(pidfd)))
    }

    /// From here on its end is noticed.
    fn watch(&self, id: &SessionId, pid: i32, pidfd: Arc<std::os::fd::OwnedFd>) -> Sandbox {
        let (cgroups, name) = (self.cgroups.clone(), id.to_string());
        let why = move || match cgroups.oom_kills(&name) {
            0 => "its first process ended".to_owned(),
            kills => format!("its first process ended, after the kernel killed {kills} for memory"),
        };
        let ended = self.live.insert(id, Live { pid, pidfd }, why);
        Sandbox { address: super::RunnerAddress::Unix(self.directory(id).socket()), ended }
    }

    async fn remove(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let directory = self.directory(id);
        let recorded = directory.read().ok();
        let live = self.live.remove(id);
        // By the descriptor that is held, or by the record if that process is still the same.
        let held = match &live {
            Some(live) => Some(live.pidfd.clone()),
            None => recorded.as_ref().and_then(|record| record.process.as_ref()).filter(|p| p.is_alive()).and_then(
                // Opened first and checked again: the number cannot have changed hands in between.
                |process| pidfd::open(process.pid).ok().filter(|_| process.is_alive()).map(Arc::new),
            ),
        };
        let (cgroups, name) = (self.cgroups.clone(), id.to_string());
        if let Some(pidfd) = held {
            // A frozen process cannot die.
            let _ = cgroups.freeze(&name, false);
            match pidfd::signal(pidfd.as_fd(), Signal::SIGKILL) {
                Ok(()) => live::ended(&pidfd).await.map_err(|e| failed("waiting for the sandbox's end", e))?,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(failed("ending the sandbox", error)),
            }
        }
        failpoint::at("local.destroy.killed").map_err(|e| failed("ending the sandbox", e))?;
        blocking(move || cgroups.remove(&name)).await.map_err(|e| failed("removing the cgroup", e))?;
        failpoint::at("local.destroy.cgroup").map_err(|e| failed("removing the cgroup", e))?;
        directory.remove().map_err(|e| failed("removing the sandbox's directory", e))?;
        failpoint::at("local.destroy.directory").map_err(|e| failed("removing the sandbox's directory", e))?;
        if let Some(record) = recorded {
            self.live.free(record.block);
        }
        Ok(())
    }
}

#[async_trait]
impl Runtime for LocalRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::local()
    }

    fn images(&self) -> Vec<ImageView> {
        let mut sources: BTreeMap<String, String> =
            BUILT_IN_IMAGES.into_iter().map(|name| (name.to_owned(), HOST_IMAGE.to_owned())).collect();
        sources.extend(image::names(&self.config.images_dir).into_iter().map(|name| (name.clone(), name)));
        sources.extend(self.config.images.clone());
        let view = |(name, source): (String, String)| ImageView {
            default: name == self.config.default_image,
            name,
            runtime: self.name(),
            source,
        };
        sources.into_iter().map(view).collect()
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), RuntimeError> {
        let image = self.resolve(&spec.image)?;
        let refuse = |why: String| Err(RuntimeError::Unsupported(why));
        if spec.network == NetworkMode::Full {
            return refuse("the local runtime has loopback only; leave network out, or use another runtime".into());
        }
        if spec.writable_root && image.is_none() {
            return refuse(format!(
                "image {:?} is this host's own system, which is never written to; import one with `cove image import` \
                 for a writable root, or write below /workspace, /tmp and $HOME",
                spec.image
            ));
        }
        if spec.writable_root && self.host.users != Users::Root {
            return refuse("a writable root needs a daemon that runs as root".into());
        }
        if spec.writable_root && !self.host.idmap {
            return refuse(
                "a writable root needs a data directory on a file system with idmapped mounts: ext4, xfs or btrfs"
                    .into(),
            );
        }
        // The disk is memory: what does not fit into the one limit can never be used.
        if spec.resources.disk_mb > spec.resources.memory_mb {
            return refuse(format!(
                "disk_mb ({}) is more than memory_mb ({}): sandboxes of the local runtime keep their files in memory",
                spec.resources.disk_mb, spec.resources.memory_mb
            ));
        }
        Ok(())
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        self.check(spec)?;
        let Some(block) = self.live.take_block() else {
            return Err(RuntimeError::Full(format!("all {} blocks of user ids are taken", ids::BLOCKS)));
        };
        match self.start(spec, block).await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) => {
                if let Err(cleanup) = self.remove(&spec.id).await {
                    tracing::error!(session_id = %spec.id, error = &cleanup as &dyn std::error::Error, "a failed create left something");
                }
                self.live.free(block);
                Err(error)
            }
        }
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        let record = self.directory(id).read().map_err(|_| RuntimeError::Gone(id.clone()))?;
        let process = record.process.filter(ProcessRecord::is_alive).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        let pidfd = pidfd::open(process.pid).map_err(|_| RuntimeError::Gone(id.clone()))?;
        if !process.is_alive() {
            return Err(RuntimeError::Gone(id.clone()));
        }
        self.live.claim_block(record.block);
        Ok(self.watch(id, process.pid, Arc::new(pidfd)))
    }

    fn can_give_workspace(&self) -> bool {
        // Without mappings a sandbox has to begin with the user that all of a workspace's sandboxes share.
        self.host.users != Users::Root || self.host.idmap
    }

    async fn give_workspace(&self, id: &SessionId, workspace: &WorkspaceMount) -> Result<(), RuntimeError> {
        if !self.can_give_workspace() {
            return Err(RuntimeError::Unsupported(
                "a workspace for a sandbox that runs needs a data directory on a file system with idmapped mounts"
                    .into(),
            ));
        }
        let (pid, pidfd) = self.live.process(id).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        let sandbox = pidfd.try_clone().map_err(|e| failed("holding the sandbox", e))?;
        if self.host.users != Users::Root {
            return graft::by_process(&workspace.path, sandbox).await;
        }
        files::give(&workspace.path, ids::SANDBOX_USER).map_err(|e| failed("giving the workspace to its user", e))?;
        graft::by_thread(workspace.path.clone(), pid, sandbox).await
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        let (pid, _) = self.live.process(id).ok_or_else(|| RuntimeError::Gone(id.clone()))?;
        let (cgroups, name) = (self.cgroups.clone(), id.to_string());
        blocking(move || {
            let mut stats = cgroups.stats(&name)?;
            stats.disk_bytes = files::used_bytes(Path::new(&format!("/proc/{pid}/root/tmp")));
            Ok(stats)
        })
        .await
        .map_err(|e| host_error("reading the cgroup's accounts", e))
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let (cgroups, name) = (self.cgroups.clone(), id.to_string());
        let frozen = blocking(move || cgroups.freeze_all(&name)).await;
        frozen.map_err(|e| match e.kind() {
            std::io::ErrorKind::Unsupported => {
                RuntimeError::Unsupported(format!("sessions cannot be paused on this host: {e}"))
            }
            _ => failed("freezing the cgroup", e),
        })
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.cgroups.freeze(id.as_str(), false).map_err(|e| host_error("thawing the cgroup", e))
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.remove(id).await
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        let mut names = files::names(&self.sandboxes).map_err(|e| failed("listing sandboxes", e))?;
        names.extend(self.cgroups.list().map_err(|e| failed("listing cgroups", e))?);
        names.sort();
        names.dedup();
        Ok(names.into_iter().filter_map(|name| SessionId::new(name).ok()).collect())
    }

    fn close(&self) {
        self.cgroups.close();
    }
}

impl Drop for LocalRuntime {
    fn drop(&mut self) {
        self.cgroups.close();
    }
}

fn failed(step: &str, error: std::io::Error) -> RuntimeError {
    RuntimeError::failed(step, error)
}

/// What this host cannot do is the client's to know; the rest is a failure.
fn host_error(step: &str, error: std::io::Error) -> RuntimeError {
    match error.kind() {
        std::io::ErrorKind::Unsupported => RuntimeError::Unsupported(error.to_string()),
        _ => failed(step, error),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
