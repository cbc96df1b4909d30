//! The size of the caller's terminal, and when it changes.

use std::io;

use terminal_size::{Height, Width, terminal_size_of};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Where the terminal does not know its own.
const FALLBACK: Size = Size { cols: 80, rows: 24 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

pub fn size() -> Size {
    match terminal_size_of(io::stdout()).or_else(|| terminal_size_of(io::stdin())) {
        Some((Width(cols), Height(rows))) => Size { cols, rows },
        None => FALLBACK,
    }
}

/// Changes of the window: WINCH, and CONT, since it may have changed while we were stopped.
pub struct Changes {
    winch: Signal,
    cont: Signal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Resized,
    /// We were stopped and go on.
    Continued,
}

impl Changes {
    pub fn new() -> io::Result<Self> {
        let cont = SignalKind::from_raw(libc::SIGCONT);
        Ok(Self { winch: signal(SignalKind::window_change())?, cont: signal(cont)? })
    }

    pub async fn next(&mut self) -> Change {
        tokio::select! {
            _ = self.winch.recv() => Change::Resized,
            _ = self.cont.recv() => Change::Continued,
        }
    }
}
