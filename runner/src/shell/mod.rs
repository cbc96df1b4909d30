//! The shells of a sandbox: a table of handles, each to the task that owns one shell.

mod attach;
mod bash;
pub mod control;
mod driver;
mod ladder;
mod scratch;
pub mod script;
mod state;
mod terminal;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::{ExecRequest, OpenShellRequest, ShellKind, ShellState, ShellView};
use shared_protocol::{ErrorBody, ErrorCode, ExecId, ShellName};
use tokio::sync::{mpsc, oneshot};

pub use attach::Attachment;
pub use driver::Context;
pub use scratch::ScratchRoot;

use crate::exec::Exec;
use crate::reaper::Watch;
use crate::sys::tty::Size;
use crate::sys::{proc, signal};
use driver::{Driver, Job, Request, Shared};
use state::State;
use terminal::Terminal;

/// Shells of one sandbox, terminals included.
pub const MAX_SHELLS: usize = 64;

/// Commands that wait for their turn in one shell.
pub const MAX_QUEUED: usize = 1024;

/// Requests on their way to a shell's driver: a full queue of commands, and room for the rest.
const REQUEST_DEPTH: usize = MAX_QUEUED + 64;

/// For a shell to have written its state behind its last command.
const STATE_PATIENCE: Duration = Duration::from_secs(5);

/// For a killed shell to be collected.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Terminals whose end is remembered: as many as there can be at once.
const MAX_ENDED: usize = MAX_SHELLS;

const DEFAULT_SIZE: Size = Size { cols: 80, rows: 24 };

/// Terminals larger than this are a mistake, and some programs allocate by it.
const MAX_SIDE: u16 = 1000;

/// A cheap way to one shell.
#[derive(Clone)]
pub struct ShellHandle {
    requests: mpsc::Sender<Request>,
    shared: Shared,
    kind: ShellKind,
}

pub struct ShellTable {
    context: Context,
    shells: Rc<RefCell<BTreeMap<ShellName, ShellHandle>>>,
    made: Cell<u64>,
    /// Terminals that ended by themselves, the last one first, with what those who watched them ask for.
    ended: Rc<RefCell<VecDeque<(ShellName, i32)>>>,
}

fn gone(name: &ShellName) -> ErrorBody {
    ErrorBody::new(ErrorCode::ShellNotFound, format!("no shell named {name}; open it first"))
}

/// Kills the bash that leads a session, and hangs up on everything that is left of it, as a closed terminal does. Only once
/// bash has gone: what it was about to start must not be missed.
async fn end_session(mut leader: Watch) {
    let session = leader.pid();
    leader.signal(libc::SIGKILL);
    if tokio::time::timeout(END_PATIENCE, leader.exit()).await.is_err() {
        tracing::error!(pid = session, "a shell did not end when it was killed");
    }
    for pid in proc::pids().unwrap_or_default() {
        if proc::stat(pid).is_some_and(|stat| stat.session == session) {
            let _ = signal::kill(pid, libc::SIGHUP);
            let _ = signal::kill(pid, libc::SIGCONT);
        }
    }
}

pub fn size(cols: Option<u16>, rows: Option<u16>) -> Result<Size, ErrorBody> {
    let size = Size { cols: cols.unwrap_or(DEFAULT_SIZE.cols), rows: rows.unwrap_or(DEFAULT_SIZE.rows) };
    let fits = |side: u16| (1..=MAX_SIDE).contains(&side);
    if fits(size.cols) && fits(size.rows) {
        Ok(size)
    } else {
        Err(ErrorBody::new(ErrorCode::InvalidRequest, format!("cols and rows go from 1 to {MAX_SIDE}")))
    }
}

/// Refuses what cannot stand left of `=` in bash.
pub fn check_variables<'a>(names: impl Iterator<Item = (&'a String, &'a String)>) -> Result<(), ErrorBody> {
    for (name, value) in names {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
            let shown: String = name.chars().take(64).collect();
            let message =
                format!("{shown:?} is not a variable name: letters, digits and _, not beginning with a digit");
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
        }
        if value.contains('\0') {
            let message = format!("the value of {name} holds a NUL byte, which no variable can");
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
        }
    }
    Ok(())
}

