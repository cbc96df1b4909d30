//! The request for a container, as a pure function of the spec and the configuration. Every field is set on purpose: an engine's
//! defaults are made for services, and its administrator can change them.
//!
//! It never asks for a privileged container, a namespace of the host, a capability that the runner does not need, anything
//! without a limit, or a mount from which the engine's own socket can be reached. A property test looks for a spec that gets
//! one.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use shared_protocol::SANDBOX_USER;

use super::dialect::{Dialect, Tmpfs};
use super::image::ImageFacts;
use super::kept::SandboxRecord;
use super::kernel::Kernel;
use super::trust::Trust;
use super::{DockerConfig, seccomp};
use crate::runtime::policy::{
    DiskSize, FILES_ARGUMENTS, FILES_ROOT, FILES_WORKSPACE, IPC_SETTINGS, MASKED, MAX_OPEN_FILES, READ_ONLY,
    RUNNER_CAPABILITIES, SCRATCH, SCRATCH_INODES, SMALL_BYTES, SMALL_INODES, STATE, STATE_INODES, TRUST, WORKSPACE,
    disks, nano_cpus, open_files, sandbox_oom_score_adj, scratch_bytes, state_bytes,
};
use crate::runtime::syscalls::Debugging;
use crate::runtime::{Purpose, RuntimeError, SandboxSpec};
use crate::spec::Variables;

pub const DATA_DIR_LABEL: &str = "cove.data-dir";
pub const SESSION_LABEL: &str = "cove.session";
/// On a container that is made to look into its image, and removed before the session's own container is made under the same name.
pub const LOOK_LABEL: &str = "cove.look";

/// The entry point of an image that brings a runner itself.
pub const OWN_RUNNER: &str = "/usr/local/bin/runner";

/// A directory that only root can enter: commands cannot reach what is mounted below it, whoever owns that.
const PRIVATE: &str = "/run/cove/private";
const SOCKET_DIR: &str = "/run/cove/private/host";
pub const SOCKET_NAME: &str = "runner.sock";
const RUNNER: &str = "/run/cove/private/runner";

/// The directories that commands write to, each a tmpfs, and the part of the memory for files that each gets if they cannot all be
/// as large as the disk was asked to be.
pub const DISKS: [(&str, u64); 5] =
    [(WORKSPACE, 6), ("/tmp", 4), ("/home/sandbox", 3), (SHARED_MEMORY, 2), ("/var/tmp", VOLUME_WEIGHT)];
const SHARED_MEMORY: &str = "/dev/shm";
/// The part of a volume that the image declares.
const VOLUME_WEIGHT: u64 = 1;
/// The directories that belong to the sandbox's user. Everybody may write to the others.
const USERS_OWN: [&str; 2] = [WORKSPACE, "/home/sandbox"];

/// Paths that are masked only on this runtime: on the local runtime `/sys` is empty.
const MASKED_SYS: [&str; 2] = ["/sys/firmware", "/sys/devices/virtual/powercap"];

/// The size of the container's log. A runner writes a few lines.
const LOG_BYTES: &str = "256k";

const STOP_SECONDS: i64 = 1;

/// The system call filters as text, built once: they are long.
static SECCOMP: LazyLock<[String; 3]> = LazyLock::new(|| filters(Kernel::Host));
static SECCOMP_GVISOR: LazyLock<[String; 3]> = LazyLock::new(|| filters(Kernel::Gvisor));

fn filters(kernel: Kernel) -> [String; 3] {
    Debugging::ALL.map(|debugging| seccomp::profile(kernel, debugging).to_string())
}

/// The system call filter for a kernel, as text.
pub fn seccomp_profile(kernel: Kernel, debugging: Debugging) -> &'static String {
    let [children, running, memory] = match kernel {
        Kernel::Host => &*SECCOMP,
        Kernel::Gvisor => &*SECCOMP_GVISOR,
    };
    match debugging {
        Debugging::Children => children,
        Debugging::Running => running,
        Debugging::Memory => memory,
    }
}

