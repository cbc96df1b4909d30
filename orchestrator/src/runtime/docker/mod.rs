//! Containers of an engine, Docker or Podman, each with the runner as its first process.
//!
//! `body` decides what the engine is asked for and `compare` whether it did that, `image` what a name stands for, `watch` listens
//! to the engine, `live` knows who waits for an end. Here is the order of things: making, using and removing one.
//!
//! **Invariant:** a container's name and its directory follow from the session's id alone, so that whatever is left after a
//! crash, or of a create that was cut off, is found and removed.

mod adopt;
mod body;
mod compare;
mod dialect;
mod engine;
mod image;
mod kernel;
mod live;
mod oci;
mod podman;
mod ready;
mod seccomp;
mod slot;
mod stats;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use bollard::models::{ContainerCreateBody, SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder,
};
use futures_util::StreamExt as _;
use nix::sys::resource::{Resource, getrlimit};
use shared_protocol::api::{ImageView, NetworkMode, StatsView};
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::oneshot;

pub use image::Pull;

use self::dialect::{Dialect, Podman};
use self::image::Images;
use self::kernel::Kernel;
use self::live::LiveTable;
use self::ready::SocketWatch;
use self::slot::{Slot, Slots};
use self::watch::{Watcher, container_name, containers, session_of};
use super::policy::SANDBOX_USER;
use super::{RunnerAddress, Runtime, RuntimeError, Sandbox, SandboxSpec, files, instance_name};
use crate::failpoint;
use crate::runner_client::RunnerClient;

/// For one answer of the engine, in seconds. A container is made in a fraction of one; more is an engine that hangs.
const ENGINE_TIMEOUT_SECONDS: u64 = 30;
/// From the start of a container to the runner's first answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// In the data directory, for an engine that takes it by name.
const SECCOMP_FILE: &str = "seccomp.json";
const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// Of a runner that ended before it answered.
const MAX_LAST_WORDS: usize = 2000;

#[derive(Debug, Clone)]
pub struct DockerConfig {
    pub data_dir: PathBuf,
    pub socket: PathBuf,
    /// Of the engine's runtimes: `runc`, `runsc`; its default where nothing is said.
    pub oci_runtime: Option<String>,
    /// What a name stands for.
    pub images: BTreeMap<String, String>,
    pub default_image: String,
    /// The engine's network of a session that asks for one.
    pub network: String,
    pub pull: Pull,
    /// Whether a root that can be written to must have a quota.
    pub root_quota: bool,
}

/// What the host has for one sandbox.
#[derive(Debug, Clone)]
struct Places {
    /// The mark of this daemon.
    instance: String,
    /// Mounted into the sandbox for its socket.
    run_dir: PathBuf,
    /// The embedded runner.
    runner: PathBuf,
    /// Who connects, where that is not root.
    socket_owner: Option<u32>,
    kernel: Kernel,
    dialect: Dialect,
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
    live: Arc<LiveTable>,
    known_images: Arc<Mutex<BTreeSet<String>>>,
    images: Images,
    slots: Arc<Slots>,
    kernel: Kernel,
    dialect: Dialect,
    has_network: bool,
}

impl DockerRuntime {
    /// Fails where no engine answers.
    pub async fn new(mut config: DockerConfig) -> Result<Self, RuntimeError> {
        let docker = connect(&config.socket).await?;
        // For either an engine starts programs to ask them for their versions, which takes seconds on a host that is busy.
        let (version, info) = tokio::join!(docker.version(), docker.info());
        let version = version.map_err(|error| engine::failed("asking the container engine", error))?;
        let info = info.map_err(|error| engine::failed("asking the container engine", error))?;
        let kernel = Kernel::of(&info, config.oci_runtime.as_deref());
        let has_network = kernel::has_network(&info, config.oci_runtime.as_deref());
        // As it is compared with what is mounted, by its real place.
        config.socket = std::fs::canonicalize(&config.socket).unwrap_or(config.socket);
        files::private_directory(&config.data_dir.join("containers"))
            .map_err(|e| RuntimeError::failed("making the directory of containers", e))?;
        // The engine mounts from there, and takes no path that leads around.
        let data_dir = std::fs::canonicalize(&config.data_dir)
            .map_err(|e| RuntimeError::failed("finding the data directory", e))?;
        let directories = data_dir.join("containers");
        let runner = files::write_runner(&data_dir).map_err(|e| RuntimeError::failed("writing the runner", e))?;
        let dialect = dialect_of(&version, &info, kernel, &data_dir)?;
        let instance = instance_name(&config.data_dir);
        let (live, slots, known_images) = (Arc::<LiveTable>::default(), Arc::<Slots>::default(), Arc::default());
        let inner = Arc::new(Inner {
            docker: docker.clone(),
            instance: instance.clone(),
            runner,
            directories,
            live: live.clone(),
            known_images: Arc::clone(&known_images),
            images: Images::default(),
            slots: slots.clone(),
            kernel,
            dialect,
            has_network,
            config,
        });
        let watcher = Watcher { docker, instance, live, slots, images: known_images };
        Ok(Self { inner, watcher: tokio::spawn(watcher.run()) })
    }
}

