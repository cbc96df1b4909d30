//! Runs the daemon from start to stop, step by step: logs, data directory, store, runtimes, recovery, listener, serving,
//! draining, and the end of the sessions. It holds no logic, only the order of the steps.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::middleware::from_fn_with_state;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{debug, info, warn};

use crate::api::ports::Previews;
use crate::api::{self, ApiState};
use crate::config::{Config, KEY_FILE, OnStop, ServeMode, host_memory_mb};
use crate::image::{self, Puller};
use crate::key::KeyTable;
use crate::mcp::Mcp;
use crate::metrics::Metrics;
use crate::network::{self, Asker, Network, NetworkLimits, NetworkParts, OperatorRules, OwnPresets};
use crate::runtime::Runtime;
use crate::runtime::docker::{DockerConfig, DockerRuntime};
use crate::runtime::local::{DisksConfig, LocalConfig, LocalRuntime, TotalLimits};
use crate::runtime::policy::{self, DAEMON_OOM_SCORE_ADJ};
use crate::secret::SecretTable;
use crate::server::access::AccessPolicy;
use crate::server::audit::AuditLog;
use crate::server::banner::{self, Banner, KeySource};
use crate::server::data_dir::DataDir;
use crate::server::gate::{self, Gate, GateParts};
use crate::server::listener::{Listener, SocketFile};
use crate::server::preview::{self, PreviewGate};
use crate::server::{Server, listen, logs, signals};
use crate::service::workspaces::Workspaces;
use crate::service::{Service, ServiceParts};
use crate::session::{Clock, Registry, RegistryParts};
use crate::store::{self, Store};
use crate::sys::oom_score;
use crate::workspace::WorkspaceDirs;

/// The kernel's default for `pid_max`, for a host that does not say.
const FALLBACK_HOST_PIDS: u64 = 32_768;

/// The usual limit of open files, for a host that does not say.
const USUAL_OPEN_FILES: u64 = 1024;

