//! The daemon, in the order of things: logs, data directory, runtimes, leftovers, listen, serve, drain, destroy. No logic.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::middleware::from_fn_with_state;
use futures_util::StreamExt as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::api::{self, ApiState};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::runtime::Runtime;
use crate::runtime::local::{LocalConfig, LocalRuntime};
use crate::server::access::AccessPolicy;
use crate::server::data_dir::{DataDir, KEY_FILE};
use crate::server::gate::{self, Gate};
use crate::server::{Server, logs, signals};
use crate::session::{Registry, RegistryParts};
use crate::workspace::{WorkspaceDirs, Workspaces};

/// Leftovers of a killed daemon that are removed at the same moment.
const MAX_CONCURRENT_REMOVALS: usize = 16;
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
    let runtimes = runtimes(&config).await?;
    for runtime in &runtimes {
        remove_leftovers(runtime.as_ref()).await;
    }
    let dirs =
        WorkspaceDirs::open(data.path().join("workspaces")).context("cannot make the directory of workspaces")?;
    let metrics = Metrics::new();
    let parts = RegistryParts {
        runtimes: runtimes.clone(),
        config: config.sessions.clone(),
        workspaces: dirs.clone(),
        metrics: metrics.clone(),
    };
    let sessions = Registry::new(parts).context("there is no runtime")?;
    let workspaces = Workspaces::new(dirs, sessions.clone());
    let sweeping = tokio::spawn({
        let workspaces = workspaces.clone();
        async move { workspaces.sweep().await }
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
    let mut remaining = server.run(stop).await;
    remaining.finish(config.server.drain_timeout).await;
    sessions.destroy_all().await;
    workspaces.end_all().await;
    remaining.finish(LAST_WORDS).await;
    sweeping.abort();
    runtimes.iter().for_each(|runtime| runtime.close());
    data.withdraw();
    info!("stopped");
    drop(logs);
    Ok(ExitCode::SUCCESS)
}

/// The default first.
async fn runtimes(config: &Config) -> anyhow::Result<Vec<Arc<dyn Runtime>>> {
    let local = LocalConfig {
        data_dir: config.data_dir.clone(),
        images_dir: config.data_dir.join("images"),
        images: config.images.clone(),
        default_image: config.sessions.default_image.clone(),
        disabled_protections: config.local.disabled_protections.clone(),
    };
    let runtime = tokio::task::spawn_blocking(move || LocalRuntime::new(local)).await?;
    Ok(vec![Arc::new(runtime.context("the local runtime cannot start")?)])
}

/// What a daemon that was killed could not remove. What resists is named and left: it must not keep a daemon from starting.
async fn remove_leftovers(runtime: &dyn Runtime) {
    let left = match runtime.list().await {
        Ok(left) => left,
        Err(error) => {
            warn!(runtime = %runtime.name(), cause = %crate::session::SessionError::chain(&error), "leftovers are unknown");
            return;
        }
    };
    if !left.is_empty() {
        info!(runtime = %runtime.name(), sandboxes = left.len(), "removing what an earlier daemon left");
    }
    let removals = left.iter().map(|id| async move {
        if let Err(error) = runtime.destroy(id).await {
            warn!(session_id = %id, cause = %crate::session::SessionError::chain(&error), "leftover is not removed");
        }
    });
    futures_util::stream::iter(removals).buffer_unordered(MAX_CONCURRENT_REMOVALS).collect::<()>().await;
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