/// The facts of the host that the request for one sandbox depends on.
#[derive(Debug, Clone)]
pub struct HostSide {
    /// The name of this daemon, which labels its containers.
    pub instance: String,
    /// The directory for the runner's socket, mounted into the sandbox.
    pub run_dir: PathBuf,
    /// The file with the embedded runner.
    pub runner: PathBuf,
    /// The user who connects to the socket. `None` means root.
    pub socket_owner: Option<u32>,
    pub kernel: Kernel,
    pub dialect: Dialect,
    /// The cgroup that the containers of this daemon share. Empty for the engine's own choice.
    pub cgroup_parent: String,
    /// The port of the loopback that the runner opens for programs that use a proxy.
    pub proxy_port: Option<u16>,
    /// The certificate authorities of a session with injected headers.
    pub trust: Option<Trust>,
    /// The variables of the image that its sandbox brought and that this one does not get, if its disk is not empty. Its runner
    /// then waits for its files and its shells.
    pub kept_variables: Option<Vec<String>>,
}

/// The whole request.
pub fn container(
    spec: &SandboxSpec,
    config: &DockerConfig,
    image: &ImageFacts,
    host: &HostSide,
) -> Result<ContainerCreateBody, RuntimeError> {
    let user = SANDBOX_USER.to_string();
    let socket = format!("{SOCKET_DIR}/{SOCKET_NAME}");
    let runner = if image.has_runner { OWN_RUNNER } else { RUNNER };
    let mut arguments =
        ["--socket", &socket, "--scratch", SCRATCH, "--uid", &user, "--gid", &user].map(str::to_owned).to_vec();
    // A daemon that is not root cannot connect to root's socket. Commands cannot reach the socket's directory, even if they run
    // under the daemon's user id.
    if let Some(owner) = host.socket_owner {
        arguments.extend(["--socket-owner".to_owned(), owner.to_string()]);
    }
    // The runner sets the exact limit in gVisor. The host's limit counts gVisor's threads.
    if host.kernel == Kernel::Gvisor {
        arguments.extend(["--max-processes".to_owned(), whole("pids", spec.session.resources.pids)?.to_string()]);
    }
    arguments.extend(host.dialect.runner_arguments(&users_own(spec)));
    if spec.purpose == Purpose::WorkspaceFiles {
        arguments.extend(FILES_ARGUMENTS.map(str::to_owned));
    }
    // A variable and not an argument: the older runner of an image ignores it, and its commands may have as many files as it.
    let open_files = format!("COVE_RUNNER_OPEN_FILES={}", open_files(spec.session.resources.pids));
    // A variable too: without a network, the older runner of an image is good enough.
    let proxy_port = host.proxy_port.map(|port| format!("COVE_RUNNER_NETWORK_PROXY_PORT={port}"));
    let await_restore = host.kept_variables.as_ref().map(|_| "COVE_RUNNER_AWAIT_RESTORE=true".to_owned());
    let mut env: Vec<String> = variables(&spec.env).into_iter().chain([open_files]).collect();
    env.extend(proxy_port.into_iter().chain(await_restore));
    let is_set = |name: &String| env.iter().any(|set| set.split_once('=').is_some_and(|(set, _)| set == name));
    let unset: Vec<String> = host.kept_variables.iter().flatten().filter(|name| !is_set(name)).cloned().collect();
    env.extend(unset.iter().map(|name| host.dialect.unset(name)));
    let labels = [(DATA_DIR_LABEL, host.instance.as_str()), (SESSION_LABEL, spec.id.as_str())];
    Ok(ContainerCreateBody {
        hostname: Some(spec.id.to_string()),
        domainname: Some(String::new()),
        // The runner is root. It runs commands as the sandbox's user, whatever user the image names.
        user: Some("0:0".into()),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        exposed_ports: None,
        tty: Some(false),
        open_stdin: Some(false),
        stdin_once: Some(false),
        // The engine adds the image's own variables; these win over them.
        env: Some(env),
        entrypoint: Some(vec![runner.to_owned()]),
        cmd: Some(arguments),
        // The image's own health check would run as root in the sandbox.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        args_escaped: None,
        image: Some(image.id.clone()),
        volumes: None,
        working_dir: Some("/".into()),
        network_disabled: Some(engine_network(spec, config).is_none()),
        on_build: None,
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
        stop_signal: Some("SIGTERM".into()),
        stop_timeout: Some(STOP_SECONDS),
        shell: None,
        host_config: Some(host_config(spec, config, image, host)?),
        networking_config: None,
    })
}

