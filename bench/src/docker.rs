//! Measures a container through Cove, compared with the local runtime and with the engine's own client.
//!
//! The engine is the one of the tests: `COVE_E2E_DOCKER_SOCKET`, `COVE_E2E_OCI_RUNTIME`, `COVE_E2E_IMAGE`.
//! `scripts/docker/engine` starts one.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::daemon::{Daemon, DaemonBuilder};
use hyper::Method;

use crate::baseline::piped_rate;
use crate::client::{Client, EXEC_TRUE};
use crate::figures::{Times, megabytes_per_second, row};
use crate::scale::Scale;

struct Figures {
    exec: Times,
    create: Times,
    stream: f64,
}

pub async fn report(scale: &Scale) -> Result<()> {
    let engine = Engine::from_environment();
    let local = measure(scale, Daemon::builder().env("COVE_RUNTIME", "local")).await?;
    let docker = measure(scale, engine.daemon()).await?;
    let container = engine.start()?;
    let exec = timed(scale.engine_calls, || engine.run(&["exec", &container, "true"]).map(drop))?;
    let stream = engine.stream(scale, &container);
    engine.run(&["rm", "--force", &container])?;
    let stream = stream?;
    let create = timed(scale.engine_calls, || {
        let shell = ["--rm", "--network=none", "--entrypoint=bash", &engine.image, "-lc", "true"];
        engine.run(&[&["run", &engine.runtime()], &shell[..]].concat()).map(drop)
    })?;

    println!("\n{:<44} {:>9} {:>9} {:>9}", "containers", "p50", "p99", "ratio");
    row("exec true, over the API, docker", &docker.exec, None);
    row("  the same on local", &local.exec, Some(&docker.exec));
    row("  docker exec C true", &exec, Some(&docker.exec));
    println!(
        "{:<44} {:>6.0} ×    as long as over the API; the figure to be over: 50",
        "",
        exec.p50.as_secs_f64() / docker.exec.p50.as_secs_f64()
    );
    row("create, to the first exec's answer, docker", &docker.create, None);
    row("  the same on local", &local.create, Some(&docker.create));
    row("  docker run --rm IMAGE bash -lc true", &create, Some(&docker.create));
    println!(
        "\n{} of output, over the API: docker {:.0} MB/s, local {:.0} MB/s; docker exec: {stream:.0} MB/s",
        scale.streamed(),
        docker.stream,
        local.stream
    );
    Ok(())
}

async fn measure(scale: &Scale, builder: DaemonBuilder) -> Result<Figures> {
    let daemon = builder.start().await;
    let mut client = Client::connect(&daemon).await?;
    let path = client.create("{}").await?;
    let exec = client.measure(scale, scale.execs, Method::POST, &format!("{path}/exec"), EXEC_TRUE).await?;
    let create = client.creates(scale).await?;
    let stream = megabytes_per_second(scale.streamed_bytes, client.stream(scale, &path).await?);
    drop(client);
    daemon.stop().await;
    Ok(Figures { exec, create, stream })
}

fn timed(samples: usize, mut work: impl FnMut() -> Result<()>) -> Result<Times> {
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    Ok(Times::of(times))
}

struct Engine {
    socket: String,
    oci_runtime: String,
    image: String,
}

impl Engine {
    fn from_environment() -> Self {
        let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        Self {
            socket: variable("COVE_E2E_DOCKER_SOCKET", "/var/run/docker.sock"),
            oci_runtime: variable("COVE_E2E_OCI_RUNTIME", "runc"),
            image: variable("COVE_E2E_IMAGE", "cove-base"),
        }
    }

    fn daemon(&self) -> DaemonBuilder {
        Daemon::builder()
            .env("COVE_RUNTIME", "docker")
            .env("COVE_DOCKER_SOCKET", &self.socket)
            .env("COVE_DOCKER_OCI_RUNTIME", &self.oci_runtime)
            .env("COVE_DOCKER_IMAGES", &format!("base={}", self.image))
    }

    fn runtime(&self) -> String {
        format!("--runtime={}", self.oci_runtime)
    }

    fn command(&self, arguments: &[impl AsRef<str>]) -> Command {
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.socket));
        command.args(arguments.iter().map(AsRef::as_ref)).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[impl AsRef<str>]) -> Result<String> {
        let output = self.command(arguments).output().context("docker is installed")?;
        ensure!(output.status.success(), "docker: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn start(&self) -> Result<String> {
        let asleep = ["--network=none", "--entrypoint=sleep", &self.image, "infinity"];
        self.run(&[&["run", "--detach", &self.runtime()], &asleep[..]].concat())
    }

    /// The rate of a program's output through the engine's client, in MB/s.
    fn stream(&self, scale: &Scale, container: &str) -> Result<f64> {
        piped_rate(&mut self.command(&["exec", container, "bash", "-c", &scale.print_command()]), scale)
    }
}
