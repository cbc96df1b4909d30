//! The report of `cove doctor`: what this host can enforce, and why it cannot enforce the rest. It inspects the host and
//! starts one real sandbox to see that it works.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shared_protocol::SessionId;
use shared_protocol::api::ResourcesView;

use crate::config::{Config, ServeFlags, SessionsConfig, WorkspaceStorage, WorkspacesConfig};
use crate::runtime::local::{
    Cgroups, DiskReport, Disks, DisksConfig, Host, LocalConfig, LocalRuntime, OldContent, Users, is_at_least,
};
use crate::runtime::syscalls::{Debugging, allowed};
use crate::runtime::{Origin, Purpose, Runtime as _, RuntimeError, SandboxSpec};
use crate::spec::{SessionSpec, Variables};
use crate::sys::landlock::{WITH_SCOPES, version as landlock_version};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    Enforced,
    /// Enforced, but less strictly than possible.
    Partial,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub state: FindingState,
    pub detail: String,
    /// What an operator can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether sandboxes need it to run at all.
    pub needed: bool,
}

/// All findings, in the order to show them. `scratch` is an empty directory that the caller removes.
pub async fn report(scratch: &Path) -> Vec<Finding> {
    let users = Users::look();
    let host = Host::look(scratch);
    let idmap = host.as_ref().is_ok_and(|host| host.idmap);
    let cgroups = Cgroups::open("cove-doctor");
    let config = Config::load(&ServeFlags::default());
    let mut findings = vec![kernel(), separation(&users)];
    let served = host.as_ref().is_ok_and(|host| host.proc_files.served);
    findings.extend(host.map(|host| host_files(&host.impossible_overlays())));
    findings.extend([devices(&users), system_calls(), landlock(landlock_version())]);
    findings.extend(limits(&cgroups));
    findings.push(own_limits(&cgroups, served));
    cgroups.close();
    let disk = disk(config.as_ref().ok(), scratch);
    let workspaces = workspace_limit(config.as_ref().ok(), disk.state);
    findings.push(disk);
    findings.extend(config.as_ref().ok().map(|config| overcommit(&config.sessions)));
    findings.push(owners(&users, idmap));
    findings.push(workspaces);
    findings.extend(sandbox(scratch).await);
    findings.push(docker().await);
    findings
}

/// Checks the container engine, which only `--runtime docker` needs, at the address in the configuration.
async fn docker() -> Finding {
    let config = match Config::load(&ServeFlags::default()) {
        Ok(config) => config.docker,
        Err(error) => return finding("docker runtime", FindingState::Missing, error.to_string(), None),
    };
    match crate::runtime::docker::describe(&config.socket).await {
        Ok(engine) => finding("docker runtime", FindingState::Enforced, engine, None),
        Err(error) => finding(
            "docker runtime",
            FindingState::Missing,
            error.to_string(),
            Some("only for --runtime docker: start Docker or Podman, or set docker.socket"),
        ),
    }
}

fn finding(name: &'static str, state: FindingState, detail: impl Into<String>, remedy: Option<&str>) -> Finding {
    Finding { name, state, detail: detail.into(), remedy: remedy.map(str::to_owned), needed: false }
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let state = if is_at_least(&release, (5, 12)) { FindingState::Enforced } else { FindingState::Missing };
    let remedy = (state == FindingState::Missing).then_some("use Linux 5.12 or newer, for its mount calls");
    Finding { needed: true, ..finding("kernel", state, format!("Linux {}", release.trim()), remedy) }
}

fn separation(users: &Users) -> Finding {
    match users {
        Users::Root => finding(
            "users",
            FindingState::Enforced,
            "the daemon is root: each sandbox has 65,536 user ids of its own, and its namespaces belong to the host",
            None,
        ),
        Users::Subordinate { .. } => finding(
            "users",
            FindingState::Partial,
            "an ordinary user with subordinate ids: the runner is another user than commands, but on the host commands are you",
            Some("run the daemon as root for a range of ids per sandbox"),
        ),
        Users::Own { .. } => finding(
            "users",
            FindingState::Partial,
            "an ordinary user: the runner and commands are the same user, and on the host that user is you",
            Some("install uidmap and give yourself a range in /etc/subuid and /etc/subgid, or run the daemon as root"),
        ),
    }
}

/// Whether sandboxes have inodes of their own for what they see of the host and of images.
fn host_files(impossible: &[(String, String)]) -> Finding {
    if impossible.is_empty() {
        let detail = "directories of the host and images are shown through read-only overlays: their sockets lead nowhere, and \
                      locks and watches on their files are not shared";
        return finding("host files", FindingState::Enforced, detail, None);
    }
    let each: Vec<String> = impossible.iter().map(|(directory, why)| format!("{directory} ({why})")).collect();
    finding(
        "host files",
        FindingState::Partial,
        format!(
            "read-only, but sandboxes share locks and watches with the host, and reach its sockets, in {}",
            each.join(", ")
        ),
        Some("use Linux 5.19 or newer, run the daemon as root, and have no mounts below these directories"),
    )
}

