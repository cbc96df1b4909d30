//! What every request handler can reach: the configuration and the owners of state, all on one thread.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::config::Config;
use crate::environment::Environment;
use crate::exec::ExecTable;
use crate::oom::OomCounter;
use crate::reaper::Reaper;
use crate::shell::ShellTable;
use crate::sys::identity::Identity;

pub struct App {
    pub config: Config,
    /// Whom commands and file operations run as.
    pub identity: Identity,
    /// What a new shell or run begins with.
    pub environment: Environment,
    pub reaper: Reaper,
    pub oom: Rc<OomCounter>,
    pub execs: ExecTable,
    pub shells: ShellTable,
    pub started: Instant,
    /// Set once the runner was told to end: nothing new is accepted.
    pub draining: Cell<bool>,
    /// File operations under way, each a process.
    pub file_operations: Cell<usize>,
}

pub type SharedApp = Rc<App>;