/// The time for writing the last answers after their sessions have ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    let logs = logs::start(&config.log);
    let stop = signals::stop_on_signals(config.mode).context("cannot wait for signals")?;
    let open_files = raise_file_limit();
    protect_from_oom();
    let data = DataDir::open(&config.data_dir)?;
    let (api_key, is_own_key) = match &config.server.api_key {
        Some(key) => (key.clone(), true),
        None => (data.key()?, false),
    };
    // The address is taken before anything is changed: a daemon that cannot listen leaves sandboxes and pools alone. Clients
    // that connect from here on wait until the daemon serves.
    let listener = listen::listen(config.server.listen).await?;
    let address = listener.local_addr().context("cannot tell the address")?;
    // The store opens before the daemon makes or removes anything: only the store knows which sandbox belongs to which
    // session.
    let database = data.path().join(store::FILE_NAME);
    let (store, rows) = tokio::task::spawn_blocking(move || Store::open(&database)).await??;
    let runtimes = runtimes(&config).await?;
    let dirs = WorkspaceDirs::open(data.path().join("workspaces"))
        .context("cannot make the directory of workspaces")?
        .with_config(&config.workspaces, runtimes.iter().find_map(|runtime| runtime.workspace_disks()))
        .context("cannot use workspaces")?;
    let metrics = Metrics::new();
    let secrets = data.path().to_owned();
    let secrets = tokio::task::spawn_blocking(move || SecretTable::open(&secrets)).await?;
    let network = network(&config, address, open_files, secrets.context("cannot read the secrets")?, &metrics)?;
    let parts = RegistryParts {
        runtimes: runtimes.clone(),
        config: config.sessions.clone(),
        snapshots: config.snapshots,
        workspaces: dirs.clone(),
        network: network.clone(),
        metrics: metrics.clone(),
        store: store.clone(),
        clock: Clock::start(),
    };
    let sessions = Registry::new(parts).context("there is no runtime")?;
    sessions.recover(rows).await;
    // A daemon that lives for a single program fills no pools.
    let pools = if config.mode.is_private() { BTreeMap::new() } else { config.pool.clone() };
    sessions.open_pools(&pools).await;
    let workspaces = Workspaces::new(dirs, sessions.clone());
    let sweeping = tokio::spawn({
        let workspaces = workspaces.clone();
        async move { workspaces.sweep().await }
    });
    let images_dir = config.data_dir.join("images");
    // It may take as long as the disk does, and nobody waits for it.
    tokio::task::spawn_blocking({
        let images_dir = images_dir.clone();
        move || {
            if let Err(error) = image::discard_leftovers(&images_dir) {
                tracing::warn!(cause = %error.whole(), "what interrupted pulls left is still there; `cove image prune` removes it");
            }
        }
    });
    let service = Service::new(ServiceParts {
        registry: sessions.clone(),
        keys: KeyTable::open(api_key.as_str(), store.clone()),
        workspaces: workspaces.clone(),
        network,
        metrics: metrics.clone(),
        exec: config.exec.clone(),
        puller: Puller::new(&images_dir, config.images.clone()),
        link_key: data.link_key()?,
    });
    let following = tokio::spawn({
        let service = service.clone();
        async move { service.commands().follow_again().await }
    });
    let writing = tokio::spawn({
        let sessions = sessions.clone();
        async move { sessions.keep_written().await }
    });

    // A private daemon serves one program, which knows its address, and keeps no log of what that program did.
    let socket = match config.server.socket.as_deref().filter(|_| !config.mode.is_private()) {
        Some(path) => Some(SocketFile::bind(path, config.server.socket_group.as_deref()).await?),
        None => None,
    };
    let audit = match config.mode.is_private() {
        true => None,
        false => Some(AuditLog::start(config.audit.clone(), metrics.clone()).context("no thread for the audit log")?),
    };
    let keys = service.keys().clone();
    let policy = AccessPolicy {
        identify: Box::new(move |secret| keys.identify(secret)),
        open_paths: api::paths_without_key(),
        listen: address,
        allowed_hosts: config.server.allowed_hosts.clone(),
        allowed_origins: config.server.allowed_origins.clone(),
    };
    let gate = Gate::new(GateParts {
        policy,
        metrics: metrics.clone(),
        stall_timeout: config.server.stall_timeout,
        max_requests_per_key: config.server.max_requests_per_key,
        audit: audit.clone(),
        gets_that_change: api::gets_that_change(),
    });
    let previews = Previews::new(config.preview.clone(), address.port());
    let preview_gate =
        PreviewGate::new(service.clone(), previews.clone(), metrics.clone(), config.server.stall_timeout);
    let mcp = Mcp::new(service.clone(), previews.link_url(), stop.receiver());
    let sweeping_mcp = tokio::spawn({
        let mcp = mcp.clone();
        async move { mcp.sweep().await }
    });
    let router = api::router(ApiState { service, previews, mcp: mcp.clone() })
        .layer(from_fn_with_state(gate, gate::pass))
        .layer(from_fn_with_state(preview_gate, preview::pass));
    let url = url_of(address);
    data.announce(&url)?;
    match config.mode {
        ServeMode::Command => {
            let warning = runtimes.first().and_then(|runtime| runtime.unenforced_limits());
            banner::print_for_command(&url, warning.as_deref());
        }
        ServeMode::Embedded => banner::print_for_program(&url, api_key.as_str(), data.path()),
        ServeMode::Service => {
            let key_file = data.path().join(KEY_FILE);
            let key = if is_own_key { KeySource::Operator } else { KeySource::File(&key_file) };
            Banner { url: &url, data_dir: data.path(), key, on_stop: config.sessions.on_stop }.print();
        }
    }
    info!(%url, data_dir = %data.path().display(), version = env!("CARGO_PKG_VERSION"), "listening");
    if let Some(socket) = &socket {
        info!(socket = %socket.path().display(), "listening on a socket");
    }

    let listener = Listener { tcp: listener, socket };
    let server = Server { listener, router, config: config.server.clone(), metrics };
    let mut remaining = server.run(stop.receiver()).await;
    remaining.finish(config.server.drain_timeout).await;
    mcp.close().await;
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
    sweeping_mcp.abort();
    following.abort();
    writing.abort();
    store.close().await;
    if let Some(audit) = audit {
        audit.close().await;
    }
    runtimes.iter().for_each(|runtime| runtime.close());
    data.withdraw();
    info!(sessions_kept = kept, "stopped");
    drop(logs);
    Ok(ExitCode::SUCCESS)
}

