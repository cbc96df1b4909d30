//! Starts the command of `runner -- COMMAND` as if the caller had started it: with the caller's terminal, and with the
//! ignored and blocked signals that the caller chose.
//!
//! The runner blocks every signal for itself and reads them from a descriptor. Its standard library ignores SIGPIPE before
//! `main`. The command must see neither.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{getpgrp, getpid, getppid, tcgetpgrp};

use super::signal::{self, MAX_SIGNAL};
use super::tty;

/// Whether SIGPIPE was ignored before the standard library changed it.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls this before `main`, and so before the standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

fn is_ignored(number: i32) -> bool {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only writes the present one, to a live struct.
    let asked = unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

fn ignore(number: i32) {
    // SAFETY: an ignored signal has no handler that could be unsafe.
    unsafe { libc::signal(number, libc::SIG_IGN) };
}

/// The signals that the runner was started with. Signals to the runner wait from the moment that this value exists.
#[derive(Debug, Clone)]
pub struct StartSignals {
    ignored: Vec<i32>,
    blocked: SigSet,
}

impl StartSignals {
    /// Notes what was ignored and blocked, and blocks everything.
    pub fn take() -> io::Result<Self> {
        let is_ignored = |number: &i32| match *number {
            libc::SIGPIPE => PIPE_WAS_IGNORED.load(Ordering::Relaxed),
            number => is_ignored(number),
        };
        let ignored = (1..=MAX_SIGNAL).filter(is_ignored).collect();
        let blocked = signal::block_all()?;
        // While SIGCHLD is ignored, the kernel collects children itself, and their status is lost.
        // SAFETY: a default action has no handler that could be unsafe.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        Ok(Self { ignored, blocked })
    }

    /// Restores the signals in a forked child.
    fn restore(&self) {
        self.ignored.iter().copied().for_each(ignore);
        signal::restore(&self.blocked);
    }
}

/// Whether the runner is in the foreground of the terminal on its standard input, so that the terminal is its to pass on. A
/// runner in the background must not take the terminal from whoever has it.
pub fn has_foreground() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal() && tcgetpgrp(stdin.as_fd()).is_ok_and(|group| group == getpgrp())
}

/// Makes the runner's own group the foreground group again, so that a script that called the runner can read on.
pub fn take_foreground_back() {
    let group = getpgrp().as_raw();
    // The group is 0 if it belongs to a pid namespace outside.
    if group > 0 {
        let _ = tty::set_foreground(io::stdin().as_fd(), group);
    }
}

/// Starts `command` as the runner's own user, as the leader of a new process group. With `foreground`, the command puts
/// that group into the foreground of its terminal before it is executed: if the runner did this afterwards, the command
/// could read first, and the kernel would stop it.
pub fn spawn(mut command: Command, signals: &StartSignals, foreground: bool) -> io::Result<i32> {
    let (signals, stdin) = (signals.clone(), io::stdin());
    let before_exec = move || {
        if foreground {
            // A terminal that was lost meanwhile is the command's to notice.
            let _ = tty::set_foreground(stdin.as_fd(), getpid().as_raw());
        }
        signals.restore();
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls only, on values that it owns since before the fork.
    unsafe { command.process_group(0).pre_exec(before_exec) };
    i32::try_from(command.spawn()?.id()).map_err(io::Error::other)
}

/// Has `signal` sent to this process when its parent dies.
pub fn signal_at_parent_death(signal: Signal) -> io::Result<()> {
    let parent = getppid();
    prctl::set_pdeathsig(signal)?;
    if getppid() != parent {
        // The parent died before the call above, which then has no effect.
        raise(signal)?;
    }
    Ok(())
}

/// A signal to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    pub signal: i32,
    /// Whether a process sent it, and not the kernel.
    pub by_process: bool,
}

/// The blocked signals of this process, one after the other.
pub struct Arrivals(SignalFd);

impl Arrivals {
    pub fn open() -> io::Result<Self> {
        Ok(Self(SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits for the next signal.
    pub fn next(&self) -> io::Result<Arrived> {
        loop {
            match self.0.read_signal() {
                // The kernel's own codes are positive. It kills this process for a fault, blocked or not, and puts nothing
                // here.
                Ok(Some(info)) => {
                    let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
                    return Ok(Arrived { signal, by_process: info.ssi_code <= 0 });
                }
                Ok(None) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
