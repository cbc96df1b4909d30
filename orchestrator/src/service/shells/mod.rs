//! Use cases for the shells of a session: open, close, reset, send input, signal, resize, attach.

mod spec;
mod terminal;

use shared_protocol::runner::ShellView;
use shared_protocol::{SessionId, ShellName};

pub use spec::{InputSpec, OpenShellSpec, ResizeSpec, SignalSpec, TerminalSpec};
pub use terminal::{Attachment, Terminal, TerminalEnd, TerminalInput, TerminalOutput};

use super::access::Access;
use super::in_sandbox::in_session;
use super::{CallError, Caller};
use crate::metrics::Metrics;

pub struct Shells {
    access: Access,
    metrics: Metrics,
}

impl Shells {
    pub(super) fn new(access: Access, metrics: Metrics) -> Self {
        Self { access, metrics }
    }

    pub async fn list(&self, caller: &Caller, id: &SessionId) -> Result<Vec<ShellView>, CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().shells()).await
    }

    pub async fn open(&self, caller: &Caller, id: &SessionId, spec: &OpenShellSpec) -> Result<ShellView, CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().open_shell(spec.request())).await
    }

    pub async fn close(&self, caller: &Caller, id: &SessionId, shell: &ShellName) -> Result<(), CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().close_shell(shell)).await
    }

    /// Replaces a shell, which may be stuck, by a new one.
    pub async fn reset(&self, caller: &Caller, id: &SessionId, shell: &ShellName) -> Result<ShellView, CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().reset_shell(shell)).await
    }

    /// Sends input to a shell's terminal.
    pub async fn input(&self, caller: &Caller, id: &SessionId, spec: &InputSpec) -> Result<(), CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().input(spec.request())).await?;
        self.metrics.bytes_in(spec.length());
        Ok(())
    }

    /// Signals the foreground program of a shell, or one exec or run.
    pub async fn signal(&self, caller: &Caller, id: &SessionId, spec: &SignalSpec) -> Result<(), CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().signal(spec.request())).await
    }

    /// Changes the size of a shell's terminal.
    pub async fn resize(&self, caller: &Caller, id: &SessionId, spec: &ResizeSpec) -> Result<(), CallError> {
        let activity = self.access.begin(caller, id).await?;
        in_session(&activity, activity.runner().resize(spec.request())).await
    }

    /// Attaches to a terminal. A named shell is opened if it does not exist, and stays open. Without a name, the terminal
    /// gets a new shell, a copy of `main`, which closes with it.
    pub async fn attach(&self, caller: &Caller, id: &SessionId, spec: TerminalSpec) -> Result<Attachment, CallError> {
        let activity = self.access.begin(caller, id).await?;
        let (lease, bytes) = in_session(&activity, terminal::open(activity.runner(), spec)).await?;
        Ok(Attachment::new(activity, lease, bytes, self.metrics.clone()))
    }
}
