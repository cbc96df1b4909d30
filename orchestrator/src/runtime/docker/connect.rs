//! Connects to a container engine, and finds out which engine it is and how to ask it.

use std::path::Path;

use bollard::Docker;
use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};
use nix::sys::resource::{Resource, getrlimit};

use super::dialect::{self, Dialect, Podman};
use super::kernel::Kernel;
use super::{engine, request};
use crate::runtime::syscalls::Debugging;
use crate::runtime::{RuntimeError, files};

/// The longest wait for one answer of the engine. It makes a container in a fraction of a second; an engine that takes
/// longer hangs.
pub const ENGINE_TIMEOUT_SECONDS: u64 = 30;
/// The system call filter in the data directory, for an engine that takes it by name.
const PID_MAX: &str = "/proc/sys/kernel/pid_max";

pub async fn connect(socket: &Path) -> Result<Docker, RuntimeError> {
    let step = format!("asking the container engine at {}", socket.display());
    let path = socket.to_string_lossy();
    let docker = Docker::connect_with_unix(&path, ENGINE_TIMEOUT_SECONDS, bollard::API_DEFAULT_VERSION)
        .map_err(|error| engine::failed(&step, error))?;
    // No request depends on an API version, so none is negotiated: that would add another long wait at the start.
    docker.ping().await.map_err(|error| engine::failed(&step, error))?;
    Ok(docker)
}

/// Finds out which engine it is, and prepares the files that its requests need.
pub fn dialect_of(
    version: &SystemVersion,
    info: &SystemInfo,
    kernel: Kernel,
    data_dir: &Path,
) -> Result<Dialect, RuntimeError> {
    if !dialect::is_podman(version) {
        return Ok(Dialect::Docker);
    }
    for debugging in Debugging::ALL {
        let filter = request::seccomp_profile(kernel, debugging);
        files::write_public(data_dir, dialect::filter_file(debugging), filter.as_bytes())
            .map_err(|e| RuntimeError::failed("writing the system call filter", e))?;
    }
    let hosts = files::write_hosts(data_dir).map_err(|e| RuntimeError::failed("writing shared files", e))?;
    let user_processes = user_processes().map_err(|e| RuntimeError::failed("reading the limit of processes", e))?;
    let has_cgroup_namespaces = info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2);
    if !has_cgroup_namespaces {
        tracing::warn!(
            "Podman has no cgroup namespaces on cgroup v1: sandboxes can read the names of their cgroups on the host"
        );
    }
    Ok(Dialect::Podman(Podman { filters: data_dir.to_owned(), hosts, user_processes, has_cgroup_namespaces }))
}

/// The limit of processes per user that this daemon may set, at most the number of processes that the host can have.
fn user_processes() -> std::io::Result<i64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NPROC)?;
    let on_host = std::fs::read_to_string(PID_MAX)?;
    let on_host: i64 = on_host.trim().parse().map_err(std::io::Error::other)?;
    Ok(i64::try_from(most).map_or(on_host, |most| most.min(on_host)))
}

/// Describes the engine at a socket in one line, for `cove doctor`.
pub async fn describe(socket: &Path) -> Result<String, RuntimeError> {
    let docker = connect(socket).await?;
    let info = docker.info().await.map_err(|error| engine::failed("asking the container engine", error))?;
    let version = docker.version().await.map_err(|error| engine::failed("asking the container engine", error))?;
    let podman = if dialect::is_podman(&version) { "Podman " } else { "" };
    let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
    runtimes.sort();
    Ok(format!(
        "engine {podman}{} at {}, storage {}, cgroup v{}, runtimes {}",
        info.server_version.unwrap_or_else(|| "of unknown version".into()),
        socket.display(),
        info.driver.unwrap_or_else(|| "unknown".into()),
        info.cgroup_version.map_or_else(|| "1".to_owned(), |version| version.to_string()),
        runtimes.join(", ")
    ))
}
