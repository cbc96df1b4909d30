//! `runner -- COMMAND`: a plain init for image builders, with the flags of tini that its users know.
//!
//! It runs one command, forwards signals to it, collects orphans, and ends with the command's exit code. It drops no
//! privileges and serves nothing.
//!
//! ```text
//! block all signals → start the command → { collect children; forward signals }
//! ```
//!
//! Every signal stays blocked and is read from a descriptor. So no signal is lost between the start of the command and the
//! loop, the command inherits no handler, and a fault signal that somebody sends, such as ABRT, is forwarded like any other.
//! A real fault of the runner still kills it: the kernel does not let a process block one.
//!
//! It does not stop with its command: Ctrl-Z stops the command alone, as with tini.

use std::io;
use std::process::Command;

use crate::config::InitConfig;
use crate::reaper::Exit;
use crate::sys::init_command::{self, Arrivals, Arrived, StartSignals};
use crate::sys::wait::{self, Collected};
use crate::sys::{identity, signal};

/// The exit codes that shells use for a command that was not found, and for one that could not be started.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Runs the command and returns the runner's own exit code.
pub fn run(config: &InitConfig) -> u8 {
    match start(config).and_then(|init| init.run()) {
        Ok(exit) => own_code(exit, &config.codes_as_zero),
        Err(error) => {
            eprintln!("runner: {}: {error}", config.command[0].to_string_lossy());
            if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }
        }
    }
}

/// The exit code of the runner for the end of its command.
fn own_code(exit: Exit, codes_as_zero: &[u8]) -> u8 {
    let code = u8::try_from(exit.shell_code() & 0xff).unwrap_or(1);
    if codes_as_zero.contains(&code) { 0 } else { code }
}

/// The init process of a started command.
struct Init {
    child: i32,
    arrivals: Arrivals,
    signals_group: bool,
    /// Whether the command was put into the foreground of the terminal.
    gave_foreground: bool,
}

fn start(config: &InitConfig) -> io::Result<Init> {
    let signals = StartSignals::take()?;
    if let Some(signal) = config.parent_death_signal {
        init_command::signal_at_parent_death(signal)?;
    }
    let _ = identity::adopt_orphans();
    let arrivals = Arrivals::open()?;
    let mut command = Command::new(&config.command[0]);
    command.args(&config.command[1..]);
    // Ctrl-C reaches the foreground group, and so the command and not the runner.
    let gave_foreground = init_command::has_foreground();
    let child = init_command::spawn(command, &signals, gave_foreground)?;
    Ok(Init { child, arrivals, signals_group: config.signals_group, gave_foreground })
}

impl Init {
    fn run(&self) -> io::Result<Exit> {
        let exit = loop {
            if let Some(exit) = self.collect()? {
                break exit;
            }
            let arrived = self.arrivals.next()?;
            if is_forwarded(arrived) {
                self.forward(arrived.signal);
            }
        };
        if self.gave_foreground {
            init_command::take_foreground_back();
        }
        Ok(exit)
    }

    /// Signals the child, which has not been collected, so that the pid and the group are still its own.
    fn forward(&self, number: i32) {
        let _ =
            if self.signals_group { signal::kill_group(self.child, number) } else { signal::kill(self.child, number) };
    }

    /// Collects every process that has ended. Returns how the child ended, if it is among them.
    fn collect(&self) -> io::Result<Option<Exit>> {
        while let Some(collected) = wait::next_child()? {
            match collected {
                Collected::Exited(pid, code) if pid == self.child => return Ok(Some(Exit::Code(code))),
                Collected::Killed(pid, signal) if pid == self.child => return Ok(Some(Exit::Signal(signal))),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Whether a signal is meant for the command. SIGCHLD tells the runner about its own children, and a terminal sends TTIN and
/// TTOU to the background process that uses it.
fn is_forwarded(arrived: Arrived) -> bool {
    match arrived.signal {
        libc::SIGCHLD => false,
        libc::SIGTTIN | libc::SIGTTOU => arrived.by_process,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_about_the_runner_itself_is_not_forwarded() {
        let arrived = |signal, by_process| Arrived { signal, by_process };
        assert!(!is_forwarded(arrived(libc::SIGCHLD, true)));
        assert!(!is_forwarded(arrived(libc::SIGTTIN, false)));
        assert!(is_forwarded(arrived(libc::SIGTTIN, true)));
        assert!(is_forwarded(arrived(libc::SIGSEGV, true)));
        assert!(is_forwarded(arrived(libc::SIGHUP, false)), "a terminal that hangs up");
    }

    #[test]
    fn a_chosen_exit_code_becomes_zero_and_no_other() {
        assert_eq!(own_code(Exit::Signal(libc::SIGTERM), &[143]), 0);
        assert_eq!(own_code(Exit::Code(143), &[143]), 0);
        assert_eq!(own_code(Exit::Code(144), &[143, 1]), 144);
        assert_eq!(own_code(Exit::Code(0), &[143]), 0);
    }
}
