//! The requests to a driver, and the context that it runs in.

use std::rc::Rc;

use shared_protocol::runner::ExecRequest;
use shared_protocol::{ErrorBody, ExecId};
use tokio::sync::oneshot;

use super::super::attach::Attachment;
use super::super::saved_state::SavedState;
use super::super::scratch::ScratchRoot;
use crate::config::Config;
use crate::environment::Environment;
use crate::exec::{Exec, ExecTable};
use crate::oom::OomCounter;
use crate::reaper::Reaper;
use crate::sys::identity::Identity;
use crate::sys::tty::Size;

pub enum Request {
    Exec(Box<QueuedExec>),
    Signal {
        number: i32,
        exec_id: Option<ExecId>,
        reply: oneshot::Sender<Result<(), ErrorBody>>,
    },
    Input {
        bytes: Vec<u8>,
        reply: oneshot::Sender<Result<(), ErrorBody>>,
    },
    /// The same as `Input`, from a person at the terminal: answered when the bytes have been taken, however long that takes.
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
    /// The sandbox was claimed: the environment now has the variables of the claim.
    Claim,
    /// Asks for the state after the last command. Answered when that state is written.
    State {
        reply: oneshot::Sender<Option<SavedState>>,
    },
    /// The runner is ending: the shell takes no more commands, and closes when its command is over.
    Drain,
    Close {
        reply: oneshot::Sender<()>,
    },
}

/// An exec that waits for bash.
pub struct QueuedExec {
    pub exec: Rc<Exec>,
    pub request: ExecRequest,
    pub stdin: Option<Vec<u8>>,
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
