//! The daemon, in the order of things: logs, data directory, store, runtimes, recovery, listen, serve, drain, and at the end what
//! becomes of sessions. No logic.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::middleware::from_fn_with_state;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::api::{self, ApiState};
use crate::config::{Config, OnStop};
use crate::metrics::Metrics;
use crate::runtime::Runtime;
use crate::runtime::docker::{DockerConfig, DockerRuntime};
use crate::runtime::local::{LocalConfig, LocalRuntime};
use crate::server::access::AccessPolicy;
use crate::server::data_dir::{DataDir, KEY_FILE};
use crate::server::gate::{self, Gate};
use crate::server::{Server, logs, signals};
use crate::session::{Clock, Registry, RegistryParts};
use crate::store::{self, Store};
use crate::workspace::{WorkspaceDirs, Workspaces};

/// For answers to be written once their sessions are gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    let logs = logs::start(&config.log);
    let stop = signals::stop_on_signals(config.until_stdin_closes).context("cannot wait for signals")?;
    raise_file_limit();
    let data = DataDir::open(&config.data_dir)?;
    let (key, is_own_key) = match &config.server.api_key {
        Some(key) => (key.clone(), true),
        None => (data.key()?, false),
    };
    // Before anything is made or removed: without it we would not know what is whose.
    let database = data.path().join(store::FILE_NAME);
    let (store, rows) = tokio::task::spawn_blocking(move || Store::open(&database)).await??;
    let runtimes = runtimes(&config).await?;
    let dirs = WorkspaceDirs::open(data.path().join("workspaces"))
        .context("cannot make the directory of workspaces")?
        .with_limit(config.workspaces.max_mb);
    let metrics = Metrics::new();
    let parts = RegistryParts {
        runtimes: runtimes.clone(),
        config: config.sessions.clone(),
        workspaces: dirs.clone(),
        metrics: metrics.clone(),
        store: store.clone(),
        clock: Clock::start(),
    };
    let sessions = Registry::new(parts).context("there is no runtime")?;
    sessions.recover(rows).await;
    // One that lives for a single command fills none.
    let pools = if config.until_stdin_closes { BTreeMap::new() } else { config.pool.clone() };
    sessions.open_pools(&pools).await;
    let workspaces = Workspaces::new(dirs, sessions.clone());
    let sweeping = tokio::spawn({
        let workspaces = workspaces.clone();
        async move { workspaces.sweep().await }
    });
    let following = tokio::spawn({
        let (sessions, metrics) = (sessions.clone(), metrics.clone());
        async move { api::detached::follow_again(&sessions, &metrics).await }
    });
    let writing = tokio::spawn({
        let sessions = sessions.clone();
        async move { sessions.keep_written().await }
    });

    let listener = TcpListener::bind(config.server.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.server.listen))?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let policy = AccessPolicy {
        key,
        listen: address,
        allowed_hosts: config.server.allowed_hosts.clone(),
        allowed_origins: config.server.allowed_origins.clone(),
    };
    let gate = Gate::new(policy, metrics.clone(), config.server.stall_timeout);
    let config = Arc::new(config);
    let state = ApiState {
        sessions: sessions.clone(),
        config: config.clone(),
        metrics: metrics.clone(),
        workspaces: workspaces.clone(),
    };
    let router = api::router(state).layer(from_fn_with_state(gate, gate::pass));
    let url = url_of(address);
    data.announce(&url)?;
    greet(&url, data.path(), is_own_key);
    info!(%url, data_dir = %data.path().display(), version = env!("CARGO_PKG_VERSION"), "listening");

    let server = Server { listener, router, config: config.server.clone(), metrics };
    let mut remaining = server.run(stop.receiver()).await;
    remaining.finish(config.server.drain_timeout).await;
    let kept = match stop.what_becomes_of_sessions(&config) {
        OnStop::Keep => sessions.leave_all().await,
        OnStop::Destroy => {
            sessions.destroy_all().await;
            0
        }
    };
    workspaces.end_all().await;
    remaining.finish(LAST_WORDS).await;
    sweeping.abort();
    following.abort();
    writing.abort();
    store.close().await;
    runtimes.iter().for_each(|runtime| runtime.close());
    data.withdraw();
    info!(sessions_kept = kept, "stopped");
    drop(logs);
    Ok(ExitCode::SUCCESS)
}

