//! The signals by which somebody ends a command from outside: INT, TERM, HUP, QUIT.
//!
//! From when an `Interrupts` exists, these signals no longer end the process. The command that waits for them restores the
//! terminal and removes its session first.

use futures_util::StreamExt as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook_tokio::Signals;

use super::exit::Failure;

pub struct Interrupts(Signals);

impl Interrupts {
    /// Catches INT, TERM, HUP and QUIT.
    pub fn new() -> Result<Self, Failure> {
        Self::catch(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])
    }

    /// Catches INT, as Ctrl-C sends it, and nothing else.
    pub fn ctrl_c() -> Result<Self, Failure> {
        Self::catch(&[SIGINT])
    }

    fn catch(signals: &[i32]) -> Result<Self, Failure> {
        Signals::new(signals).map(Self).map_err(|e| Failure::failed(format!("cannot wait for signals: {e}")))
    }

    /// The number of the next signal.
    pub async fn next(&mut self) -> i32 {
        match self.0.next().await {
            Some(signal) => signal,
            // Only a closed handle ends the stream, and nobody has one.
            None => std::future::pending().await,
        }
    }
}
