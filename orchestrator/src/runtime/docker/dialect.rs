//! In which words an engine is asked: Docker's own, or those that Podman understands of them. Decided once, by what the engine
//! says of itself; a plain value from then on.
//!
//! What both are asked for is the same, and `body` says what that is. Podman takes a filter by the name of a file, masks paths by an option,
//! and has no words for the owner of a tmpfs and for its number of files: the runner sees to the first, nobody to the second.

use std::path::{Path, PathBuf};

use bollard::models::{ResourcesUlimits, SystemVersion};

/// Of the components that an engine's version has.
const PODMAN: &str = "Podman Engine";

const HOSTS: &str = "/etc/hosts";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    Docker,
    Podman(Podman),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Podman {
    /// Our filter of system calls, where the engine can read it.
    pub seccomp: PathBuf,
    /// Put in the place of `/etc/hosts`. Podman's own would have the host's names and addresses in it.
    pub hosts: PathBuf,
    /// Of all processes with one user id on the host. Podman sets one of its own where none is named, and fails where that is more
    /// than it may. So this is as many as there can be on the host, and no limit of a sandbox: that is `pids`.
    pub user_processes: i64,
    /// Whether containers can have one. Podman has none on version 1, and does not say so.
    pub has_cgroup_namespaces: bool,
}

/// A directory in memory, in nobody's words.
#[derive(Debug, Clone, Copy)]
pub struct Tmpfs<'a> {
    /// `exec` or `noexec`.
    pub programs: &'a str,
    pub bytes: u64,
    pub inodes: u64,
    pub mode: &'a str,
    /// Root's where nobody is named.
    pub owner: Option<u32>,
}

pub fn is_podman(version: &SystemVersion) -> bool {
    version.components.iter().flatten().any(|part| part.name == PODMAN)
}

impl Dialect {
    pub fn tmpfs(&self, wanted: &Tmpfs<'_>) -> String {
        let Tmpfs { programs, bytes, inodes, mode, owner } = wanted;
        let common = format!("rw,{programs},nosuid,nodev,size={bytes}");
        match (self, owner) {
            (Self::Docker, None) => format!("{common},nr_inodes={inodes},mode={mode}"),
            (Self::Docker, Some(owner)) => format!("{common},nr_inodes={inodes},mode={mode},uid={owner},gid={owner}"),
            // What the image has in that place would be copied into it.
            (Self::Podman(_), _) => format!("{common},mode={mode},notmpcopyup"),
        }
    }

    /// Files of ours that a sandbox reads in the place of the engine's.
    pub fn files(&self) -> Vec<(&Path, &'static str)> {
        match self {
            Self::Docker => Vec::new(),
            Self::Podman(podman) => vec![(&podman.hosts, HOSTS)],
        }
    }

    /// Of a runner that has to give directories to the user of commands, since the engine cannot.
    pub fn runner_arguments(&self, his_own: &[&str]) -> Vec<String> {
        match self {
            Self::Podman(_) if !his_own.is_empty() => vec!["--own".to_owned(), his_own.join(":")],
            _ => Vec::new(),
        }
    }

    pub fn security(&self, profile: &str, masked: &[String]) -> Vec<String> {
        let mut options = vec!["no-new-privileges:true".to_owned()];
        match self {
            Self::Docker => options.push(format!("seccomp={profile}")),
            Self::Podman(podman) => {
                options.push(format!("seccomp={}", podman.seccomp.display()));
                // Beside its own list; `MaskedPaths`, which says the same, is not read by all versions.
                options.push(format!("mask={}", masked.join(":")));
            }
        }
        options
    }

    pub fn limits(&self, mut all: Vec<ResourcesUlimits>) -> Vec<ResourcesUlimits> {
        if let Self::Podman(podman) = self {
            let most = Some(podman.user_processes);
            all.push(ResourcesUlimits { name: Some("nproc".into()), soft: most, hard: most });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::SystemVersionComponents;

    #[test]
    fn podman_is_known_by_its_components() {
        let version = |names: &[&str]| SystemVersion {
            components: Some(
                names
                    .iter()
                    .map(|name| SystemVersionComponents { name: (*name).into(), ..SystemVersionComponents::default() })
                    .collect(),
            ),
            ..SystemVersion::default()
        };
        assert!(is_podman(&version(&["Podman Engine", "Conmon"])));
        assert!(!is_podman(&version(&["Engine", "containerd", "runc"])));
        assert!(!is_podman(&SystemVersion::default()));
    }

    #[test]
    fn docker_is_asked_in_all_words_and_podman_in_those_that_it_has() {
        let podman = Dialect::Podman(Podman {
            seccomp: "/data/seccomp.json".into(),
            hosts: "/data/hosts".into(),
            user_processes: 7,
            has_cgroup_namespaces: true,
        });
        let home = Tmpfs { programs: "exec", bytes: 5, inodes: 6, mode: "0755", owner: Some(1000) };
        assert_eq!(Dialect::Docker.tmpfs(&home), "rw,exec,nosuid,nodev,size=5,nr_inodes=6,mode=0755,uid=1000,gid=1000");
        assert_eq!(podman.tmpfs(&home), "rw,exec,nosuid,nodev,size=5,mode=0755,notmpcopyup");
        let masked = ["/a".to_owned(), "/b".to_owned()];
        assert_eq!(Dialect::Docker.security("{}", &masked), ["no-new-privileges:true", "seccomp={}"]);
        assert_eq!(
            podman.security("{}", &masked),
            ["no-new-privileges:true", "seccomp=/data/seccomp.json", "mask=/a:/b"]
        );
        assert!(Dialect::Docker.limits(Vec::new()).is_empty() && Dialect::Docker.runner_arguments(&["/a"]).is_empty());
        assert_eq!(podman.limits(Vec::new())[0].hard, Some(7));
        assert_eq!(podman.runner_arguments(&["/a", "/b"]), ["--own", "/a:/b"]);
        assert!(podman.runner_arguments(&[]).is_empty());
        assert!(Dialect::Docker.files().is_empty());
        assert_eq!(podman.files(), [(Path::new("/data/hosts"), "/etc/hosts")]);
    }
}
