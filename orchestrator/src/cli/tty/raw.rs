//! Raw mode of the caller's terminal: every key is sent as bytes, and none becomes a signal.
//!
//! The former modes are restored when the guard is dropped, and on a panic, which ends the process without unwinding. `interrupt`
//! catches the signals that end the process, so the guard is dropped then too. Only KILL leaves the terminal in raw mode.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The former modes, present exactly while the terminal is in raw mode.
static FORMER_MODES: Mutex<Option<Termios>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

pub struct RawMode(());

impl RawMode {
    pub fn enter() -> io::Result<Self> {
        let found = tcgetattr(io::stdin())?;
        *FORMER_MODES.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
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

    /// Sets raw mode. It has to be set again after this process was stopped, because the shell has set its own modes meanwhile.
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
    // Without waiting for the lock, because in a panic this thread may hold it.
    if let Some(found) = FORMER_MODES.try_lock().ok().and_then(|mut found| found.take()) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &found);
    }
}
