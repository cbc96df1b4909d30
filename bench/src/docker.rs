//! What a container costs through Cove, beside the local runtime and beside the engine's own client doing the same.
//!
//! The engine is that of the tests: `COVE_E2E_DOCKER_SOCKET`, `COVE_E2E_OCI_RUNTIME`, `COVE_E2E_IMAGE`. `scripts/docker/engine`
//! starts one.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::daemon::{Daemon, DaemonBuilder};
use hyper::Method;

use crate::client::Client;
use crate::figures::{Times, megabytes_per_second, row};
use crate::{PRINT_IT, SAMPLES, STREAMED_BYTES};

/// The engine's client takes a good part of a second; fewer samples say as much.
const CLIENT_SAMPLES: usize = 50;

struct Figures {
    exec: Times,
    create: Times,
    stream: f64,
}

pub async fn report() -> Result<()> {
    let engine = Engine::from_environment();
    let local = measure(Daemon::builder().env("COVE_RUNTIME", "local")).await?;
    let docker = measure(engine.daemon()).await?;
    let container = engine.start()?;
    let exec = timed(CLIENT_SAMPLES, || engine.run(&["exec", &container, "true"]).map(drop))?;
    let stream = engine.stream(&container);
    engine.run(&["rm", "--force", &container])?;
    let stream = stream?;
    let create = timed(CLIENT_SAMPLES, || {
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
        "\n1 GiB of output, over the API: docker {:.0} MB/s, local {:.0} MB/s; docker exec: {stream:.0} MB/s",
        docker.stream, local.stream
    );
    Ok(())
}

async fn measure(builder: DaemonBuilder) -> Result<Figures> {
    let daemon = builder.start().await;
    let mut client = Client::connect(&daemon).await?;
    let path = client.create("{}").await?;
    let exec = client.measure(SAMPLES, Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
    let create = client.creates().await?;
    let start = Instant::now();
    let received = client.stream(&format!("{path}/exec/stream")).await?;
    ensure!(received == STREAMED_BYTES, "{received} bytes arrived");
    let stream = megabytes_per_second(received, start.elapsed());
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

    fn stream(&self, container: &str) -> Result<f64> {
        let start = Instant::now();
        let mut child = self.command(&["exec", container, "bash", "-c", PRINT_IT]).stdout(Stdio::piped()).spawn()?;
        let mut stdout = child.stdout.take().context("a pipe from docker")?;
        let (mut buffer, mut total) = (vec![0; 1 << 16], 0_u64);
        loop {
            match stdout.read(&mut buffer)? {
                0 => break,
                count => total += u64::try_from(count)?,
            }
        }
        child.wait()?;
        ensure!(total == STREAMED_BYTES, "{total} bytes arrived");
        Ok(megabytes_per_second(total, start.elapsed()))
    }
}
