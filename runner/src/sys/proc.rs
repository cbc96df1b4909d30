//! Reads `/proc`: the state of processes, the process tree below the runner, and whether a program waits at a terminal.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Duration;

/// The fields of `/proc/PID/stat` between the session and the processor times.
const FIELDS_BEFORE_TIMES: usize = 7;

/// The kernel counts in hundredths of a second here, on every architecture.
const TICK_MS: u64 = 10;

/// The fields of `/proc/PID/stat` that the runner uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// In its own code and in the kernel, without its children.
    pub processor_time: Duration,
}

/// The state of a process, or `None` if it is gone.
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a process: its parent's name after `fork`, its program's name after `exec`.
pub fn name(pid: i32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/comm")).ok()
}

/// Whether a process catches the first signal and ignores the second. `None` if the kernel does not tell, as with gVisor.
pub fn catches_and_ignores(pid: i32, caught: i32, ignored: i32) -> Option<bool> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let has = |field: &str, signal: i32| {
        let mask = text.lines().find_map(|line| line.strip_prefix(field))?.trim();
        Some(u64::from_str_radix(mask, 16).ok()? >> (signal - 1) & 1 == 1)
    };
    Some(has("SigCgt:", caught)? && has("SigIgn:", ignored)?)
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The state of a thread of `pid`, or `None` if it is gone.
pub fn thread_state(pid: i32, thread: i32) -> Option<u8> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/task/{thread}/stat")).ok()?).map(|stat| stat.state)
}

/// The thread that traces a thread of `pid`. `None` if there is none in this pid namespace.
pub fn tracer_of(pid: i32, thread: i32) -> Option<i32> {
    status_number(&format!("/proc/{pid}/task/{thread}/status"), "TracerPid:").filter(|tracer| *tracer != 0)
}

/// The process that a thread belongs to.
pub fn thread_group(thread: i32) -> Option<i32> {
    status_number(&format!("/proc/{thread}/status"), "Tgid:")
}

fn status_number(path: &str, field: &str) -> Option<i32> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

/// Parses `/proc/PID/stat`. The command's name is in parentheses and may contain any byte, even `)`, so the fields are
/// counted from the last one.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|b| *b == b')')?;
    let mut fields = std::str::from_utf8(text.get(end + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let mut ticks = fields.skip(FIELDS_BEFORE_TIMES).map(|field| field.parse::<u64>().ok());
    let used = ticks.next()??.saturating_add(ticks.next()??);
    Some(Stat { state, parent, group, session, processor_time: Duration::from_millis(used.saturating_mul(TICK_MS)) })
}

/// The pids of all processes that this one can see.
pub fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// The pids of all processes below this one, in any session or group.
pub fn descendants() -> io::Result<Vec<i32>> {
    let all: Vec<(i32, i32)> = pids()?.into_iter().filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = vec![i32::try_from(std::process::id()).map_err(io::Error::other)?];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(all.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    Ok(found)
}

/// Whether `pid` sleeps in a system call that waits for input on the terminal at `path`. `None` if the kernel does not show
/// it: seeing another user's system calls needs CAP_SYS_PTRACE.
pub fn waits_for_terminal(pid: i32, path: &Path) -> Option<bool> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let Some(number) = fields.next().and_then(|n| n.parse::<libc::c_long>().ok()) else {
        // The text is "running", or "-1" for a process that is blocked outside a system call.
        return Some(false);
    };
    let mut argument =
        || fields.next().and_then(|a| u64::from_str_radix(a.trim_start_matches("0x"), 16).ok()).unwrap_or(u64::MAX);
    let (first, second) = (argument(), argument());
    let is_terminal = |fd: u64| {
        std::fs::read_link(format!("/proc/{pid}/fd/{fd}"))
            .is_ok_and(|target| target == path || target == Path::new("/dev/tty"))
    };
    Some(match number {
        libc::SYS_read => is_terminal(first),
        // It watches one descriptor, and the count starts at 0: it is standard input.
        libc::SYS_pselect6 if first == 1 => is_terminal(0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select if first == 1 => is_terminal(0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll if second == 1 => polled_fd(pid, first).is_some_and(is_terminal),
        libc::SYS_ppoll if second == 1 => polled_fd(pid, first).is_some_and(is_terminal),
        _ => false,
    })
}

/// The descriptor in the single `pollfd` that `pid` waits with.
fn polled_fd(pid: i32, address: u64) -> Option<u64> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; std::mem::size_of::<RawFd>()];
    std::fs::File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut bytes, address).ok()?;
    u64::try_from(RawFd::from_ne_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_cannot_shift_the_fields() {
        let stat = parse_stat(b"12 (a) Z 1 (x) S 3 4 5 6 7 8 9 10 11 12 13 14 15").unwrap();
        let processor_time = Duration::from_millis(270);
        assert_eq!(stat, Stat { state: b'S', parent: 3, group: 4, session: 5, processor_time });
        assert_eq!(parse_stat(b"12 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn the_signals_of_a_process_are_told() {
        // INT and QUIT are not used, because a shell that was started in the background cannot trap them.
        let mut child = std::process::Command::new("bash")
            .args(["-c", "trap : USR1; trap '' USR2; echo; read"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(catches_and_ignores(pid, libc::SIGUSR1, libc::SIGUSR2), Some(true));
        assert_eq!(catches_and_ignores(pid, libc::SIGUSR2, libc::SIGUSR2), Some(false));
        assert_eq!(catches_and_ignores(pid, libc::SIGUSR1, libc::SIGUSR1), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(catches_and_ignores(pid, libc::SIGUSR1, libc::SIGUSR2), None);
    }

    #[test]
    fn our_child_is_among_our_descendants() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(descendants().unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants().unwrap().contains(&pid));
    }
}
