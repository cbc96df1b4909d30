//! What root could try that an ordinary user need not: each thing as an attacker would, with the error number, 0 for success.

use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

/// The runner's own directory in a sandbox.
const SCRATCH: &str = "/run/cove";

/// The id that stands for the runner beside root.
const RUNNER: u32 = 65_535;

/// The numbers under which a namespace is offered to `setns`: among them the one that the runner's children enter theirs by.
const NUMBERS: std::ops::Range<i32> = 3..40;

pub fn facts() -> Value {
    let scratch = scratch();
    json!({
        "uid_map": std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default(),
        "mknod_disk": mknod(libc::S_IFBLK),
        "mknod_memory": mknod(libc::S_IFCHR),
        // Files of init that lead out, and what is open for it, such as its socket.
        "init_root": error(std::fs::read_dir("/proc/1/root")),
        "init_directory": error(std::fs::read_link("/proc/1/cwd")),
        "init_descriptors": error(std::fs::read_dir("/proc/1/fd")),
        "init_memory": error(std::fs::File::options().read(true).write(true).open("/proc/1/mem")),
        "init_namespace": error(std::fs::File::open("/proc/1/ns/user")),
        "init_limits": number(limit_init()),
        "setns": setns(),
        "new_map": [error(std::fs::write("/proc/self/uid_map", "0 0 1\n")), map_of_a_new_namespace()],
        "sysctl": settings(),
        "sysrq": error(std::fs::File::options().write(true).open("/proc/sysrq-trigger").and_then(written)),
        "module": call(libc::SYS_finit_module, [-1, c"".as_ptr() as libc::c_long, 0, 0]),
        "unload": call(libc::SYS_delete_module, [c"no-such-module".as_ptr() as libc::c_long, 0, 0, 0]),
        // With wrong numbers, which whoever may restart the machine is told.
        "reboot": call(libc::SYS_reboot, [0, 0, 0, 0]),
        "hostname": call(libc::SYS_sethostname, [c"probe".as_ptr() as libc::c_long, 5, 0, 0]),
        "handle": call(libc::SYS_open_by_handle_at, [-100, 0, 0, 0]),
        "scratch": scratch,
        "become_runner": call(libc::SYS_setresuid, [RUNNER.into(), -1, -1, 0]),
        "give_to_runner": give_to_runner(),
        "nice": call(libc::SYS_setpriority, [0, 0, -20, 0]),
        "open_files": more_open_files(),
        "oom_score": error(std::fs::write("/proc/self/oom_score_adj", "-1000")),
        "every_capability": every_capability(),
    })
}

fn error<T>(result: std::io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

fn number(result: libc::c_long) -> i32 {
    if result == -1 { nix::Error::last_raw() } else { 0 }
}

fn call(name: libc::c_long, [a, b, c, d]: [libc::c_long; 4]) -> i32 {
    // SAFETY: the arguments are numbers and constant strings.
    number(unsafe { libc::syscall(name, a, b, c, d) })
}

/// Without effect on whatever the file means: it counts that it could be written to.
fn written(mut file: std::fs::File) -> std::io::Result<()> {
    std::io::Write::write_all(&mut file, b"")?;
    // A covered file is `/dev/null`, which takes everything.
    let is_null = std::fs::metadata("/dev/null").and_then(|null| {
        use std::os::unix::fs::MetadataExt as _;
        Ok(null.rdev() == file.metadata()?.rdev())
    })?;
    if is_null { Err(std::io::Error::from_raw_os_error(libc::ENOENT)) } else { Ok(()) }
}

/// Makes a user namespace in a child, and maps root in it to itself.
fn map_of_a_new_namespace() -> i32 {
    // SAFETY: the probe has one thread. The child makes a few calls and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let made = call(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0]);
        let mapped = if made == 0 { error(std::fs::write("/proc/self/uid_map", "0 0 1\n")) } else { made };
        std::process::exit(mapped);
    }
    match nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None) {
        Ok(nix::sys::wait::WaitStatus::Exited(_, code)) => code,
        _ => -1,
    }
}

fn settings() -> Vec<i32> {
    let open = |name: &str| std::fs::File::options().write(true).open(format!("/proc/sys/{name}"));
    ["kernel/hostname", "net/ipv4/ip_forward", "vm/drop_caches"].map(|name| error(open(name))).into()
}

/// Tries to make a node of the first disk, or of the machine's memory.
fn mknod(kind: libc::mode_t) -> i32 {
    let path = CString::new(format!("probe-node-{kind}")).expect("no zero byte");
    let device = if kind == libc::S_IFBLK { libc::makedev(254, 0) } else { libc::makedev(1, 1) };
    // SAFETY: the path ends in a zero byte.
    let result = number(unsafe { libc::mknod(path.as_ptr(), kind | 0o600, device) }.into());
    let _ = std::fs::remove_file(path.to_string_lossy().as_ref());
    result
}

/// Reads the limits of init, as whoever may change them can.
fn limit_init() -> libc::c_long {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the one structure that the call writes.
    unsafe { libc::prlimit(1, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limits) }.into()
}

/// Tries to enter each own namespace under each number, with every kind of namespace named and with none. The lowest error.
fn setns() -> i32 {
    let kinds = [
        ("user", libc::CLONE_NEWUSER),
        ("mnt", libc::CLONE_NEWNS),
        ("net", libc::CLONE_NEWNET),
        ("pid", libc::CLONE_NEWPID),
    ];
    let mut lowest = i32::MAX;
    for (name, kind) in kinds {
        let Ok(namespace) = std::fs::File::open(format!("/proc/self/ns/{name}")) else { continue };
        for wanted in NUMBERS.filter(|wanted| *wanted != namespace.as_raw_fd()) {
            // SAFETY: the copy is closed again. A number that is in use is not taken.
            unsafe {
                if libc::fcntl(wanted, libc::F_GETFD) != -1 || libc::dup2(namespace.as_raw_fd(), wanted) == -1 {
                    continue;
                }
                lowest =
                    lowest.min(number(libc::setns(wanted, kind).into())).min(number(libc::setns(wanted, 0).into()));
                libc::close(wanted);
            }
        }
    }
    lowest
}

/// What can be done to the runner's own directory. Empty if there is none.
fn scratch() -> Value {
    let path = Path::new(SCRATCH);
    json!({
        "list": error(std::fs::read_dir(path)),
        "write": error(std::fs::write(path.join("probe"), "x")),
        "mode": error(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))),
        "owner": error(std::os::unix::fs::chown(path, Some(0), Some(0))),
        "rename": error(std::fs::rename(path, "/run/moved")),
        "remove": error(std::fs::remove_dir(path)),
    })
}

fn give_to_runner() -> i32 {
    let path = "probe-given";
    if std::fs::write(path, "x").is_err() {
        return -1;
    }
    let result = error(std::os::unix::fs::chown(path, Some(RUNNER), Some(RUNNER)));
    let _ = std::fs::remove_file(path);
    result
}

fn more_open_files() -> i32 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
    let more = hard + 1;
    let result = setrlimit(Resource::RLIMIT_NOFILE, soft, more).err().map_or(0, |error| error as i32);
    if result == 0 {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    }
    result
}

/// Asks for all capabilities. A process that has them all gets what it has.
fn every_capability() -> i32 {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    // Effective, permitted, inheritable, for the numbers up to 31; then those above, of which the first nine exist.
    let data: [u32; 6] = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
    // SAFETY: both arrays have the layout of the kernel's structures.
    number(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) })
}
