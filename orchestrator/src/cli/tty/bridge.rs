//! Carries keys there and output back, until the shell ends, the caller leaves, the connection is lost or a signal comes.
//!
//! The terminal is raw exactly as long as one of the two functions here runs.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, Stdout};

use super::super::exit::Failure;
use super::super::interrupt::Interrupts;
use super::escape::{Action, Escapes, HELP};
use super::keyboard::Keyboard;
use super::raw::RawMode;
use super::screen::Screen;
use super::window::{Change, Changes, size};
use crate::client::{ClientError, TerminalEvent, TerminalReader, TerminalWriter};

/// Why it is over.
#[derive(Debug)]
pub enum Ended {
    Exit { exit_code: Option<i32>, reason: Option<String> },
    Detached,
    Lost(String),
    Signal(i32),
}

/// How typing ends; it never does by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typing {
    Detached,
    Signal(i32),
    Lost(String),
}

fn terminal_error(error: io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be used: {error}"))
}

/// A shell: its output comes by the same connection as its end.
pub async fn attach(
    mut reader: TerminalReader,
    writer: TerminalWriter,
    interrupts: &mut Interrupts,
) -> Result<Ended, Failure> {
    let raw = RawMode::enter().map_err(terminal_error)?;
    let mut screen = Screen::default();
    let mut stdout = tokio::io::stdout();
    let ended = tokio::select! {
        ended = print(&mut reader, &mut stdout, &mut screen) => ended?,
        typing = type_into(writer, &raw) => match typing? {
            Typing::Detached => Ended::Detached,
            Typing::Signal(signal) => Ended::Signal(signal),
            Typing::Lost(why) => Ended::Lost(why),
        },
        signal = interrupts.next() => Ended::Signal(signal),
    };
    // Where the shell ended by itself there is nothing to mend, unless the session ended under a full-screen program.
    if screen.is_alternate() || !matches!(ended, Ended::Exit { reason: None, .. }) {
        screen.repair().await;
    }
    drop(raw);
    Ok(ended)
}

/// A program whose output and end come by another way, which `work` follows; keys and the window's size go by this one.
pub async fn drive_program<T>(
    mut reader: TerminalReader,
    writer: TerminalWriter,
    interrupts: &mut Interrupts,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Result<T, Typing>, Failure> {
    let raw = RawMode::enter().map_err(terminal_error)?;
    let done = tokio::select! {
        result = work => result.map(Ok),
        typing = type_into(writer, &raw) => typing.map(Err),
        signal = interrupts.next() => Ok(Err(Typing::Signal(signal))),
        never = pass_over(&mut reader) => match never {},
    };
    drop(raw);
    done
}

async fn print(reader: &mut TerminalReader, stdout: &mut Stdout, screen: &mut Screen) -> Result<Ended, Failure> {
    loop {
        match reader.next().await {
            Ok(TerminalEvent::Output(bytes)) => {
                screen.printed(&bytes);
                write(stdout, &bytes).await.map_err(|e| Failure::stdout(&e))?;
            }
            Ok(TerminalEvent::Exit { exit_code, reason }) => return Ok(Ended::Exit { exit_code, reason }),
            Err(ClientError::Lost(why)) => return Ok(Ended::Lost(why)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads on, so that the connection's own frames are answered; what it shows is shown already.
async fn pass_over(reader: &mut TerminalReader) -> std::convert::Infallible {
    while let Ok(TerminalEvent::Output(_)) = reader.next().await {}
    std::future::pending().await
}

async fn type_into(mut writer: TerminalWriter, raw: &RawMode) -> Result<Typing, Failure> {
    let mut keyboard = Keyboard::new().map_err(terminal_error)?;
    let mut changes = Changes::new().map_err(terminal_error)?;
    let mut escapes = Escapes::new();
    let mut stdout = tokio::io::stdout();
    loop {
        let sent = tokio::select! {
            typed = keyboard.next() => {
                // The terminal itself is gone.
                let Some(typed) = typed else { return Ok(Typing::Signal(libc::SIGHUP)) };
                let mut sent = Ok(());
                for action in escapes.feed(&typed) {
                    match action {
                        Action::Send(bytes) => sent = writer.input(Bytes::from(bytes)).await,
                        Action::Help => write(&mut stdout, HELP.as_bytes()).await.map_err(|e| Failure::stdout(&e))?,
                        Action::Detach => {
                            let _ = writer.close().await;
                            return Ok(Typing::Detached);
                        }
                    }
                }
                sent
            }
            change = changes.next() => {
                if change == Change::Continued {
                    raw.apply().map_err(terminal_error)?;
                }
                let size = size();
                writer.resize(size.cols, size.rows).await
            }
        };
        if let Err(error) = sent {
            return Ok(Typing::Lost(error.to_string()));
        }
    }
}

async fn write(stdout: &mut Stdout, bytes: &[u8]) -> io::Result<()> {
    stdout.write_all(bytes).await?;
    stdout.flush().await
}
