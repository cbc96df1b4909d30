//! The launcher: the process that makes one sandbox. It is `cove` itself, started again, because only a process with one thread
//! can enter namespaces and fork safely.
//!
//! ```text
//! daemon ── plan on stdin ──▶ launcher: cgroup files, unshare, socket ── fork ──▶ first process: root, ids, limits
//!        ◀─ pid, on stdout ──                                                     (PID 1 of the sandbox)
//!        records the sandbox
//!        ── one byte ───────▶          passes it on ────────────────────────────▶ exec runner
//!        ◀─ running, stdout ─          exits; the sandbox goes on
//! ```
//!
//! **Invariant:** until the daemon has sent its byte, the end of the daemon or of the launcher kills the sandbox. So no sandbox runs
//! that is not recorded on disk.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sched::CloneFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr};

use super::first_process::{self, Request};
use super::plan::{LaunchPlan, LaunchReport, Step, UserNamespace, UserPlan};
use super::{idmap, ids, mount_workspace, proc_files, shown};
use crate::sys::{pidfd, process};

/// The hidden subcommand that makes `cove` a launcher.
pub const SUBCOMMAND: &str = "__launch-sandbox";

/// The argument with which a launcher makes the namespaces that every sandbox has before it reads the plan.
pub const NAMESPACES_AHEAD: &str = "namespaces-ahead";

/// The byte that the daemon sends once it has recorded the sandbox on disk.
pub const KEEP: u8 = b'k';

/// How many connections wait for the runner to accept them, if the kernel allows as many: more than it accepts at once.
const BACKLOG: i32 = 4096;

/// The largest plan that is read. One with every variable and step is a few KiB.
const MAX_PLAN_BYTES: u64 = 4 << 20;

/// A failure, with the step it happened at.
#[derive(Debug)]
pub struct LaunchError {
    pub step: String,
    pub error: String,
}

pub trait AtStep<T> {
    /// Names what was tried.
    fn at(self, step: impl Into<String>) -> Result<T, LaunchError>;
}

impl<T, E: std::fmt::Display> AtStep<T> for Result<T, E> {
    fn at(self, step: impl Into<String>) -> Result<T, LaunchError> {
        self.map_err(|error| LaunchError { step: step.into(), error: error.to_string() })
    }
}

/// The whole program of a process that was started for one of the hidden subcommands of this runtime; `None` for any other. It must
/// be called before any thread is made.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let subcommand = arguments.next()?;
    if subcommand == idmap::PROBE_SUBCOMMAND {
        return Some(idmap::probe(Path::new(&arguments.next()?)));
    }
    if subcommand == shown::PROBE_SUBCOMMAND {
        return Some(shown::probe(arguments.collect()));
    }
    if subcommand == proc_files::PROBE_SUBCOMMAND {
        return Some(proc_files::probe());
    }
    if subcommand == mount_workspace::SUBCOMMAND {
        return Some(mount_workspace::main(arguments.next()?.to_str()?));
    }
    if subcommand != SUBCOMMAND {
        return None;
    }
    let (report, code) = match run(arguments.next().is_some_and(|argument| argument == NAMESPACES_AHEAD)) {
        Ok(()) => (LaunchReport::Running, ExitCode::SUCCESS),
        Err(failed) => (LaunchReport::Failed { step: failed.step, error: failed.error }, ExitCode::FAILURE),
    };
    print_report(&report);
    Some(code)
}

fn print_report(report: &LaunchReport) {
    let line = serde_json::to_string(report).unwrap_or_default();
    let _ = writeln!(io::stdout(), "{line}");
}

