//! When to stop: TERM, INT, HUP unless that was ignored from the start, or the end of standard input for a private daemon.
//! A second signal ends the program at once. Which of them it was decides what becomes of sessions, where no setting does.

use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::config::{Config, OnStop};

/// As a shell shows a program that a signal has ended.
const TERMINATED: i32 = 128 + 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// From a service manager, or whoever ends a daemon to start another.
    Terminate,
    /// From a person at a terminal, or the terminal's end.
    Terminal,
    StdinClosed,
}

/// The daemon's end, once there is one.
pub struct Stop {
    asked: watch::Receiver<bool>,
    cause: Arc<OnceLock<Cause>>,
}

impl Stop {
    /// Turns true when the daemon is to stop.
    pub fn receiver(&self) -> watch::Receiver<bool> {
        self.asked.clone()
    }

    pub fn what_becomes_of_sessions(&self, config: &Config) -> OnStop {
        decide(self.cause.get().copied(), config.until_stdin_closes, config.sessions.on_stop)
    }
}

/// A private daemon's directory goes with it, and so do its sessions. A daemon that is ended to be started again comes back to them;
/// one that a person tries out at a terminal leaves nothing behind.
fn decide(cause: Option<Cause>, is_private: bool, setting: Option<OnStop>) -> OnStop {
    match (is_private, setting, cause) {
        (true, _, _) => OnStop::Destroy,
        (false, Some(setting), _) => setting,
        (false, None, Some(Cause::Terminate)) => OnStop::Keep,
        (false, None, _) => OnStop::Destroy,
    }
}

/// Must be called within the runtime.
pub fn stop_on_signals(until_stdin_closes: bool) -> std::io::Result<Stop> {
    let (sender, asked) = watch::channel(false);
    let cause = Arc::<OnceLock<Cause>>::default();
    let told = cause.clone();
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
        let (cause, said) = tokio::select! {
            _ = terminate.recv() => (Cause::Terminate, "SIGTERM"),
            _ = interrupt.recv() => (Cause::Terminal, "SIGINT"),
            () = hung_up => (Cause::Terminal, "SIGHUP"),
            () = stdin => (Cause::StdinClosed, "end of standard input"),
        };
        info!(cause = said, "stopping");
        let _ = told.set(cause);
        sender.send_replace(true);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        warn!("second signal: ending at once; the next start comes back to what is left");
        std::process::exit(TERMINATED);
    });
    Ok(Stop { asked, cause })
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
    fn sessions_stay_when_a_service_manager_stops_us_and_go_when_a_person_or_a_setting_says_so() {
        assert_eq!(decide(Some(Cause::Terminate), false, None), OnStop::Keep);
        assert_eq!(decide(Some(Cause::Terminal), false, None), OnStop::Destroy);
        for cause in [Cause::Terminate, Cause::Terminal] {
            for setting in [OnStop::Keep, OnStop::Destroy] {
                assert_eq!(decide(Some(cause), false, Some(setting)), setting);
            }
            assert_eq!(
                decide(Some(cause), true, Some(OnStop::Keep)),
                OnStop::Destroy,
                "a private daemon leaves nothing"
            );
        }
        assert_eq!(decide(Some(Cause::StdinClosed), true, None), OnStop::Destroy);
    }

    #[test]
    fn a_daemon_under_nohup_stays_when_its_terminal_goes() {
        assert!(ignores_hang_up("Name:\tcove\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hang_up("Name:\tcove\nSigIgn:\t0000000000001000\nSigCgt:\t1\n"));
        assert!(!ignores_hang_up(""));
    }
}
