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

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::{ExecOutcome, ExecRequest, OutcomeKind, ShellState, ShellView, Stream, StreamMode};
use shared_protocol::{ErrorBody, ErrorCode, ExecId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::attach::{Attachment, Attachments};
use super::bash::{Bash, BashSpec, Event};
use super::control::Record;
use super::ladder::{self, Next, Step};
use super::scratch::{Scratch, ScratchRoot};
use super::script::{self, Mark, file};
use super::state::State;
use crate::config::Config;
use crate::environment::Environment;
use crate::exec::{Exec, ExecTable};
use crate::oom::OomCounter;
use crate::output::Pump;
use crate::reaper::{Exit, Reaper};
use crate::sys::identity::Identity;
use crate::sys::tty::Size;

/// How long the login files may take before a shell is started without them.
const STARTUP_DEADLINE: Duration = Duration::from_secs(10);

/// Shells that may be tried for one command.
const MAX_ATTEMPTS: u32 = 3;

/// First and longest interval of looking at a command: whether a program waits at the terminal, whether it is over unsaid.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// What one read of the terminal may bring: its log must have so much room before.
const TERMINAL_READ_ROOM: usize = 16 << 10;

/// Starts in a row, with no command run between them, before the next start waits.
const QUICK_STARTS: u32 = 4;
const START_PAUSE: Duration = Duration::from_millis(500);

pub enum Request {
    Exec(Box<Job>),
    Signal {
        number: i32,
        exec_id: Option<ExecId>,
        reply: oneshot::Sender<Result<(), ErrorBody>>,
    },
    Input {
        bytes: Vec<u8>,
        reply: oneshot::Sender<Result<(), ErrorBody>>,
    },
    Resize {
        size: Size,
        reply: oneshot::Sender<Result<(), ErrorBody>>,
    },
    Attach {
        reply: oneshot::Sender<Attachment>,
    },
    Reset {
        reply: oneshot::Sender<()>,
    },
    /// The state after the last command, once it is there.
    State {
        reply: oneshot::Sender<Option<State>>,
    },
    /// The runner ends: nothing new, and the shell goes with the command that runs.
    Drain,
    Close {
        reply: oneshot::Sender<()>,
    },
}

/// An exec on its way to bash.
pub struct Job {
    pub exec: Rc<Exec>,
    pub request: ExecRequest,
    pub stdin: Option<Vec<u8>>,
    /// Shells it was sent to so far.
    attempts: u32,
    restarted: bool,
}

impl Job {
    pub fn new(exec: Rc<Exec>, request: ExecRequest, stdin: Option<Vec<u8>>) -> Self {
        Self { exec, request, stdin, attempts: 0, restarted: false }
    }
}

/// What outlives the driver's turns and others may look at.
#[derive(Clone)]
pub struct Shared {
    pub view: Rc<RefCell<ShellView>>,
    /// After the last command; what a new shell is made from.
    pub state: Rc<RefCell<Option<State>>>,
}

/// What a driver needs from the rest of the runner.
#[derive(Clone)]
pub struct Context {
    pub config: Rc<Config>,
    pub identity: Identity,
    pub environment: Rc<Environment>,
    pub reaper: Reaper,
    pub execs: ExecTable,
    pub oom: Rc<OomCounter>,
    pub scratch: Rc<ScratchRoot>,
}

/// With what a new bash is started. Each is tried when the one before it did not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// As a login: `/etc/profile` and the user's own.
    Login,
    /// With the state of the shell that it replaces.
    Restore,
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

    // ---- starting and replacing bash

    fn start_if_due(&mut self) {
        if self.bash.is_some() || self.start_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.start_at = None;
        let manner = self.next_manner;
        if let Err(error) = self.start(manner) {
            tracing::error!(shell = %self.shared.view.borrow().name, %error, ?manner, "bash could not be started");
            self.start_failed(manner, &error.to_string());
        }
    }

    fn start(&mut self, manner: Manner) -> std::io::Result<()> {
        let context = &self.context;
        let (scratch, control) = Scratch::new(&context.scratch, context.identity)?;
        let state = self.shared.state.borrow();
        let state = state.as_ref().filter(|_| manner == Manner::Restore);
        if let Some(state) = state {
            scratch.write(file::RESTORE, &state.restore_file(self.fresh.as_ref()))?;
        }
        let cwd = self.shared.view.borrow().cwd.clone();
        let init = script::InitSpec {
            profile: manner == Manner::Login,
            restore: state.is_some(),
            cwd: &cwd,
            variables: &mut self
                .extra_variables
                .iter()
                .filter(|_| state.is_none())
                .map(|(name, value)| (name.as_str(), value.as_str())),
        };
        scratch.write(file::INIT, script::init_file(scratch.dir(), init).as_bytes())?;
        let view = self.shared.view.borrow();
        let spec = BashSpec {
            program: &context.config.shell,
            identity: context.identity,
            environment: state.is_none().then_some(&*context.environment),
            size: Size { cols: view.cols, rows: view.rows },
        };
        let bash = Bash::start(&spec, &context.reaper, scratch, control)?;
        drop(view);
        let mark = Mark::new(0);
        bash.feed(&script::init_line(bash.scratch.dir()))?;
        bash.feed(&script::tail_line(bash.scratch.dir(), &mark))?;
        self.starting = Some(Starting { mark, manner, deadline: Instant::now() + STARTUP_DEADLINE });
        self.bash = Some(bash);
        Ok(())
    }

    fn start_failed(&mut self, manner: Manner, why: &str) {
        self.starting = None;
        match manner {
            Manner::Login | Manner::Restore => {
                self.next_manner = Manner::Bare;
                self.start_at = Some(Instant::now());
            }
            Manner::Bare => {
                // Nothing better to try: those who wait are told, and the next exec tries from the beginning.
                let reason = format!("no shell could be started: {why}");
                self.next_manner = if self.shared.state.borrow().is_some() { Manner::Restore } else { Manner::Login };
                while let Some(job) = self.queue.pop_front() {
                    self.never_ran(&job, &reason);
                }
            }
        }
    }

    /// Kills bash; what follows, follows from its exit.
    fn replace_bash(&mut self) {
        if let Some(bash) = &self.bash {
            bash.watch.signal(libc::SIGKILL);
            self.is_doomed = true;
        }
    }

    fn bash_exited(&mut self, exit: Exit) {
        let starting = self.starting.take();
        if let Some(state) = self.shared.state.borrow_mut().as_mut() {
            state.load();
        }
        if let Some(current) = self.current.take() {
            self.restart_unreported = true;
            if self.bash.as_ref().is_some_and(|bash| bash.scratch.has_begun(&current.mark.variable)) {
                self.finish_after_death(current, exit);
            } else {
                self.send_again(current.job);
            }
        } else if starting.is_none() {
            self.restart_unreported = true;
        }
        self.bash = None;
        self.is_doomed = false;
        self.is_state_due = false;
        self.tell_state();
        self.shared.view.borrow_mut().restarts += 1;
        self.quick_starts += 1;
        let pause = if self.quick_starts > QUICK_STARTS { START_PAUSE } else { Duration::ZERO };
        match starting {
            Some(starting) => self.start_failed(starting.manner, "bash ended while it started"),
            None => self.start_at = Some(Instant::now() + pause),
        }
    }

    fn send_again(&mut self, mut job: Box<Job>) {
        job.restarted = true;
        if job.attempts >= MAX_ATTEMPTS {
            self.never_ran(&job, "the shell did not take the command, nor did those that replaced it");
        } else {
            self.queue.push_front(job);
        }
    }

    // ---- commands

    /// Sends the next command, if there is one and bash is ready for it.
    fn dispatch(&mut self) {
        if self.current.is_some() || self.starting.is_some() || self.is_doomed {
            return;
        }
        if self.bash.is_none() {
            if !self.queue.is_empty() && self.start_at.is_none() {
                self.start_at = Some(Instant::now());
                self.start_if_due();
            }
            return;
        }
        let Some(mut job) = self.queue.pop_front() else { return };
        job.attempts += 1;
        match self.send(&job) {
            Ok((mark, pumps, keepers)) => {
                let now = Instant::now();
                let timeout = job.request.timeout_ms.map(Duration::from_millis);
                job.exec.begin();
                self.current = Some(Current {
                    job,
                    mark,
                    pumps,
                    keepers,
                    deadline: timeout.and_then(|timeout| now.checked_add(timeout)),
                    ladder: None,
                    awaiting_input: false,
                    look: (now + FIRST_LOOK, FIRST_LOOK),
                    end: End::Unsuspected,
                });
            }
            Err(error) => {
                // The scratch directory is damaged or full, or bash no longer reads.
                tracing::warn!(shell = %self.shared.view.borrow().name, %error, "replacing a shell that takes no command");
                self.restart_unreported = true;
                self.send_again(job);
                self.replace_bash();
            }
        }
    }

    fn send(&mut self, job: &Job) -> std::io::Result<(Mark, Vec<Rc<Pump>>, Vec<OwnedFd>)> {
        let Some(bash) = &self.bash else { return Err(std::io::ErrorKind::NotConnected.into()) };
        let request = &job.request;
        let streams: &[(&str, Stream)] = match request.streams {
            StreamMode::Merged => &[(file::STDOUT, Stream::Merged)],
            StreamMode::Split => &[(file::STDOUT, Stream::Stdout), (file::STDERR, Stream::Stderr)],
            StreamMode::Tty => &[],
        };
        let (mut pumps, mut keepers) = (Vec::new(), Vec::new());
        for (name, stream) in streams {
            let (reader, keeper) = bash.scratch.output_fifo(name)?;
            pumps.push(Pump::new(reader, *stream, job.exec.log.clone())?);
            keepers.push(keeper);
        }
        let has_stdin = request.streams != StreamMode::Tty && job.stdin.is_some();
        if let (true, Some(stdin)) = (has_stdin, &job.stdin) {
            bash.scratch.write_anew(file::STDIN, stdin)?;
        }
        let mark = Mark::new(1 - self.ended.slot);
        let spec = script::CommandSpec {
            command: &request.cmd,
            streams: request.streams,
            has_stdin,
            variables: &mut request.env.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            cwd: request.cwd.as_deref(),
            last_status: self.last_status,
            terminal: &bash.terminal_path().to_string_lossy(),
            functrace: self.shared.state.borrow().as_ref().is_some_and(|state| state.has_option("functrace")),
            variable: &mark.variable,
        };
        bash.scratch.write(file::COMMAND, script::command_file(bash.scratch.dir(), spec).as_bytes())?;
        if request.streams == StreamMode::Tty {
            // What is on the terminal by now is not of this command.
            if let Some(bytes) = bash.drain_terminal() {
                self.on_terminal_output(&bytes);
            }
        }
        let Some(bash) = &mut self.bash else { return Err(std::io::ErrorKind::NotConnected.into()) };
        if let (StreamMode::Tty, Some(stdin)) = (request.streams, &job.stdin) {
            bash.type_in(stdin);
        }
        self.ooms_before = self.context.oom.count();
        bash.feed(&script::command_line(bash.scratch.dir(), &self.ended.variable))?;
        bash.feed(&script::tail_line(bash.scratch.dir(), &mark))?;
        for pump in &pumps {
            tokio::task::spawn_local(pump.clone().run());
        }
        Ok((mark, pumps, keepers))
    }

    fn done(&mut self, nonce: &str, status: i32, begun: bool, cwd: &[u8]) {
        if let Some(starting) = self.starting.take_if(|s| s.mark.nonce == nonce) {
            self.set_cwd(cwd);
            self.ended = starting.mark;
            self.next_manner = Manner::Restore;
            return;
        }
        let Some(current) = self.current.take_if(|c| c.mark.nonce == nonce) else { return };
        if !begun {
            // The tail ran and the command did not: what stands in front of it is broken.
            self.restart_unreported = true;
            self.send_again(current.job);
            self.replace_bash();
            return;
        }
        self.quick_starts = 0;
        self.last_status = status;
        self.set_cwd(cwd);
        let kind = if current.ladder.is_some() { OutcomeKind::TimedOut } else { OutcomeKind::Exited };
        self.finish(current, kind, status, None);
    }

    fn finish_after_death(&mut self, current: Current, exit: Exit) {
        if current.end == End::Unknown {
            for pump in &current.pumps {
                pump.drain();
            }
            let reason = "the command is over, but it left the shell unable to say how it ended";
            self.restart_unreported = false;
            self.last_status = 1;
            return self.end_without_status(&current.job.exec, OutcomeKind::Lost, 1, reason);
        }
        let (kind, signal) = match (current.ladder.is_some(), exit) {
            (true, _) => (OutcomeKind::TimedOut, None),
            (false, Exit::Code(_)) => (OutcomeKind::Exited, None),
            (false, Exit::Signal(signal)) => (OutcomeKind::Signaled, Some(signal)),
        };
        self.last_status = exit.shell_code();
        self.finish(current, kind, exit.shell_code(), signal);
    }

    fn finish(&mut self, mut current: Current, kind: OutcomeKind, status: i32, signal: Option<i32>) {
        current.keepers.clear();
        let exec = current.job.exec.clone();
        if current.job.request.streams == StreamMode::Tty
            && let Some(bytes) = self.bash.as_ref().and_then(Bash::drain_terminal)
        {
            exec.log.append(Stream::Tty, &bytes);
            self.attachments.send(&bytes);
        }
        if let Some(bash) = &mut self.bash {
            bash.refresh_terminal();
        }
        let targets: Vec<_> = current.pumps.iter().map(|pump| (pump.clone(), pump.drain())).collect();
        let timed_out = kind == OutcomeKind::TimedOut;
        let mut outcome = ExecOutcome {
            exec_id: exec.id.clone(),
            kind,
            exit_code: if timed_out { TIMEOUT_EXIT_CODE } else { status },
            signal,
            cwd: Some(self.shared.view.borrow().cwd.clone()),
            output_bytes: exec.log.end(),
            timed_out,
            shell_restarted: std::mem::take(&mut self.restart_unreported) || current.job.restarted,
            oom_killed: status == 128 + libc::SIGKILL && self.context.oom.count() > self.ooms_before,
            awaiting_input: current.awaiting_input,
            duration_ms: exec.duration_ms(),
            reason: None,
        };
        self.last_on_terminal = Some(exec.clone());
        self.ended = current.mark;
        self.is_state_due = self.bash.is_some();
        let execs = self.context.execs.clone();
        if targets.iter().all(|(_, (_, read))| *read) {
            execs.end(&exec, outcome);
            return;
        }
        // A follower that reads holds some of the output back: the end waits for it, the shell does not.
        tokio::task::spawn_local(async move {
            for (pump, (target, _)) in targets {
                pump.wait_until_read(target).await;
            }
            outcome.output_bytes = exec.log.end();
            execs.end(&exec, outcome);
        });
    }

    fn never_ran(&self, job: &Job, reason: &str) {
        self.end_without_status(&job.exec, OutcomeKind::NeverRan, 126, reason);
    }

    fn end_without_status(&self, exec: &Exec, kind: OutcomeKind, exit_code: i32, reason: &str) {
        let outcome = ExecOutcome {
            exec_id: exec.id.clone(),
            kind,
            exit_code,
            signal: None,
            cwd: Some(self.shared.view.borrow().cwd.clone()),
            output_bytes: exec.log.end(),
            timed_out: false,
            shell_restarted: kind == OutcomeKind::Lost,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: exec.duration_ms(),
            reason: Some(reason.to_owned()),
        };
        self.context.execs.end(exec, outcome);
    }

    fn set_cwd(&self, cwd: &[u8]) {
        if cwd.starts_with(b"/") {
            self.shared.view.borrow_mut().cwd = String::from_utf8_lossy(cwd).into_owned();
        }
    }

    // ---- what happens

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Record(Record::Done { nonce, status, begun, cwd }) => self.done(&nonce, status, begun, &cwd),
            Event::Record(Record::State { nonce, shellopts, bashopts }) => {
                if let (Some(bash), true) = (&self.bash, nonce == self.ended.nonce) {
                    let file = bash.scratch.path(file::STATES[self.ended.slot]);
                    let state = State::new(&shellopts, &bashopts, file);
                    if self.fresh.is_none() {
                        self.fresh = Some(state.without_text());
                    }
                    *self.shared.state.borrow_mut() = Some(state);
                    self.is_state_due = false;
                    self.tell_state();
                }
            }
            Event::Terminal(bytes) => self.on_terminal_output(&bytes),
            // A shell that stopped itself has nobody to continue it.
            Event::Stopped => {
                if let Some(bash) = &self.bash {
                    bash.watch.signal(libc::SIGCONT);
                }
            }
            Event::Exited(exit) => self.bash_exited(exit),
        }
    }

    /// Answers those who asked for the state, unless a newer one is about to come.
    fn tell_state(&mut self) {
        if self.is_state_due {
            return;
        }
        for waiter in self.state_waiters.drain(..) {
            let mut state = self.shared.state.borrow().clone();
            if let Some(state) = &mut state {
                state.load();
            }
            let _ = waiter.send(state);
        }
    }

    fn on_terminal_output(&mut self, bytes: &[u8]) {
        if let Some(log) = self.terminal_log() {
            log.append(Stream::Tty, bytes);
        }
        self.attachments.send(bytes);
        if let Some(current) = &mut self.current {
            // What is printed is often a prompt.
            current.look = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
        }
    }

    /// Where the terminal's output goes now.
    fn terminal_log(&self) -> Option<Rc<crate::output::OutputLog>> {
        match &self.current {
            Some(current) => Some(current.job.exec.log.clone()),
            None => self.last_on_terminal.as_ref().map(|exec| exec.log.clone()),
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Exec(job) => self.queue.push_back(job),
            Request::Signal { number, exec_id, reply } => {
                let _ = reply.send(self.signal(number, exec_id.as_ref()));
            }
            Request::Input { bytes, reply } => {
                let _ = reply.send(self.input(&bytes));
            }
            Request::Resize { size, reply } => {
                {
                    let mut view = self.shared.view.borrow_mut();
                    (view.cols, view.rows) = (size.cols, size.rows);
                }
                let resized = self.bash.as_ref().map_or(Ok(()), |bash| bash.resize(size));
                let _ = reply.send(resized.map_err(|e| ErrorBody::new(ErrorCode::InternalError, e.to_string())));
            }
            Request::Attach { reply } => {
                let _ = reply.send(self.attachments.add());
            }
            Request::Reset { reply } => {
                self.reset();
                let _ = reply.send(());
            }
            Request::State { reply } => {
                self.state_waiters.retain(|waiter| !waiter.is_closed());
                self.state_waiters.push(reply);
                self.tell_state();
            }
            Request::Drain => {
                self.is_draining = true;
                while let Some(job) = self.queue.pop_front() {
                    self.never_ran(&job, RUNNER_ENDS);
                }
            }
            Request::Close { reply } => {
                let _ = reply.send(());
            }
        }
    }

    fn running(&self) -> Result<(&Current, &Bash), ErrorBody> {
        match (&self.current, &self.bash) {
            (Some(current), Some(bash)) => Ok((current, bash)),
            _ => {
                let message = format!("no command is running in shell {}", self.shared.view.borrow().name);
                Err(ErrorBody::new(ErrorCode::Conflict, message))
            }
        }
    }

    fn signal(&mut self, number: i32, exec_id: Option<&ExecId>) -> Result<(), ErrorBody> {
        let (current, bash) = self.running()?;
        if let Some(id) = exec_id.filter(|id| **id != current.job.exec.id) {
            let message = format!("exec {id} is not running");
            return Err(ErrorBody::new(ErrorCode::Conflict, message));
        }
        bash.signal_foreground(number).map_err(|error| {
            ErrorBody::new(ErrorCode::Conflict, format!("no foreground program took the signal: {error}"))
        })?;
        bash.feed_tail(&current.mark);
        Ok(())
    }

    fn input(&mut self, bytes: &[u8]) -> Result<(), ErrorBody> {
        self.running()?;
        let (Some(current), Some(bash)) = (&mut self.current, &mut self.bash) else { return Ok(()) };
        if !bash.type_in(bytes) {
            let message = format!("{} bytes of input wait to be read already", super::bash::MAX_PENDING_INPUT);
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        current.awaiting_input = false;
        current.look = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
        Ok(())
    }

    /// A fresh shell: the command that runs is lost, those that wait never run, and nothing is restored.
    fn reset(&mut self) {
        self.abandon("the shell was reset");
        self.end_bash();
        *self.shared.state.borrow_mut() = None;
        self.shared.view.borrow_mut().cwd = self.context.environment.start_dir.to_string_lossy().into_owned();
        self.last_status = 0;
        self.restart_unreported = false;
        self.next_manner = Manner::Login;
        self.start_at = Some(Instant::now());
    }

    fn close(&mut self, reason: &str) {
        self.abandon(reason);
        self.end_bash();
    }

    /// Ends bash and what it runs in the foreground. Its background jobs get what a closed terminal gives them: HUP.
    fn end_bash(&mut self) {
        if let Some(bash) = self.bash.take() {
            if let Some(group) = bash.foreground() {
                let _ = crate::sys::signal::kill_group(group, libc::SIGKILL);
            }
            tokio::task::spawn_local(super::end_session(bash.watch));
        }
        self.starting = None;
        self.is_doomed = false;
    }

    fn abandon(&mut self, reason: &str) {
        if let Some(current) = self.current.take() {
            self.end_without_status(&current.job.exec, OutcomeKind::Lost, 128 + libc::SIGKILL, reason);
        }
        while let Some(job) = self.queue.pop_front() {
            self.never_ran(&job, reason);
        }
    }

    // ---- time

    fn next_wake(&self) -> Option<Instant> {
        let mut times = vec![self.start_at.filter(|_| self.bash.is_none()), self.starting.as_ref().map(|s| s.deadline)];
        if let Some(current) = &self.current {
            match current.ladder {
                Some((since, taken)) => {
                    let now = Instant::now();
                    times.push(match ladder::next(taken, since.elapsed()) {
                        Next::Now(_) => Some(now),
                        Next::In(wait) => Some(now + wait),
                        Next::Nothing => None,
                    });
                }
                None => times.extend([current.deadline, Some(current.look.0)]),
            }
        }
        times.into_iter().flatten().min()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.starting.as_ref().is_some_and(|s| s.deadline <= now) {
            tracing::warn!(shell = %self.shared.view.borrow().name, "a shell did not come up in time");
            self.replace_bash();
            if let Some(starting) = &mut self.starting {
                starting.deadline = now + STARTUP_DEADLINE;
            }
        }
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return };
        if current.ladder.is_none() && current.deadline.is_some_and(|d| d <= now) {
            current.awaiting_input = bash.is_awaiting_input() == Some(true);
            current.ladder = Some((now, 0));
        }
        if current.ladder.is_some() {
            self.climb();
        } else if current.look.0 <= now {
            self.look();
        }
    }

    fn climb(&mut self) {
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return };
        let Some((since, taken)) = &mut current.ladder else { return };
        let Next::Now(step) = ladder::next(*taken, since.elapsed()) else { return };
        *taken += 1;
        let shell = bash.pid();
        match step {
            Step::Interrupt => {
                let _ = bash.signal_foreground(libc::SIGINT);
                let _ = bash.signal_foreground(libc::SIGCONT);
            }
            Step::Terminate | Step::Kill => {
                let number = if step == Step::Kill { libc::SIGKILL } else { libc::SIGTERM };
                // Bash itself is not killed here: it may be between two programs, and has its own step.
                if bash.foreground().is_some_and(|group| group != shell) {
                    let _ = bash.signal_foreground(number);
                    let _ = bash.signal_foreground(libc::SIGCONT);
                }
            }
            Step::ReplaceShell => bash.watch.signal(libc::SIGKILL),
        }
        bash.feed_tail(&current.mark);
    }

    fn look(&mut self) {
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return };
        let interval = (current.look.1 * 2).min(LONGEST_LOOK);
        current.look = (Instant::now() + interval, interval);
        match current.end {
            End::Unsuspected if bash.sleeps() => {
                bash.feed_tail(&current.mark);
                current.end = End::Asked;
            }
            End::Asked if bash.sleeps() && bash.has_read_all() => {
                tracing::warn!(shell = %self.shared.view.borrow().name, "replacing a shell that cannot report");
                let _ = bash.feed(&script::exit_line(&current.mark));
                current.end = End::ToldToExit;
                current.look = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
                return;
            }
            End::ToldToExit => {
                bash.watch.signal(libc::SIGKILL);
                current.end = End::Unknown;
                return;
            }
            _ => {}
        }
        let waits = bash.is_awaiting_input() == Some(true);
        if waits && !current.awaiting_input {
            current.job.exec.note_waiting();
        }
        current.awaiting_input = waits;
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

const TIMEOUT_EXIT_CODE: i32 = 124;

const RUNNER_ENDS: &str = "the runner is ending";

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
