//! Collects every child process that ends.
//!
//! **Invariant:** no other code calls a `wait` function, so no status is lost. A pid is watched in the same turn of the
//! event loop in which it was forked, before the reaper can run. Until the reaper has collected a child, the kernel cannot
//! give its pid to another process, so a signal to a watched pid always reaches that child.
//!
//! Children that nobody watches are orphans that the runner got as init. They are collected and forgotten.
//!
//! A child that is traced can keep its end from its parent: the kernel shows a dead process to its tracer first, and holds a
//! killed one that stops on its way out. So a program is also watched by a pidfd, which tells its end whoever traces it. If
//! the status does not follow soon, the tracer is killed; then the kernel hands the child to the runner.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::sys::wait::{self, Collected};
use crate::sys::{pidfd, poll, signal, tracer};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// The exit code as a shell shows it in `$?`.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A change of a watched child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEvent {
    /// The child was stopped and can be continued.
    Stopped,
    Exited(Exit),
}

/// The most children that are collected before other tasks get their turn, so that the runner keeps answering with 100,000
/// orphans at once.
const MAX_REAPED_PER_TURN: usize = 1024;

/// How long a child that has ended or was killed may stay uncollected before its tracer is killed, and how long each time
/// until the next look.
const TRACER_PATIENCE: Duration = Duration::from_millis(100);

/// The most looks for a tracer. A child that cannot be collected after all of them (its tracer is outside of the sandbox, or
/// it hangs in the kernel) counts as killed, so that whoever waits for it can go on.
const MAX_TRACER_LOOKS: u32 = 20;

/// Owns all waiting for children. Cheap to clone.
#[derive(Clone, Default)]
pub struct Reaper {
    watched: Rc<RefCell<HashMap<i32, mpsc::UnboundedSender<ChildEvent>>>>,
    ignores_stops: Rc<Cell<bool>>,
}

/// The events of one child: at most one stop for each continue, then one exit. If it is dropped, the child is still
/// collected.
pub struct Watch {
    pid: i32,
    events: mpsc::UnboundedReceiver<ChildEvent>,
    reaper: Reaper,
    collected: bool,
    /// Readable when the child has ended. `None` for the runner's own helpers, and on a kernel without pidfds.
    pidfd: Option<AsyncFd<OwnedFd>>,
    /// Set when the child has ended or was killed, and has not been collected.
    overdue: Cell<Option<Overdue>>,
}

/// A child that should be collected any moment.
#[derive(Debug, Clone, Copy)]
struct Overdue {
    /// When to look for a tracer.
    at: Instant,
    looks: u32,
}

impl Reaper {
    /// Starts watching a program that was forked in this turn of the event loop. Other processes of its user may trace it.
    pub fn watch_program(&self, pid: i32) -> Watch {
        let mut watch = self.watch(pid);
        watch.pidfd = pidfd::open(pid).and_then(|fd| poll::register(fd, Interest::READABLE)).ok();
        watch
    }

    /// Starts watching a child that was forked in this turn of the event loop, and that nobody can trace.
    pub fn watch(&self, pid: i32) -> Watch {
        // The channel is unbounded on purpose: a child makes one event for each stop, and only its watcher continues it.
        let (sender, events) = mpsc::unbounded_channel();
        self.watched.borrow_mut().insert(pid, sender);
        Watch { pid, events, reaper: self.clone(), collected: false, pidfd: None, overdue: Cell::new(None) }
    }

    /// Collects children that have ended. Returns whether there may be more; then the caller lets other tasks run and calls
    /// again.
    pub fn collect(&self) -> bool {
        for _ in 0..MAX_REAPED_PER_TURN {
            match wait::next_child() {
                Ok(Some(Collected::Exited(pid, code))) => self.ended(pid, Exit::Code(code)),
                Ok(Some(Collected::Killed(pid, signal))) => self.ended(pid, Exit::Signal(signal)),
                Ok(Some(Collected::Stopped(pid))) => self.stopped(pid),
                Ok(None) => return false,
                Err(error) => {
                    tracing::error!(%error, "waiting for children failed");
                    return false;
                }
            }
        }
        true
    }

