//! When to stop: TERM, INT, HUP unless that was ignored from the start, or the end of standard input for a private daemon.
//! A second signal ends the program at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

/// As a shell shows a program that a signal has ended.
const TERMINATED: i32 = 128 + 15;

/// Turns true when the daemon is to stop. Must be called within the runtime.
pub fn stop_on_signals(until_stdin_closes: bool) -> std::io::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Who was started to outlive its terminal stays as it was started.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut hang_up = if ignores_hang_up(&status) { None } else { Some(signal(SignalKind::hangup())?) };
    tokio::spawn(async move {
        let stdin = async {
            if until_stdin_closes {
                drain_stdin().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let hung_up = async {
            match &mut hang_up {
                Some(hang_up) => drop(hang_up.recv().await),
                None => std::future::pending().await,
            }
        };
        let cause = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = hung_up => "SIGHUP",
            () = stdin => "end of standard input",
        };
        info!(cause, "stopping");
        sender.send_replace(true);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        warn!("second signal: ending at once; what is left is removed at the next start");
        std::process::exit(TERMINATED);
    });
    Ok(receiver)
}

/// As `nohup` leaves it: the first bit of the signals that this process ignores.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// On a thread of its own, which is left behind: a read cannot be taken back, and must not hold up the program's end.
async fn drain_stdin() {
    let (sender, ended) = oneshot::channel();
    let reading = std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(());
    });
    match reading {
        Ok(_) => drop(ended.await),
        Err(cause) => {
            warn!(%cause, "the end of standard input cannot be waited for");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_under_nohup_stays_when_its_terminal_goes() {
        assert!(ignores_hang_up("Name:\tcove\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hang_up("Name:\tcove\nSigIgn:\t0000000000001000\nSigCgt:\t1\n"));
        assert!(!ignores_hang_up(""));
    }
}
