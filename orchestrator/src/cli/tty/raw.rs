//! Raw mode: every key is a byte, and none of them a signal.
//!
//! The modes that were found are put back when the guard goes, and by a panic, which ends the process without
//! unwinding. Signals that end the process are caught by `interrupt`, so that the guard goes; only KILL leaves a raw terminal.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// What to go back to; present exactly while the terminal is raw.
static FOUND: Mutex<Option<Termios>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

pub struct RawMode(());

impl RawMode {
    pub fn enter() -> io::Result<Self> {
        let found = tcgetattr(io::stdin())?;
        *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        let guard = Self(());
        guard.apply()?;
        Ok(guard)
    }

    /// Also after we were stopped and go on: who had the terminal meanwhile has put its own modes there.
    pub fn apply(&self) -> io::Result<()> {
        let mut raw = tcgetattr(io::stdin())?;
        cfmakeraw(&mut raw);
        Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // Not waiting for the lock: in a panic it may be this very thread's.
    if let Some(found) = FOUND.try_lock().ok().and_then(|mut found| found.take()) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &found);
    }
}
