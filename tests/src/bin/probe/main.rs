//! Runs inside a sandbox and reports what it sees and what it can do, as one JSON object. It judges nothing: the story that
//! sent it does. The story also sends it to places without a protection, to see that the probe notices.
//!
//! Usage: `probe HOST_PORT BEACON_DIR SECRET_PATH...`, with a port on which the host's loopback listens, a directory of the
//! host in which the story keeps a socket, a FIFO and a locked file, and paths that must not be visible.
#![allow(unsafe_code, reason = "system calls are tried by their numbers, as an attacker would")]

mod root;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Value, json};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let beacon = arguments.next().unwrap_or_default();
    let secrets: Vec<String> = arguments.collect();
    let facts = json!({
        "status": status("self"),
        "init_status": status("1"),
        "read_only_places": read_only_places(),
        "uid": nix::unistd::getuid().as_raw(),
        "processes": processes(),
        "interfaces": interfaces(),
        "host_port_reachable": std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(),
        "unix_sockets": unix_sockets(),
        "secrets_seen": secrets.iter().filter(|path| Path::new(path).exists()).collect::<Vec<_>>(),
        "homes": entries("/home"),
        "root_home": entries("/root"),
        "run": entries("/run"),
        "writable": writable(),
        "readable": readable(),
        "beacon": beacon_reached(Path::new(&beacon)),
        "null_device": std::fs::metadata("/dev/null").map(|found| (found.dev(), found.ino())).ok(),
        "etc": entries("/etc"),
        "mount_roots": mount_roots(),
        "root": nix::unistd::geteuid().is_root().then(root::facts),
        "system_calls": system_calls(),
        "tracing": tracing(),
        "landlock": landlock_version(),
        "signal_init": nix::sys::signal::kill(nix::unistd::Pid::from_raw(1), None).err().map_or(0, |e| e as i32),
        "limits": limits(),
        "setuid_root": nix::unistd::setuid(0.into()).err().map_or(0, |e| e as i32),
    });
    println!("{facts}");
}

/// The lines of `/proc/PID/status` about privileges.
fn status(pid: &str) -> Value {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let wanted = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups"];
    let lines: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    json!(lines)
}

fn processes() -> Vec<String> {
    let mut names: Vec<String> = entries("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names
}

fn entries(path: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

fn interfaces() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// The Unix sockets with a path or an abstract name, to which a program could connect.
fn unix_sockets() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7).map(str::to_owned)).collect()
}

/// The places on a read-only mount, where the kernel refuses every write.
fn read_only_places() -> Vec<&'static str> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<(&str, bool)> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            Some((fields.next()?, fields.next()?.split(',').any(|option| option == "ro")))
        })
        .collect();
    let is_read_only = |place: &&str| {
        let around = mounts.iter().filter(|(mount, _)| Path::new(place).starts_with(mount));
        // If two mounts have the same place, the later one is visible.
        around.max_by_key(|(mount, _)| mount.len()).is_some_and(|(_, is_read_only)| *is_read_only)
    };
    ["/", "/usr", "/etc"].into_iter().filter(is_read_only).collect()
}

fn writable() -> Vec<&'static str> {
    ["/", "/usr", "/usr/bin", "/etc", "/opt", "/var", "/root", "/proc/sys/kernel", "/sys", "/dev", "/run", "/home"]
        .into_iter()
        .filter(|directory| {
            let path = Path::new(directory).join("cove-probe");
            let made = std::fs::write(&path, "x").is_ok();
            let _ = std::fs::remove_file(path);
            made
        })
        .collect()
}

/// The readable files that tell something about the host. An empty file counts as unreadable.
fn readable() -> Vec<&'static str> {
    [
        "/etc/shadow",
        "/proc/cmdline",
        "/proc/kallsyms",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/modules",
        "/proc/config.gz",
        "/proc/1/environ",
        "/proc/1/maps",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/vda",
        "/dev/kvm",
        "/dev/fuse",
    ]
    .into_iter()
    .filter(|path| {
        use std::io::Read as _;
        let mut byte = [0];
        std::fs::File::open(path).and_then(|mut file| file.read(&mut byte)).is_ok_and(|count| count > 0)
    })
    .collect()
}

/// The longest wait for an event of the host, which opens its file every few milliseconds.
const EVENT_TIMEOUT_MS: u16 = 300;

/// What the probe reaches of the host through the files in `directory`, which the host uses at the same time.
fn beacon_reached(directory: &Path) -> Value {
    let file = directory.join("file");
    json!({
        "seen": file.exists(),
        "socket": std::os::unix::net::UnixStream::connect(directory.join("socket")).is_ok(),
        // Without a reader, opening a FIFO in this way fails.
        "fifo": std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(directory.join("fifo")).is_ok(),
        "lock": is_locked(&file),
        "event": hears_of(&file),
    })
}