fn devices(users: &Users) -> Finding {
    match users {
        Users::Root => finding("devices", FindingState::Enforced, "each sandbox has nodes of its own in /dev", None),
        _ => finding(
            "devices",
            FindingState::Partial,
            "the host's /dev/null and its like are mounted: a sandbox can watch who opens them",
            Some("run the daemon as root, which may make devices"),
        ),
    }
}

fn system_calls() -> Finding {
    let count = allowed(Debugging::Children).count();
    let detail = format!(
        "a filter allows {count} calls; programs may trace only what they start, unless a session asks for more"
    );
    finding("system calls", FindingState::Enforced, detail, None)
}

/// Landlock, by the version that the kernel has.
fn landlock(version: u32) -> Finding {
    let (state, detail) = match version {
        0 => (
            FindingState::Missing,
            "the kernel has none; read-only mounts alone keep commands from changing files".to_owned(),
        ),
        1 => (
            FindingState::Missing,
            "the kernel has version 1, with which files could not be moved between directories".to_owned(),
        ),
        2..WITH_SCOPES => {
            (FindingState::Partial, format!("version {version}: files can be changed only where they may be"))
        }
        _ => {
            let detail = format!("version {version}: files can be changed only where they may be; signals stay inside");
            (FindingState::Enforced, detail)
        }
    };
    let remedy =
        (state != FindingState::Enforced).then_some("use Linux 6.12 or newer, with landlock in its lsm= parameter");
    finding("landlock", state, detail, remedy)
}

fn limits(cgroups: &Cgroups) -> Vec<Finding> {
    let (version, state, remedy) = match cgroups {
        Cgroups::V2(_) => ("cgroup v2".to_owned(), FindingState::Enforced, None),
        Cgroups::V1(_) => ("cgroup v1".to_owned(), FindingState::Enforced, None),
        Cgroups::None { why } => {
            // Only version 2 can be delegated to a user.
            let remedy = if why.contains("v1") {
                "run the daemon as root"
            } else {
                "run the daemon as root, or in a unit of your own with: systemd-run --user --scope -p Delegate=yes cove serve"
            };
            (why.clone(), FindingState::Missing, Some(remedy))
        }
    };
    let processes = match cgroups {
        Cgroups::None { why } => {
            finding("process limit", FindingState::Partial, format!("by RLIMIT_NPROC only: {why}"), remedy)
        }
        _ => finding("process limit", state, version.clone(), None),
    };
    vec![
        finding("memory limit", state, version.clone(), remedy),
        processes,
        finding("cpu limit", state, version.clone(), remedy),
        finding("pause", state, version, remedy),
    ]
}

/// Where the disks of sandboxes are. It tries what the daemon would do, in a directory on the same file system if there is one.
fn disk(config: Option<&Config>, scratch: &Path) -> Finding {
    const NAME: &str = "disk limit";
    let settings = config.map(DisksConfig::of).unwrap_or_default();
    let report = match Disks::open(&settings, scratch, OldContent::Useless) {
        Ok(disks) => {
            let report = disks.report();
            disks.close(OldContent::Useless);
            report
        }
        Err(error) => return finding(NAME, FindingState::Missing, error.to_string(), Some("change local.disk")),
    };
    match report {
        DiskReport::OnDisk { place, total, reserve } => finding(
            NAME,
            FindingState::Enforced,
            format!(
                "on {place}, {} MiB for all sandboxes together; {} MiB are kept for the host",
                total >> 20,
                reserve >> 20
            ),
            None,
        ),
        DiskReport::InMemory { why } => finding(
            NAME,
            FindingState::Partial,
            format!("each sandbox has a tmpfs with size and inode limits, which counts as its memory: {why}"),
            Some("run the daemon as root, on Linux 5.15 or newer with btrfs and loop devices"),
        ),
    }
}

/// What all sessions together are promised.
fn overcommit(config: &SessionsConfig) -> Finding {
    let disk = match config.max_total_disk_mb {
        Some(limit) => format!("{limit} MiB of disk"),
        None => format!("{} times the disk above", config.disk_overcommit),
    };
    let detail = format!(
        "all sessions together may ask for {} MiB of memory and {disk}; what they use is limited to what the host has, less {} MiB of memory",
        config.total_memory_mb(),
        config.host_reserve_mb
    );
    finding("promises", FindingState::Enforced, detail, None)
}

fn owners(users: &Users, idmap: bool) -> Finding {
    match (users, idmap) {
        (Users::Root, true) => finding("workspace owners", FindingState::Enforced, "idmapped mounts", None),
        (Users::Root, false) => finding(
            "workspace owners",
            FindingState::Partial,
            "the data directory's file system has no idmapped mounts: sandboxes with a workspace share one user id",
            Some("put the data directory on ext4, xfs or btrfs"),
        ),
        _ => finding("workspace owners", FindingState::Enforced, "files of workspaces belong to you", None),
    }
}

