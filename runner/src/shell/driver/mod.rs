//! The one task that owns a shell of kind `exec`: its queue, its bash, and the command that runs.
//!
//! ```text
//!            start             D record                lines sent
//!  (none) ──────────▶ Starting ─────────▶ Ready ──────────────────────▶ Running ──▶ D record, or bash exits ──▶ Ready
//!     ▲                  │                  │                              │ time is up: the ladder
//!     └──────────────────┴─── bash exits ◀──┴──────────────────────────────┘
//! ```
//!
//! Bash may exit in any of these states: a new one is started at once with the state the old one had after its last command.
//! A command that had begun is then over, with bash's own exit status; one that had not is sent to the new bash.
//! Whatever happens, an exec ends exactly once (`ExecTable::end`), and the queue goes on.
//!
//! The task and its state are here; what it does is in the files beside: `starting` bash and replacing it, `commands` from the
//! queue to their outcome, `events` and requests as they come, `time` when none comes, and
//! `unheard` for interrupts that bash would lose.

mod commands;
mod events;
mod messages;
mod starting;
mod time;
mod unheard;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::ShellState;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::attach::Attachments;
use super::bash::Bash;
use super::script::Mark;
use super::state::State;
use crate::exec::Exec;
use crate::output::Pump;
pub use messages::{Context, Job, Request, Shared};
use unheard::Unheard;

/// What one read of the terminal may bring: its log must have so much room before.
const TERMINAL_READ_ROOM: usize = 16 << 10;

/// With what a new bash is started. Each is tried when the one before it did not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// As a login: `/etc/profile` and the user's own.
    Login,
    /// With the state of the shell that it replaces.
    Restore,
    /// Not started: told what came with the claim of its sandbox. Where that fails, a login does as well.
    Claim,
    /// With nothing that could fail.
    Bare,
}

struct Starting {
    mark: Mark,
    manner: Manner,
    deadline: Instant,
}

struct Current {
    job: Box<Job>,
    mark: Mark,
    pumps: Vec<Rc<Pump>>,
    /// Writing ends that keep the FIFOs from ending while bash is between opening and closing them.
    keepers: Vec<OwnedFd>,
    deadline: Option<Instant>,
    /// When the time was up, and the steps taken since.
    ladder: Option<(Instant, u32)>,
    awaiting_input: bool,
    unheard: Option<Unheard>,
    /// When to look at it next, and the interval.
    look: (Instant, Duration),
    end: End,
}

/// Whether a command is over without bash having said so: with its builtins disabled, say, or its report stolen.
///
/// Bash is sent one more line. If it reads that, it is back at its prompt, and the tail was run twice for nothing. Then it
/// is told to exit with the command's status, and if it does not do that either, killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Unsuspected,
    Asked,
    ToldToExit,
    Unknown,
}

pub struct Driver {
    context: Context,
    shared: Shared,
    requests: mpsc::Receiver<Request>,
    queue: VecDeque<Box<Job>>,
    bash: Option<Bash>,
    starting: Option<Starting>,
    /// Bash has been killed and has not been collected yet.
    is_doomed: bool,
    /// Until when the state of a bash is waited for whose memory a command may have broken. Then it is replaced.
    suspect_until: Option<Instant>,
    is_draining: bool,
    /// The options a new shell has by itself.
    fresh: Option<State>,
    current: Option<Current>,
    /// The command that ended last: its state may still be on the way.
    ended: Mark,
    last_status: i32,
    /// Where the terminal's output goes while no command runs.
    last_on_terminal: Option<Rc<Exec>>,
    /// The shell died or was replaced since the last result that said so.
    restart_unreported: bool,
    next_manner: Manner,
    start_at: Option<Instant>,
    quick_starts: u32,
    extra_variables: Vec<(String, String)>,
    /// The sandbox has become somebody's, and bash has not been told.
    is_claim_due: bool,
    /// The end of a command was told, and its state is still being written.
    is_state_due: bool,
    state_waiters: Vec<oneshot::Sender<Option<State>>>,
    attachments: Attachments,
    /// Out-of-memory kills before the command that runs.
    ooms_before: u64,
}

impl Driver {
    pub fn new(
        context: Context,
        shared: Shared,
        requests: mpsc::Receiver<Request>,
        extra_variables: Vec<(String, String)>,
    ) -> Self {
        let next_manner = if shared.state.borrow().is_some() { Manner::Restore } else { Manner::Login };
        Self {
            context,
            shared,
            requests,
            queue: VecDeque::new(),
            bash: None,
            starting: None,
            is_doomed: false,
            suspect_until: None,
            is_draining: false,
            fresh: None,
            current: None,
            ended: Mark::new(0),
            last_status: 0,
            last_on_terminal: None,
            restart_unreported: false,
            next_manner,
            start_at: Some(Instant::now()),
            quick_starts: 0,
            extra_variables,
            is_claim_due: false,
            is_state_due: true,
            state_waiters: Vec::new(),
            attachments: Attachments::default(),
            ooms_before: 0,
        }
    }

    /// Owns the shell until it is closed.
    pub async fn run(mut self) {
        loop {
            if self.is_draining && self.current.is_none() {
                return self.close(RUNNER_ENDS);
            }
            self.start_if_due();
            self.dispatch();
            self.publish();
            let wake = self.next_wake();
            let held = self.terminal_log().filter(|log| log.is_held(TERMINAL_READ_ROOM));
            let watchers_ready = self.attachments.are_ready();
            let read_terminal = held.is_none() && watchers_ready;
            tokio::select! {
                event = async {
                    match self.bash.as_mut() {
                        Some(bash) => bash.next(read_terminal).await,
                        None => std::future::pending().await,
                    }
                } => self.on_event(event),
                request = self.requests.recv() => match request {
                    Some(Request::Close { reply }) => {
                        self.close("the shell was closed");
                        let _ = reply.send(());
                        return;
                    }
                    Some(request) => self.on_request(request),
                    None => return self.close(RUNNER_ENDS),
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
    }

    fn publish(&self) {
        let mut view = self.shared.view.borrow_mut();
        view.pid = self.bash.as_ref().map(Bash::pid);
        view.queued = self.queue.len();
        view.exec_id = self.current.as_ref().map(|c| c.job.exec.id.clone());
        view.state = match (&self.bash, &self.starting, &self.current) {
            (None, _, _) if self.start_at.is_none() => ShellState::Down,
            (None, _, _) | (_, Some(_), _) => ShellState::Starting,
            (_, _, Some(_)) => ShellState::Busy,
            _ => ShellState::Idle,
        };
    }
}

const RUNNER_ENDS: &str = "the runner is ending";

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
