//! What a driver is asked, and what it needs and shows.

use std::cell::RefCell;
use std::rc::Rc;

use shared_protocol::runner::{ExecRequest, ShellView};
use shared_protocol::{ErrorBody, ExecId};
use tokio::sync::oneshot;

use super::super::attach::Attachment;
use super::super::scratch::ScratchRoot;
use super::super::state::State;
use crate::config::Config;
use crate::environment::Environment;
use crate::exec::{Exec, ExecTable};
use crate::oom::OomCounter;
use crate::reaper::Reaper;
use crate::sys::identity::Identity;
use crate::sys::tty::Size;

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
    /// As `Input`, from somebody at the terminal: answered once it has been taken, however long that is.
    Type {
        bytes: Vec<u8>,
        reply: oneshot::Sender<()>,
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
    /// The sandbox has become somebody's: the variables that came with it are in the environment by now.
    Claim,
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
    pub(super) attempts: u32,
    pub(super) restarted: bool,
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
