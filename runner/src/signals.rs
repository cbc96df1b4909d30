//! Handles the signals that the runner receives.
//!
//! They are read from a signalfd and not handled by handlers: docs/decisions/0002 says why.

use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use tokio::io::Interest;

use crate::reaper::Reaper;
use crate::sys::identity::Identity;
use crate::sys::signal::{Received, open_signalfd, read_signalfd};

/// The signals that are blocked for the whole process and read as events. The others keep their default action, which the
/// kernel skips for PID 1.
const HANDLED: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Blocks the signals and opens the descriptor that yields them. From here on none is lost.
pub fn open() -> std::io::Result<SignalFd> {
    open_signalfd(&HANDLED)
}

/// Collects children, and returns when the runner is told to end.
pub async fn until_told_to_end(signals: SignalFd, reaper: &Reaper, identity: Identity) -> std::io::Result<()> {
    let signals = crate::sys::poll::register(signals, Interest::READABLE)?;
    loop {
        let mut ready = signals.readable().await?;
        match ready.try_io(|fd| read_signalfd(fd.get_ref())) {
            Ok(Ok(received)) if received.signal == libc::SIGCHLD => {
                while reaper.collect() {
                    tokio::task::yield_now().await;
                }
            }
            Ok(Ok(received)) if ends_the_runner(received, std::process::id(), identity) => {
                tracing::info!(signal = received.signal, "told to end");
                return Ok(());
            }
            Ok(Ok(_)) | Err(_) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// Whether a signal ends the runner: TERM, INT and QUIT do, unless a command sent them. If commands run as another user, they
/// cannot signal the runner at all. If they run as the same user, the runner can tell as PID 1: a sender with a pid is
/// inside the sandbox.
fn ends_the_runner(received: Received, own_pid: u32, identity: Identity) -> bool {
    let asks = matches!(received.signal, libc::SIGTERM | libc::SIGINT | libc::SIGQUIT);
    let is_command = own_pid == 1 && received.sender_pid != 0 && received.sender_uid == identity.uid;
    asks && !is_command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_cannot_end_pid_1() {
        let identity = Identity { uid: 1000, gid: 1000, switch: false };
        let from = |sender_pid, sender_uid| Received { signal: libc::SIGTERM, sender_pid, sender_uid };
        assert!(!ends_the_runner(from(77, 1000), 1, identity));
        assert!(ends_the_runner(from(0, 0), 1, identity), "from outside the sandbox");
        assert!(ends_the_runner(from(77, 0), 1, identity), "from its root");
        assert!(ends_the_runner(from(77, 1000), 4242, identity), "not PID 1: its owner's shell");
        assert!(!ends_the_runner(Received { signal: libc::SIGHUP, sender_pid: 0, sender_uid: 0 }, 1, identity));
    }
}
