//! The open standard input of a run: a pipe into which clients write while the program runs, and which they close.
//!
//! ```text
//! open ── a client closes it, the program closes its end, or the program ends ──▶ closed
//! ```
//!
//! One request writes at a time, and the others wait in their order. Nothing is stored here: a request writes as fast as the
//! program reads.

use std::cell::Cell;

use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::{Mutex, MutexGuard, Notify};

/// Who closed standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    Client,
    /// The program closed its end of the pipe.
    Program,
    /// The program has ended.
    End,
}

impl ClosedBy {
    /// The reply to a write that comes too late. `written` bytes of its request had been written before.
    fn refusal(self, written: u64) -> ErrorBody {
        let why = match self {
            Self::Client => "the standard input of this run was closed before",
            Self::Program => "the program has closed its standard input",
            Self::End => "the program has ended",
        };
        let message = match written {
            0 => why.to_owned(),
            written => format!("{why}; {written} bytes of this request were written before"),
        };
        ErrorBody::new(ErrorCode::Conflict, message)
    }
}

/// The standard input of one run.
pub struct OpenStdin {
    pipe: Mutex<Option<Sender>>,
    /// `None` while it is open.
    closed: Cell<Option<ClosedBy>>,
    ended: Notify,
}

impl OpenStdin {
    pub fn new(pipe: Sender) -> Self {
        Self { pipe: Mutex::new(Some(pipe)), closed: Cell::new(None), ended: Notify::new() }
    }

    /// Waits until no other request writes.
    pub async fn writer(&self) -> Writer<'_> {
        Writer { stdin: self, pipe: self.pipe.lock().await, written: 0 }
    }

    /// Closes it for good because the program has ended, also under a request that waits for the program to read.
    pub fn end(&self) {
        self.closed.set(Some(ClosedBy::End));
        self.ended.notify_waiters();
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }

    fn close(&self, by: ClosedBy) {
        if self.closed.get().is_none() {
            self.closed.set(Some(by));
        }
    }
}

/// The right of one request to write.
pub struct Writer<'a> {
    stdin: &'a OpenStdin,
    pipe: MutexGuard<'a, Option<Sender>>,
    written: u64,
}

impl Writer<'_> {
    /// How many bytes were written through this writer.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether a write can still succeed.
    pub fn check(&self) -> Result<(), ErrorBody> {
        self.stdin.closed.get().map_or(Ok(()), |by| Err(by.refusal(self.written)))
    }

    /// Writes all of `bytes`, as fast as the program reads.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), ErrorBody> {
        while !bytes.is_empty() {
            let ended = self.stdin.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            self.check()?;
            let Some(pipe) = self.pipe.as_mut() else { return Err(ClosedBy::End.refusal(self.written)) };
            let result = tokio::select! {
                result = pipe.write(bytes) => result,
                () = ended => continue,
            };
            match result {
                Ok(count) => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    self.written += count as u64;
                }
                Err(_) => {
                    self.stdin.close(ClosedBy::Program);
                    *self.pipe = None;
                }
            }
        }
        Ok(())
    }

    /// Closes standard input: the program reads what was written, and then the end.
    pub fn close(mut self) {
        self.stdin.close(ClosedBy::Client);
        *self.pipe = None;
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // A program that ended while this writer held the lock could not close the pipe itself.
        if self.stdin.closed.get().is_some() {
            *self.pipe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::rc::Rc;

    use super::*;
    use crate::sys::pipe::input_pipe;

    fn open() -> (std::fs::File, Rc<OpenStdin>) {
        let (reader, writer) = input_pipe().unwrap();
        (reader.into(), Rc::new(OpenStdin::new(Sender::from_owned_fd(writer).unwrap())))
    }

    #[tokio::test]
    async fn what_was_written_is_read_and_then_the_end() {
        let (mut reader, stdin) = open();
        stdin.writer().await.write(b"one ").await.unwrap();
        let mut writer = stdin.writer().await;
        writer.write(b"two").await.unwrap();
        assert_eq!(writer.written(), 3);
        writer.close();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "one two");
        let error = stdin.writer().await.write(b"late").await.unwrap_err();
        assert_eq!((error.error_code, error.message.contains("closed before")), (ErrorCode::Conflict, true), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_closes_its_end_is_told_apart_from_one_that_ended() {
        let (reader, stdin) = open();
        drop(reader);
        let error = stdin.writer().await.write(b"x").await.unwrap_err();
        assert!(error.message.contains("the program has closed"), "{error}");
        let (_reader, stdin) = open();
        stdin.end();
        let error = stdin.writer().await.write(b"x").await.unwrap_err();
        assert!(error.message.contains("the program has ended"), "{error}");
    }

    #[tokio::test]
    async fn the_end_of_the_program_wakes_a_writer_that_nobody_reads_from() {
        let (mut reader, stdin) = open();
        crate::sys::pipe::set_nonblocking(&reader).unwrap();
        let tasks = tokio::task::LocalSet::new();
        let writing = stdin.clone();
        let writer =
            tasks.spawn_local(async move { writing.writer().await.write(&[0; 1 << 20]).await.unwrap_err().message });
        let message = tasks
            .run_until(async {
                // The pipe holds less than the writer has, so after its first bytes the writer waits.
                while reader.read(&mut [0; 1]).is_err() {
                    tokio::task::yield_now().await;
                }
                stdin.end();
                writer.await.unwrap()
            })
            .await;
        assert!(message.starts_with("the program has ended; ") && message.contains("bytes"), "{message}");
        assert!(stdin.pipe.try_lock().unwrap().is_none(), "the pipe is closed");
    }
}
