//! The files of `/proc` and `/sys` that show a sandbox its own limits instead of the host's values.
//!
//! What never changes is a file in memory: the processors, and that there is no swap. What changes (`meminfo`, `stat`, `loadavg`) is a file
//! system with a single file each, which the runner serves when a program reads it. The launcher opens a connection for each of them, the
//! first process mounts them over those of `/proc`, and the runner inherits the connections. Nothing asks for their content before that.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::fcntl::{OFlag, openat};
use nix::sched::CloneFlags;
use nix::sys::stat::{Mode, fchmod};
use proc_files::{ProcFile, text, wire};
use shared_protocol::api::ResourcesView;

use super::cgroup::{CPU_PERIOD_USEC, cpu_quota};
use super::plan::{Owner, Step};
use crate::sys::mount::{self, Restrictions, Submounts};

const CPUINFO: &str = "/proc/cpuinfo";
const SWAPS: &str = "/proc/swaps";

/// Where programs look for the numbers of processors.
const PROCESSOR_LISTS: [&str; 3] = ["online", "possible", "present"];
const SYS_PROCESSORS: [&str; 3] = ["/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu"];

/// The variable by which OpenMP, the libraries for numbers that use it, and `nproc` know how many threads to use. The kernel tells programs
/// on which processors they may run, and those are the host's, so that the scheduler can use whichever is idle.
pub const THREADS_VARIABLE: &str = "OMP_NUM_THREADS";

const READ_ONLY_DATA: Restrictions = Restrictions { read_only: true, no_suid: true, no_dev: true, no_exec: true };

const CONNECTION: &str = "/dev/fuse";

/// What this host has for them. It is found out once, when the daemon starts.
#[derive(Debug, Clone)]
pub struct ProcFiles {
    /// Whether files can be mounted that the runner serves.
    pub served: bool,
    /// The host's own `/proc/cpuinfo`.
    cpuinfo: String,
    host_processors: usize,
}

impl ProcFiles {
    pub fn look() -> Self {
        let host_processors = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).map_or(1, |set| {
            (0..nix::sched::CpuSet::count()).filter(|number| set.is_set(*number).unwrap_or(false)).count()
        });
        let cpuinfo = std::fs::read_to_string(CPUINFO).unwrap_or_default();
        Self { served: is_supported(), cpuinfo, host_processors }
    }

    /// The number of processors that a session can use at once.
    pub fn processors(&self, resources: &ResourcesView) -> usize {
        proc_files::processors(cpu_quota(resources.cpus), CPU_PERIOD_USEC, self.host_processors)
    }

    /// The steps for a session with this many processors. They come before `/sys` is made read-only.
    pub fn processor_steps(&self, count: usize, owner: Owner) -> Vec<Step> {
        let mut steps: Vec<Step> =
            SYS_PROCESSORS.map(|path| Step::Directory { path: path.to_owned(), mode: 0o755, owner }).into();
        steps.extend(PROCESSOR_LISTS.map(|name| Step::File {
            path: format!("{}/{name}", SYS_PROCESSORS[2]),
            content: text::processor_list(count),
            mode: 0o444,
            owner,
        }));
        steps.push(Step::Cover { path: CPUINFO.to_owned(), content: text::cpuinfo(&self.cpuinfo, count) });
        steps
    }

    /// The steps for a session whose memory is limited. No sandbox may use swap.
    pub fn memory_steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Cover { path: SWAPS.to_owned(), content: text::NO_SWAPS.to_owned() }];
        if self.served {
            steps.push(Step::Serve);
        }
        steps
    }
}

/// Opens a connection for each file. The process must be in the user namespace in which the files are mounted.
pub fn connect() -> io::Result<Vec<OwnedFd>> {
    let open = |_| Ok(OpenOptions::new().read(true).write(true).open(CONNECTION)?.into());
    ProcFile::ALL.into_iter().map(open).collect()
}

/// A file that the other end of the connection serves, as a detached mount. It asks the other end for nothing.
pub fn served_file(connection: &OwnedFd, owner: Owner) -> io::Result<OwnedFd> {
    let options = [
        ("fd", connection.as_raw_fd().to_string()),
        ("rootmode", format!("{:o}", wire::MODE)),
        ("user_id", owner.uid.to_string()),
        ("group_id", owner.gid.to_string()),
        ("default_permissions", String::new()),
        ("allow_other", String::new()),
        ("ro", String::new()),
    ];
    mount::new_filesystem("fuse", &options, READ_ONLY_DATA)
}

/// A file with this content, as a detached mount. It lies in the sandbox's memory under `name`, to which no path inside leads.
pub fn fixed_file(memory: &OwnedFd, name: &str, content: &str) -> io::Result<OwnedFd> {
    let (flags, mode) =
        (OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o444));
    let mut file = File::from(openat(memory, name, flags, mode)?);
    fchmod(&file, mode)?;
    file.write_all(content.as_bytes())?;
    let tree = mount::clone_tree(memory, Path::new(name), Submounts::Exclude)?;
    mount::restrict(tree.as_fd(), READ_ONLY_DATA, Submounts::Exclude)?;
    Ok(tree)
}

/// The hidden subcommand that makes `cove` try to mount a file that it serves.
pub const PROBE_SUBCOMMAND: &str = "__probe-proc-files";

fn is_supported() -> bool {
    let tried = Command::new("/proc/self/exe").arg(PROBE_SUBCOMMAND).stdin(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// The whole program of the process that [`is_supported`] starts.
pub fn probe() -> ExitCode {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let tried = || -> io::Result<()> {
        if !uid.is_root() {
            nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
        }
        nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
        for connection in connect()? {
            served_file(&connection, Owner { uid: 0, gid: 0 })?;
        }
        Ok(())
    };
    if tried().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host_processors: usize) -> ProcFiles {
        let block = |number| format!("processor\t: {number}\nmodel name\t: fast\n\n");
        ProcFiles { served: true, cpuinfo: (0..host_processors).map(block).collect(), host_processors }
    }

    #[test]
    fn a_session_sees_as_many_processors_as_it_can_use_at_once() {
        let resources = |cpus| ResourcesView { cpus, memory_mb: 64, pids: 8, disk_mb: 64 };
        assert_eq!(host(8).processors(&resources(0.5)), 1);
        assert_eq!(host(8).processors(&resources(2.5)), 3);
        assert_eq!(host(2).processors(&resources(2.5)), 2);
    }

    #[test]
    fn the_lists_and_the_descriptions_of_processors_agree() {
        let steps = host(4).processor_steps(2, Owner { uid: 0, gid: 0 });
        let lists: Vec<&String> = steps
            .iter()
            .filter_map(|step| match step {
                Step::File { content, .. } => Some(content),
                _ => None,
            })
            .collect();
        assert_eq!(lists, ["0-1\n"; 3]);
        let Some(Step::Cover { content, .. }) = steps.last() else { panic!("{steps:?}") };
        assert_eq!(content.matches("processor").count(), 2);
    }

    #[test]
    fn without_fuse_the_host_values_stay_but_for_swap() {
        let steps = ProcFiles { served: false, ..host(1) }.memory_steps();
        assert!(matches!(&steps[..], [Step::Cover { path, .. }] if path == SWAPS));
    }
}
