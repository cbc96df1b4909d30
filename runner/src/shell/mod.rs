//! The shells of a sandbox: a table of handles, each to the task that owns one shell.

mod attach;
mod bash;
pub mod control;
mod driver;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod machine;
mod replay;
mod saved_state;
mod scratch;
pub mod script;
mod terminal;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::{
    ExecRequest, MAX_SHELL_STATES_BYTES, OpenShellRequest, RestoreRequest, SandboxState, SavedShell, ShellKind,
    ShellState, ShellView, check_size, encode_shell_text,
};
use shared_protocol::{ErrorBody, ErrorCode, ExecId, ShellName};
use tokio::sync::{mpsc, oneshot};

pub use attach::Attachment;
pub use driver::Context;
pub use scratch::ScratchRoot;

use crate::exec::Exec;
use crate::reaper::Watch;
use crate::sys::tty::Size;
use crate::sys::{proc, signal};
use driver::{Driver, QueuedExec, Request};
use saved_state::SavedState;
use terminal::Terminal;

/// The most shells of a sandbox, terminals included.
pub const MAX_SHELLS: usize = 64;

/// The most commands that wait in one shell.
pub const MAX_QUEUED: usize = 1024;

/// The most requests that wait for a shell's driver: a full queue of commands, and some more.
const REQUEST_DEPTH: usize = MAX_QUEUED + 64;

/// The longest wait for a shell to write its state after its last command.
const STATE_PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for a killed shell to exit.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The most ended terminals that are remembered: as many as can exist at once.
const MAX_ENDED: usize = MAX_SHELLS;

const DEFAULT_SIZE: Size = Size { cols: 80, rows: 24 };

/// A handle to one shell. Cheap to clone.
#[derive(Clone)]
pub struct ShellHandle {
    requests: mpsc::Sender<Request>,
    view: Rc<RefCell<ShellView>>,
    kind: ShellKind,
}

pub struct ShellTable {
    context: Context,
    shells: Rc<RefCell<BTreeMap<ShellName, ShellHandle>>>,
    made: Cell<u64>,
    /// The terminals that ended by themselves, the latest first, with bash's exit code. Attached clients ask for it.
    ended: Rc<RefCell<VecDeque<(ShellName, i32)>>>,
    /// Whether no shell is open because a restore opens them.
    awaits_restore: Cell<bool>,
}

fn gone(name: &ShellName) -> ErrorBody {
    ErrorBody::new(ErrorCode::ShellNotFound, format!("no shell named {name}; open it first"))
}

/// Kills the bash that leads a session, and then sends HUP to the rest of the session, as a closed terminal does. It first
/// waits for bash to exit, so that a program that bash was about to start is not missed.
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

/// The size of a new terminal. A side that is absent has the default.
pub fn size(cols: Option<u16>, rows: Option<u16>) -> Result<Size, ErrorBody> {
    check_size(cols, rows)?;
    Ok(Size { cols: cols.unwrap_or(DEFAULT_SIZE.cols), rows: rows.unwrap_or(DEFAULT_SIZE.rows) })
}

impl ShellTable {
    /// Makes the table and starts the shell `main`, unless a restore is to start it.
    pub fn new(context: Context) -> Self {
        let awaits_restore = context.config.await_restore;
        let table = Self {
            context,
            shells: Rc::default(),
            made: Cell::new(0),
            ended: Rc::default(),
            awaits_restore: Cell::new(awaits_restore),
        };
        if !awaits_restore {
            table.open_main();
        }
        table
    }

    fn open_main(&self) {
        let request = OpenShellRequest { name: Some(ShellName::main()), ..OpenShellRequest::default() };
        if let Err(error) = self.open_from(request, None) {
            tracing::error!(%error, "the main shell could not be opened");
        }
    }

    /// The states of all shells after their last commands, `main` first, as far as they fit. Terminals have none.
    pub async fn states(&self) -> Vec<SavedShell> {
        let mut shells: Vec<ShellHandle> = self.shells.borrow().values().cloned().collect();
        shells.retain(|shell| shell.kind == ShellKind::Exec);
        // The shells write their states at the same time.
        let asked: Vec<_> = shells
            .into_iter()
            .map(|shell| tokio::task::spawn_local(async move { (shell.state().await, shell.view()) }))
            .collect();
        let mut saved = Vec::new();
        for asked in asked {
            let Ok((Some(state), view)) = asked.await else { continue };
            let (options, shopts) = state.option_lists();
            let text_base64 = encode_shell_text(&state.text());
            let ShellView { name, cwd, cols, rows, .. } = view;
            saved.push(SavedShell { name, cwd, cols, rows, options, shopts, text_base64 });
        }
        saved.sort_by_key(|shell| (shell.name != ShellName::main(), shell.name.clone()));
        let mut room = MAX_SHELL_STATES_BYTES.div_ceil(3) * 4;
        saved.retain(|shell| match room.checked_sub(shell.text_base64.len()) {
            Some(left) => {
                room = left;
                true
            }
            None => {
                tracing::warn!(shell = %shell.name, "there is no room for the state of a shell");
                false
            }
        });
        saved
    }

    /// Whether no shell has started yet, because a restore is to start them.
    pub fn awaits_restore(&self) -> bool {
        self.awaits_restore.get()
    }