    /// Whether the stops of children are nobody's business: the runner itself stops them.
    pub fn ignore_stops(&self, ignore: bool) {
        self.ignores_stops.set(ignore);
    }

    pub fn ignores_stops(&self) -> bool {
        self.ignores_stops.get()
    }

    fn stopped(&self, pid: i32) {
        if self.ignores_stops() {
            return;
        }
        if let Some(sender) = self.watched.borrow().get(&pid) {
            let _ = sender.send(ChildEvent::Stopped);
        }
    }

    fn ended(&self, pid: i32, exit: Exit) {
        if let Some(sender) = self.watched.borrow_mut().remove(&pid) {
            let _ = sender.send(ChildEvent::Exited(exit));
        }
    }
}

impl Watch {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub async fn next(&mut self) -> ChildEvent {
        while !self.collected {
            let overdue = self.overdue.get();
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => {
                        self.collected = matches!(event, ChildEvent::Exited(_));
                        return event;
                    }
                    None => break,
                },
                () = ended(self.pidfd.as_ref()), if overdue.is_none() => {
                    // Usually this collects it.
                    self.reaper.collect();
                    self.expect_end();
                }
                () = async {
                    if let Some(overdue) = overdue {
                        tokio::time::sleep_until(overdue.at).await;
                    }
                }, if overdue.is_some() => if self.look_for_tracer() {
                    self.collected = true;
                    return ChildEvent::Exited(Exit::Signal(libc::SIGKILL));
                },
            }
        }
        // The exit was already received: nothing more will come.
        std::future::pending().await
    }

    /// Notes that the child should be collected any moment.
    fn expect_end(&self) {
        if self.overdue.get().is_none() {
            self.overdue.set(Some(Overdue { at: Instant::now() + TRACER_PATIENCE, looks: 0 }));
        }
    }

    /// Kills what keeps the child from being collected. Returns true if nothing helped and the child is given up.
    fn look_for_tracer(&self) -> bool {
        self.reaper.collect();
        let Some(Overdue { looks, .. }) = self.overdue.get().filter(|_| self.is_uncollected()) else {
            return false;
        };
        if looks == MAX_TRACER_LOOKS {
            tracing::error!(pid = self.pid, "a process that has ended or was killed cannot be collected");
            self.reaper.watched.borrow_mut().remove(&self.pid);
            return true;
        }
        for tracer in tracer::kill_tracers(self.pid) {
            tracing::warn!(pid = self.pid, tracer, "killed a process that withheld the end of another by tracing it");
        }
        self.overdue.set(Some(Overdue { at: Instant::now() + TRACER_PATIENCE, looks: looks + 1 }));
        false
    }

    pub async fn exit(&mut self) -> Exit {
        loop {
            if let ChildEvent::Exited(exit) = self.next().await {
                return exit;
            }
        }
    }

    /// Whether the child is still to be collected, so that its pid is its own: the table has the other end of this channel until
    /// then. Asking the table for the pid would not do, because once the child is collected another one may have its pid, also
    /// before this watch has received the exit.
    fn is_uncollected(&self) -> bool {
        !self.events.is_closed()
    }

    /// Signals the child. After it was collected this does nothing, because its pid may then belong to another process.
    pub fn signal(&self, signal: i32) {
        if self.is_uncollected() {
            let _ = signal::kill(self.pid, signal);
            self.note_signal(signal);
        }
    }

    /// Signals the process group that the child leads.
    pub fn signal_group(&self, signal: i32) {
        if self.is_uncollected() {
            let _ = signal::kill_group(self.pid, signal);
            self.note_signal(signal);
        }
    }

    fn note_signal(&self, signal: i32) {
        if signal == libc::SIGKILL {
            self.expect_end();
        }
    }
}

/// Waits until the process of `pidfd` has ended. Without one, forever.
async fn ended(pidfd: Option<&AsyncFd<OwnedFd>>) {
    match pidfd {
        // The readiness is kept: a process that has ended stays so.
        Some(pidfd) => drop(pidfd.readable().await),
        None => std::future::pending().await,
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.is_uncollected() {
            self.reaper.watched.borrow_mut().remove(&self.pid);
        }
    }
}

#[cfg(test)]
#[path = "reaper_test.rs"]
mod tests;
