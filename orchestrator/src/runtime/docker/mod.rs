//! Containers of an engine, Docker or Podman, each with the runner as its first process.
//!
//! `connect` finds the engine and `dialect` knows how Podman differs from Docker. `request` decides what the engine is asked for;
//! `compare` (Docker) and `oci` (Podman) check what it made. `create`, `adopt`, `pause`, `remove` and `stats` are the operations;
//! `snapshots` copies a container, with `kept` for what is on the host and `tags` for images. `sandbox_lock` keeps the operations apart. `watch` listens to the engine's events, and `running` knows who waits for a container to end.
//!
//! **Invariant:** the name and the directory of a container follow from the session's id alone. So everything that a crash
//! or an interrupted create leaves can be found and removed.

mod adopt;
mod cgroup_parent;
mod compare;
mod connect;
mod create;
mod dialect;
mod engine;
mod image;
mod kept;
mod kernel;
mod network;
mod oci;
mod pause;
mod podman;
mod ready;
mod remove;
mod request;
mod running;
mod sandbox_lock;
mod seccomp;
mod snapshots;
mod stats;
mod tags;
mod trust;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bollard::Docker;
use bollard::query_parameters::KillContainerOptionsBuilder;
use shared_protocol::api::{ImageView, NetworkSpec, SessionUser, StatsView};
use shared_protocol::runner::SandboxState;
use shared_protocol::{RuntimeName, SANDBOX_USER, SessionId, SnapshotId};

pub use connect::describe;

use self::cgroup_parent::CgroupParent;
use self::dialect::Dialect;
use self::image::Images;
use self::kernel::Kernel;
use self::running::RunningContainers;
use self::sandbox_lock::SandboxLocks;
use self::trust::KnownStores;
use self::watch::{Watcher, container_name, containers, session_of};
use super::local::TotalLimits;
use super::{Origin, ProcessSample, Runtime, RuntimeError, Sandbox, SandboxSpec, files, instance_name};
use crate::config::Pull;
use crate::spec::SessionSpec;

/// The directories of containers and of snapshots in the data directory. `snapshots` is that of the local runtime.
const CONTAINERS: &str = "containers";
const SNAPSHOTS: &str = "container-snapshots";

#[derive(Debug, Clone)]
pub struct DockerConfig {
    pub data_dir: PathBuf,
    pub socket: PathBuf,
    /// One of the engine's runtimes, such as `runc` or `runsc`. `None` is the engine's default.
    pub oci_runtime: Option<String>,
    /// The engine's image for each image name.
    pub images: BTreeMap<String, String>,
    pub default_image: String,
    /// The engine's network for sessions with the network `full`. `None`: the daemon carries it, as it does on `local`.
    pub network: Option<String>,
    pub pull: Pull,
    /// Whether a writable root must have a quota.
    pub root_quota: bool,
    /// What is kept free for the host on the disk of the data directory. `None`: a part of its size.
    pub reserve_mb: Option<u64>,
    /// The limits of all containers together.
    pub total: TotalLimits,
}

pub struct DockerRuntime {
    inner: Arc<Inner>,
    watcher: tokio::task::JoinHandle<()>,
}

struct Inner {
    config: DockerConfig,
    docker: Docker,
    instance: String,
    runner: PathBuf,
    directories: PathBuf,
    snapshots: PathBuf,
    running: Arc<RunningContainers>,
    known_images: Arc<Mutex<BTreeSet<String>>>,
    images: Images,
    /// Held while the names of an image change, where the engine needs that.
    image_names: tokio::sync::Mutex<()>,
    stores: KnownStores,
    locks: Arc<SandboxLocks>,
    kernel: Kernel,
    dialect: Dialect,
    has_network: bool,
    cgroup_parent: CgroupParent,
}

