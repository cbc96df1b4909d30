//! Signals: reading them from a signalfd, resetting them for a child, and sending them.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The highest signal number of Linux, real-time signals included.
pub const MAX_SIGNAL: i32 = 64;

/// One signal as the kernel reports it.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    pub signal: i32,
    /// The sender's pid, or 0 if the sender is in another pid namespace and so not below the runner.
    pub sender_pid: u32,
    pub sender_uid: u32,
}

/// Blocks `signals` and opens a non-blocking descriptor that yields them.
pub fn open_signalfd(signals: &[Signal]) -> io::Result<SignalFd> {
    let set: SigSet = signals.iter().copied().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Reads the next pending signal. The error is `WouldBlock` if there is none.
pub fn read_signalfd(fd: &SignalFd) -> io::Result<Received> {
    let info = fd.read_signal()?.ok_or(io::ErrorKind::WouldBlock)?;
    Ok(Received {
        signal: i32::try_from(info.ssi_signo).unwrap_or(0),
        sender_pid: info.ssi_pid,
        sender_uid: info.ssi_uid,
    })
}

/// Resets every signal to what a new program expects: default action, nothing blocked. Call it in a forked child.
pub fn reset_all() {
    for number in 1..=MAX_SIGNAL {
        // SAFETY: a default action has no handler that could be unsafe. KILL, STOP and libc's own are refused, harmlessly.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
        }
    }
    unblock_all();
}

/// Blocks every signal, and returns what was blocked before.
pub fn block_all() -> io::Result<SigSet> {
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
    Ok(before)
}

/// Unblocks every signal.
pub fn unblock_all() {
    restore(&SigSet::empty());
}

/// Blocks exactly the signals in `mask`.
pub fn restore(mask: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None);
}

/// Signals one process. Refuses numbers that `kill` would take for a group, for all processes, or for init.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    send(pid, signal)
}

/// Signals one process group. Refuses groups 0 (the runner's own) and 1 (init's, or all processes).
pub fn kill_group(group: i32, signal: i32) -> io::Result<()> {
    if group <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    send(-group, signal)
}

/// Signals every process that can be signalled. Only PID 1 may call it: for PID 1 these are the processes of its pid
/// namespace.
pub fn kill_namespace(signal: i32) -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    send(-1, signal)
}

/// Calls `kill(2)`, because the wrappers in nix and rustix take no real-time signals.
fn send(target: i32, signal: i32) -> io::Result<()> {
    // SAFETY: integers only.
    if unsafe { libc::kill(target, signal) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of a signal given as `INT`, `SIGINT`, `int` or `2`.
pub fn number_of(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=MAX_SIGNAL).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    full.parse::<Signal>().ok().map(|signal| signal as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_name_and_by_number() {
        for (name, number) in [("INT", 2), ("SIGINT", 2), ("term", 15), ("9", 9), ("64", 64)] {
            assert_eq!(number_of(name), Some(number));
        }
        for bad in ["", "0", "65", "-9", "INTERRUPT", "SIG"] {
            assert_eq!(number_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn groups_that_are_not_ours_to_signal_are_refused() {
        for group in [0, 1, -1] {
            assert!(kill_group(group, 0).is_err());
            assert!(kill(group, 0).is_err());
        }
        assert!(kill_namespace(0).is_err(), "this test is not PID 1");
    }
}
