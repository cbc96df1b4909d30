//! The driver: the one task that owns a shell of kind `exec`.
//!
//! It waits, tells the [`Machine`] what happened, and does what the machine answers. It decides nothing: `shell/machine`
//! decides which state the shell is in, when bash is started or killed, and how a command ends.
//!
//! ```text
//!  bash, requests, time ──▶ Event ──▶ Machine ──▶ Effect ──▶ perform
//!                             ▲                                 │
//!                             └──── what an effect found ───────┘
//! ```
//!
//! The other files of this folder: `reports` and `requests` make events; `perform` carries out effects, with `start`, `send`
//! and `outcome` for the long ones; `marks` matches reports to requests, and `interrupt` detects a lost signal.

mod interrupt;
mod marks;
mod messages;
mod outcome;
mod perform;
mod reports;
mod requests;
mod send;
mod start;

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use shared_protocol::runner::{ShellView, Stream};
use tokio::sync::{mpsc, oneshot};

use super::attach::Attachments;
use super::bash::Bash;
use super::machine::{CloseReason, Effects, Event, JobId, Machine};
use super::saved_state::SavedState;
use super::scratch::ScratchFile;
use crate::exec::Exec;
use crate::oom::OomMark;
use crate::output::{OutputLog, Pump};
use interrupt::SentInterrupt;
use marks::Marks;
pub use messages::{Context, QueuedExec, Request};

/// The most bytes of one read of the terminal: the log must have this much room before the read.
const TERMINAL_READ_ROOM: usize = 16 << 10;

/// The most events that are handled before a wake-up.
const MAX_RECEIVED: usize = 1024;

/// The running bash, and the requests to it.
struct LiveBash {
    /// The scripts of the start or the claim that bash has not reported yet.
    scripts: Vec<ScratchFile>,
    /// The files of the last command. They are removed when the client has its answer.
    old_files: Vec<ScratchFile>,
    bash: Bash,
    marks: Marks,
}

/// The driver's data for the command that was sent to bash.
struct RunningCommand {
    job: JobId,
    exec: Rc<Exec>,
    pumps: Vec<Rc<Pump>>,
    /// The writing ends of the FIFOs. While they are open, a FIFO does not end in the moment before bash opens it or after
    /// bash closes it.
    held_writers: Vec<OwnedFd>,
    /// Its command file, standard input and FIFOs.
    files: Vec<ScratchFile>,
    oom_mark: OomMark,
    /// The last signal, if it may have been lost.
    interrupt: Option<SentInterrupt>,
}

pub struct Driver {
    context: Context,
    view: Rc<RefCell<ShellView>>,
    requests: mpsc::Receiver<Request>,
    machine: Machine,
    /// The effects of the last event that are still to be performed. Empty while the driver waits.
    effects: Effects,
    live: Option<LiveBash>,
    /// The queued and running execs.
    jobs: HashMap<JobId, Box<QueuedExec>>,
    jobs_made: u64,
    running: Option<RunningCommand>,
    /// The exec that ended last. It gets the terminal's output while no command runs.
    last_on_terminal: Option<Rc<Exec>>,
    /// The state after the last command. A new bash starts with it.
    saved_state: Option<SavedState>,
    /// The options of a new bash before any command. `None` if the first bash restored a state.
    fresh_options: Option<SavedState>,
    /// Whether the first bash restores a state, so that its options are not those of a new bash.
    is_copy: bool,
    state_requests: Vec<oneshot::Sender<Option<SavedState>>>,
    /// The variables of the request that opened this shell.
    extra_variables: Vec<(String, String)>,
    attachments: Attachments,
}

impl Driver {
    /// Makes the driver of a new shell. With a saved state, the shell starts as a copy of the shell that saved it.
    pub fn new(
        context: Context,
        view: Rc<RefCell<ShellView>>,
        requests: mpsc::Receiver<Request>,
        saved_state: Option<SavedState>,
        extra_variables: Vec<(String, String)>,
    ) -> Self {
        Self {
            context,
            view,
            requests,
            machine: Machine::new(saved_state.is_some(), Instant::now()),
            effects: Effects::new(),
            live: None,
            jobs: HashMap::new(),
            jobs_made: 0,
            running: None,
            last_on_terminal: None,
            is_copy: saved_state.is_some(),
            saved_state,
            fresh_options: None,
            state_requests: Vec::new(),
            extra_variables,
            attachments: Attachments::default(),
        }
    }

    /// Owns the shell until it is closed.
    pub async fn run(mut self) {
        self.handle(Event::TimePassed);
        while !self.machine.is_closed() {
            self.publish();
            let wake = self.machine.next_wake();
            let held = self.terminal_log().filter(|log| log.is_held(TERMINAL_READ_ROOM));
            let watchers_ready = self.attachments.are_ready();
            let read_terminal = held.is_none() && watchers_ready;
            tokio::select! {
                event = async {
                    match self.live.as_mut() {
                        Some(live) => live.bash.next(read_terminal).await,
                        None => std::future::pending().await,
                    }
                } => self.on_bash_event(event),
                request = self.requests.recv() => match request {
                    Some(request) => self.on_request(request),
                    None => self.handle(Event::Close(CloseReason::RunnerEnds)),
                },
                () = sleep_until(wake) => self.on_time(),
                () = async {
                    match &held {
                        Some(log) => log.wait_for_room(TERMINAL_READ_ROOM).await,
                        None => std::future::pending().await,
                    }
                } => {}
                () = self.attachments.wait(), if !watchers_ready => {}
            }
        }
        // Execs that are still in the channel end too: the machine refuses them.
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            if let Request::Exec(job) = request {
                self.queue(job);
            }
        }
    }

    /// Handles a wake-up. On a busy host this may be late, and what bash has reported meanwhile comes first: a bash that is
    /// ready must not be killed because of a deadline.
    fn on_time(&mut self) {
        for _ in 0..MAX_RECEIVED {
            let Some(event) = self.live.as_mut().and_then(|live| live.bash.next_received()) else { break };
            self.on_bash_event(event);
        }
        self.handle(Event::TimePassed);
    }

    /// Tells the machine what happened, and performs all effects that follow.
    fn handle(&mut self, event: Event) {
        self.machine.on(event, Instant::now(), &mut self.effects);
        while let Some(effect) = self.effects.pop_front() {
            if let Some(answer) = self.perform(effect) {
                self.machine.on(answer, Instant::now(), &mut self.effects);
            }
        }
    }

    fn publish(&self) {
        let mut view = self.view.borrow_mut();
        view.pid = self.live.as_ref().map(|live| live.bash.pid());
        view.queued = self.machine.queued();
        view.exec_id = self.running.as_ref().map(|running| running.exec.id.clone());
        view.state = self.machine.shell_state();
    }

    /// The log that gets the terminal's output now.
    fn terminal_log(&self) -> Option<Rc<OutputLog>> {
        let exec = self.running.as_ref().map(|running| &running.exec).or(self.last_on_terminal.as_ref());
        exec.map(|exec| exec.log.clone())
    }

    fn record_terminal_output(&mut self, bytes: &[u8]) {
        if let Some(log) = self.terminal_log() {
            log.append(Stream::Tty, bytes);
        }
        self.attachments.send(bytes);
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