impl ShellTable {
    /// With the shell `main` on its way up.
    pub fn new(context: Context) -> Self {
        let table = Self { context, shells: Rc::default(), made: Cell::new(0), ended: Rc::default() };
        let request = OpenShellRequest { name: Some(ShellName::main()), ..OpenShellRequest::default() };
        if let Err(error) = table.open_from(request, None) {
            tracing::error!(%error, "the main shell could not be opened");
        }
        table
    }

    /// Opens a shell, as a copy of another where that is asked for.
    pub async fn open(&self, request: OpenShellRequest) -> Result<ShellView, ErrorBody> {
        let origin = match &request.from {
            Some(from) => {
                let origin = self.get(Some(from))?;
                Some((origin.state().await, origin.view().cwd))
            }
            None => None,
        };
        self.open_from(request, origin)
    }

    fn open_from(
        &self,
        request: OpenShellRequest,
        origin: Option<(Option<State>, String)>,
    ) -> Result<ShellView, ErrorBody> {
        let size = size(request.cols, request.rows)?;
        check_variables(request.env.iter())?;
        if self.shells.borrow().len() >= MAX_SHELLS {
            let message = format!("there are {MAX_SHELLS} shells already; close one first");
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        let name = match request.name {
            Some(name) => name,
            None => {
                self.made.set(self.made.get() + 1);
                ShellName::new(format!("sh-{}-{}", self.made.get(), &crate::sys::random_hex()[..6]))
                    .map_err(|e| ErrorBody::new(ErrorCode::InternalError, e.to_string()))?
            }
        };
        if self.shells.borrow().contains_key(&name) {
            return Err(ErrorBody::new(ErrorCode::Conflict, format!("a shell named {name} is open already")));
        }
        let (state, origin_cwd) = origin.map_or((None, None), |(state, cwd)| (state, Some(cwd)));
        let cwd = request
            .cwd
            .or(origin_cwd)
            .unwrap_or_else(|| self.context.environment.start_dir.to_string_lossy().into_owned());
        let view = ShellView {
            name: name.clone(),
            kind: request.kind,
            state: ShellState::Starting,
            pid: None,
            cwd,
            exec_id: None,
            queued: 0,
            restarts: 0,
            cols: size.cols,
            rows: size.rows,
        };
        let variables: Vec<_> = request.env.into_iter().collect();
        let (requests, receiver) = mpsc::channel(REQUEST_DEPTH);
        let shared = Shared { view: Rc::new(RefCell::new(view)), state: Rc::new(RefCell::new(None)) };
        let handle = ShellHandle { requests, shared: shared.clone(), kind: request.kind };
        match request.kind {
            ShellKind::Exec => {
                *shared.state.borrow_mut() = state;
                let driver = Driver::new(self.context.clone(), shared, receiver, variables);
                tokio::task::spawn_local(driver.run());
            }
            ShellKind::Terminal => {
                let terminal = Terminal::start(self.context.clone(), shared, receiver, state.as_ref(), &variables)
                    .map_err(|e| {
                        ErrorBody::new(ErrorCode::InternalError, format!("no terminal could be started: {e}"))
                    })?;
                let (shells, ended, name) = (self.shells.clone(), self.ended.clone(), name.clone());
                tokio::task::spawn_local(async move {
                    let exit = terminal.run().await;
                    shells.borrow_mut().remove(&name);
                    if let Some(exit) = exit {
                        let mut ended = ended.borrow_mut();
                        ended.truncate(MAX_ENDED - 1);
                        ended.push_front((name, exit.shell_code()));
                    }
                });
            }
        }
        let view = handle.shared.view.borrow().clone();
        self.shells.borrow_mut().insert(name, handle);
        Ok(view)
    }

    /// The shell of that name; `main` where none is named.
    pub fn get(&self, name: Option<&ShellName>) -> Result<ShellHandle, ErrorBody> {
        let main = ShellName::main();
        let name = name.unwrap_or(&main);
        self.shells.borrow().get(name).cloned().ok_or_else(|| gone(name))
    }

    /// How a terminal of that name ended, if it did by itself and not too long ago.
    pub fn end(&self, name: &ShellName) -> Result<i32, ErrorBody> {
        let ended = self.ended.borrow();
        ended.iter().find(|(known, _)| known == name).map(|(_, code)| *code).ok_or_else(|| gone(name))
    }

    pub fn views(&self) -> Vec<ShellView> {
        self.shells.borrow().values().map(|handle| handle.shared.view.borrow().clone()).collect()
    }

    pub fn len(&self) -> usize {
        self.shells.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub async fn close(&self, name: &ShellName) -> Result<(), ErrorBody> {
        if *name == ShellName::main() {
            let message = "the shell main is closed with its session only; reset it to make it new";
            return Err(ErrorBody::new(ErrorCode::Conflict, message));
        }
        let handle = self.get(Some(name))?;
        self.shells.borrow_mut().remove(name);
        handle.ask(|reply| Request::Close { reply }).await
    }

    /// Has every shell end with the command that it runs; for when the runner ends.
    pub fn drain(&self) {
        for handle in self.shells.borrow().values() {
            let _ = handle.requests.try_send(Request::Drain);
        }
    }
}

impl ShellHandle {
    /// Queues a command. The order of calls is the order of commands.
    pub fn exec(&self, exec: Rc<Exec>, request: ExecRequest, stdin: Option<Vec<u8>>) -> Result<(), ErrorBody> {
        let view = self.shared.view.borrow();
        let waiting = view.queued + REQUEST_DEPTH - self.requests.capacity();
        if waiting >= MAX_QUEUED {
            let message = format!(
                "{MAX_QUEUED} commands wait in shell {} already; wait for some to end, or open another",
                view.name
            );
            return Err(ErrorBody::new(ErrorCode::ShellBusy, message));
        }
        self.requests.try_send(Request::Exec(Box::new(Job::new(exec, request, stdin)))).map_err(|_| gone(&view.name))
    }

    pub fn kind(&self) -> ShellKind {
        self.kind
    }

    pub fn view(&self) -> ShellView {
        self.shared.view.borrow().clone()
    }

    pub async fn signal(&self, number: i32, exec_id: Option<ExecId>) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Signal { number, exec_id, reply }).await?
    }

