//! `cove doctor`: what this host can enforce, what not and why. It looks, and it starts one real sandbox to see that it can.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use shared_protocol::SessionId;
use shared_protocol::api::{NetworkMode, ResourcesView};

use crate::config::{Config, ServeFlags};
use crate::runtime::local::{Cgroups, Host, LocalConfig, LocalRuntime, Users};
use crate::runtime::{Runtime as _, RuntimeError, SandboxSpec};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Enforced,
    /// In force, but weaker than it can be.
    Partial,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub state: State,
    pub detail: String,
    /// What an operator can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether sandboxes cannot run at all without it.
    pub needed: bool,
}

/// Everything in order, the sandbox itself last. `scratch` is an empty directory that the caller removes.
pub async fn report(scratch: &Path) -> Vec<Finding> {
    let users = Users::look();
    let idmap = Host::look(scratch).is_ok_and(|host| host.idmap);
    let cgroups = Cgroups::open("cove-doctor");
    let mut findings = vec![kernel(), separation(&users)];
    findings.extend(limits(&cgroups));
    cgroups.close();
    findings.push(disk());
    findings.push(owners(&users, idmap));
    findings.push(workspace_limit());
    findings.push(sandbox(scratch).await);
    findings.push(docker().await);
    findings
}

/// Not needed: only for `--runtime docker`. It looks where the configuration says, or where engines usually are.
async fn docker() -> Finding {
    let config = match Config::load(&ServeFlags::default()) {
        Ok(config) => config.docker,
        Err(error) => return finding("docker runtime", State::Missing, error.to_string(), None),
    };
    match crate::runtime::docker::describe(&config.socket).await {
        Ok(engine) => finding("docker runtime", State::Enforced, engine, None),
        Err(error) => finding(
            "docker runtime",
            State::Missing,
            error.to_string(),
            Some("only for --runtime docker: start Docker or Podman, or set docker.socket"),
        ),
    }
}

fn finding(name: &'static str, state: State, detail: impl Into<String>, remedy: Option<&str>) -> Finding {
    Finding { name, state, detail: detail.into(), remedy: remedy.map(str::to_owned), needed: false }
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let state = if is_at_least(&release, 5, 12) { State::Enforced } else { State::Missing };
    let remedy = (state == State::Missing).then_some("use Linux 5.12 or newer: mounts are restricted by its calls");
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
            State::Enforced,
            "root: each sandbox has a range of 65,536 user ids of its own, and its namespaces belong to the host",
            None,
        ),
        Users::Subordinate { .. } => finding(
            "users",
            State::Partial,
            "an ordinary user with subordinate ids: runner and commands are different users, but commands are, outside, you",
            Some("run the daemon as root for a range of ids per sandbox"),
        ),
        Users::Own { .. } => finding(
            "users",
            State::Partial,
            "an ordinary user: runner and commands are the same user, and that user is, outside, you",
            Some("install uidmap and give yourself a range in /etc/subuid and /etc/subgid, or run the daemon as root"),
        ),
    }
}

fn limits(cgroups: &Cgroups) -> Vec<Finding> {
    let (version, state, remedy) = match cgroups {
        Cgroups::V2(_) => ("cgroup v2".to_owned(), State::Enforced, None),
        Cgroups::V1(_) => ("cgroup v1".to_owned(), State::Enforced, None),
        Cgroups::None { why } => {
            // Delegation is a thing of version 2.
            let remedy = if why.contains("v1") {
                "run the daemon as root"
            } else {
                "run the daemon as root, or in a unit of your own with: systemd-run --user --scope -p Delegate=yes cove serve"
            };
            (why.clone(), State::Missing, Some(remedy))
        }
    };
    let processes = match cgroups {
        Cgroups::None { why } => {
            finding("process limit", State::Partial, format!("by RLIMIT_NPROC only: {why}"), remedy)
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
    finding("disk limit", State::Enforced, "a tmpfs of its own with size and inode limits; it counts as memory", None)
}

fn owners(users: &Users, idmap: bool) -> Finding {
    match (users, idmap) {
        (Users::Root, true) => finding("workspace owners", State::Enforced, "idmapped mounts", None),
        (Users::Root, false) => finding(
            "workspace owners",
            State::Partial,
            "the data directory's file system has no idmapped mounts: sandboxes with a workspace share one user id",
            Some("put the data directory on ext4, xfs or btrfs"),
        ),
        _ => finding("workspace owners", State::Enforced, "your own user", None),
    }
}

/// Of the file system that the data directory is on, or will be.
fn workspace_limit() -> Finding {
    let data_dir = Config::load(&ServeFlags::default()).map(|config| config.data_dir).map_err(|e| e.to_string());
    let enforceable = data_dir.and_then(|data_dir| {
        let there = data_dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
        crate::workspace::quota::is_enforceable(there)
    });
    match enforceable {
        Ok(()) => finding("workspace limit", State::Enforced, "project quotas, for workspaces.max_mb", None),
        Err(why) => finding(
            "workspace limit",
            State::Missing,
            format!("{why}: workspaces.max_mb has no effect"),
            Some("run the daemon as root, its data directory on ext4 or xfs mounted with prjquota"),
        ),
    }
}

async fn sandbox(scratch: &Path) -> Finding {
    let needed = |state, detail: String, remedy| Finding { needed: true, ..finding("sandbox", state, detail, remedy) };
    match try_sandbox(scratch).await {
        Ok(()) => needed(State::Enforced, "one was started and ended".into(), None),
        Err(error) => {
            let mut detail = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                detail = format!("{detail}: {cause}");
                source = cause.source();
            }
            needed(
                State::Missing,
                detail,
                Some(
                    "user namespaces may be off: sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces",
                ),
            )
        }
    }
}

async fn try_sandbox(scratch: &Path) -> Result<(), RuntimeError> {
    let runtime = LocalRuntime::new(LocalConfig {
        data_dir: scratch.to_owned(),
        images_dir: scratch.join("images"),
        images: BTreeMap::new(),
        default_image: "host".into(),
        disabled_protections: Vec::new(),
    })?;
    let id = SessionId::new("doctor").map_err(|e| RuntimeError::failed("naming the sandbox", e))?;
    let spec = SandboxSpec {
        id: id.clone(),
        image: "host".into(),
        resources: ResourcesView { cpus: 1.0, memory_mb: 64, pids: 16, disk_mb: 16 },
        network: NetworkMode::None,
        writable_root: false,
        workspace: None,
        env: BTreeMap::new(),
    };
    runtime.create(&spec).await?;
    runtime.destroy(&id).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_compare_by_number() {
        assert!(is_at_least("6.1.0-13-amd64", 5, 12));
        assert!(is_at_least("5.12.0", 5, 12));
        assert!(!is_at_least("5.4.0-150-generic", 5, 12));
        assert!(!is_at_least("nonsense", 5, 12));
    }
}
