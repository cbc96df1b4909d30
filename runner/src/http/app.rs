//! The state that request handlers can use: handles to the owners of all state, on one thread.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::config::Listen;
use crate::environment::Environment;
use crate::exec::ExecTable;
use crate::files::FileOperations;
use crate::hold::Hold;
use crate::network::NetworkListener;
use crate::ports::Ports;
use crate::run::Runs;
use crate::shell::ShellTable;
use crate::sys::identity::Identity;

/// The state of a server. `boot` makes it; handlers only call its parts.
pub struct App {
    /// The address the server listens on, with the token that clients must send on TCP.
    pub listen: Listen,
    /// The user that commands run as, for `/healthz`.
    pub identity: Identity,
    /// The environment of new shells and runs; `/v1/claim` adds variables to it.
    pub environment: Environment,
    pub execs: ExecTable,
    pub shells: ShellTable,
    pub runs: Runs,
    pub files: FileOperations,
    pub ports: Ports,
    /// Where programs connect to the network. `None` if the daemon has another way to their connections, or none.
    pub network: Option<NetworkListener>,
    /// Whether all processes are stopped for a snapshot. Requests wait until they go on.
    pub hold: Hold,
    pub started: Instant,
    /// Set when the runner has to end: from then on it accepts no new request.
    pub draining: Cell<bool>,
}

pub type SharedApp = Rc<App>;
