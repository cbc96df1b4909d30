//! Tests of the docker runtime alone, on a real engine: what a new daemon finds of the one before it, and what it can do to
//! a sandbox. The variables of the end-to-end stories name the engine: `COVE_E2E_RUNTIME=docker`, `COVE_E2E_DOCKER_SOCKET`,
//! `COVE_E2E_OCI_RUNTIME`, `COVE_E2E_IMAGE`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use orchestrator::config::Pull;
use orchestrator::runner_client::RunnerClient;
use orchestrator::runtime::docker::{DockerConfig, DockerRuntime};
use orchestrator::runtime::local::TotalLimits;
use orchestrator::runtime::{Origin, Purpose, Runtime as _, RuntimeError, Sandbox, SandboxSpec};
use orchestrator::spec::{SessionSpec, Variables};
use shared_protocol::api::ResourcesView;
use shared_protocol::{RuntimeName, SessionId};

const DEADLINE: Duration = Duration::from_secs(10);

struct Engine {
    socket: PathBuf,
    oci_runtime: Option<String>,
    image: String,
}

impl Engine {
    /// The engine. If there is none, prints the skip and returns `None`.
    fn find(story: &str) -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if variable("COVE_E2E_RUNTIME").as_deref() != Some("docker") {
            // `println!` is not used, because the test runner hides its output while a test passes.
            let _ = writeln!(std::io::stdout(), "skipped: {story}: COVE_E2E_RUNTIME is not docker");
            return None;
        }
        Some(Self {
            socket: variable("COVE_E2E_DOCKER_SOCKET").unwrap_or_else(|| "/var/run/docker.sock".into()).into(),
            oci_runtime: variable("COVE_E2E_OCI_RUNTIME"),
            image: variable("COVE_E2E_IMAGE").unwrap_or_else(|| "cove-python".into()),
        })
    }

    async fn runtime(&self, data_dir: &Path) -> DockerRuntime {
        let config = DockerConfig {
            data_dir: data_dir.to_owned(),
            socket: self.socket.clone(),
            oci_runtime: self.oci_runtime.clone(),
            images: BTreeMap::new(),
            default_image: self.image.clone(),
            network: Some("bridge".into()),
            pull: Pull::Never,
            root_quota: true,
            reserve_mb: None,
            total: TotalLimits { memory_bytes: 4 << 30, pids: 4096, cpu_weight_percent: 25 },
        };
        DockerRuntime::new(config).await.expect("the engine answers")
    }

    fn spec(&self, id: &str) -> SandboxSpec {
        SandboxSpec {
            authority: None,
            id: SessionId::new(id).expect("an id"),
            session: Arc::new(SessionSpec::plain(
                self.image.as_str(),
                RuntimeName::docker(),
                ResourcesView { cpus: 1.0, memory_mb: 256, pids: 64, disk_mb: 64 },
                DEADLINE,
            )),
            workspace: None,
            awaits_workspace: false,
            env: Variables::default(),
            purpose: Purpose::Session,
            origin: Origin::Empty,
        }
    }

    /// Runs the engine's client, without the runtime's knowledge.
    fn docker(&self, arguments: &[&str], id: &SessionId) -> String {
        let run = |arguments: &[&str]| {
            let host = format!("unix://{}", self.socket.display());
            let output = Command::new("docker").args(["--host", &host]).args(arguments).output().expect("docker");
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let container = run(&["ps", "-aq", "--filter", &format!("label=cove.session={id}")]);
        run(&[arguments, &[&container]].concat())
    }
}

async fn answers(sandbox: &Sandbox) {
    let runner = RunnerClient::new(sandbox.address.clone());
    let health = tokio::time::timeout(DEADLINE, runner.health()).await.expect("an answer in time");
    assert_eq!(health.expect("the runner answers").status, "ok");
}

async fn end_of(sandbox: Sandbox) -> String {
    tokio::time::timeout(DEADLINE, sandbox.ended).await.expect("it is told in time").expect("it is told")
}

#[tokio::test]
async fn a_runtime_that_is_started_anew_finds_its_sandboxes_and_watches_them() {
    let Some(engine) = Engine::find("adopting containers") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (kept, paused, ended) = (engine.spec("adopt-kept"), engine.spec("adopt-paused"), engine.spec("adopt-ended"));
    let first = engine.runtime(directory.path()).await;
    for spec in [&kept, &paused, &ended] {
        answers(&first.create(spec).await.unwrap()).await;
    }
    first.pause(&paused.id).await.unwrap();
    drop(first);
    engine.docker(&["kill"], &ended.id);

    let second = engine.runtime(directory.path()).await;
    assert_eq!(second.list().await.unwrap(), [ended.id.clone(), kept.id.clone(), paused.id.clone()]);
    assert!(matches!(second.adopt(&ended.id).await, Err(RuntimeError::Gone(_))), "one that has ended was adopted");
    let (one, other) = (second.adopt(&kept.id).await.unwrap(), second.adopt(&paused.id).await.unwrap());
    answers(&one).await;
    answers(&other).await;
    assert_eq!(second.stats(&kept.id).await.unwrap().memory_limit, Some(256 << 20));
    engine.docker(&["kill"], &kept.id);
    assert!(end_of(one).await.contains("137"), "another end was told");
    engine.docker(&["rm", "-f"], &paused.id);
    end_of(other).await;
    for spec in [&kept, &paused, &ended] {
        second.destroy(&spec.id).await.unwrap();
        assert!(matches!(second.adopt(&spec.id).await, Err(RuntimeError::Gone(_))));
    }
    assert_eq!(second.list().await.unwrap(), []);
}

#[tokio::test]
async fn another_daemons_sandboxes_are_neither_seen_nor_adopted() {
    let Some(engine) = Engine::find("another daemon's containers") else { return };
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (engine.runtime(ours.path()).await, engine.runtime(theirs.path()).await);
    let spec = engine.spec("adopt-apart");
    let sandbox = first.create(&spec).await.unwrap();
    assert_eq!(second.list().await.unwrap(), []);
    assert!(matches!(second.adopt(&spec.id).await, Err(RuntimeError::Gone(_))));
    second.destroy(&spec.id).await.unwrap();
    answers(&sandbox).await;
    first.destroy(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_paused_sandbox_stands_still_until_it_is_resumed() {
    let Some(engine) = Engine::find("pause and resume") else { return };
    let directory = tempfile::tempdir().unwrap();
    let runtime = engine.runtime(directory.path()).await;
    let spec = engine.spec("pause-resume");
    let sandbox = runtime.create(&spec).await.unwrap();
    let runner = RunnerClient::new(sandbox.address.clone());
    for _ in 0..2 {
        runtime.pause(&spec.id).await.unwrap();
        runtime.pause(&spec.id).await.expect("what is paused can be paused");
        assert_eq!(engine.docker(&["inspect", "--format", "{{.State.Paused}}"], &spec.id), "true");
        assert!(
            tokio::time::timeout(Duration::from_millis(500), runner.health()).await.is_err(),
            "a paused sandbox answers"
        );
        runtime.resume(&spec.id).await.unwrap();
        runtime.resume(&spec.id).await.expect("what runs can be resumed");
        answers(&sandbox).await;
    }
    // A paused sandbox can be destroyed too.
    runtime.pause(&spec.id).await.unwrap();
    runtime.destroy(&spec.id).await.unwrap();
    assert_eq!(runtime.list().await.unwrap(), []);
    assert!(matches!(runtime.stats(&spec.id).await, Err(RuntimeError::Gone(_))));
}
