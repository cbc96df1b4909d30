//! Creates and starts a container: directory, image, container, a check of what the engine made, start, first answer.
//!
//! The container runs only after the check. A failed step leaves pieces behind, which the caller removes.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, ContainerCreateResponse};
use bollard::query_parameters::{CreateContainerOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder};
use futures_util::StreamExt as _;
use shared_protocol::runner::HealthView;
use shared_protocol::{SANDBOX_USER, SessionId};
use tokio::sync::oneshot;

use super::dialect::Dialect;
use super::image::ImageFacts;
use super::kept::Kept;
use super::ready::SocketWatch;
use super::request::HostSide;
use super::sandbox_lock::SandboxLock;
use super::tags::Holder;
use super::trust::Trust;
use super::{Inner, compare, engine, image, oci, podman, request, seccomp};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::syscalls::Debugging;
use crate::runtime::{Origin, Purpose, RunnerAddress, RuntimeError, Sandbox, SandboxSpec, WorkspaceMount, files};

/// The longest wait from the start of a container to the runner's first answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The most that is shown of the log of a runner that ended before it answered.
const MAX_LAST_WORDS: usize = 2000;

impl Inner {
    pub(super) async fn start(&self, spec: &SandboxSpec, lock: &SandboxLock) -> Result<Sandbox, RuntimeError> {
        let id = &spec.id;
        let kept = match &spec.origin {
            Origin::Empty => None,
            Origin::Snapshot(snapshot) => Some(self.kept_snapshot(snapshot)),
            Origin::Stopped => Some(self.kept_sandbox(id)),
        };
        let kept_record = kept.as_ref().map(Kept::read).transpose()?;
        let image = match &spec.origin {
            Origin::Empty => {
                let wanted = image::resolve(&spec.session.image, &self.config.images)?;
                lock.unless_cancelled(id, self.images.facts(&self.docker, &wanted, self.config.pull)).await?
            }
            Origin::Snapshot(snapshot) => self.held_image(Holder::Snapshot(snapshot)).await?,
            Origin::Stopped => self.held_image(Holder::Session(id)).await?,
        };
        let run_dir = self.run_dir(id);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&run_dir)
            .map_err(|e| RuntimeError::failed("making the sandbox's directory", e))?;
        failpoint::at("docker.create.directory")
            .map_err(|e| RuntimeError::failed("making the sandbox's directory", e))?;
        if let Origin::Snapshot(_) = &spec.origin {
            // The snapshot may be removed before this sandbox is.
            self.note_image(id).map_err(|e| RuntimeError::failed("naming the image", e))?;
            self.hold_image(&image.id, Holder::Session(id)).await?;
            failpoint::at("docker.restore.image").map_err(|e| RuntimeError::failed("naming the image", e))?;
        }
        let mut spec = spec.clone();
        if let Some(workspace) = &mut spec.workspace {
            let path = std::fs::canonicalize(workspace.directory()?)
                .map_err(|e| RuntimeError::failed("finding the workspace", e))?;
            files::give(&path, SANDBOX_USER)
                .map_err(|e| RuntimeError::failed("giving the workspace to its user", e))?;
            *workspace = WorkspaceMount::Directory(path);
        }
        let own = nix::unistd::geteuid();
        let mut host = HostSide {
            instance: self.instance.clone(),
            run_dir: run_dir.clone(),
            runner: self.runner.clone(),
            socket_owner: (!own.is_root()).then(|| own.as_raw()),
            kernel: self.kernel,
            dialect: self.dialect.clone(),
            cgroup_parent: self.cgroup_parent.field(),
            proxy_port: self.proxy_port(&spec),
            trust: None,
            kept_variables: kept_record.map(|record| record.variables),
        };
        if let Some(authority) = &spec.authority {
            host.trust = Some(self.trust(&spec, authority, &image, &host).await?);
        }
        let asked = request::container(&spec, &self.config, &image, &host)?;
        let mut record = request::record(&spec, &image, &asked);
        record.write(&self.directory(id)).map_err(|e| RuntimeError::failed("writing the sandbox's record", e))?;
        let created = self.make(id, asked.clone()).await?;
        record.container = Some(created.id.clone());
        record.write(&self.directory(id)).map_err(|e| RuntimeError::failed("writing the sandbox's record", e))?;
        failpoint::at("docker.create.made").map_err(|e| RuntimeError::failed("making the container", e))?;
        if !created.warnings.is_empty() {
            return Err(RuntimeError::failed(
                "the container engine reports something that it cannot do",
                created.warnings.join("; "),
            ));
        }
        let debugging = Debugging::of(&spec.session.profiles);
        let differences = self.differences(&asked, &created.id, debugging).await?;
        if !differences.is_empty() {
            let differences = differences.join("; ");
            return Err(RuntimeError::failed(
                "the container that the engine made is not the one that was asked for",
                differences,
            ));
        }
        self.images.must_have_bash(&self.docker, &image, &created.id).await?;
        let watch =
            SocketWatch::new(&run_dir).map_err(|e| RuntimeError::failed("watching for the runner's socket", e))?;
        let ended = self.running.insert(id, self.socket(id), Some(created.id.clone()));
        let started = self.docker.start_container(&created.id, None).await;
        started.map_err(|error| engine::failed("starting the container", error))?;
        failpoint::at("docker.create.started").map_err(|e| RuntimeError::failed("starting the container", e))?;
        let (mut sandbox, health) = lock.unless_cancelled(id, self.answered(id, watch, ended)).await?;
        let network = &spec.session.network;
        if host.proxy_port.is_some() && !health.network_proxy && !network.is_none() {
            return Err(RuntimeError::Unsupported(format!(
                "the image {} brings its own runner, version {}, which is too old for a network: build the image again with the \
                 runner of this version, or leave network out",
                spec.session.image, health.version
            )));
        }
        if let Some(kept) = &kept {
            let filling = self.fill(&spec, &record.directories, kept, &health);
            sandbox.state = Some(Box::new(lock.unless_cancelled(id, filling).await?));
            failpoint::at("docker.restore.filled").map_err(|e| RuntimeError::failed("filling the container", e))?;
        }
        if self.engine_network(network).is_none() && spec.purpose == Purpose::Session {
            sandbox.network = self.open_network(id, health.network_proxy).await;
        }
        Ok(sandbox)
    }

    async fn make(&self, id: &SessionId, asked: ContainerCreateBody) -> Result<ContainerCreateResponse, RuntimeError> {
        let options = CreateContainerOptionsBuilder::new().name(&self.name(id)).build();
        let created = self.docker.create_container(Some(options), asked).await;
        created.map_err(|error| engine::failed("making the container", error))
    }

    /// Writes the certificate authorities of a session with injected headers. To read those of an image for the first time, it makes
    /// the container, and removes it again.
    async fn trust(
        &self,
        spec: &SandboxSpec,
        authority: &str,
        image: &ImageFacts,
        host: &HostSide,
    ) -> Result<Trust, RuntimeError> {
        let stores = match self.stores.get(&image.id) {
            Some(known) => known,
            None => {
                let mut asked = request::container(spec, &self.config, image, host)?;
                asked.labels.get_or_insert_default().insert(request::LOOK_LABEL.to_owned(), String::new());
                let made = self.make(&spec.id, asked).await?;
                let read = self.stores.read(&self.docker, &image.id, &made.id).await;
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                let removed = self.docker.remove_container(&made.id, Some(options)).await;
                removed.map_err(|error| engine::failed("removing the container that was looked into", error))?;
                read?
            }
        };
        let directory = self.directory(&spec.id).join("trust");
        Trust::write(directory, authority, &stores)
            .map_err(|e| RuntimeError::failed("writing the certificate authorities", e))
    }

    /// Compares the container with the request, before anything in it runs.
    async fn differences(
        &self,
        asked: &ContainerCreateBody,
        container: &str,
        debugging: Debugging,
    ) -> Result<Vec<String>, RuntimeError> {
        match &self.dialect {
            Dialect::Docker => {
                let made = self.docker.inspect_container(container, None).await;
                let made = made.map_err(|error| engine::failed("inspecting the container", error))?;
                Ok(compare::differences(asked, &made))
            }
            Dialect::Podman(own) => {
                let made = podman::prepare(&self.config.socket, container).await?;
                Ok(oci::differences(asked, &seccomp::profile(self.kernel, debugging), own, &made))
            }
        }
    }

    /// Waits for the runner's first answer.
    async fn answered(
        &self,
        id: &SessionId,
        watch: SocketWatch,
        mut ended: oneshot::Receiver<String>,
    ) -> Result<(Sandbox, HealthView), RuntimeError> {
        let address = RunnerAddress::Unix(self.socket(id));
        let runner = RunnerClient::new(address.clone());
        let why = tokio::select! {
            biased;
            why = &mut ended => why.unwrap_or_else(|_| "it ended, and nobody knows why".into()),
            answered = tokio::time::timeout(START_TIMEOUT, watch.answered(&runner)) => match answered {
                Ok(Ok(health)) => return Ok((Sandbox { address, ended, network: None, start_dir: None, state: None, newer_variables: BTreeMap::new() }, health)),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", START_TIMEOUT.as_secs()),
            },
        };
        let words = self.last_words(id).await;
        Err(RuntimeError::failed("waiting for the runner", format!("{why}; it said: {words:?}")))
    }

    /// What the runner logged before it ended.
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
}
