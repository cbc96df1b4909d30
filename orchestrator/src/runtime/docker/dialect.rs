//! The differences between Docker's API and what Podman understands of it. The daemon finds out once which engine it talks to.
//!
//! `request` asks both for the same sandbox. Podman takes the system call filter as a file name and masked paths as an option. It
//! cannot set the owner of a tmpfs, so the runner does that; nor its number of files, which is then not limited.

use std::path::{Path, PathBuf};

use bollard::models::{ResourcesUlimits, SystemVersion};

use super::kernel::Kernel;
use super::request::seccomp_profile;
use crate::runtime::syscalls::Debugging;

/// The component that marks an engine's version as Podman's.
const PODMAN: &str = "Podman Engine";

const HOSTS: &str = "/etc/hosts";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    Docker,
    Podman(Podman),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Podman {
    /// The directory with the system call filters, which the engine can read.
    pub filters: PathBuf,
    /// The file to mount at `/etc/hosts`. Podman's own would contain names and addresses of the host.
    pub hosts: PathBuf,
    /// The limit of processes per user id on the whole host. Podman sets one of its own if none is named, and fails if it may not
    /// set that. So this is as many as the host can have. The limit of a sandbox is `pids`.
    pub user_processes: i64,
    /// Whether containers get a cgroup namespace. On cgroup v1 Podman makes none, and does not report that.
    pub has_cgroup_namespaces: bool,
}

/// A tmpfs, independent of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Tmpfs<'a> {
    /// Whether programs can be run from it: `exec` or `noexec`.
    pub programs: &'a str,
    pub bytes: u64,
    pub inodes: u64,
    pub mode: &'a str,
    /// The owner. `None` means root.
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
            // Without `notmpcopyup`, Podman copies the image's content of that path into the tmpfs.
            (Self::Podman(_), _) => format!("{common},mode={mode},notmpcopyup"),
        }
    }

    /// The word that takes a variable of the image away. Podman knows none, so the variable becomes empty.
    pub fn unset(&self, name: &str) -> String {
        match self {
            Self::Docker => name.to_owned(),
            Self::Podman(_) => format!("{name}="),
        }
    }

    /// The daemon's files that are mounted over the engine's, with their paths inside.
    pub fn files(&self) -> Vec<(&Path, &'static str)> {
        match self {
            Self::Docker => Vec::new(),
            Self::Podman(podman) => vec![(&podman.hosts, HOSTS)],
        }
    }

    /// Further arguments of the runner. With Podman it has to set the owner of directories, because the engine cannot.
    pub fn runner_arguments(&self, users_own: &[&str]) -> Vec<String> {
        match self {
            Self::Podman(_) if !users_own.is_empty() => vec!["--own".to_owned(), users_own.join(":")],
            _ => Vec::new(),
        }
    }

    pub fn security(&self, kernel: Kernel, debugging: Debugging, masked: &[String]) -> Vec<String> {
        let mut options = vec!["no-new-privileges:true".to_owned()];
        match self {
            Self::Docker => options.push(format!("seccomp={}", seccomp_profile(kernel, debugging))),
            Self::Podman(podman) => {
                options.push(format!("seccomp={}", podman.filters.join(filter_file(debugging)).display()));
                // These paths add to Podman's own list. `MaskedPaths` says the same, but not all versions read it.
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

/// The name of the file with a system call filter.
pub fn filter_file(debugging: Debugging) -> &'static str {
    match debugging {
        Debugging::Children => "seccomp.json",
        Debugging::Running => "seccomp-ptrace.json",
        Debugging::Memory => "seccomp-debug.json",
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
            filters: "/data".into(),
            hosts: "/data/hosts".into(),
            user_processes: 7,
            has_cgroup_namespaces: true,
        });
        let home = Tmpfs { programs: "exec", bytes: 5, inodes: 6, mode: "0755", owner: Some(1000) };
        assert_eq!(Dialect::Docker.tmpfs(&home), "rw,exec,nosuid,nodev,size=5,nr_inodes=6,mode=0755,uid=1000,gid=1000");
        assert_eq!(podman.tmpfs(&home), "rw,exec,nosuid,nodev,size=5,mode=0755,notmpcopyup");
        let masked = ["/a".to_owned(), "/b".to_owned()];
        let security = |dialect: &Dialect, debugging| dialect.security(Kernel::Host, debugging, &masked);
        for debugging in Debugging::ALL {
            let filter = format!("seccomp={}", seccomp_profile(Kernel::Host, debugging));
            assert_eq!(security(&Dialect::Docker, debugging), ["no-new-privileges:true", &filter]);
        }
        assert_eq!(
            security(&podman, Debugging::Children),
            ["no-new-privileges:true", "seccomp=/data/seccomp.json", "mask=/a:/b"]
        );
        assert_eq!(security(&podman, Debugging::Memory)[1], "seccomp=/data/seccomp-debug.json");
        assert!(Dialect::Docker.limits(Vec::new()).is_empty() && Dialect::Docker.runner_arguments(&["/a"]).is_empty());
        assert_eq!(podman.limits(Vec::new())[0].hard, Some(7));
        assert_eq!(podman.runner_arguments(&["/a", "/b"]), ["--own", "/a:/b"]);
        assert!(podman.runner_arguments(&[]).is_empty());
        assert_eq!([Dialect::Docker.unset("A"), podman.unset("A")], ["A", "A="]);
        assert!(Dialect::Docker.files().is_empty());
        assert_eq!(podman.files(), [(Path::new("/data/hosts"), "/etc/hosts")]);
    }
}
