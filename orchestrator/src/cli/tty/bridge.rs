//! Sends keys to a terminal in a session and prints its output, until the shell ends, the caller leaves, the connection is lost or
//! a signal comes.
//!
//! The caller's terminal is in raw mode exactly as long as one of the two functions here runs.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, Stdout};

use super::super::exit::Failure;
use super::super::interrupt::Interrupts;
use super::escape::{Action, Escapes, HELP};
use super::keyboard::Keyboard;
use super::raw::RawMode;
use super::screen::Screen;
use super::window::{WindowChange, WindowChanges, size};
use crate::client::{ClientError, TerminalEvent, TerminalReader, TerminalWriter};

/// What Ctrl-C sends from a terminal in raw mode.
const CONTROL_C: u8 = 0x03;

/// Why a terminal connection is over.
#[derive(Debug)]
pub enum AttachEnd {
    Exit { exit_code: Option<i32>, reason: Option<String> },
    Detached,
    Lost(String),
    Signal(i32),
}

/// Why the caller no longer types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypingEnd {
    Detached,
    /// Ctrl-C was typed while the program had not begun.
    Cancelled,
    Signal(i32),
    Lost(String),
}

fn terminal_error(error: io::Error) -> Failure {
    Failure::failed(format!("cannot use the terminal: {error}"))
}

/// Connects the caller's terminal to a shell. The connection carries the output and the shell's end.
pub async fn attach(
    mut reader: TerminalReader,
    writer: TerminalWriter,
    interrupts: &mut Interrupts,
) -> Result<AttachEnd, Failure> {
    let raw = RawMode::enter().map_err(terminal_error)?;
    let mut screen = Screen::default();
    let mut stdout = tokio::io::stdout();
    let ended = tokio::select! {
        ended = print(&mut reader, &mut stdout, &mut screen) => ended?,
        typing = type_into(writer, &raw, || false) => match typing? {
            TypingEnd::Detached | TypingEnd::Cancelled => AttachEnd::Detached,
            TypingEnd::Signal(signal) => AttachEnd::Signal(signal),
            TypingEnd::Lost(why) => AttachEnd::Lost(why),
        },
        signal = interrupts.next() => AttachEnd::Signal(signal),
    };
    // A shell that ended by itself has restored the screen, unless its session ended while a full-screen program ran.
    if screen.is_alternate() || !matches!(ended, AttachEnd::Exit { reason: None, .. }) {
        screen.restore().await;
    }
    drop(raw);
    Ok(ended)
}

/// Connects the caller's keyboard and window size to a program. `work` follows the program's output and end over another connection.
/// While `is_waiting`, the terminal belongs to another command: keys are dropped, and Ctrl-C ends the wait.
pub async fn drive_program<T>(
    mut reader: TerminalReader,
    writer: TerminalWriter,
    interrupts: &mut Interrupts,
    is_waiting: impl Fn() -> bool,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Result<T, TypingEnd>, Failure> {
    let raw = RawMode::enter().map_err(terminal_error)?;
    let done = tokio::select! {
        result = work => result.map(Ok),
        typing = type_into(writer, &raw, is_waiting) => typing.map(Err),
        signal = interrupts.next() => Ok(Err(TypingEnd::Signal(signal))),
        never = drop_output(&mut reader) => match never {},
    };
    drop(raw);
    done
}

async fn print(reader: &mut TerminalReader, stdout: &mut Stdout, screen: &mut Screen) -> Result<AttachEnd, Failure> {
    loop {
        match reader.next().await {
            Ok(TerminalEvent::Output(bytes)) => {
                screen.printed(&bytes);
                write(stdout, &bytes).await.map_err(|e| Failure::stdout(&e))?;
            }
            Ok(TerminalEvent::Exit { exit_code, reason }) => return Ok(AttachEnd::Exit { exit_code, reason }),
            Err(ClientError::Lost(why)) => return Ok(AttachEnd::Lost(why)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads and drops output, which `work` shows. The connection has to be read so that its pings are answered.
async fn drop_output(reader: &mut TerminalReader) -> std::convert::Infallible {
    while let Ok(TerminalEvent::Output(_)) = reader.next().await {}
    std::future::pending().await
}

async fn type_into(
    mut writer: TerminalWriter,
    raw: &RawMode,
    is_waiting: impl Fn() -> bool,
) -> Result<TypingEnd, Failure> {
    let mut keyboard = Keyboard::new().map_err(terminal_error)?;
    let mut changes = WindowChanges::new().map_err(terminal_error)?;
    let mut escapes = Escapes::new();
    let mut stdout = tokio::io::stdout();
    loop {
        let sent = tokio::select! {
            typed = keyboard.next() => {
                // The caller's terminal is gone.
                let Some(typed) = typed else { return Ok(TypingEnd::Signal(libc::SIGHUP)) };
                let mut sent = Ok(());
                for action in escapes.feed(&typed) {
                    match action {
                        Action::Send(bytes) if is_waiting() => {
                            if bytes.contains(&CONTROL_C) {
                                return Ok(TypingEnd::Cancelled);
                            }
                        }
                        Action::Send(bytes) => sent = writer.input(Bytes::from(bytes)).await,
                        Action::Help => write(&mut stdout, HELP.as_bytes()).await.map_err(|e| Failure::stdout(&e))?,
                        Action::Detach => {
                            let _ = writer.close().await;
                            return Ok(TypingEnd::Detached);
                        }
                    }
                }
                sent
            }
            change = changes.next() => {
                if change == WindowChange::Continued {
                    raw.apply().map_err(terminal_error)?;
                }
                let size = size();
                writer.resize(size.cols, size.rows).await
            }
        };
        if let Err(error) = sent {
            return Ok(TypingEnd::Lost(error.to_string()));
        }
    }
}

async fn write(stdout: &mut Stdout, bytes: &[u8]) -> io::Result<()> {
    stdout.write_all(bytes).await?;
    stdout.flush().await
}