    /// Opens the shells of a state that another runner gave out. It works once, in a runner that waits for it.
    pub fn restore(&self, request: RestoreRequest) -> Result<(), ErrorBody> {
        if !self.awaits_restore.get() {
            return Err(ErrorBody::new(ErrorCode::Conflict, "this runner does not wait for a state"));
        }
        request.state.check()?;
        let RestoreRequest { state: SandboxState { env, shells }, env: newer } = request;
        let exports = script::exports(&mut newer.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let mut variables = env;
        variables.extend(newer);
        if !self.context.environment.claim(variables) {
            return Err(ErrorBody::new(ErrorCode::Conflict, "this sandbox was claimed before"));
        }
        self.awaits_restore.set(false);
        for shell in shells {
            let mut state = SavedState::given(&shell.options, &shell.shopts, shell.text()?);
            state.append(&exports);
            let request = OpenShellRequest {
                name: Some(shell.name),
                cols: Some(shell.cols),
                rows: Some(shell.rows),
                ..OpenShellRequest::default()
            };
            self.open_from(request, Some((Some(state), shell.cwd)))?;
        }
        if !self.shells.borrow().contains_key(&ShellName::main()) {
            self.open_main();
        }
        Ok(())
    }

    /// Opens a shell. If the request names another shell, it is a copy of that one.
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
        origin: Option<(Option<SavedState>, String)>,
    ) -> Result<ShellView, ErrorBody> {
        request.check()?;
        let size = size(request.cols, request.rows)?;
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
        let view = Rc::new(RefCell::new(view));
        let handle = ShellHandle { requests, view: view.clone(), kind: request.kind };
        match request.kind {
            ShellKind::Exec => {
                let driver = Driver::new(self.context.clone(), view, receiver, state, variables);
                tokio::task::spawn_local(driver.run());
            }
            ShellKind::Terminal => {
                let terminal = Terminal::start(self.context.clone(), view, receiver, state.as_ref(), &variables)
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
        let view = handle.view.borrow().clone();
        self.shells.borrow_mut().insert(name, handle);
        Ok(view)
    }

    /// The shell with this name. The default is `main`.
    pub fn get(&self, name: Option<&ShellName>) -> Result<ShellHandle, ErrorBody> {
        let main = ShellName::main();
        let name = name.unwrap_or(&main);
        self.shells.borrow().get(name).cloned().ok_or_else(|| gone(name))
    }

    /// The exit code of a terminal that ended by itself recently.
    pub fn end(&self, name: &ShellName) -> Result<i32, ErrorBody> {
        let ended = self.ended.borrow();
        ended.iter().find(|(known, _)| known == name).map(|(_, code)| *code).ok_or_else(|| gone(name))
    }

    pub fn views(&self) -> Vec<ShellView> {
        self.shells.borrow().values().map(|handle| handle.view.borrow().clone()).collect()
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

    /// Makes every shell close when its command is over, because the runner is ending.
    pub fn drain(&self) {
        for handle in self.shells.borrow().values() {
            let _ = handle.requests.try_send(Request::Drain);
        }
    }
}

impl ShellHandle {
    /// Queues a command. Commands run in the order of these calls.
    pub fn exec(&self, exec: Rc<Exec>, request: ExecRequest, stdin: Option<Vec<u8>>) -> Result<(), ErrorBody> {
        let view = self.view.borrow();
        let waiting = view.queued + REQUEST_DEPTH - self.requests.capacity();
        if waiting >= MAX_QUEUED {
            let message = format!(
                "{MAX_QUEUED} commands wait in shell {} already; wait for some to end, or open another",
                view.name
            );
            return Err(ErrorBody::new(ErrorCode::ShellBusy, message));
        }
        self.requests
            .try_send(Request::Exec(Box::new(QueuedExec { exec, request, stdin })))
            .map_err(|_| gone(&view.name))
    }

    pub fn kind(&self) -> ShellKind {
        self.kind
    }

    pub fn view(&self) -> ShellView {
        self.view.borrow().clone()
    }

    pub async fn signal(&self, number: i32, exec_id: Option<ExecId>) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Signal { number, exec_id, reply }).await?
    }

    pub async fn input(&self, bytes: Vec<u8>) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Input { bytes, reply }).await?
    }

    /// The same as `input`, for a person who types: it waits for room instead of failing, so that a long paste arrives
    /// completely.
    pub async fn type_in(&self, bytes: Vec<u8>) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Type { bytes, reply }).await
    }

    pub async fn resize(&self, size: Size) -> Result<(), ErrorBody> {
        self.ask(|reply| Request::Resize { size, reply }).await?
    }

    pub async fn attach(&self) -> Result<Attachment, ErrorBody> {
        self.ask(|reply| Request::Attach { reply }).await
    }

    /// The state after the shell's last command. `None` for a terminal, and for a shell that does not write it in time.
    async fn state(&self) -> Option<SavedState> {
        let asked = self.ask(|reply| Request::State { reply });
        tokio::time::timeout(STATE_PATIENCE, asked).await.ok()?.ok()?
    }

    /// Makes the shell apply the claim before its next command. It waits only for a place in the queue: the caller gets its
    /// answer before bash begins.
    pub async fn claim(&self) -> Result<(), ErrorBody> {
        self.requests.send(Request::Claim).await.map_err(|_| gone(&self.view.borrow().name))
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
        let ended = || gone(&self.view.borrow().name);
        self.requests.send(request(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }
}
