//! Signals as events: blocked for the whole process and read from a signalfd, with who sent them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

/// One signal as the kernel reports it.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    pub signal: i32,
    /// 0 where the sender is in another pid namespace: it is not below us.
    pub sender_pid: u32,
    pub sender_uid: u32,
}

pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` and opens a descriptor that yields them.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in signals {
            set.add(*signal);
        }
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        // SAFETY: `set` is an initialised signal set; -1 asks for a new descriptor, which is ours alone.
        unsafe {
            let fd = libc::signalfd(-1, set.as_ref(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd == -1 { Err(io::Error::last_os_error()) } else { Ok(Self(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// The next pending signal, or `WouldBlock`.
    pub fn read(&self) -> io::Result<Received> {
        let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        // SAFETY: the buffer is exactly one record, and the kernel writes whole records only.
        let read = unsafe {
            libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), std::mem::size_of::<libc::signalfd_siginfo>())
        };
        if read == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: zero-initialised above, and every bit pattern is valid for it.
        let info = unsafe { info.assume_init() };
        Ok(Received {
            signal: i32::try_from(info.ssi_signo).unwrap_or(0),
            sender_pid: info.ssi_pid,
            sender_uid: info.ssi_uid,
        })
    }
}

impl SignalFd {
    /// Waits for the next signal, blocking the thread.
    pub fn wait(&self) -> io::Result<Received> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        loop {
            match self.read() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
                    match poll(&mut fds, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                other => return other,
            }
        }
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Puts every signal back to what a new program expects: default action, nothing blocked. For a forked child.
pub fn reset_all() {
    for number in 1..=64 {
        // SAFETY: setting a default action has no handler to be unsafe; KILL, STOP and libc's own are refused, harmlessly.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
        }
    }
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

/// Blocks every signal and gives back what was blocked before.
pub fn block_all() -> io::Result<SigSet> {
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))?;
    Ok(before)
}

pub fn restore(mask: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None);
}

/// Signals one process. Refuses what `kill` would take for a group, everything, or init.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: integers only.
    if unsafe { libc::kill(pid, signal) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Signals one process group. Refuses groups 0 (our own) and 1 (init's, or everything).
pub fn kill_group(group: i32, signal: i32) -> io::Result<()> {
    if group <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: integers only.
    if unsafe { libc::kill(-group, signal) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Signals every process that can be: only for PID 1, where that is the pid namespace below it and nothing else.
pub fn kill_namespace(signal: i32) -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: integers only; checked above that everything is what lies below us.
    if unsafe { libc::kill(-1, signal) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of a signal given as `INT`, `SIGINT`, `int` or `2`.
pub fn number_of(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
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
