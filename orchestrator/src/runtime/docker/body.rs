//! What a container engine is asked for, as a pure function of the spec and the configuration. Every field is set on purpose:
//! an engine's defaults are made for services, and its administrator can change them.
//!
//! It refuses a privileged container, the host's namespaces, a capability that the runner does not need, anything without a
//! limit, and a mount from which the engine's own socket could be reached. A property test looks for a spec that gets one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use shared_protocol::api::NetworkMode;

use super::dialect::{Dialect, Tmpfs};
use super::image::ImageFacts;
use super::kernel::Kernel;
use super::{DockerConfig, Places, seccomp};
use crate::runtime::policy::{
    MASKED, OPEN_FILES, READ_ONLY, RUNNER_CAPABILITIES, SANDBOX_USER, SCRATCH, SCRATCH_BYTES, SCRATCH_INODES,
    SMALL_BYTES, SMALL_INODES, WORKSPACE, disk_inodes, nano_cpus,
};
use crate::runtime::{RuntimeError, SandboxSpec};

pub const DATA_DIR_LABEL: &str = "cove.data-dir";
pub const SESSION_LABEL: &str = "cove.session";

/// Where an image that carries a runner has it, as its entry point.
pub const OWN_RUNNER: &str = "/usr/local/bin/runner";

/// A directory of root's alone: commands cannot come to what is mounted below it, whoever that belongs to.
const PRIVATE: &str = "/run/cove/private";
const SOCKET_DIR: &str = "/run/cove/private/host";
pub const SOCKET_NAME: &str = "runner.sock";
const RUNNER: &str = "/run/cove/private/runner";

/// Directories that commands write to, each a tmpfs of the disk's size. All of them together are memory, and limited by that.
pub const DISKS: [&str; 5] = [WORKSPACE, "/tmp", "/var/tmp", "/home/sandbox", "/dev/shm"];
/// Those that belong to the sandbox's user; the others are everybody's.
const HIS_OWN: [&str; 2] = [WORKSPACE, "/home/sandbox"];

/// Masked beside what is masked everywhere: elsewhere `/sys` is empty.
const MASKED_SYS: [&str; 2] = ["/sys/firmware", "/sys/devices/virtual/powercap"];

/// What a runner writes to its standard error is a few lines.
const LOG_BYTES: &str = "256k";

const STOP_SECONDS: i64 = 1;

/// A profile is the same for all of a kernel, and long.
static SECCOMP: LazyLock<String> = LazyLock::new(|| seccomp::profile(Kernel::Host).to_string());
static SECCOMP_GVISOR: LazyLock<String> = LazyLock::new(|| seccomp::profile(Kernel::Gvisor).to_string());

/// As text.
pub fn seccomp_profile(kernel: Kernel) -> &'static String {
    match kernel {
        Kernel::Host => &SECCOMP,
        Kernel::Gvisor => &SECCOMP_GVISOR,
    }
}

pub fn body(
    spec: &SandboxSpec,
    config: &DockerConfig,
    image: &ImageFacts,
    places: &Places,
) -> Result<ContainerCreateBody, RuntimeError> {
    let user = SANDBOX_USER.to_string();
    let socket = format!("{SOCKET_DIR}/{SOCKET_NAME}");
    let runner = if image.has_runner { OWN_RUNNER } else { RUNNER };
    let mut arguments =
        ["--socket", &socket, "--scratch", SCRATCH, "--uid", &user, "--gid", &user].map(str::to_owned).to_vec();
    // A daemon that is not root could not connect to root's socket. Its directory keeps commands out, also where they and the
    // daemon have one number.
    if let Some(owner) = places.socket_owner {
        arguments.extend(["--socket-owner".to_owned(), owner.to_string()]);
    }
    // The exact limit, by the sandbox's own kernel; the host's is about that kernel's threads.
    if places.kernel == Kernel::Gvisor {
        arguments.extend(["--max-processes".to_owned(), whole("pids", spec.resources.pids)?.to_string()]);
    }
    arguments.extend(places.dialect.runner_arguments(&his_own(spec)));
    let labels = [(DATA_DIR_LABEL, places.instance.as_str()), (SESSION_LABEL, spec.id.as_str())];
    Ok(ContainerCreateBody {
        hostname: Some(spec.id.to_string()),
        domainname: Some(String::new()),
        // The runner's; it becomes the sandbox's user for commands, whatever user the image names.
        user: Some("0:0".into()),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        exposed_ports: None,
        tty: Some(false),
        open_stdin: Some(false),
        stdin_once: Some(false),
        // The image's own variables are added by the engine; these win.
        env: Some(spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        entrypoint: Some(vec![runner.to_owned()]),
        cmd: Some(arguments),
        // An image's own check would run in the sandbox, as root, for as long as it lives.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        args_escaped: None,
        image: Some(image.id.clone()),
        volumes: None,
        working_dir: Some("/".into()),
        network_disabled: Some(spec.network == NetworkMode::None),
        on_build: None,
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
        stop_signal: Some("SIGTERM".into()),
        stop_timeout: Some(STOP_SECONDS),
        shell: None,
        host_config: Some(host_config(spec, config, image, places)?),
        networking_config: None,
    })
}

fn host_config(
    spec: &SandboxSpec,
    config: &DockerConfig,
    image: &ImageFacts,
    places: &Places,
) -> Result<HostConfig, RuntimeError> {
    let resources = &spec.resources;
    let memory = bytes("memory_mb", resources.memory_mb)?;
    let disk = bytes("disk_mb", resources.disk_mb)?;
    let limit =
        |name: &str, value: i64| ResourcesUlimits { name: Some(name.into()), soft: Some(value), hard: Some(value) };
    let mut masked: Vec<String> = MASKED.into_iter().chain(MASKED_SYS).map(str::to_owned).collect();
    masked.sort();
    Ok(HostConfig {
        // What it may use.
        memory: Some(memory),
        // The same number means no swap beside it.
        memory_swap: Some(memory),
        memory_reservation: Some(0),
        memory_swappiness: None,
        oom_kill_disable: Some(false),
        oom_score_adj: Some(0),
        nano_cpus: Some(whole("cpus", nano_cpus(resources.cpus))?),
        pids_limit: Some(whole("pids", places.kernel.host_threads(resources.pids))?),
        ulimits: Some(places.dialect.limits(vec![limit("nofile", whole("open files", OPEN_FILES)?), limit("core", 0)])),
        shm_size: Some(disk),
        storage_opt: storage(spec, config),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(
                [("max-size", LOG_BYTES), ("max-file", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ),
        }),
        // What it sees.
        readonly_rootfs: Some(!spec.writable_root),
        tmpfs: Some(tmpfs(spec, image, disk, &places.dialect)),
        binds: None,
        mounts: Some(mounts(spec, config, image, places)?),
        volumes_from: None,
        volume_driver: None,
        security_opt: Some(places.dialect.security(seccomp_profile(places.kernel), &masked)),
        masked_paths: Some(masked),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).to_vec()),
        devices: Some(Vec::new()),
        device_cgroup_rules: Some(Vec::new()),
        device_requests: Some(Vec::new()),
        // What it may do.
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: Some(RUNNER_CAPABILITIES.map(|(name, _)| name.to_owned()).to_vec()),
        group_add: None,
        // Namespaces: for pid, uts and user, the empty word is one of its own, or what the whole engine is set to.
        pid_mode: Some(String::new()),
        uts_mode: Some(String::new()),
        userns_mode: Some(String::new()),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        cgroup: Some(String::new()),
        cgroup_parent: Some(String::new()),
        network_mode: Some(match spec.network {
            NetworkMode::None => "none".to_owned(),
            NetworkMode::Full => config.network.clone(),
        }),
        // Nobody else is on this network.
        sysctls: Some(
            [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 65535")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        ),
        port_bindings: None,
        publish_all_ports: Some(false),
        links: None,
        extra_hosts: None,
        // How it lives: the session's driver decides, nobody else.
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: Some(0) }),
        auto_remove: Some(false),
        init: Some(false),
        runtime: config.oci_runtime.clone(),
        // The rest shares cpu and disk time between containers, or is for Windows.
        ..HostConfig::default()
    })
}