impl Drop for DockerRuntime {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

async fn connect(socket: &Path) -> Result<Docker, RuntimeError> {
    let step = format!("asking the container engine at {}", socket.display());
    let path = socket.to_string_lossy();
    let docker = Docker::connect_with_unix(&path, ENGINE_TIMEOUT_SECONDS, bollard::API_DEFAULT_VERSION)
        .map_err(|error| engine::failed(&step, error))?;
    // Nothing is asked for by a version of the API, so that none is to be agreed upon: that would be one more long wait at the start.
    docker.ping().await.map_err(|error| engine::failed(&step, error))?;
    Ok(docker)
}

/// Who the engine is, and what it needs to be asked in its words.
fn dialect_of(
    version: &SystemVersion,
    info: &SystemInfo,
    kernel: Kernel,
    data_dir: &Path,
) -> Result<Dialect, RuntimeError> {
    if !dialect::is_podman(version) {
        return Ok(Dialect::Docker);
    }
    let seccomp = files::write_public(data_dir, SECCOMP_FILE, body::seccomp_profile(kernel).as_bytes())
        .map_err(|e| RuntimeError::failed("writing the filter of system calls", e))?;
    files::write_shared(data_dir).map_err(|e| RuntimeError::failed("writing shared files", e))?;
    let hosts = files::shared_directory(data_dir).join("hosts");
    let user_processes = user_processes().map_err(|e| RuntimeError::failed("asking for the limit of processes", e))?;
    let has_cgroup_namespaces = info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2);
    if !has_cgroup_namespaces {
        tracing::warn!(
            "Podman has no cgroup namespaces on cgroup v1: sandboxes can read the names of their cgroups on the host"
        );
    }
    Ok(Dialect::Podman(Podman { seccomp, hosts, user_processes, has_cgroup_namespaces }))
}

/// The most that we may, and no more than there can be on the host, which is what Podman limits itself to.
fn user_processes() -> std::io::Result<i64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NPROC)?;
    let on_host = std::fs::read_to_string(PID_MAX)?;
    let on_host: i64 = on_host.trim().parse().map_err(std::io::Error::other)?;
    Ok(i64::try_from(most).map_or(on_host, |most| most.min(on_host)))
}

