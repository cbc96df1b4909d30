//! The size of the caller's terminal, and when it changes.

use std::io;

use futures_util::StreamExt as _;
use signal_hook::consts::{SIGCONT, SIGWINCH};
use signal_hook_tokio::Signals;
use terminal_size::{Height, Width, terminal_size_of};

/// The size to assume where the terminal does not tell its own.
const FALLBACK: WindowSize = WindowSize { cols: 80, rows: 24 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    pub cols: u16,
    pub rows: u16,
}

pub fn size() -> WindowSize {
    match terminal_size_of(io::stdout()).or_else(|| terminal_size_of(io::stdin())) {
        Some((Width(cols), Height(rows))) => WindowSize { cols, rows },
        None => FALLBACK,
    }
}

/// Watches for changes of the window: WINCH, and CONT, because it may have changed while this process was stopped.
pub struct WindowChanges(Signals);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowChange {
    Resized,
    /// This process was stopped and continues.
    Continued,
}

impl WindowChanges {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Signals::new([SIGWINCH, SIGCONT])?))
    }

    pub async fn next(&mut self) -> WindowChange {
        match self.0.next().await {
            Some(SIGCONT) => WindowChange::Continued,
            Some(_) => WindowChange::Resized,
            // Only a closed handle ends the stream, and nobody has one.
            None => std::future::pending().await,
        }
    }
}