/// The network of the engine that the container gets. `None`: only loopback.
fn engine_network<'a>(spec: &SandboxSpec, config: &'a DockerConfig) -> Option<&'a str> {
    config.network.as_deref().filter(|_| spec.session.network.is_full())
}

fn host_config(
    spec: &SandboxSpec,
    config: &DockerConfig,
    image: &ImageFacts,
    host: &HostSide,
) -> Result<HostConfig, RuntimeError> {
    let network = engine_network(spec, config);
    let resources = &spec.session.resources;
    let memory = bytes("memory_mb", resources.memory_mb)?;
    bytes("disk_mb", resources.disk_mb)?;
    let sizes = disk_sizes(spec, image);
    let shared_memory = sizes.get(SHARED_MEMORY).map_or(1, |size| size.bytes);
    let limit =
        |name: &str, value: i64| ResourcesUlimits { name: Some(name.into()), soft: Some(value), hard: Some(value) };
    let mut masked: Vec<String> = MASKED.into_iter().chain(MASKED_SYS).map(str::to_owned).collect();
    masked.sort();
    Ok(HostConfig {
        // Resources that the sandbox may use.
        memory: Some(memory),
        // The same number as `memory` means no swap.
        memory_swap: Some(memory),
        memory_reservation: Some(0),
        memory_swappiness: None,
        oom_kill_disable: Some(false),
        oom_score_adj: Some(sandbox_oom_score_adj(0).into()),
        nano_cpus: Some(whole("cpus", nano_cpus(resources.cpus))?),
        pids_limit: Some(whole("pids", host.kernel.host_threads(resources.pids))?),
        ulimits: Some(
            host.dialect.limits(vec![limit("nofile", whole("open files", MAX_OPEN_FILES)?), limit("core", 0)]),
        ),
        shm_size: Some(whole("shared memory", shared_memory)?),
        storage_opt: storage(spec, config),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(
                [("max-size", LOG_BYTES), ("max-file", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ),
        }),
        // Files that the sandbox sees.
        readonly_rootfs: Some(!spec.session.writable_root),
        tmpfs: Some(tmpfs(spec, &sizes, &host.dialect)),
        binds: None,
        mounts: Some(mounts(spec, config, image, host)?),
        volumes_from: None,
        volume_driver: None,
        security_opt: Some(host.dialect.security(host.kernel, Debugging::of(&spec.session.profiles), &masked)),
        masked_paths: Some(masked),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).to_vec()),
        devices: Some(Vec::new()),
        device_cgroup_rules: Some(Vec::new()),
        device_requests: Some(Vec::new()),
        // Rights of the sandbox.
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: Some(RUNNER_CAPABILITIES.map(|(name, _)| name.to_owned()).to_vec()),
        group_add: None,
        // Namespaces. For pid, uts and user, an empty string asks for the engine's setting, which is a separate namespace.
        pid_mode: Some(String::new()),
        uts_mode: Some(String::new()),
        userns_mode: Some(String::new()),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        cgroup: Some(String::new()),
        cgroup_parent: Some(host.cgroup_parent.clone()),
        network_mode: Some(network.unwrap_or("none").to_owned()),
        // Commands may use every port and ping: the network namespace has no other users.
        sysctls: Some(
            [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 65535")]
                .into_iter()
                .chain(IPC_SETTINGS)
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        ),
        port_bindings: None,
        publish_all_ports: Some(false),
        links: None,
        extra_hosts: None,
        // The session's driver alone decides when the container ends.
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: Some(0) }),
        auto_remove: Some(false),
        init: Some(false),
        runtime: config.oci_runtime.clone(),
        // The other fields divide cpu and disk time between containers, or are for Windows.
        ..HostConfig::default()
    })
}

