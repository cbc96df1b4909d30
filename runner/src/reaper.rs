//! The one place that waits for children.
//!
//! **Invariant:** no other code calls a `wait` function, so no status is ever stolen. A pid is watched in the same turn of
//! the event loop in which it was forked, before the reaper can run; and until the reaper has collected it, its number
//! cannot be given to another process, so signalling a watched pid is always signalling that child.
//!
//! Children nobody watches are orphans that came to us as init: they are collected and forgotten.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::mpsc;

use crate::sys::signal;
use crate::sys::wait::{self, Collected};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// As a shell has it in `$?`.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEvent {
    /// It was stopped, by itself or another; it can be continued.
    Stopped,
    Exited(Exit),
}

/// Statuses that one turn collects before other tasks get theirs. With 100,000 orphans at once the rest of the runner
/// keeps answering.
const MAX_REAPED_PER_TURN: usize = 1024;

#[derive(Clone, Default)]
pub struct Reaper {
    watched: Rc<RefCell<HashMap<i32, mpsc::UnboundedSender<ChildEvent>>>>,
}

/// The events of one child: at most a stop for each continue, then one exit. Dropping it gives the child up to be
/// collected silently.
pub struct Watch {
    pid: i32,
    events: mpsc::UnboundedReceiver<ChildEvent>,
    reaper: Reaper,
    collected: bool,
}

impl Reaper {
    /// Starts watching a child that was forked in this turn of the event loop.
    pub fn watch(&self, pid: i32) -> Watch {
        // Unbounded on purpose: a child makes one event a stop, and stops are answered by its watcher alone.
        let (sender, events) = mpsc::unbounded_channel();
        self.watched.borrow_mut().insert(pid, sender);
        Watch { pid, events, reaper: self.clone(), collected: false }
    }

    /// Collects what has ended. Gives whether there may be more: then the caller lets others run and calls again.
    pub fn collect(&self) -> bool {
        for _ in 0..MAX_REAPED_PER_TURN {
            match wait::next_child() {
                Ok(Some(Collected::Exited(pid, code))) => self.ended(pid, Exit::Code(code)),
                Ok(Some(Collected::Killed(pid, signal))) => self.ended(pid, Exit::Signal(signal)),
                Ok(Some(Collected::Stopped(pid))) => {
                    if let Some(sender) = self.watched.borrow().get(&pid) {
                        let _ = sender.send(ChildEvent::Stopped);
                    }
                }
                Ok(None) => return false,
                Err(error) => {
                    tracing::error!(%error, "waiting for children failed");
                    return false;
                }
            }
        }
        true
    }

    fn ended(&self, pid: i32, exit: Exit) {
        if let Some(sender) = self.watched.borrow_mut().remove(&pid) {
            let _ = sender.send(ChildEvent::Exited(exit));
        }
    }

    /// Whether a child with this pid has been watched and not yet been collected.
    fn holds(&self, pid: i32) -> bool {
        self.watched.borrow().contains_key(&pid)
    }
}

impl Watch {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub async fn next(&mut self) -> ChildEvent {
        match self.events.recv().await {
            Some(event) => {
                self.collected = matches!(event, ChildEvent::Exited(_));
                event
            }
            // The sender goes only with an exit, which was then taken already: nothing will ever come.
            None => std::future::pending().await,
        }
    }

    pub async fn exit(&mut self) -> Exit {
        loop {
            if let ChildEvent::Exited(exit) = self.next().await {
                return exit;
            }
        }
    }

    /// Signals the child, and no other process whatever its pid: not once it has been collected.
    pub fn signal(&self, signal: i32) {
        if self.reaper.holds(self.pid) {
            let _ = signal::kill(self.pid, signal);
        }
    }

    /// Signals the process group that the child leads.
    pub fn signal_group(&self, signal: i32) {
        if self.reaper.holds(self.pid) {
            let _ = signal::kill_group(self.pid, signal);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.collected {
            self.reaper.watched.borrow_mut().remove(&self.pid);
        }
    }
}