impl DockerRuntime {
    /// Connects to the engine and starts to listen to its events. Fails if no engine answers.
    pub async fn new(mut config: DockerConfig) -> Result<Self, RuntimeError> {
        let docker = connect::connect(&config.socket).await?;
        // The engine starts programs to answer these, which takes seconds on a busy host. So both are asked at once.
        let (version, info) = tokio::join!(docker.version(), docker.info());
        let version = version.map_err(|error| engine::failed("asking the container engine", error))?;
        let info = info.map_err(|error| engine::failed("asking the container engine", error))?;
        let kernel = Kernel::of(&info, config.oci_runtime.as_deref());
        let has_network = kernel::has_network(&info, config.oci_runtime.as_deref());
        // The path must be without links, because it is compared with the paths of mounts.
        config.socket = std::fs::canonicalize(&config.socket).unwrap_or(config.socket);
        for name in [CONTAINERS, SNAPSHOTS] {
            files::private_directory(&config.data_dir.join(name))
                .map_err(|e| RuntimeError::failed("making the directory of containers", e))?;
        }
        // The path must be without links, because the engine mounts from there.
        let data_dir = std::fs::canonicalize(&config.data_dir)
            .map_err(|e| RuntimeError::failed("finding the data directory", e))?;
        let (directories, snapshots) = (data_dir.join(CONTAINERS), data_dir.join(SNAPSHOTS));
        let runner = files::write_runner(&data_dir).map_err(|e| RuntimeError::failed("writing the runner", e))?;
        let dialect = connect::dialect_of(&version, &info, kernel, &data_dir)?;
        let instance = instance_name(&config.data_dir);
        let cgroup_parent = match &dialect {
            Dialect::Docker => CgroupParent::of(info.cgroup_driver, &instance),
            // Podman has a cgroup for all of its containers.
            Dialect::Podman(_) => CgroupParent::Engines,
        };
        let (parent, total) = (cgroup_parent.clone(), config.total);
        let limited = tokio::task::spawn_blocking(move || parent.limit(&total)).await;
        limited.map_err(|error| RuntimeError::failed("limiting all containers together", error))?;
        let (running, locks) = (Arc::<RunningContainers>::default(), Arc::<SandboxLocks>::default());
        let known_images = Arc::default();
        let inner = Arc::new(Inner {
            docker: docker.clone(),
            instance: instance.clone(),
            runner,
            directories,
            snapshots,
            running: running.clone(),
            known_images: Arc::clone(&known_images),
            images: Images::default(),
            image_names: tokio::sync::Mutex::default(),
            stores: KnownStores::default(),
            locks: locks.clone(),
            kernel,
            dialect,
            has_network,
            cgroup_parent,
            config,
        });
        let watcher = Watcher { docker, instance, running, locks, images: known_images };
        Ok(Self { inner, watcher: tokio::spawn(watcher.run()) })
    }
}

impl Drop for DockerRuntime {
    fn drop(&mut self) {
        self.watcher.abort();
        self.inner.cgroup_parent.close();
    }
}

impl Inner {
    fn name(&self, id: &SessionId) -> String {
        container_name(&self.instance, id)
    }

    fn directory(&self, id: &SessionId) -> PathBuf {
        self.directories.join(id.as_str())
    }

    fn run_dir(&self, id: &SessionId) -> PathBuf {
        self.directory(id).join("run")
    }

    fn socket(&self, id: &SessionId) -> PathBuf {
        self.run_dir(id).join(request::SOCKET_NAME)
    }

    fn gone_or(&self, id: &SessionId, step: &str, error: bollard::errors::Error) -> RuntimeError {
        if engine::is_missing(&error) { RuntimeError::Gone(id.clone()) } else { engine::failed(step, error) }
    }

    async fn pid(&self, id: &SessionId) -> Option<i64> {
        let made = self.docker.inspect_container(&self.name(id), None).await.ok()?;
        made.state?.pid.filter(|pid| *pid > 0)
    }
}