/// Waits until the daemon has recorded the sandbox.
fn await_keep() -> io::Result<()> {
    let mut answer = [0];
    io::stdin().read_exact(&mut answer)?;
    if answer[0] == KEEP { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The namespaces that do not depend on the plan, except for that of processes: it would count for every child of the launcher.
const AHEAD: CloneFlags = CloneFlags::CLONE_NEWIPC.union(CloneFlags::CLONE_NEWUTS).union(CloneFlags::CLONE_NEWNET);

fn run(is_ahead: bool) -> Result<(), LaunchError> {
    // It belongs to the network namespace in which it was made, and a sandbox should not see it in its own.
    let socket = nix::sys::socket::socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        /* protocol */ None,
    )
    .at("making the runner's socket")?;
    if is_ahead {
        nix::sched::unshare(AHEAD).at("making namespaces")?;
    }
    let plan = read_plan().at("reading the plan")?;
    // Until the runner sets its own umask, nothing that is made here is readable by others.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    // Opened before the user namespace is entered: the kernel checks the permissions of the user who opened them.
    let cgroups = open_all(&plan.cgroups.launcher)?;
    let mut fds = first_process::InheritedFds {
        runner: File::open(&plan.runner).at(format!("opening the runner {}", plan.runner.display()))?.into(),
        socket: listen(socket, &plan.socket).at(format!("listening on {}", plan.socket.display()))?,
        log: File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&plan.log)
            .at(format!("opening {}", plan.log.display()))?
            .into(),
        idmaps: idmap::namespaces(&plan)?,
        proc_files: Vec::new(),
        cgroups: open_all(&plan.cgroups.first_process)?,
        runner_cgroups: open_all(&plan.cgroups.runner)?,
        commands_cgroups: open_all(&plan.cgroups.commands)?,
    };
    if plan.users.how != UserNamespace::Last {
        enter_own_user_namespace(&plan.users)?;
    }
    if plan.steps.contains(&Step::Serve) {
        // The kernel wants them from the user namespace in which the files are mounted.
        fds.proc_files = proc_files::connect().at("opening connections for files of /proc")?;
    }
    // Not the mount namespace: the launcher still needs the host's `/proc`.
    let mut namespaces = CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    namespaces.set(CloneFlags::CLONE_NEWPID, plan.protections.private_pids);
    namespaces.set(CloneFlags::CLONE_NEWNET, plan.protections.network);
    if is_ahead {
        namespaces.remove(AHEAD);
    }
    nix::sched::unshare(namespaces).at("making namespaces")?;
    let (from_child, to_us) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).at("making a pipe")?;
    let (from_us, to_child) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).at("making a pipe")?;
    let pid = process::fork(|| first_process::become_runner(&plan, fds, to_us, from_us)).at("forking")?;
    let pidfd = pidfd::open(pid).at("opening the sandbox's first process")?;
    // The daemon records the process while that makes its root.
    print_report(&LaunchReport::Started { pid });
    let followed = enter_cgroups(cgroups, pid).and_then(|()| follow(&plan, pid, from_child, to_child));
    followed.inspect_err(|_| {
        let _ = pidfd::kill(pidfd.as_fd());
    })
}

fn read_plan() -> io::Result<LaunchPlan> {
    // The length comes first, because the pipe stays open after the plan for the daemon's byte.
    let mut length = [0; 8];
    let mut stdin = io::stdin().lock();
    stdin.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_PLAN_BYTES {
        return Err(io::Error::other(format!("{length} bytes, at most {MAX_PLAN_BYTES} are allowed")));
    }
    let mut plan = Vec::new();
    stdin.take(length).read_to_end(&mut plan)?;
    Ok(serde_json::from_slice(&plan)?)
}