/// The default first. One that is not the default and cannot start is left out, with a warning.
async fn runtimes(config: &Config) -> anyhow::Result<Vec<Arc<dyn Runtime>>> {
    let mut runtimes: Vec<Arc<dyn Runtime>> = Vec::new();
    for name in ["local", "docker"] {
        let is_default = config.runtime.as_str() == name;
        let started = match name {
            "local" => local(config).await,
            _ if is_default || config.docker.is_configured => docker(config).await,
            _ => continue,
        };
        match started.with_context(|| format!("the {name} runtime cannot start")) {
            Ok(runtime) if is_default => runtimes.insert(0, runtime),
            Ok(runtime) => runtimes.push(runtime),
            Err(error) if is_default => return Err(error),
            Err(error) => warn!(runtime = name, cause = format!("{error:#}"), "runtime is left out"),
        }
    }
    Ok(runtimes)
}

async fn local(config: &Config) -> anyhow::Result<Arc<dyn Runtime>> {
    let local = LocalConfig {
        data_dir: config.data_dir.clone(),
        images_dir: config.data_dir.join("images"),
        images: config.images.clone(),
        default_image: config.sessions.default_image.clone(),
        disabled_protections: config.local.disabled_protections.clone(),
    };
    Ok(Arc::new(tokio::task::spawn_blocking(move || LocalRuntime::new(local)).await??))
}

async fn docker(config: &Config) -> anyhow::Result<Arc<dyn Runtime>> {
    let docker = DockerConfig {
        data_dir: config.data_dir.clone(),
        socket: config.docker.socket.clone(),
        oci_runtime: config.docker.oci_runtime.clone(),
        images: config.docker.images.clone(),
        default_image: config.sessions.default_image.clone(),
        network: config.docker.network.clone(),
        pull: config.docker.pull,
        root_quota: config.docker.root_quota,
    };
    Ok(Arc::new(DockerRuntime::new(docker).await?))
}

/// A session takes a few descriptors, a connection one; the usual 1,024 are for programs of another kind.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(cause) = raised {
        warn!(%cause, "the limit of open files stays as it is");
    }
}

/// As a client on this host reaches it.
fn url_of(address: SocketAddr) -> String {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{reachable}")
}

/// The first line is for programs; the rest is for a person to paste. A standard output that is gone is no reason to stop.
fn greet(url: &str, data_dir: &Path, is_own_key: bool) {
    // By its path: after `cargo run` nobody's PATH has it.
    let program = std::env::current_exe().map_or_else(|_| "cove".to_owned(), |path| format!("'{}'", path.display()));
    let key =
        if is_own_key { "YOUR-KEY".to_owned() } else { format!("\"$(cat '{}')\"", data_dir.join(KEY_FILE).display()) };
    let text = format!(
        "listening on {url}

A first session, to paste into another terminal:

  export COVE_URL={url} COVE_API_KEY={key}
  ID=$(curl -s -X POST $COVE_URL/v1/sessions -H \"Authorization: Bearer $COVE_API_KEY\" | sed 's/.*\"id\":\"\\([^\"]*\\)\".*/\\1/')
  curl -s $COVE_URL/v1/sessions/$ID/exec -H \"Authorization: Bearer $COVE_API_KEY\" -H 'Content-Type: application/json' \\
    -d '{{\"cmd\": \"cd /tmp && export GREETING=hello\"}}'
  curl -s $COVE_URL/v1/sessions/$ID/exec -H \"Authorization: Bearer $COVE_API_KEY\" -H 'Content-Type: application/json' \\
    -d '{{\"cmd\": \"echo $GREETING from $PWD\"}}'
  {program} shell $ID

"
    );
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
