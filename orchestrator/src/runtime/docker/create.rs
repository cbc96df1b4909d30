//! Creates and starts a container: directory, image, container, a check of what the engine made, start, first answer.
//!
//! The container runs only after the check. A failed step leaves pieces behind, which the caller removes.

use std::os::unix::fs::DirBuilderExt as _;
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptionsBuilder, LogsOptionsBuilder};
use futures_util::StreamExt as _;
use shared_protocol::{SANDBOX_USER, SessionId};
use tokio::sync::oneshot;

use super::dialect::Dialect;
use super::ready::SocketWatch;
use super::request::HostSide;
use super::sandbox_lock::SandboxLock;
use super::{Inner, compare, engine, image, oci, podman, request, seccomp};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::syscalls::Debugging;
use crate::runtime::{RunnerAddress, RuntimeError, Sandbox, SandboxSpec, files};

/// The longest wait from the start of a container to the runner's first answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The most that is shown of the log of a runner that ended before it answered.
const MAX_LAST_WORDS: usize = 2000;

impl Inner {
    pub(super) async fn start(&self, spec: &SandboxSpec, lock: &SandboxLock) -> Result<Sandbox, RuntimeError> {
        let id = &spec.id;
        let wanted = image::resolve(&spec.session.image, &self.config.images)?;
        let image = lock.unless_cancelled(id, self.images.facts(&self.docker, &wanted, self.config.pull)).await?;
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
        let host = HostSide {
            instance: self.instance.clone(),
            run_dir: run_dir.clone(),
            runner: self.runner.clone(),
            socket_owner: (!own.is_root()).then(|| own.as_raw()),
            kernel: self.kernel,
            dialect: self.dialect.clone(),
            cgroup_parent: self.cgroup_parent.field(),
        };
        let asked = request::container(&spec, &self.config, &image, &host)?;
        let name = self.name(id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let created = self.docker.create_container(Some(options), asked.clone()).await;
        let created = created.map_err(|error| engine::failed("making the container", error))?;
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
        let ended = self.running.insert(id, self.socket(id));
        let started = self.docker.start_container(&created.id, None).await;
        started.map_err(|error| engine::failed("starting the container", error))?;
        failpoint::at("docker.create.started").map_err(|e| RuntimeError::failed("starting the container", e))?;
        let mut sandbox = lock.unless_cancelled(id, self.answered(id, watch, ended)).await?;
        sandbox.network = self.open_network(id, Some(&spec.session.network)).await;
        Ok(sandbox)
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
    ) -> Result<Sandbox, RuntimeError> {
        let address = RunnerAddress::Unix(self.socket(id));
        let runner = RunnerClient::new(address.clone());
        let why = tokio::select! {
            biased;
            why = &mut ended => why.unwrap_or_else(|_| "it ended, and nobody knows why".into()),
            answered = tokio::time::timeout(START_TIMEOUT, watch.answered(&runner)) => match answered {
                Ok(Ok(())) => return Ok(Sandbox { address, ended, network: None }),
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
