//! The sandbox's first process, from its fork to the exec of the runner. It carries out the plan and decides nothing.
//!
//! The order of the steps makes it safe. The root is complete before the process enters it. The process is in its cgroups
//! before it runs code that is not Cove's. It enters the user namespace after everything that must belong to the host was
//! made. It drops capabilities and installs the system call filter last, when no remaining step needs more rights.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd, RawFd};

use nix::fcntl::OFlag;
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};
use rustix::thread::CapabilitySet;

use super::idmap;
use super::ids::IdRange;
use super::launcher::{AtStep as _, LaunchError};
use super::plan::{LaunchPlan, Limits, UserNamespace};
use super::root::NewRoot;
use super::seccomp;
use crate::runtime::policy::{IPC_SETTINGS, RUNNER_CAPABILITIES};
use crate::sys::process::ProgramFds;
use crate::sys::{capability, landlock, loopback, oom_score, process};

/// The descriptors that the first process inherits from the launcher, which opened them on the host.
pub struct InheritedFds {
    pub runner: OwnedFd,
    pub socket: OwnedFd,
    pub log: OwnedFd,
    pub idmaps: Vec<(Vec<IdRange>, OwnedFd)>,
    /// A connection for each file of `/proc` that the runner serves; none if it serves none.
    pub proc_files: Vec<OwnedFd>,
    /// The ways into its cgroups: before and after it makes the cgroup namespace, and the one that each command takes.
    pub cgroups: Vec<File>,
    pub runner_cgroups: Vec<File>,
    pub commands_cgroups: Vec<File>,
}

/// A request of the first process to the launcher, as one byte. The launcher answers with the same byte when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Put the process into its cgroups. The launcher begins to move it right after the fork. That can take the kernel
    /// milliseconds, in which the first process makes its root.
    Cgroups,
    /// Write the id maps of its user namespace.
    IdMaps,
    /// Wait until the daemon has recorded the sandbox. From then on the sandbox outlives the launcher and the daemon.
    Keep,
}

impl Request {
    pub fn byte(self) -> u8 {
        match self {
            Self::Cgroups => 1,
            Self::IdMaps => 2,
            Self::Keep => 3,
        }
    }

    pub fn parse(byte: u8) -> Option<Self> {
        [Self::Cgroups, Self::IdMaps, Self::Keep].into_iter().find(|request| request.byte() == byte)
    }
}

/// The number under which the runner finds the user namespace of commands that are root: after its socket and its cgroups.
pub fn root_namespace_fd(cgroups: usize) -> RawFd {
    process::SOCKET_FD + 1 + RawFd::try_from(cgroups).unwrap_or(RawFd::MAX - process::SOCKET_FD - 1)
}

/// Settings with which commands can use every port and ping: the network namespace has no other users.
const NETWORK_SETTINGS: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"), ("/proc/sys/net/ipv4/ping_group_range", "0 65535")];

/// Becomes the runner. If that fails, it reports why to the launcher and exits. It never returns.
pub fn become_runner(plan: &LaunchPlan, fds: InheritedFds, to_launcher: OwnedFd, from_launcher: OwnedFd) {
    let mut to_launcher = File::from(process::copy_out_of_the_way(&to_launcher).unwrap_or(to_launcher));
    let failed = prepare(plan, fds, &mut to_launcher, from_launcher);
    let _ = to_launcher.write_all(format!("{}\0{}", failed.step, failed.error).as_bytes());
    std::process::exit(1);
}

/// The step and the error in a message that [`become_runner`] sent.
pub fn parse_failure(message: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(message);
    let (step, error) = text.split_once('\0').unwrap_or((&text, ""));
    (step.to_owned(), error.to_owned())
}