#[async_trait]
impl Runtime for DockerRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::docker()
    }

    async fn images(&self) -> Vec<ImageView> {
        let inner = &self.inner;
        let mut sources: BTreeMap<String, String> = BTreeMap::new();
        let known = inner.known_images.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.extend(known.into_iter().map(|name| (name.clone(), name)));
        sources.extend(image::BUILT_IN.map(|(name, tag)| (name.to_owned(), tag.to_owned())));
        sources.extend(inner.config.images.clone());
        let view = |(name, source): (String, String)| ImageView {
            default: name == inner.config.default_image,
            name,
            runtime: self.name(),
            source,
        };
        sources.into_iter().map(view).collect()
    }

    fn opens_network(&self, network: &NetworkSpec) -> Result<(), RuntimeError> {
        self.inner.opens_network(network)
    }

    fn is_fixed_network(&self, network: &NetworkSpec) -> bool {
        self.inner.engine_network(network).is_some()
    }

    fn trusts_authorities(&self, network: &NetworkSpec) -> Result<(), RuntimeError> {
        match self.inner.engine_network(network) {
            None => Ok(()),
            Some(name) => Err(RuntimeError::Unsupported(format!(
                "`inject` works only in what the daemon carries, and docker.network = {name:?} gives `full` a network of the engine: \
                 name the hosts in `network`, or take that setting out"
            ))),
        }
    }

    async fn check(&self, spec: &SessionSpec, origin: &Origin) -> Result<(), RuntimeError> {
        if let Origin::Snapshot(snapshot) = origin {
            self.inner.kept_snapshot(snapshot).read()?;
        }
        image::resolve(&spec.image, &self.inner.config.images)?;
        if spec.user == SessionUser::Root {
            return Err(RuntimeError::Unsupported(
                "user \"root\" is possible on the local runtime only: in a container, root is root of the host unless the engine maps its \
                 users; install packages in the image instead, or use \"runtime\": \"local\""
                    .into(),
            ));
        }
        // The disk is a tmpfs, which counts as memory. A disk that is larger than the memory could never be filled.
        if spec.resources.disk_mb > spec.resources.memory_mb {
            return Err(RuntimeError::Unsupported(format!(
                "disk_mb ({}) is more than memory_mb ({}): sandboxes of the docker runtime keep their files in memory",
                spec.resources.disk_mb, spec.resources.memory_mb
            )));
        }
        let own = nix::unistd::geteuid();
        if spec.workspace.is_some() && !own.is_root() && own.as_raw() != SANDBOX_USER {
            let why =
                format!("a workspace on the docker runtime needs a daemon that runs as root or as uid {SANDBOX_USER}");
            return Err(RuntimeError::Unsupported(why));
        }
        Ok(())
    }

    /// Creates the sandbox. It continues if the caller gives up, because the engine continues too, and what it makes has to
    /// be removed.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        self.check(&spec.session, &spec.origin).await?;
        let (lock, guard) = self.inner.locks.add(&spec.id)?;
        let (inner, spec) = (self.inner.clone(), spec.clone());
        let task = tokio::spawn(async move {
            let _guard = guard;
            let made = inner.start(&spec, &lock).await;
            if made.is_err() {
                let removed = match spec.origin {
                    Origin::Empty | Origin::Snapshot(_) => inner.remove(&spec.id).await,
                    // What was kept stays.
                    Origin::Stopped => inner.halt(&spec.id).await,
                };
                match removed {
                    Ok(()) => inner.locks.remove(&spec.id),
                    Err(cleanup) => {
                        let cause = &cleanup as &dyn std::error::Error;
                        tracing::error!(session_id = %spec.id, error = cause, "a failed create left something behind");
                    }
                }
            }
            made
        });
        task.await.unwrap_or_else(|error| Err(RuntimeError::failed("making the container", error)))
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        self.inner.adopt(id).await
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        self.inner.stats(id).await
    }

    async fn runner_process(&self, id: &SessionId) -> Option<ProcessSample> {
        // gVisor's own process says nothing about the runner inside.
        let pid = self.inner.pid(id).await.filter(|_| self.inner.kernel == Kernel::Host)?;
        ProcessSample::of(pid)
    }

    async fn continue_runner(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let options = KillContainerOptionsBuilder::new().signal("SIGCONT").build();
        let continued = self.inner.docker.kill_container(&self.inner.name(id), Some(options)).await;
        continued.map_err(|error| engine::failed("continuing the container's first process", error))
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.inner.pause(id).await
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        // The watcher unpauses containers that other programs have paused.
        match self.inner.running.is_paused_by_us(id) {
            Some(false) => Ok(()),
            _ => self.inner.resume(id).await,
        }
    }

    async fn freeze(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.inner.hold(id).await
    }

    async fn thaw(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.inner.release(id).await
    }

    fn keeps_disks(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn snapshot(
        &self,
        id: &SessionId,
        snapshot: &SnapshotId,
        state: Arc<SandboxState>,
    ) -> Result<u64, RuntimeError> {
        self.inner.take_snapshot(id, snapshot, state).await
    }

    async fn keep_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.inner.sync_snapshot(snapshot).await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.inner.drop_snapshot(snapshot).await
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        self.inner.snapshot_ids().await
    }

    async fn save_state(&self, id: &SessionId, state: Arc<SandboxState>) -> Result<(), RuntimeError> {
        self.inner.keep(id, state).await
    }

    async fn stop(&self, id: &SessionId) -> Result<(), RuntimeError> {
        // A start in progress is cancelled and waited for.
        let _guard = self.inner.locks.cancel_create(id).await;
        self.inner.halt(id).await?;
        self.inner.locks.remove(id);
        Ok(())
    }

    async fn started_again(&self, id: &SessionId) {
        if let Err(error) = self.inner.forget_kept(id).await {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(session_id = %id, error = cause, "what was kept of a stopped sandbox is left");
        }
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let inner = &self.inner;
        // A create in progress is cancelled and waited for.
        let _guard = inner.locks.cancel_create(id).await;
        inner.remove(id).await?;
        inner.locks.remove(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        let inner = &self.inner;
        let found = containers(&inner.docker, &inner.instance).await;
        let found = found.map_err(|error| engine::failed("listing containers", error))?;
        let names = files::names(&inner.directories).map_err(|e| RuntimeError::failed("listing directories", e))?;
        let mut ids: BTreeSet<SessionId> = found.iter().filter_map(session_of).collect();
        ids.extend(names.into_iter().filter_map(|name| SessionId::new(name).ok()));
        // An engine may finish a request after the daemon that sent it has died.
        ids.extend(inner.sessions_with_image().await?);
        Ok(ids.into_iter().collect())
    }

    fn close(&self) {
        self.inner.cgroup_parent.close();
    }
}