/// A writable root is on the engine's disk. A quota limits it, unless the operator has turned that off.
fn storage(spec: &SandboxSpec, config: &DockerConfig) -> Option<HashMap<String, String>> {
    let limited = spec.session.writable_root && config.root_quota;
    limited.then(|| HashMap::from([("size".to_owned(), format!("{}M", spec.session.resources.disk_mb))]))
}

/// The session's variables, and two for the runner. The runner's are no arguments: an older runner of an image ignores them.
fn variables(of_session: &Variables) -> Vec<String> {
    // The engine adds the image's variables, so the runner cannot tell otherwise which are the session's.
    let names = ("COVE_RUNNER_SESSION_VARIABLES".to_owned(), of_session.names());
    let state = ("COVE_RUNNER_STATE".to_owned(), STATE.to_owned());
    let all = of_session.0.clone().into_iter().chain([names, state]);
    all.map(|(name, value)| format!("{name}={value}")).collect()
}

/// The place of the workspace, if the sandbox has one.
fn workspace_target(spec: &SandboxSpec) -> Option<&'static str> {
    spec.workspace.as_ref().map(|_| match spec.purpose {
        Purpose::Session => WORKSPACE,
        Purpose::WorkspaceFiles => FILES_WORKSPACE,
    })
}

/// The directories of the sandbox's user that are a tmpfs.
fn users_own(spec: &SandboxSpec) -> Vec<&'static str> {
    USERS_OWN.into_iter().filter(|path| workspace_target(spec) != Some(path)).collect()
}

/// The sizes of the directories that commands write to. Together they leave memory for programs when all are full.
fn disk_sizes(spec: &SandboxSpec, image: &ImageFacts) -> BTreeMap<String, DiskSize> {
    // Without a tmpfs, a volume that the image declares would be a directory on the engine's disk, without a limit.
    let volumes = image.volumes.iter().map(|path| (path.clone(), VOLUME_WEIGHT));
    let mut weights: BTreeMap<String, u64> = volumes.collect();
    weights.extend(DISKS.map(|(path, weight)| (path.to_owned(), weight)));
    if let Some(target) = workspace_target(spec) {
        weights.remove(target);
    }
    let sizes = disks(&spec.session.resources, &weights.values().copied().collect::<Vec<_>>());
    weights.into_keys().zip(sizes).collect()
}

/// What a snapshot of the sandbox has to copy. `asked` is the request for its container.
pub fn record(spec: &SandboxSpec, image: &ImageFacts, asked: &ContainerCreateBody) -> SandboxRecord {
    // `/dev/shm` is memory that programs share, and ends with them.
    let kept = disk_sizes(spec, image).into_iter().filter(|(path, _)| path != SHARED_MEMORY && is_listable(path));
    let (directories, sizes): (Vec<String>, Vec<DiskSize>) = kept.unzip();
    let names = asked.env.iter().flatten().map(|variable| variable.split('=').next().unwrap_or(variable).to_owned());
    SandboxRecord {
        image: image.id.clone(),
        container: None,
        directories,
        max_bytes: sizes.iter().fold(0, |sum, size| size.bytes.saturating_add(sum)),
        writable_root: spec.session.writable_root,
        variables: names.collect(),
    }
}

/// Whether a path can be one of a list of directories.
fn is_listable(path: &str) -> bool {
    path.len() > 1 && !path.contains(':') && !path.ends_with('/')
}

