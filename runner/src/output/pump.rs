//! Copies a pipe's bytes into an exec's log: while the command runs, and afterwards as late output, until the last process
//! that holds the pipe has ended.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use shared_protocol::runner::Stream;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::OutputLog;
use crate::sys::pipe;

/// The bytes of one read: the usual capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// The size of a pipe after a read has found it full: the largest size that an ordinary user may have.
const GROWN_PIPE_BYTES: i32 = 1 << 20;

/// The number of reads before other tasks get their turn.
const READS_PER_TURN: usize = 8;

/// Copies one pipe into one log.
pub struct Pump {
    fd: AsyncFd<OwnedFd>,
    stream: Stream,
    log: Rc<OutputLog>,
    /// Bytes read so far.
    read: Cell<u64>,
    ended: Cell<bool>,
    progress: Notify,
}

impl Pump {
    pub fn new(fd: OwnedFd, stream: Stream, log: Rc<OutputLog>) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            fd: crate::sys::poll::register(fd, tokio::io::Interest::READABLE)?,
            stream,
            log,
            read: Cell::new(0),
            ended: Cell::new(false),
            progress: Notify::new(),
        }))
    }

    /// Copies until the pipe's last writer has closed it.
    pub async fn run(self: Rc<Self>) {
        while !self.ended.get() {
            let Ok(mut ready) = self.fd.readable().await else { break };
            self.log.wait_for_room(READ_BYTES).await;
            let mut would_block = false;
            for _ in 0..READS_PER_TURN {
                if self.log.is_held(READ_BYTES) {
                    break;
                }
                match self.read_once() {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        would_block = true;
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "reading a command's output failed");
                        self.ended.set(true);
                        break;
                    }
                }
            }
            if would_block {
                ready.clear_ready();
            } else {
                tokio::task::yield_now().await;
            }
        }
        self.ended.set(true);
        self.progress.notify_waiters();
    }

    fn read_once(&self) -> io::Result<usize> {
        // The buffer is on the stack, so that many pumps need one buffer and keep nothing between reads.
        let mut buffer = [0; READ_BYTES];
        let count = nix::unistd::read(self.fd.get_ref(), &mut buffer)?;
        if count == 0 {
            self.ended.set(true);
        }
        if count == READ_BYTES && self.read.get() == 0 {
            pipe::grow(self.fd.get_ref(), GROWN_PIPE_BYTES);
        }
        self.read.set(self.read.get() + count as u64);
        self.log.append(self.stream, &buffer[..count]);
        self.progress.notify_waiters();
        Ok(count)
    }

    /// Reads what is in the pipe now. Returns the position that the pump must reach for all of it to be in the log, and
    /// whether it has reached it: a reading follower can delay some of it for a while.
    ///
    /// It asks for the amount first instead of reading until the pipe is empty, because a background job could fill the pipe
    /// forever.
    pub fn drain(&self) -> (u64, bool) {
        let target = self.read.get() + pipe::unread(self.fd.get_ref()) as u64;
        while self.read.get() < target && !self.ended.get() && !self.log.is_held(READ_BYTES) {
            if self.read_once().is_err() {
                break;
            }
        }
        (target, self.has_read(target))
    }

    pub fn has_read(&self, target: u64) -> bool {
        self.read.get() >= target || self.ended.get()
    }

    pub async fn wait_until_read(&self, target: u64) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if self.has_read(target) {
                return;
            }
            progress.await;
        }
    }
}
