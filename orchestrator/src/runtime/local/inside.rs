//! The sandbox's first process, from its fork to the exec of the runner. It only carries out the plan.
//!
//! The order is the safety: the whole root before it is entered, cgroups before anything that is not ours runs, users after
//! everything that must belong to the host, capabilities and the system call filter last, when nothing is left that needs more.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid};

use super::ids::IdRange;
use super::launcher::{AtStep as _, LaunchError};
use super::plan::{LaunchPlan, Limits, UserNamespace};
use super::root::NewRoot;
use super::seccomp;
use crate::runtime::policy::RUNNER_CAPABILITIES;
use crate::sys::{capability, loopback, process};

/// What the launcher opened for it, from outside.
pub struct Things {
    pub runner: OwnedFd,
    pub socket: OwnedFd,
    pub log: OwnedFd,
    pub idmaps: Vec<(Vec<IdRange>, OwnedFd)>,
}

/// What it asks the launcher for; the answer is the same byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To be in its cgroups. The launcher began to put it there when it was forked: a move can take the kernel milliseconds, and
    /// making the root goes on beside it.
    Cgroups,
    /// The maps of its user namespace.
    Users,
}

impl Need {
    pub fn byte(self) -> u8 {
        match self {
            Self::Cgroups => 1,
            Self::Users => 2,
        }
    }

    pub fn parse(byte: u8) -> Option<Self> {
        [Self::Cgroups, Self::Users].into_iter().find(|need| need.byte() == byte)
    }
}

/// Descriptors that must outlive the placing of 0 to 3 are moved up here.
const SAFE_FROM: i32 = 10;

/// Ports that ask for no privilege: nobody else is on this network.
const NETWORK_SETTINGS: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"), ("/proc/sys/net/ipv4/ping_group_range", "0 65535")];

/// Never returns: it is the runner afterwards, or it has said why not and ends.
pub fn become_runner(plan: &LaunchPlan, things: Things, to_launcher: OwnedFd, from_launcher: OwnedFd) {
    let mut to_launcher = File::from(process::move_up(&to_launcher, SAFE_FROM).unwrap_or(to_launcher));
    let failed = prepare(plan, things, &mut to_launcher, from_launcher);
    let _ = to_launcher.write_all(format!("{}\0{}", failed.step, failed.error).as_bytes());
    std::process::exit(1);
}

/// Step and error of a message that the function above sent.
pub fn parse_failure(message: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(message);
    let (step, error) = text.split_once('\0').unwrap_or((&text, ""));
    (step.to_owned(), error.to_owned())
}

fn prepare(plan: &LaunchPlan, things: Things, to_launcher: &mut File, from_launcher: OwnedFd) -> LaunchError {
    match prepare_all(plan, things, to_launcher, from_launcher) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn prepare_all(
    plan: &LaunchPlan,
    things: Things,
    to_launcher: &mut File,
    from_launcher: OwnedFd,
) -> Result<std::convert::Infallible, LaunchError> {
    process::die_with_parent(Some(Signal::SIGKILL)).at("asking to end with the launcher")?;
    nix::unistd::setsid().at("leaving the daemon's session")?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).at("making a mount namespace")?;
    nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .at("keeping mounts from the host")?;
    if plan.protections.network {
        loopback::up().at("starting loopback")?;
        for (path, value) in NETWORK_SETTINGS {
            // A kernel without one of them is no less safe.
            let _ = std::fs::write(path, value);
        }
    }
    nix::unistd::sethostname(&plan.hostname).at("setting the host name")?;
    let root = NewRoot::new(plan, &things.idmaps)?;
    root.fill(plan)?;
    root.enter(plan)?;
    let mut from_launcher = File::from(from_launcher);
    let mut ask = |need: Need| {
        to_launcher.write_all(&[need.byte()])?;
        from_launcher.read_exact(&mut [0])
    };
    ask(Need::Cgroups).at("waiting for its cgroups")?;
    // Only with cgroups of its own is there anything to hide above them.
    if !plan.cgroup_procs.is_empty() {
        nix::sched::unshare(CloneFlags::CLONE_NEWCGROUP).at("making a cgroup namespace")?;
    }
    if plan.users.how == UserNamespace::Last {
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER).at("making a user namespace")?;
        ask(Need::Users).at("waiting for its users")?;
    }
    become_user(plan)?;
    limit(plan.limits)?;
    if plan.protections.capabilities {
        let kept = if plan.users.runner.uid == 0 {
            RUNNER_CAPABILITIES.map(|(_, number)| number).to_vec()
        } else {
            Vec::new()
        };
        capability::bound(&kept).at("dropping capabilities")?;
    }
    let runner = process::move_up(&things.runner, SAFE_FROM).at("keeping the runner")?;
    place_descriptors(things)?;
    let arguments = c_strings(std::iter::once("runner").chain(plan.arguments.iter().map(String::as_str)))?;
    let environment: Vec<String> = plan.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let environment = c_strings(environment.iter().map(String::as_str))?;
    process::reset_signals();
    process::die_with_parent(None).at("going on without the launcher")?;
    process::no_new_privileges().at("forbidding new privileges")?;
    if plan.protections.seccomp {
        for filter in seccomp::filters().at("compiling the system call filter")? {
            seccompiler::apply_filter(&filter).at("installing the system call filter")?;
        }
    }
    Err(process::exec(runner.as_fd(), &arguments, &environment)).at("starting the runner")
}

fn become_user(plan: &LaunchPlan) -> Result<(), LaunchError> {
    let owner = plan.users.runner;
    if plan.users.how == UserNamespace::FirstSelf {
        return Ok(());
    }
    nix::unistd::setgroups(&[]).at("leaving groups")?;
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    nix::unistd::setresgid(gid, gid, gid).at("becoming the runner's group")?;
    nix::unistd::setresuid(uid, uid, uid).at("becoming the runner's user")
}

fn limit(limits: Limits) -> Result<(), LaunchError> {
    let mut all = vec![(Resource::RLIMIT_NOFILE, limits.open_files), (Resource::RLIMIT_CORE, 0)];
    all.extend(limits.processes.map(|count| (Resource::RLIMIT_NPROC, count)));
    for (resource, wanted) in all {
        // What the daemon itself may not have, it cannot give.
        let (_, most) = getrlimit(resource).at(format!("reading {resource:?}"))?;
        let value = wanted.min(most);
        setrlimit(resource, value, value).at(format!("limiting {resource:?}"))?;
    }
    Ok(())
}

/// Nothing but the standard three and the socket is the runner's.
fn place_descriptors(things: Things) -> Result<(), LaunchError> {
    let socket = process::move_up(&things.socket, SAFE_FROM).at("keeping the socket")?;
    let log = process::move_up(&things.log, SAFE_FROM).at("keeping the log")?;
    let null: OwnedFd = File::open("/dev/null").at("opening /dev/null")?.into();
    // What they were is closed with the launcher's side; numbers below ten are only copies from here on.
    std::mem::forget((things.runner, things.socket, things.log, things.idmaps));
    process::place(null, 0).at("placing standard input")?;
    process::place(log.try_clone().at("copying the log")?, 1).at("placing standard output")?;
    process::place(log, 2).at("placing standard error")?;
    process::place(socket, 3).at("placing the socket")?;
    process::close_on_exec_from(4).at("closing descriptors")
}

fn c_strings<'a>(strings: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, LaunchError> {
    strings.map(|s| CString::new(s.as_bytes())).collect::<Result<_, _>>().at("preparing the runner's arguments")
}