    pub async fn input(&self, bytes: Vec<u8>) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Input { bytes, reply }).await?
    }

    /// As `input`, for somebody who types: waits for room rather than being refused, so that a long paste arrives whole.
    pub async fn type_in(&self, bytes: Vec<u8>) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Type { bytes, reply }).await
    }

    pub async fn resize(&self, size: Size) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Resize { size, reply }).await?
    }

    pub async fn attach(&self) -> Result<Attachment, ErrorBody> {
        self.ask(|reply| Request::Attach { reply }).await
    }

    /// The state after its last command. A shell that does not say in time, or is a terminal, has none to copy.
    async fn state(&self) -> Option<State> {
        let asked = self.ask(|reply| Request::State { reply });
        tokio::time::timeout(STATE_PATIENCE, asked).await.ok()?.ok()?
    }

    /// Has it take what came with the claim before its next command. Does not wait for anything but a place in the queue: whoever
    /// claims has his answer before bash gets to work.
    pub async fn claim(&self) -> Result<(), ErrorBody> {
        self.requests.send(Request::Claim).await.map_err(|_| gone(&self.shared.view.borrow().name))
    }

    pub async fn reset(&self) -> Result<(), ErrorBody> {
        if self.kind == ShellKind::Terminal {
            let message = "a terminal is not reset: close it and open another";
            return Err(ErrorBody::new(ErrorCode::Conflict, message));
        }
        self.ask(|reply| Request::Reset { reply }).await
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, ErrorBody> {
        let (reply, answer) = oneshot::channel();
        let ended = || gone(&self.shared.view.borrow().name);
        self.requests.send(request(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}