/// Connects to the runtimes, the default one first. Another runtime that cannot start is left out with a warning.
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
        images: config.images.names.clone(),
        default_image: config.sessions.default_image.clone(),
        etc: config.local.etc.clone(),
        disabled_protections: config.local.disabled_protections.clone(),
        disks: DisksConfig::of(config),
        total: Some(total_limits(config)),
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
        reserve_mb: config.sessions.host_reserve_disk_mb,
        total: total_limits(config),
    };
    Ok(Arc::new(DockerRuntime::new(docker).await?))
}

/// What all sessions share of the network. A preset that cannot be a policy is an error of the operator.
fn network(
    config: &Config,
    address: SocketAddr,
    open_files: u64,
    secrets: SecretTable,
    metrics: &Metrics,
) -> anyhow::Result<Network> {
    let mut presets = OwnPresets::new();
    for (name, rules) in &config.network.presets {
        let policy = network::of_rules(rules, Asker::Trusted).with_context(|| format!("network.presets.{name}"))?;
        presets.insert(name.clone(), Arc::new(policy));
    }
    let extra = network::of_rules(&config.network.extra, Asker::Trusted).context("network.allow and network.deny")?;
    let (maximum, requests) = (config.network.max.clone(), config.network.requests.clone());
    let operator = OperatorRules { presets, extra, maximum, requests };
    let limit = |most: u64| (most > 0).then_some(most);
    let limits = NetworkLimits {
        connections: usize::try_from(config.network.max_connections).unwrap_or(usize::MAX),
        bytes_per_second: limit(config.network.max_bytes_per_second),
        total_bytes: limit(config.network.max_total_bytes),
    };
    let possible = network::total_connections(open_files);
    let total_connections = match config.network.max_total_connections {
        0 => possible,
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    if possible < limits.connections.min(total_connections) {
        warn!(open_files, connections = possible, "the limit of open files is low: raise it (LimitNOFILE, ulimit -n)");
    }
    let parts = NetworkParts {
        limits,
        total_connections,
        operator,
        default: config.network.default.clone(),
        daemon_ports: vec![address.port()],
        secrets,
        extra_ca_file: config.network.extra_ca_file.clone(),
        metrics: metrics.clone(),
    };
    let network = Network::new(&config.data_dir, parts);
    network.check_default().context("network.default is not within network.max")?;
    Ok(network)
}

/// Raises the limit of open files: a session takes a few descriptors and a connection takes one, so the usual limit of 1,024
/// is too low. Returns the limit.
fn raise_file_limit() -> u64 {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(cause) = raised {
        warn!(%cause, "the limit of open files stays as it is");
    }
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL_OPEN_FILES, |(soft, _)| soft)
}

/// Makes the kernel kill others before the daemon when the host's memory runs out. An operator who chose a lower value keeps it.
fn protect_from_oom() {
    if oom_score::own() > DAEMON_OOM_SCORE_ADJ
        && let Err(cause) = oom_score::set(DAEMON_OOM_SCORE_ADJ)
    {
        // Sandboxes are above the daemon all the same, and their total is limited where there are cgroups.
        debug!(%cause, "the daemon's oom score stays as it is");
    }
}

/// The limits of all sandboxes together: what the host has, less a reserve.
fn total_limits(config: &Config) -> TotalLimits {
    TotalLimits {
        memory_bytes: host_memory_mb().saturating_sub(config.sessions.host_reserve_mb) << 20,
        pids: policy::total_pids(host_pids()),
        cpu_weight_percent: config.sessions.cpu_weight_percent,
    }
}

/// The number of processes and threads that this host can have at once.
fn host_pids() -> u64 {
    let read =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse::<u64>().ok();
    ["pid_max", "threads-max"].into_iter().filter_map(read).min().unwrap_or(FALLBACK_HOST_PIDS)
}

/// The URL under which a client on this host reaches the daemon.
fn url_of(address: SocketAddr) -> String {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{reachable}")
}