fn prepare(plan: &LaunchPlan, fds: InheritedFds, to_launcher: &mut File, from_launcher: OwnedFd) -> LaunchError {
    match prepare_all(plan, fds, to_launcher, from_launcher) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn prepare_all(
    plan: &LaunchPlan,
    fds: InheritedFds,
    to_launcher: &mut File,
    from_launcher: OwnedFd,
) -> Result<std::convert::Infallible, LaunchError> {
    process::die_with_parent().at("binding its life to the launcher's")?;
    nix::unistd::setsid().at("making a session of its own")?;
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).at("making a mount namespace")?;
    nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .at("making mounts private")?;
    if plan.protections.network {
        loopback::up().at("starting loopback")?;
        for (path, value) in NETWORK_SETTINGS {
            // A kernel without one of these settings is not less safe.
            let _ = std::fs::write(path, value);
        }
    }
    // With CAP_SYS_RESOURCE, which only the host's root has, this is also a floor: nothing inside can lower its own value below it.
    oom_score::set(plan.oom_score_adj).at("setting the oom score")?;
    for (name, value) in IPC_SETTINGS {
        // An ordinary user may not set these on every kernel. Where cgroups limit the memory, the daemon is root or the kernel is new.
        let _ = std::fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value);
    }
    nix::unistd::sethostname(&plan.hostname).at("setting the host name")?;
    let root = NewRoot::new(plan, &fds)?;
    root.fill(plan)?;
    root.enter(plan)?;
    let mut from_launcher = File::from(from_launcher);
    let mut ask = |request: Request| {
        to_launcher.write_all(&[request.byte()])?;
        from_launcher.read_exact(&mut [0])
    };
    ask(Request::Cgroups).at("waiting to be in its cgroups")?;
    // If it has no cgroups of its own, there is nothing to hide.
    if !plan.cgroups.is_empty() {
        enter_cgroups(&fds.cgroups).at("entering the cgroups")?;
        // Commands see the cgroup that this process is in now as their root.
        nix::sched::unshare(CloneFlags::CLONE_NEWCGROUP).at("making a cgroup namespace")?;
        enter_cgroups(&fds.runner_cgroups).at("entering the runner's cgroups")?;
    }
    if plan.users.how == UserNamespace::Last {
        // The kernel counts what a namespace uses, such as instances of inotify, for the user who made it. Root would run out.
        if let Some(first) = plan.users.uids.first() {
            capability::act_as(first.outside).at("becoming the owner of the user namespace")?;
        }
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER).at("making a user namespace")?;
        ask(Request::IdMaps).at("waiting for its id maps")?;
    }
    become_user(plan)?;
    limit(plan.limits)?;
    // After the limits, which hold for all users of the new namespace together.
    let commands_namespace = plan.users.commands.as_deref().map(idmap::make_for_commands).transpose()?;
    if plan.protections.capabilities {
        let kept = match plan.users.runner.uid {
            0 => RUNNER_CAPABILITIES.into_iter().map(|(_, capability)| capability).collect(),
            _ => CapabilitySet::empty(),
        };
        capability::keep_only(kept).at("dropping capabilities")?;
    }
    let null: OwnedFd = File::open("/dev/null").at("opening /dev/null")?.into();
    let arguments = c_strings(std::iter::once("runner").chain(plan.arguments.iter().map(String::as_str)))?;
    let environment: Vec<String> = plan.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let environment = c_strings(environment.iter().map(String::as_str))?;
    process::reset_signals().at("resetting signals")?;
    process::no_new_privileges().at("forbidding new privileges")?;
    let filter = match plan.protections.seccomp {
        true => {
            let namespace = commands_namespace.as_ref().map(|_| root_namespace_fd(fds.commands_cgroups.len()));
            Some(seccomp::filter(plan.debugging, namespace).at("compiling the system call filter")?)
        }
        false => None,
    };
    if plan.protections.landlock {
        restrict_writes(plan.writable_places.as_deref())?;
    }
    // The kernel forgot the binding when the process changed its user. If the launcher ended before this line, the request fails.
    process::die_with_parent().at("binding its life to the launcher's")?;
    ask(Request::Keep).at("waiting to be recorded")?;
    process::outlive_parent().at("releasing its life from the launcher's")?;
    if let Some(filter) = filter {
        seccompiler::apply_filter(&filter).at("installing the system call filter")?;
    }
    let program_fds = ProgramFds {
        stdin: null.as_fd(),
        stdout_and_stderr: fds.log.as_fd(),
        socket: fds.socket.as_fd(),
        others: fds
            .commands_cgroups
            .iter()
            .map(|file| file.as_fd())
            .chain(commands_namespace.iter().map(OwnedFd::as_fd))
            .chain(fds.proc_files.iter().map(OwnedFd::as_fd))
            .collect(),
    };
    Err(process::exec(&fds.runner, &program_fds, &arguments, &environment)).at("starting the runner")
}

/// Moves this process, which has one thread.
fn enter_cgroups(entrances: &[File]) -> std::io::Result<()> {
    entrances.iter().try_for_each(|mut entrance| entrance.write_all(b"0"))
}

/// A second wall behind the read-only mounts, where the kernel has it.
fn restrict_writes(places: Option<&[String]>) -> Result<(), LaunchError> {
    let version = landlock::version();
    if version < landlock::FIRST_USEFUL {
        return Ok(());
    }
    let open = |place: &String| {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        nix::fcntl::open(place.as_str(), flags, Mode::empty()).at(format!("opening {place}"))
    };
    let places = places.map(|places| places.iter().map(open).collect::<Result<Vec<_>, _>>()).transpose()?;
    landlock::restrict(version, places.as_deref()).at("restricting writes")
}

fn become_user(plan: &LaunchPlan) -> Result<(), LaunchError> {
    let owner = plan.users.runner;
    if plan.users.how == UserNamespace::FirstSelf {
        return Ok(());
    }
    nix::unistd::setgroups(&[]).at("dropping groups")?;
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    nix::unistd::setresgid(gid, gid, gid).at("becoming the runner's group")?;
    nix::unistd::setresuid(uid, uid, uid).at("becoming the runner's user")
}

fn limit(limits: Limits) -> Result<(), LaunchError> {
    let mut all = vec![(Resource::RLIMIT_NOFILE, limits.open_files), (Resource::RLIMIT_CORE, 0)];
    all.extend(limits.processes.map(|count| (Resource::RLIMIT_NPROC, count)));
    for (resource, wanted) in all {
        // The daemon cannot raise a limit above its own.
        let (_, most) = getrlimit(resource).at(format!("reading {resource:?}"))?;
        let value = wanted.min(most);
        setrlimit(resource, value, value).at(format!("limiting {resource:?}"))?;
    }
    Ok(())
}

fn c_strings<'a>(strings: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, LaunchError> {
    strings.map(|s| CString::new(s.as_bytes())).collect::<Result<_, _>>().at("preparing the runner's arguments")
}