/// Whether somebody else holds a lock on the file.
fn is_locked(path: &Path) -> bool {
    use nix::fcntl::{Flock, FlockArg};
    let Ok(file) = std::fs::File::open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, nix::Error::EWOULDBLOCK)))
}

/// Whether the kernel tells the probe that another process opens the file.
fn hears_of(path: &Path) -> bool {
    let Ok(inotify) = Inotify::init(InitFlags::IN_CLOEXEC) else { return false };
    if inotify.add_watch(path, AddWatchFlags::IN_OPEN).is_err() {
        return false;
    }
    let mut ready = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::from(EVENT_TIMEOUT_MS)).is_ok_and(|count| count > 0)
}

/// The directories of their file systems that the sandbox's mounts show.
fn mount_roots() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').nth(3).map(str::to_owned)).collect()
}

/// The version of Landlock that the kernel offers to programs in the sandbox.
fn landlock_version() -> libc::c_long {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no structure and returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) }
}

/// The error numbers of the ways to begin tracing a child, 0 for success.
fn tracing() -> Value {
    let number = |result: libc::c_long| if result == -1 { nix::Error::last_raw() } else { 0 };
    let tried = |request: libc::c_uint| {
        // SAFETY: the probe has one thread. The child only waits, until it is killed below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                nix::unistd::pause();
            }
        }
        // SAFETY: neither request reads or writes memory of ours.
        let error = number(unsafe { libc::ptrace(request, child, 0, 0) });
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None);
        error
    };
    let (attach, seize) = (tried(libc::PTRACE_ATTACH), tried(libc::PTRACE_SEIZE));
    // SAFETY: the probe has one thread. The child makes one call and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the request takes no pointers.
        let error = number(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) });
        std::process::exit(error);
    }
    let traceme = match nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None) {
        Ok(nix::sys::wait::WaitStatus::Exited(_, code)) => code,
        _ => -1,
    };
    json!({ "attach": attach, "seize": seize, "traceme": traceme })
}

/// System calls with arguments that work for a process that may use them. Returns each error number, 0 for success.
fn system_calls() -> Value {
    /// Some calls have a sixth argument; without it they would get whatever the register holds.
    const NO_FLAGS: libc::c_long = 0;
    let mut aio: libc::c_ulong = 0;
    let calls: [(&str, libc::c_long, [libc::c_long; 5]); 19] = [
        ("unshare_user", libc::SYS_unshare, [0x1000_0000, 0, 0, 0, 0]),
        ("mount", libc::SYS_mount, [0, c"/tmp".as_ptr() as libc::c_long, c"tmpfs".as_ptr() as libc::c_long, 0, 0]),
        ("umount", libc::SYS_umount2, [c"/proc".as_ptr() as libc::c_long, 2, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [c"/tmp".as_ptr() as libc::c_long, 0, 0, 0, 0]),
        ("ptrace_init", libc::SYS_ptrace, [16, 1, 0, 0, 0]),
        ("bpf", libc::SYS_bpf, [0, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1, 0]),
        ("keyctl", libc::SYS_keyctl, [0, -3, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [-100, 0, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0, 0]),
        ("socket_packet", libc::SYS_socket, [17, 3, 0, 0, 0]),
        ("socket_vsock", libc::SYS_socket, [40, 1, 0, 0, 0]),
        ("socket_raw", libc::SYS_socket, [2, 3, 1, 0, 0]),
        // Netlink: routes, by which libc lists interfaces; the kernel's events about devices; audit.
        ("netlink_route", libc::SYS_socket, [16, 3, 0, 0, 0]),
        ("netlink_uevent", libc::SYS_socket, [16, 3, 15, 0, 0]),
        ("netlink_audit", libc::SYS_socket, [16, 3, 9, 0, 0]),
        ("io_setup", libc::SYS_io_setup, [8, (&raw mut aio) as libc::c_long, 0, 0, 0]),
    ];
    let tried: BTreeMap<&str, i32> = calls
        .into_iter()
        .map(|(name, number, [a, b, c, d, e])| {
            // SAFETY: numbers, constant strings, and the place for the number that `io_setup` returns, which outlives the calls.
            let result = unsafe { libc::syscall(number, a, b, c, d, e, NO_FLAGS) };
            let error = if result == -1 { std::io::Error::last_os_error().raw_os_error() } else { None };
            (name, error.unwrap_or(0))
        })
        .collect();
    json!(tried)
}

fn limits() -> Value {
    let number = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let either = |v2: &str, v1: &str| number(v2).or_else(|| number(v1));
    let disk = nix::sys::statvfs::statvfs("/workspace").map(|s| s.blocks() * s.fragment_size()).ok();
    let (files, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap_or_default();
    json!({
        "memory": either("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        "pids": either("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
        "disk": disk,
        "open_files": files,
    })
}
