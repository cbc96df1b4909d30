//! The tools of agents: what a language model calls in a sandbox. Each tool is defined once, here, and every front serves the same ones.
//!
//! ```text
//!  name, JSON ──check──▶ ToolCall ──call──▶ files | look | commands | machine ──▶ ToolReply: text for the model, and values
//!                          │                   over the same use cases as everything else
//!                          └─ an error that says how to call it
//! ```
//!
//! | tools | where |
//! |---|---|
//! | `read` `write` `edit` `diff` `delete` | `files` |
//! | `ls` `grep` `find` | `look`, over the `walk` of a tree |
//! | `bash` `git` `run_background` `wait` `output` `kill` | `commands` |
//! | `expose_port` `snapshot` `restore` `network_request` | `machine` |
//!
//! The image needs none of the programs that these tools are named after, except `git` and `bash`. Texts are read, changed and searched in the
//! daemon, on bytes that the runner sends (crate `agent-tools`).
//!
//! **A failure is an answer.** What a model can correct by another call, such as a missing file or a text that matches twice, is a
//! reply with `is_error`. An error of a call means that the sandbox could not be asked.
//!
//! **Every answer is bounded**, and says what it left out and how to get it.

mod arguments;
mod commands;
mod definition;
mod files;
mod look;
mod machine;
mod reply;
mod seen;
mod walk;

use std::sync::Arc;

use serde_json::{Map, Value};
use shared_protocol::SessionId;
use tokio::sync::{Semaphore, mpsc, watch};

pub use definition::{Effect, ToolDefinition, definitions};
pub use reply::{ToolContent, ToolReply};

use super::files::Files;
use super::ports::{LinkToken, PortAddress};
use super::{CallError, Caller, InvalidRequest, Networks, Ports, Sessions, Shells, Snapshots};
use arguments::ToolArguments;
use seen::SeenFiles;

/// Something that a tool tells while it works.
#[derive(Debug, Clone)]
pub struct ToolProgress {
    pub message: String,
}

/// How the caller follows a call.
#[derive(Default)]
pub struct Following {
    /// Where progress goes. What finds no room there is not told.
    pub progress: Option<mpsc::Sender<ToolProgress>>,
    /// Becomes true when the call is to be cancelled: then its command is interrupted, and the call returns.
    pub cancelled: Option<watch::Receiver<bool>>,
    /// Where links to ports lead, which the front knows.
    pub link_url: Option<LinkUrl>,
}

/// Makes the address of a link.
pub type LinkUrl = Arc<dyn Fn(&PortAddress, &LinkToken) -> String + Send + Sync>;

impl Following {
    fn tell(&self, message: impl FnOnce() -> String) {
        if let Some(permit) = self.progress.as_ref().and_then(|progress| progress.try_reserve().ok()) {
            permit.send(ToolProgress { message: message() });
        }
    }

    /// Waits until the call is cancelled.
    async fn until_cancelled(&mut self) {
        if let Some(cancelled) = &mut self.cancelled
            && cancelled.wait_for(|is_cancelled| *is_cancelled).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// A checked call of a tool. Only [`Tools::check`] makes one.
#[derive(Debug)]
pub struct ToolCall(ToolArguments);

/// The use cases that tools are made of.
pub(super) struct ToolParts {
    pub commands: Arc<super::Commands>,
    pub shells: Arc<Shells>,
    pub files: Arc<Files>,
    pub ports: Arc<Ports>,
    pub sessions: Arc<Sessions>,
    pub snapshots: Arc<Snapshots>,
    pub networks: Arc<Networks>,
}

pub struct Tools {
    parts: ToolParts,
    seen: SeenFiles,
    /// The places for walks of trees.
    walks: Semaphore,
}

/// Who calls a tool, and for which session.
#[derive(Clone, Copy)]
struct On<'a> {
    caller: &'a Caller,
    id: &'a SessionId,
}

impl Tools {
    pub(super) fn new(parts: ToolParts) -> Self {
        Self { parts, seen: SeenFiles::default(), walks: Semaphore::new(look::MAX_AT_ONCE) }
    }

    /// Checks a call. The error's text lets a model correct its call in one step.
    pub fn check(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolCall, InvalidRequest> {
        ToolArguments::read(name, arguments).map(ToolCall)
    }

    /// Calls a tool in a session.
    pub async fn call(
        &self,
        caller: &Caller,
        id: &SessionId,
        call: ToolCall,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let on = On { caller, id };
        let done = match call.0 {
            ToolArguments::Read(arguments) => self.read(on, arguments).await,
            ToolArguments::Write(arguments) => self.write(on, arguments).await,
            ToolArguments::Edit(arguments) => self.edit(on, arguments).await,
            ToolArguments::Diff(arguments) => self.diff(on, arguments).await,
            ToolArguments::Delete(arguments) => self.delete(on, arguments).await,
            ToolArguments::Ls(arguments) => self.ls(on, arguments, following).await,
            ToolArguments::Grep(arguments) => self.grep(on, arguments, following).await,
            ToolArguments::Find(arguments) => self.find(on, arguments, following).await,
            ToolArguments::Bash(arguments) => self.bash(on, arguments, following).await,
            ToolArguments::Git(arguments) => self.git(on, arguments, following).await,
            ToolArguments::RunBackground(arguments) => self.run_background(on, arguments).await,
            ToolArguments::Wait(arguments) => self.wait(on, arguments, following).await,
            ToolArguments::Output(arguments) => self.output(on, arguments).await,
            ToolArguments::Kill(arguments) => self.kill(on, arguments).await,
            ToolArguments::ExposePort(arguments) => self.expose_port(on, &arguments, &following),
            ToolArguments::Snapshot(arguments) => self.snapshot(on, arguments).await,
            ToolArguments::Restore(arguments) => self.restore(on, arguments).await,
            ToolArguments::NetworkRequest(arguments) => self.network_request(on, arguments).await,
        };
        done.or_else(reply::for_model)
    }
}
