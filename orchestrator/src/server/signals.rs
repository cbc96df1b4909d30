//! Decides when the daemon stops, and whether its sessions end with it.
//!
//! The daemon stops on TERM, INT or HUP; a private daemon also stops when its standard input ends. A daemon that was started
//! with HUP ignored, as by `nohup`, keeps ignoring it. During the stop, a second TERM or INT ends the process at once; the
//! next start cleans up what is left.
//!
//! Unless a setting decides it, TERM keeps the sessions and every other cause ends them.

use std::sync::{Arc, OnceLock};

use futures_util::StreamExt as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::config::{Config, OnStop, ServeMode};

/// The exit status after a second signal: the status that a shell shows for a program that TERM ended.
const TERMINATED: i32 = 128 + SIGTERM;

/// Why the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// TERM: a service manager, or somebody who ends this daemon to start another.
    Terminate,
    /// INT or HUP: a person at a terminal, or the end of that terminal.
    Terminal,
    /// The end of a private daemon's standard input.
    StdinClosed,
}

/// Tells the rest of the daemon to stop, and why.
pub struct Stop {
    asked: watch::Receiver<bool>,
    cause: Arc<OnceLock<StopCause>>,
}

impl Stop {
    /// Turns true when the daemon is to stop.
    pub fn receiver(&self) -> watch::Receiver<bool> {
        self.asked.clone()
    }

    pub fn what_becomes_of_sessions(&self, config: &Config) -> OnStop {
        decide(self.cause.get().copied(), config.mode.is_private(), config.sessions.on_stop)
    }
}

/// Decides whether the sessions survive the stop. A private daemon's data directory is removed with it, so its sessions end
/// too. A daemon that is restarted finds its sessions again; a daemon that a person tries out at a terminal leaves nothing
/// behind.
fn decide(cause: Option<StopCause>, is_private: bool, setting: Option<OnStop>) -> OnStop {
    match (is_private, setting, cause) {
        (true, _, _) => OnStop::Destroy,
        (false, Some(setting), _) => setting,
        (false, None, Some(StopCause::Terminate)) => OnStop::Keep,
        (false, None, _) => OnStop::Destroy,
    }
}

/// Begins to wait for signals. Must be called within the tokio runtime.
pub fn stop_on_signals(mode: ServeMode) -> std::io::Result<Stop> {
    let mut watched = vec![SIGTERM, SIGINT];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !ignores_hang_up(&status) {
        watched.push(SIGHUP);
    }
    let mut signals = Signals::new(watched)?;
    let (sender, asked) = watch::channel(false);
    let cause = Arc::<OnceLock<StopCause>>::default();
    let decided = cause.clone();
    tokio::spawn(async move {
        let (cause, shown) = tokio::select! {
            Some(signal) = signals.next() => match signal {
                SIGTERM => (StopCause::Terminate, "SIGTERM"),
                SIGINT => (StopCause::Terminal, "SIGINT"),
                _ => (StopCause::Terminal, "SIGHUP"),
            },
            () = end_of_stdin(), if mode.is_private() => (StopCause::StdinClosed, "end of standard input"),
        };
        info!(cause = shown, "stopping");
        let _ = decided.set(cause);
        sender.send_replace(true);
        while let Some(signal) = signals.next().await {
            if signal != SIGHUP {
                warn!("second signal: ending at once; the next start finds what is left");
                std::process::exit(TERMINATED);
            }
        }
    });
    Ok(Stop { asked, cause })
}

/// Whether this process was started with HUP ignored, as `nohup` does: the first bit of `SigIgn` in `/proc/self/status`.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Reads standard input to its end, on a thread that nothing waits for: a read cannot be cancelled, and must not delay the
/// exit.
async fn end_of_stdin() {
    let (sender, ended) = oneshot::channel();
    let reading = std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(());
    });
    match reading {
        Ok(_) => drop(ended.await),
        Err(cause) => {
            warn!(%cause, "cannot wait for the end of standard input");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_keeps_sessions_and_a_person_ends_them_unless_a_setting_says_otherwise() {
        assert_eq!(decide(Some(StopCause::Terminate), false, None), OnStop::Keep);
        assert_eq!(decide(Some(StopCause::Terminal), false, None), OnStop::Destroy);
        for cause in [StopCause::Terminate, StopCause::Terminal] {
            for setting in [OnStop::Keep, OnStop::Destroy] {
                assert_eq!(decide(Some(cause), false, Some(setting)), setting);
            }
            assert_eq!(
                decide(Some(cause), true, Some(OnStop::Keep)),
                OnStop::Destroy,
                "a private daemon leaves nothing"
            );
        }
        assert_eq!(decide(Some(StopCause::StdinClosed), true, None), OnStop::Destroy);
    }

    #[test]
    fn a_daemon_under_nohup_survives_the_end_of_its_terminal() {
        assert!(ignores_hang_up("Name:\tcove\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hang_up("Name:\tcove\nSigIgn:\t0000000000001000\nSigCgt:\t1\n"));
        assert!(!ignores_hang_up(""));
    }
}
