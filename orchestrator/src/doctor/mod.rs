//! The report of `cove doctor`: what this host can enforce, and why it cannot enforce the rest. It inspects the host and
//! starts one real sandbox to see that it works.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shared_protocol::SessionId;
use shared_protocol::api::ResourcesView;

use crate::config::{Config, ServeFlags};
use crate::runtime::local::{Cgroups, Host, LocalConfig, LocalRuntime, Users};
use crate::runtime::syscalls::{Debugging, allowed};
use crate::runtime::{Purpose, Runtime as _, RuntimeError, SandboxSpec};
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
    let mut findings = vec![kernel(), separation(&users)];
    findings.extend(host.map(|host| host_files(&host.impossible_overlays())));
    findings.extend([devices(&users), system_calls(), landlock(landlock_version())]);
    findings.extend(limits(&cgroups));
    cgroups.close();
    findings.push(disk());
    findings.push(owners(&users, idmap));
    findings.push(workspace_limit());
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
    let state = if is_at_least(&release, 5, 12) { FindingState::Enforced } else { FindingState::Missing };
    let remedy = (state == FindingState::Missing).then_some("use Linux 5.12 or newer, for its mount calls");
    Finding { needed: true, ..finding("kernel", state, format!("Linux {}", release.trim()), remedy) }
}

fn is_at_least(release: &str, major: u32, minor: u32) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(found), Some(second)) => (found, second) >= (major, minor),
        _ => false,
    }
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

fn disk() -> Finding {
    finding(
        "disk limit",
        FindingState::Enforced,
        "each sandbox has a tmpfs with size and inode limits; it counts as memory",
        None,
    )
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

/// Whether the file system that the data directory is on, or will be on, can limit workspaces.
fn workspace_limit() -> Finding {
    let data_dir = Config::load(&ServeFlags::default()).map(|config| config.data_dir).map_err(|e| e.to_string());
    let enforceable = data_dir.and_then(|data_dir| {
        let there = data_dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
        crate::workspace::quota::is_enforceable(there)
    });
    match enforceable {
        Ok(()) => finding("workspace limit", FindingState::Enforced, "project quotas, for workspaces.max_mb", None),
        Err(why) => finding(
            "workspace limit",
            FindingState::Missing,
            format!("{why}: workspaces.max_mb has no effect"),
            Some("run the daemon as root, its data directory on ext4 or xfs mounted with prjquota"),
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
        purpose: Purpose::Session,
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

    #[test]
    fn kernel_versions_compare_by_number() {
        assert!(is_at_least("6.1.0-13-amd64", 5, 12));
        assert!(is_at_least("5.12.0", 5, 12));
        assert!(!is_at_least("5.4.0-150-generic", 5, 12));
        assert!(!is_at_least("nonsense", 5, 12));
    }
}