/// Whether programs see the limits of their session, or what the host has.
fn own_limits(cgroups: &Cgroups, served: bool) -> Finding {
    let name = "limits inside";
    match (cgroups, served) {
        (Cgroups::None { .. }, _) => finding(
            name,
            FindingState::Missing,
            "there are none: programs see the memory and the processors of the host",
            Some("see memory limit"),
        ),
        (_, false) => finding(
            name,
            FindingState::Partial,
            "processors only: /dev/fuse cannot be used, so /proc/meminfo, stat and loadavg are the host's",
            Some("load the module fuse, and let the daemon's user read and write /dev/fuse"),
        ),
        (_, true) => finding(
            name,
            FindingState::Enforced,
            "programs find the memory, the processors and the load of their session in /proc",
            None,
        ),
    }
}

/// What limits workspaces: project quotas of the file system that the data directory is on, or will be on, or the disks of sessions.
fn workspace_limit(config: Option<&Config>, disks: FindingState) -> Finding {
    const NAME: &str = "workspace limit";
    let Some(config) = config else {
        return finding(NAME, FindingState::Missing, "the configuration cannot be read", None);
    };
    let WorkspacesConfig { max_mb, storage, .. } = config.workspaces;
    if max_mb == 0 {
        let remedy = "remove workspaces.max_mb from the configuration, or set a limit";
        return finding(NAME, FindingState::Missing, "workspaces.max_mb is 0: workspaces have no limit", Some(remedy));
    }
    let there = config.data_dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let quotas = crate::workspace::quota::is_enforceable(there);
    match quotas {
        Ok(()) if storage != WorkspaceStorage::Disk => {
            finding(NAME, FindingState::Enforced, format!("project quotas, {max_mb} MiB for each workspace"), None)
        }
        _ if disks == FindingState::Enforced && storage != WorkspaceStorage::Directory => finding(
            NAME,
            FindingState::Enforced,
            format!("new workspaces are on the disks of sessions, {max_mb} MiB for each"),
            None,
        ),
        quotas => finding(
            NAME,
            FindingState::Missing,
            format!("{}: workspaces have no limit", quotas.err().unwrap_or_else(|| "there are no disks".to_owned())),
            Some(
                "run the daemon as root where sessions have disks, or with its data directory on ext4 or xfs mounted with prjquota",
            ),
        ),
    }
}

/// Whether a sandbox can be started, and whether it has a way to the network.
async fn sandbox(scratch: &Path) -> Vec<Finding> {
    let needed = |state, detail: String, remedy| Finding { needed: true, ..finding("sandbox", state, detail, remedy) };
    match try_sandbox(scratch).await {
        Ok(has_network) => {
            vec![needed(FindingState::Enforced, "one was started and removed".into(), None), network(has_network)]
        }
        Err(error) => {
            let mut detail = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                detail = format!("{detail}: {cause}");
                source = cause.source();
            }
            vec![needed(
                FindingState::Missing,
                detail,
                Some(
                    "user namespaces may be off: sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces",
                ),
            )]
        }
    }
}

fn network(has_network: bool) -> Finding {
    if has_network {
        return finding("network", FindingState::Enforced, "a sandbox reaches only what the daemon dials for it", None);
    }
    let remedy = "the kernel needs nf_tables with tproxy: load the module nft_tproxy, or enable CONFIG_NFT_TPROXY";
    finding("network", FindingState::Missing, "sandboxes have no way to the network", Some(remedy))
}

/// Starts and removes a sandbox. Returns whether it had a way to the network.
async fn try_sandbox(scratch: &Path) -> Result<bool, RuntimeError> {
    let runtime = LocalRuntime::new(LocalConfig {
        data_dir: scratch.to_owned(),
        images_dir: scratch.join("images"),
        images: BTreeMap::new(),
        default_image: "host".into(),
        etc: Vec::new(),
        disabled_protections: Vec::new(),
        disks: DisksConfig::default(),
        total: None,
    })?;
    let id = SessionId::new("doctor").map_err(|e| RuntimeError::failed("naming the sandbox", e))?;
    let resources = ResourcesView { cpus: 1.0, memory_mb: 64, pids: 16, disk_mb: 16 };
    let session = SessionSpec::plain("host", runtime.name(), resources, Duration::ZERO);
    let spec = SandboxSpec {
        id: id.clone(),
        session: Arc::new(session),
        workspace: None,
        awaits_workspace: false,
        env: Variables::default(),
        authority: None,
        purpose: Purpose::Session,
        origin: Origin::Empty,
    };
    let has_network = runtime.create(&spec).await?.network.is_some();
    runtime.destroy(&id).await?;
    Ok(has_network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_which_directories_share_inodes_and_what_landlock_lacks() {
        assert_eq!(host_files(&[]).state, FindingState::Enforced);
        let partial = host_files(&[("/usr".into(), "no overlays".into())]);
        assert!(partial.state == FindingState::Partial && partial.detail.contains("/usr (no overlays)"), "{partial:?}");
        let states = [0, 1, 2, 5, 6, 9].map(|version| landlock(version).state);
        use FindingState::{Enforced, Missing, Partial};
        assert_eq!(states, [Missing, Missing, Partial, Partial, Enforced, Enforced]);
    }
}