/// A root that can be written to is on the engine's disk: limited by a quota, where the operator has not said otherwise.
fn storage(spec: &SandboxSpec, config: &DockerConfig) -> Option<HashMap<String, String>> {
    let limited = spec.writable_root && config.root_quota;
    limited.then(|| HashMap::from([("size".to_owned(), format!("{}M", spec.resources.disk_mb))]))
}

/// Those of the user's own directories that are tmpfs.
fn his_own(spec: &SandboxSpec) -> Vec<&'static str> {
    HIS_OWN.into_iter().filter(|path| *path != WORKSPACE || spec.workspace.is_none()).collect()
}

fn tmpfs(spec: &SandboxSpec, image: &ImageFacts, disk: i64, dialect: &Dialect) -> HashMap<String, String> {
    let (bytes, inodes) = (disk.unsigned_abs(), disk_inodes(spec.resources.disk_mb));
    let shared = Tmpfs { programs: "exec", bytes, inodes, mode: "1777", owner: None };
    let small = Tmpfs { programs: "noexec", bytes: SMALL_BYTES, inodes: SMALL_INODES, mode: "0755", owner: None };
    let own = Tmpfs { mode: "0755", owner: Some(SANDBOX_USER), ..shared };
    let scratch = Tmpfs { bytes: SCRATCH_BYTES, inodes: SCRATCH_INODES, mode: "0711", ..small };
    let mut all: HashMap<String, Tmpfs<'_>> = HashMap::new();
    // What an image declares as a volume would be a directory of the engine's disk, without a limit.
    all.extend(image.volumes.iter().map(|path| (path.clone(), shared)));
    for path in DISKS {
        all.insert(path.into(), if HIS_OWN.contains(&path) { own } else { shared });
    }
    if spec.workspace.is_some() {
        all.remove(WORKSPACE);
    }
    all.insert("/run".into(), small);
    all.insert("/run/lock".into(), Tmpfs { mode: "1777", ..small });
    all.insert(SCRATCH.into(), scratch);
    all.insert(PRIVATE.into(), Tmpfs { mode: "0700", ..small });
    all.into_iter().map(|(path, wanted)| (path, dialect.tmpfs(&wanted))).collect()
}

fn mounts(
    spec: &SandboxSpec,
    config: &DockerConfig,
    image: &ImageFacts,
    places: &Places,
) -> Result<Vec<Mount>, RuntimeError> {
    let mut mounts = vec![bind(&places.run_dir, SOCKET_DIR, Access::Write, config)?];
    if !image.has_runner {
        mounts.push(bind(&places.runner, RUNNER, Access::Read, config)?);
    }
    if let Some(workspace) = &spec.workspace {
        mounts.push(bind(&workspace.path, WORKSPACE, Access::Write, config)?);
    }
    for (source, target) in places.dialect.files() {
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
    // Whoever speaks to the engine is root on the host.
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

/// To an engine 0 is no limit, and so is what is below it.
fn whole(name: &str, value: u64) -> Result<i64, RuntimeError> {
    match i64::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(RuntimeError::Unsupported(format!("{name} is out of bounds"))),
    }
}

#[cfg(test)]
#[path = "body_test.rs"]
mod tests;