/// One line about the engine at a socket, for `cove doctor`.
pub async fn describe(socket: &Path) -> Result<String, RuntimeError> {
    let docker = connect(socket).await?;
    let info = docker.info().await.map_err(|error| engine::failed("asking the container engine", error))?;
    let version = docker.version().await.map_err(|error| engine::failed("asking the container engine", error))?;
    let podman = if dialect::is_podman(&version) { "Podman " } else { "" };
    let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
    runtimes.sort();
    Ok(format!(
        "engine {podman}{} at {}, storage {}, cgroup v{}, runtimes {}",
        info.server_version.unwrap_or_else(|| "of unknown version".into()),
        socket.display(),
        info.driver.unwrap_or_else(|| "unknown".into()),
        info.cgroup_version.map_or_else(|| "1".to_owned(), |version| version.to_string()),
        runtimes.join(", ")
    ))
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
        self.run_dir(id).join(body::SOCKET_NAME)
    }

    async fn start(&self, spec: &SandboxSpec, slot: &Slot) -> Result<Sandbox, RuntimeError> {
        let id = &spec.id;
        let wanted = image::resolve(&spec.image, &self.config.images)?;
        let image = slot.unless_cancelled(id, self.images.facts(&self.docker, &wanted, self.config.pull)).await?;
        let run_dir = self.run_dir(id);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&run_dir)
            .map_err(|e| RuntimeError::failed("making the sandbox's directory", e))?;
        failpoint::at("docker.create.directory")
            .map_err(|e| RuntimeError::failed("making the sandbox's directory", e))?;
        let mut spec = spec.clone();
        if let Some(workspace) = &mut spec.workspace {
            workspace.path =
                std::fs::canonicalize(&workspace.path).map_err(|e| RuntimeError::failed("finding the workspace", e))?;
            files::give(&workspace.path, SANDBOX_USER)
                .map_err(|e| RuntimeError::failed("giving the workspace to its user", e))?;
        }
        let own = nix::unistd::geteuid();
        let places = Places {
            instance: self.instance.clone(),
            run_dir: run_dir.clone(),
            runner: self.runner.clone(),
            socket_owner: (!own.is_root()).then(|| own.as_raw()),
            kernel: self.kernel,
            dialect: self.dialect.clone(),
        };
        let asked = body::body(&spec, &self.config, &image, &places)?;
        let name = self.name(id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let created = self.docker.create_container(Some(options), asked.clone()).await;
        let created = created.map_err(|error| engine::failed("making the container", error))?;
        failpoint::at("docker.create.made").map_err(|e| RuntimeError::failed("making the container", e))?;
        if !created.warnings.is_empty() {
            return Err(RuntimeError::failed(
                "the container engine warns of what it cannot do",
                created.warnings.join("; "),
            ));
        }
        let differences = self.differences(&asked, &created.id).await?;
        if !differences.is_empty() {
            let differences = differences.join("; ");
            return Err(RuntimeError::failed(
                "the container engine made another container than was asked for",
                differences,
            ));
        }
        self.images.must_have_bash(&self.docker, &image, &created.id).await?;
        let watch =
            SocketWatch::new(&run_dir).map_err(|e| RuntimeError::failed("watching for the runner's socket", e))?;
        let ended = self.live.insert(id, self.socket(id));
        let started = self.docker.start_container(&created.id, None).await;
        started.map_err(|error| engine::failed("starting the container", error))?;
        failpoint::at("docker.create.started").map_err(|e| RuntimeError::failed("starting the container", e))?;
        slot.unless_cancelled(id, self.answered(id, watch, ended)).await
    }

    /// What the engine made of it, before any of it runs.
    async fn differences(&self, asked: &ContainerCreateBody, container: &str) -> Result<Vec<String>, RuntimeError> {
        match &self.dialect {
            Dialect::Docker => {
                let made = self.docker.inspect_container(container, None).await;
                let made = made.map_err(|error| engine::failed("looking at the container", error))?;
                Ok(compare::differences(asked, &made))
            }
            Dialect::Podman(own) => {
                let made = podman::prepare(&self.config.socket, container).await?;
                Ok(oci::differences(asked, &seccomp::profile(self.kernel), own, &made))
            }
        }
    }

    async fn answered(
        &self,
        id: &SessionId,
        watch: SocketWatch,
        mut ended: oneshot::Receiver<String>,
    ) -> Result<Sandbox, RuntimeError> {
        let address = RunnerAddress::Unix(self.socket(id));
        let runner = RunnerClient::new(address.clone());
        let why = tokio::select! {
            biased;
            why = &mut ended => why.unwrap_or_else(|_| "its end was not seen".into()),
            answered = tokio::time::timeout(START_TIMEOUT, watch.answered(&runner)) => match answered {
                Ok(Ok(())) => return Ok(Sandbox { address, ended }),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", START_TIMEOUT.as_secs()),
            },
        };
        let words = self.last_words(id).await;
        Err(RuntimeError::failed("waiting for the runner", format!("{why}; it said: {words:?}")))
    }

    /// What a runner wrote before it ended.
    async fn last_words(&self, id: &SessionId) -> String {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("10").build();
        let mut lines = std::pin::pin!(self.docker.logs(&self.name(id), Some(options)));
        let mut words = String::new();
        while let Some(Ok(line)) = lines.next().await {
            words.push_str(&line.to_string());
            if words.len() > MAX_LAST_WORDS {
                break;
            }
        }
        words.trim().to_owned()
    }

    async fn remove(&self, id: &SessionId) -> Result<(), RuntimeError> {
        // From here on its end is nobody's news.
        self.live.remove(id);
        let name = self.name(id);
        if self.kernel == Kernel::Gvisor {
            // One that is paused takes no KILL: the engine would wait ten seconds for its end, and then give up. For any other this
            // is an error that says so.
            let _ = self.docker.unpause_container(&name).await;
        }
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.docker.remove_container(&name, Some(options)).await {
            Ok(()) => {}
            Err(error) if engine::is_missing(&error) => {}
            Err(error) if engine::is_conflict(&error) => {
                // Somebody else removes it at this moment.
                let options = WaitContainerOptionsBuilder::new().condition("removed").build();
                let mut removed = std::pin::pin!(self.docker.wait_container(&name, Some(options)));
                let _ = removed.next().await;
                if self.docker.inspect_container(&name, None).await.is_ok() {
                    return Err(engine::failed("removing the container", error));
                }
            }
            Err(error) => return Err(engine::failed("removing the container", error)),
        }
        failpoint::at("docker.destroy.container").map_err(|e| RuntimeError::failed("removing the container", e))?;
        let directory = self.directory(id);
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(directory)).await;
        match removed.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(RuntimeError::failed("removing the sandbox's directory", error))
            }
            _ => failpoint::at("docker.destroy.directory")
                .map_err(|e| RuntimeError::failed("removing the sandbox's directory", e)),
        }
    }

    fn gone_or(&self, id: &SessionId, step: &str, error: bollard::errors::Error) -> RuntimeError {
        if engine::is_missing(&error) { RuntimeError::Gone(id.clone()) } else { engine::failed(step, error) }
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let resumed = self.docker.unpause_container(&self.name(id)).await;
        self.live.set_paused(id, false);
        match resumed {
            Err(error) if self.is_paused(id).await != Some(false) => {
                Err(self.gone_or(id, "resuming the container", error))
            }
            _ => Ok(()),
        }
    }

    /// Engines answer in different ways to being asked for what is so already, so one looks. `None` of one that does not run.
    async fn is_paused(&self, id: &SessionId) -> Option<bool> {
        let state = self.docker.inspect_container(&self.name(id), None).await.ok()?.state?;
        state.paused.filter(|_| state.running == Some(true))
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

    fn images(&self) -> Vec<ImageView> {
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

    fn check(&self, spec: &SandboxSpec) -> Result<(), RuntimeError> {
        image::resolve(&spec.image, &self.inner.config.images)?;
        if spec.network == NetworkMode::Full && !self.inner.has_network {
            let why =
                "the engine's runtime is set to have no network (--network=none in its runtimeArgs); leave network out";
            return Err(RuntimeError::Unsupported(why.into()));
        }
        // The disk is memory: what does not fit into the one limit can never be used.
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

    /// Goes on to its end when it is no longer waited for: the engine does too, and what it makes must not be nobody's.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        self.check(spec)?;
        let (slot, turn) = self.inner.slots.open(&spec.id)?;
        let (inner, spec) = (self.inner.clone(), spec.clone());
        let task = tokio::spawn(async move {
            let _turn = turn;
            let made = inner.start(&spec, &slot).await;
            if made.is_err() {
                match inner.remove(&spec.id).await {
                    Ok(()) => inner.slots.close(&spec.id),
                    Err(cleanup) => {
                        let cause = &cleanup as &dyn std::error::Error;
                        tracing::error!(session_id = %spec.id, error = cause, "a failed create left something");
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

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let inner = &self.inner;
        inner.live.set_paused(id, true);
        match inner.docker.pause_container(&inner.name(id)).await {
            Err(error) if inner.is_paused(id).await != Some(true) => {
                inner.live.set_paused(id, false);
                Err(inner.gone_or(id, "pausing the container", error))
            }
            _ => Ok(()),
        }
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        // What others pause is woken by the watcher.
        match self.inner.live.is_paused_by_us(id) {
            Some(false) => Ok(()),
            _ => self.inner.resume(id).await,
        }
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let inner = &self.inner;
        // A create that is under way hears of it, and is waited for.
        let _turn = inner.slots.cancel(id).await;
        inner.remove(id).await?;
        inner.slots.close(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        let inner = &self.inner;
        let found = containers(&inner.docker, &inner.instance).await;
        let found = found.map_err(|error| engine::failed("listing containers", error))?;
        let names = files::names(&inner.directories).map_err(|e| RuntimeError::failed("listing directories", e))?;
        let mut ids: BTreeSet<SessionId> = found.iter().filter_map(session_of).collect();
        ids.extend(names.into_iter().filter_map(|name| SessionId::new(name).ok()));
        Ok(ids.into_iter().collect())
    }
}
