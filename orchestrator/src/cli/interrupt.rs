//! The signals by which somebody ends a command from outside: INT, TERM, HUP, QUIT.
//!
//! From when this exists they are told here and no longer end the process, so that what must be put right can be.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Failure;

pub struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
    quit: Signal,
}

impl Interrupts {
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")));
        Ok(Self {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
        })
    }

    /// The number of the next one.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.int.recv() => libc::SIGINT,
            _ = self.term.recv() => libc::SIGTERM,
            _ = self.hup.recv() => libc::SIGHUP,
            _ = self.quit.recv() => libc::SIGQUIT,
        }
    }
}
