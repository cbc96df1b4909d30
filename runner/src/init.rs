//! `runner -- COMMAND`: a plain init for image builders. Runs one command, forwards every signal to it, reaps orphans, and
//! ends with its status. It drops no privileges and serves nothing.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::reaper::Exit;
use crate::sys::signal::{self, SignalFd};
use crate::sys::spawn::spawn_plain;
use crate::sys::wait::{self, Collected};
use crate::sys::{identity, tty};

/// The shell's own codes for a command that could not be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Runs the command and gives the exit code of the runner itself.
pub fn run(command: &[OsString]) -> u8 {
    match run_to_its_end(command) {
        Ok(exit) => u8::try_from(exit.shell_code() & 0xff).unwrap_or(1),
        Err(error) => {
            eprintln!("runner: {}: {error}", command[0].to_string_lossy());
            if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }
        }
    }
}

fn run_to_its_end(command: &[OsString]) -> std::io::Result<Exit> {
    // Blocked before the child exists, so that none is lost; the child itself starts with nothing blocked.
    let forwarded = Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP) && !is_fault(*s));
    let signals = SignalFd::new(&forwarded.collect::<Vec<_>>())?;
    let _ = identity::adopt_orphans();
    let mut spawned = Command::new(&command[0]);
    // A group of its own, in the foreground of the terminal if there is one: Ctrl-C reaches it and not us.
    spawned.args(&command[1..]);
    let child = spawn_plain(spawned)?;
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let _ = tty::set_foreground(stdin.as_fd(), child);
    }
    loop {
        while let Some(collected) = wait::next_child()? {
            match collected {
                Collected::Exited(pid, code) if pid == child => return Ok(Exit::Code(code)),
                Collected::Killed(pid, signal) if pid == child => return Ok(Exit::Signal(signal)),
                _ => {}
            }
        }
        let received = signals.wait()?;
        if received.signal != libc::SIGCHLD {
            // The child has not been collected, so its pid is still its own.
            let _ = signal::kill(child, received.signal);
        }
    }
}

/// Raised by the runner's own mistakes; blocking them would hide those.
fn is_fault(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGSEGV
            | Signal::SIGBUS
            | Signal::SIGFPE
            | Signal::SIGILL
            | Signal::SIGTRAP
            | Signal::SIGABRT
            | Signal::SIGSYS
            | Signal::SIGTTIN
            | Signal::SIGTTOU
    )
}
