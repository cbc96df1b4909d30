//! The process that makes one sandbox: `cove` itself, started anew with one thread, since namespaces are entered by threads.
//!
//! ```text
//! daemon ── plan on stdin ──▶ launcher: socket, cgroup files, unshare ── fork ──▶ first process: root, ids, limits, exec runner
//!        ◀─ report, stdout ──          waits for the exec                         (PID 1 of the sandbox)
//!        ── one byte ───────▶          ends, and leaves the sandbox to itself
//! ```
//!
//! **Invariant:** until the daemon has sent its byte, the end of either kills the sandbox: nothing runs that nobody knows.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sched::CloneFlags;
use nix::sys::signal::Signal;

use super::inside::{self, Need};
use super::plan::{LaunchPlan, LaunchReport, UserNamespace, UserPlan};
use super::{graft, idmap, ids};
use crate::sys::{pidfd, process};

/// The hidden first argument.
pub const WORD: &str = "__launch-sandbox";

/// What the daemon sends when it has written down that the sandbox exists.
pub const KEEP: u8 = b'k';

/// A plan with every variable and step is a few KiB.
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

/// The whole program, where this process was started to be a launcher or to try something out; otherwise `None`. Before any thread is made.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    if word == idmap::PROBE_WORD {
        return Some(idmap::probe(Path::new(&arguments.next()?)));
    }
    if word == graft::WORD {
        return Some(graft::main(Path::new(&arguments.next()?)));
    }
    if word != WORD {
        return None;
    }
    let report = match run() {
        Ok(sandbox) => return Some(sandbox.hand_over()),
        Err(failed) => LaunchReport::Failed { step: failed.step, error: failed.error },
    };
    print_report(&report);
    Some(ExitCode::FAILURE)
}

fn print_report(report: &LaunchReport) {
    let line = serde_json::to_string(report).unwrap_or_default();
    let _ = writeln!(io::stdout(), "{line}");
}

struct Started {
    pid: i32,
    pidfd: OwnedFd,
}

impl Started {
    fn hand_over(self) -> ExitCode {
        print_report(&LaunchReport::Started { pid: self.pid });
        let mut answer = [0];
        match io::stdin().read_exact(&mut answer) {
            Ok(()) if answer[0] == KEEP => ExitCode::SUCCESS,
            _ => {
                let _ = pidfd::signal(self.pidfd.as_fd(), Signal::SIGKILL);
                ExitCode::FAILURE
            }
        }
    }
}

fn run() -> Result<Started, LaunchError> {
    let plan = read_plan().at("reading the plan")?;
    // The runner sets its own; until then nothing that is made is open to others.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let things = inside::Things {
        runner: File::open(&plan.runner).at(format!("opening the runner {}", plan.runner.display()))?.into(),
        socket: listen(&plan.socket).at(format!("listening on {}", plan.socket.display()))?,
        log: File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&plan.log)
            .at(format!("opening {}", plan.log.display()))?
            .into(),
        idmaps: idmap::namespaces(&plan)?,
    };
    // Opened as who we are now: that is whom the kernel asks when they are written to.
    let cgroups = plan
        .cgroup_procs
        .iter()
        .map(|path| File::options().write(true).open(path).at(format!("opening {}", path.display())))
        .collect::<Result<Vec<_>, _>>()?;
    if plan.users.how != UserNamespace::Last {
        enter_own_user_namespace(&plan.users)?;
    }
    // Not the mount namespace: this process goes on seeing the host's `/proc`.
    let mut namespaces = CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    namespaces.set(CloneFlags::CLONE_NEWPID, plan.protections.private_pids);
    namespaces.set(CloneFlags::CLONE_NEWNET, plan.protections.network);
    nix::sched::unshare(namespaces).at("making namespaces")?;
    let (from_inside, to_us) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).at("making a pipe")?;
    let (from_us, to_inside) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).at("making a pipe")?;
    let pid = process::fork(|| inside::become_runner(&plan, things, to_us, from_us)).at("forking")?;
    let pidfd = pidfd::open(pid).at("holding the sandbox's first process")?;
    let started = Started { pid, pidfd };
    match enter_cgroups(cgroups, pid).and_then(|()| follow(&plan, pid, from_inside, to_inside)) {
        Ok(()) => Ok(started),
        Err(error) => {
            let _ = pidfd::signal(started.pidfd.as_fd(), Signal::SIGKILL);
            Err(error)
        }
    }
}

fn read_plan() -> io::Result<LaunchPlan> {
    // A length first: the plan comes on the pipe that stays open for the daemon's byte.
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

/// Through the directory's descriptor: the path of a socket has room for 107 bytes, that of a data directory may be longer.
fn listen(path: &Path) -> io::Result<OwnedFd> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let directory = File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(&short, PermissionsExt::from_mode(0o600))?;
    Ok(listener.into())
}

/// While the first process makes its root.
fn enter_cgroups(cgroups: Vec<File>, pid: i32) -> Result<(), LaunchError> {
    cgroups.into_iter().try_for_each(|mut procs| procs.write_all(pid.to_string().as_bytes())).at("entering the cgroups")
}

/// Waits for what the first process says, and writes its id maps when it asks for them.
fn follow(plan: &LaunchPlan, pid: i32, from_inside: OwnedFd, to_inside: OwnedFd) -> Result<(), LaunchError> {
    let (mut from_inside, mut to_inside) = (File::from(from_inside), File::from(to_inside));
    let mut message = Vec::new();
    let mut byte = [0];
    loop {
        match from_inside.read(&mut byte).at("waiting for the sandbox")? {
            // Closed by exec: it is the runner now. Or it ended without a word, which the daemon notices by the pidfd.
            0 if message.is_empty() => return Ok(()),
            0 => {
                let (step, error) = inside::parse_failure(&message);
                return Err(LaunchError { step, error });
            }
            _ => match Need::parse(byte[0]).filter(|_| message.is_empty()) {
                Some(need) => {
                    if need == Need::Users {
                        write_maps(pid, &plan.users)?;
                    }
                    to_inside.write_all(&byte).at("answering the sandbox")?;
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

/// For an ordinary user: the namespace comes first, since it is what allows the others.
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
            // Without privilege the kernel wants groups fixed first.
            std::fs::write("/proc/self/setgroups", "deny").at("fixing groups")?;
            std::fs::write("/proc/self/uid_map", ids::lines(&users.uids)).at("writing uid_map")?;
            std::fs::write("/proc/self/gid_map", ids::lines(&users.gids)).at("writing gid_map")
        }
    }
}

/// A child that stays outside and runs the two setuid helpers once the namespace is there.
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