fn tmpfs(spec: &SandboxSpec, sizes: &BTreeMap<String, DiskSize>, dialect: &Dialect) -> HashMap<String, String> {
    let small = Tmpfs { programs: "noexec", bytes: SMALL_BYTES, inodes: SMALL_INODES, mode: "0755", owner: None };
    let memory_mb = spec.session.resources.memory_mb;
    let (scratch_bytes, state_bytes) = (scratch_bytes(memory_mb), state_bytes(memory_mb));
    let scratch = Tmpfs { bytes: scratch_bytes, inodes: SCRATCH_INODES, mode: "0711", ..small };
    let mut all: HashMap<String, Tmpfs<'_>> = HashMap::new();
    for (path, size) in sizes {
        let shared = Tmpfs { programs: "exec", bytes: size.bytes, inodes: size.inodes, mode: "1777", owner: None };
        let own = Tmpfs { mode: "0755", owner: Some(SANDBOX_USER), ..shared };
        all.insert(path.clone(), if USERS_OWN.contains(&path.as_str()) { own } else { shared });
    }
    all.insert("/run".into(), small);
    all.insert("/run/lock".into(), Tmpfs { mode: "1777", ..small });
    all.insert(SCRATCH.into(), scratch);
    all.insert(STATE.into(), Tmpfs { bytes: state_bytes, inodes: STATE_INODES, ..scratch });
    all.insert(PRIVATE.into(), Tmpfs { mode: "0700", ..small });
    if spec.purpose == Purpose::WorkspaceFiles {
        all.insert(FILES_ROOT.into(), small);
    }
    all.into_iter().map(|(path, wanted)| (path, dialect.tmpfs(&wanted))).collect()
}

fn mounts(
    spec: &SandboxSpec,
    config: &DockerConfig,
    image: &ImageFacts,
    host: &HostSide,
) -> Result<Vec<Mount>, RuntimeError> {
    let mut mounts = vec![bind(&host.run_dir, SOCKET_DIR, Access::Write, config)?];
    if !image.has_runner {
        mounts.push(bind(&host.runner, RUNNER, Access::Read, config)?);
    }
    if let (Some(workspace), Some(target)) = (&spec.workspace, workspace_target(spec)) {
        mounts.push(bind(workspace.directory()?, target, Access::Write, config)?);
    }
    if let Some(trust) = &host.trust {
        mounts.push(bind(&trust.directory, TRUST, Access::Read, config)?);
        for store in &trust.covered {
            mounts.push(bind(&trust.bundle(), store, Access::Read, config)?);
        }
    }
    for (source, target) in host.dialect.files() {
        mounts.push(bind(source, target, Access::Read, config)?);
    }
    Ok(mounts)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn bind(source: &Path, target: &str, access: Access, config: &DockerConfig) -> Result<Mount, RuntimeError> {
    let refuse = |why: &str| RuntimeError::Unsupported(format!("{} cannot be mounted: {why}", source.display()));
    let plain: PathBuf = source.components().collect();
    if !plain.is_absolute() || plain.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(refuse("it is not an absolute path"));
    }
    // Whoever can talk to the engine is root on the host.
    if config.socket.starts_with(&plain) {
        return Err(refuse("the engine's socket lies in it"));
    }
    Ok(Mount {
        target: Some(target.to_owned()),
        source: Some(plain.to_str().ok_or_else(|| refuse("it is not UTF-8"))?.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(access == Access::Read),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    })
}

fn bytes(name: &str, mebibytes: u64) -> Result<i64, RuntimeError> {
    whole(name, mebibytes.saturating_mul(1 << 20))
}

/// Converts a number to the engine's type. For an engine, 0 and negative numbers mean no limit, so they are refused.
fn whole(name: &str, value: u64) -> Result<i64, RuntimeError> {
    match i64::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(RuntimeError::Unsupported(format!("{name} is out of bounds"))),
    }
}

#[cfg(test)]
#[path = "request_test.rs"]
mod tests;