/// Binds the runner's socket by way of its directory's descriptor: the path of a socket may have 107 bytes, and that of a data
/// directory can be longer.
fn listen(socket: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let directory = File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(&short)?)?;
    std::fs::set_permissions(&short, PermissionsExt::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn open_all(paths: &[PathBuf]) -> Result<Vec<File>, LaunchError> {
    let open = |path: &PathBuf| File::options().write(true).open(path).at(format!("opening {}", path.display()));
    paths.iter().map(open).collect()
}

/// Moves the first process into its cgroups, while that makes its root.
fn enter_cgroups(cgroups: Vec<File>, pid: i32) -> Result<(), LaunchError> {
    cgroups.into_iter().try_for_each(|mut procs| procs.write_all(pid.to_string().as_bytes())).at("entering the cgroups")
}

/// Serves the requests of the first process until it has become the runner.
fn follow(plan: &LaunchPlan, pid: i32, from_child: OwnedFd, to_child: OwnedFd) -> Result<(), LaunchError> {
    let (mut from_child, mut to_child) = (File::from(from_child), File::from(to_child));
    let mut message = Vec::new();
    let mut byte = [0];
    loop {
        match from_child.read(&mut byte).at("waiting for the sandbox")? {
            // Exec has closed the pipe: it is the runner now. Or it ended without a message; the daemon's pidfd then reports that.
            0 if message.is_empty() => return Ok(()),
            0 => {
                let (step, error) = first_process::parse_failure(&message);
                return Err(LaunchError { step, error });
            }
            _ => match Request::parse(byte[0]).filter(|_| message.is_empty()) {
                Some(request) => {
                    match request {
                        Request::Cgroups => {}
                        Request::IdMaps => write_maps(pid, &plan.users)?,
                        Request::Keep => await_keep().at("waiting for the daemon to record the sandbox")?,
                    }
                    to_child.write_all(&byte).at("answering the sandbox")?;
                }
                None => message.push(byte[0]),
            },
        }
    }
}

fn write_maps(pid: i32, users: &UserPlan) -> Result<(), LaunchError> {
    for (file, map) in [("uid_map", &users.uids), ("gid_map", &users.gids)] {
        let path = format!("/proc/{pid}/{file}");
        std::fs::write(&path, ids::lines(map)).at(format!("writing {file}"))?;
    }
    Ok(())
}

/// Enters a user namespace before all others, because only within one may an ordinary user make them.
fn enter_own_user_namespace(users: &UserPlan) -> Result<(), LaunchError> {
    let own = std::process::id().to_string();
    let mappers = match users.how {
        UserNamespace::FirstSubordinate => Some(start_mappers(&own, users)?),
        _ => None,
    };
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).at("making a user namespace")?;
    match mappers {
        Some(mappers) => mappers.finish(),
        None => {
            // Without privileges, the kernel requires this before the group map.
            std::fs::write("/proc/self/setgroups", "deny").at("denying setgroups")?;
            std::fs::write("/proc/self/uid_map", ids::lines(&users.uids)).at("writing uid_map")?;
            std::fs::write("/proc/self/gid_map", ids::lines(&users.gids)).at("writing gid_map")
        }
    }
}

/// A child that stays outside the user namespace, and runs the two setuid helpers once the namespace exists.
struct Mappers {
    pid: i32,
    go: File,
}

fn start_mappers(own: &str, users: &UserPlan) -> Result<Mappers, LaunchError> {
    let (wait, go) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).at("making a pipe")?;
    let pid = process::fork(|| {
        let mut byte = [0];
        if File::from(wait).read_exact(&mut byte).is_err() {
            std::process::exit(1);
        }
        for (program, map) in [("newuidmap", &users.uids), ("newgidmap", &users.gids)] {
            let lines = ids::lines(map);
            let status = Command::new(program).arg(own).args(lines.split_whitespace()).status();
            if !status.is_ok_and(|status| status.success()) {
                std::process::exit(1);
            }
        }
    })
    .at("forking")?;
    Ok(Mappers { pid, go: go.into() })
}

impl Mappers {
    fn finish(mut self) -> Result<(), LaunchError> {
        self.go.write_all(b"g").at("starting newuidmap")?;
        let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(self.pid), None).at("waiting for newuidmap")?;
        if status == nix::sys::wait::WaitStatus::Exited(nix::unistd::Pid::from_raw(self.pid), 0) {
            Ok(())
        } else {
            Err("newuidmap or newgidmap failed; are the subordinate ids in /etc/subuid and /etc/subgid?")
                .at("mapping users")
        }
    }
}
