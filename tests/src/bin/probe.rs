//! Runs inside a sandbox and tells what it sees and what it can do, as one JSON object. It judges nothing: the story that
//! sent it does, and sends it to places without a protection as well, to see that it would notice.
//!
//! `probe HOST_PORT SECRET_PATH...`: a port on which the host's loopback listens, and paths that must not be seen.
#![allow(unsafe_code, reason = "system calls are tried by their numbers, as an attacker would")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(0);
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
        "system_calls": system_calls(),
        "signal_init": nix::sys::signal::kill(nix::unistd::Pid::from_raw(1), None).err().map_or(0, |e| e as i32),
        "limits": limits(),
        "setuid_root": nix::unistd::setuid(0.into()).err().map_or(0, |e| e as i32),
    });
    println!("{facts}");
}

/// Lines of `/proc/PID/status` that tell of privileges.
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

/// With a path or an abstract name: those that could be spoken to.
fn unix_sockets() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7).map(str::to_owned)).collect()
}

/// Where the kernel itself refuses writing, whoever asks: by the mount that each of these places is on.
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
        // Of two at one place the later one is seen.
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

/// Files that hold something of the host; an empty answer is as good as none.
fn readable() -> Vec<&'static str> {
    [
        "/etc/shadow",
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

/// Each tried with arguments that would work for someone who is allowed to; the error number, 0 where it was done.
fn system_calls() -> Value {
    let calls: [(&str, libc::c_long, [libc::c_long; 5]); 15] = [
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
    ];
    let tried: BTreeMap<&str, i32> = calls
        .into_iter()
        .map(|(name, number, [a, b, c, d, e])| {
            // SAFETY: numbers and constant strings; none of these calls writes to memory of ours with such arguments.
            let result = unsafe { libc::syscall(number, a, b, c, d, e) };
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
