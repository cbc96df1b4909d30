//! Reads `/proc` about processes, from outside the runner.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One process. Two processes with the same pid have different start times, because pids are reused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub state: char,
    pub start: u64,
    pub name: String,
}

/// Reads a process. `None` if it is gone.
pub fn process(pid: i32) -> Option<Process> {
    let text = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    // The name is in parentheses and may contain any byte, so fields count from the last one.
    let (head, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        start: fields.get(19)?.parse().ok()?,
        name: head.split_once('(')?.1.to_owned(),
    })
}

pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|e| process(e.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

pub fn children(pid: i32) -> Vec<Process> {
    all().into_iter().filter(|p| p.parent == pid).collect()
}

/// All processes below `pid`, in any session or group.
pub fn descendants(pid: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|p| p.parent == parent) {
            parents.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// Whether this process, and not another one with its pid, exists and is no zombie.
pub fn is_alive(process: &Process) -> bool {
    self::process(process.pid).is_some_and(|now| now.start == process.start && !matches!(now.state, 'Z' | 'X'))
}

/// Children of `pid` that have ended and were not collected.
pub fn zombies(pid: i32) -> Vec<Process> {
    children(pid).into_iter().filter(|p| p.state == 'Z').collect()
}

/// The live processes that were started with `NAME=value` in their environment. Only root can see other users' processes.
pub fn with_variable(name: &str, value: &str) -> Vec<Process> {
    let wanted = format!("{name}={value}").into_bytes();
    let has = |p: &Process| {
        let environ = std::fs::read(format!("/proc/{}/environ", p.pid)).unwrap_or_default();
        environ.split(|b| *b == 0).any(|entry| entry == wanted)
    };
    all().into_iter().filter(|p| is_alive(p) && has(p)).collect()
}

/// A line of `/proc/PID/status` in KiB, such as `VmRSS` or `VmHWM`.
pub fn status_kib(pid: i32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).expect("a line of that name");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

/// The value of a line of `/proc/PID/status`, as text.
pub fn status_text(pid: i32, key: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).expect("a line of that name");
    line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Signals a process that a test started. It refuses groups and init.
pub fn signal(pid: i32, signal: Signal) {
    assert!(pid > 1, "refusing to signal {pid}");
    // The process may have ended by itself.
    let _ = kill(Pid::from_raw(pid), signal);
}
