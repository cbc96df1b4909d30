//! A shell's terminal for a person: bytes in both directions until the shell, the session or the client ends.

use futures_util::FutureExt as _;
use shared_protocol::runner::{OpenShellRequest, ResizeRequest, ShellKind};
use shared_protocol::{ErrorCode, SessionId, ShellName};
use tokio::io::{ReadHalf, WriteHalf};

use super::TerminalSpec;
use crate::metrics::Metrics;
use crate::runner_client::{Attached, RunnerClient, RunnerError};
use crate::session::{Activity, SessionError};

/// The bytes that the terminal prints.
pub type TerminalOutput = ReadHalf<Attached>;

/// The bytes that the person types.
pub type TerminalInput = WriteHalf<Attached>;

/// The result of attaching: the terminal and its two byte streams.
pub struct Attachment {
    pub terminal: Terminal,
    pub output: TerminalOutput,
    pub input: TerminalInput,
}

/// An attached terminal. The session is in use while this value lives.
pub struct Terminal {
    activity: Activity,
    lease: Lease,
    metrics: Metrics,
}

/// Why the terminal's side closed.
#[derive(Debug)]
pub enum TerminalEnd {
    /// The shell has ended. Its exit code is unknown if another client closed it.
    ShellEnded {
        exit_code: Option<i32>,
    },
    /// The shell keeps running, but this client took its output too slowly.
    TooSlow,
    Session(SessionError),
    Lost(RunnerError),
}

impl Attachment {
    pub(super) fn new(activity: Activity, lease: Lease, bytes: Attached, metrics: Metrics) -> Self {
        let (output, input) = tokio::io::split(bytes);
        Self { terminal: Terminal { activity, lease, metrics }, output, input }
    }
}

impl Terminal {
    pub fn shell(&self) -> &ShellName {
        &self.lease.name
    }

    pub fn session_id(&self) -> &SessionId {
        self.activity.session_id()
    }

    /// Resolves when the session ends.
    pub async fn session_ended(&self) -> SessionError {
        self.activity.ended().await
    }

    /// Changes the terminal's size. If the runner refuses the size, nothing changes, and that is no error.
    pub async fn resize(&self, cols: u16, rows: u16) -> Result<(), RunnerError> {
        let request = ResizeRequest { shell: Some(self.shell().clone()), cols, rows };
        match self.activity.runner().resize(&request).await {
            Ok(()) | Err(RunnerError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Finds out why the terminal's bytes ended.
    pub async fn end(&self) -> TerminalEnd {
        // The connection may be cut before the session's end is visible.
        if let Some(error) = self.activity.ended().now_or_never() {
            return TerminalEnd::Session(error);
        }
        let runner = self.activity.runner();
        match runner.shells().await {
            Ok(shells) if shells.iter().any(|view| view.name == *self.shell()) => TerminalEnd::TooSlow,
            Ok(_) => {
                let exit_code = runner.shell_end(self.shell()).await.ok().map(|end| end.exit_code);
                TerminalEnd::ShellEnded { exit_code }
            }
            Err(error) => TerminalEnd::Lost(error),
        }
    }

    /// Counts the bytes in each direction.
    pub fn count(&self, typed: u64, printed: u64) {
        self.metrics.bytes_in(typed);
        self.metrics.bytes_out(printed);
    }
}

/// The shell of a terminal. A shell that was opened only for this terminal is closed with it.
pub(super) struct Lease {
    name: ShellName,
    close_with: Option<RunnerClient>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(runner) = self.close_with.take() else { return };
        let name = self.name.clone();
        // The call has a time limit of its own. It runs in a task, because the terminal may end in any way.
        tokio::spawn(async move {
            match runner.close_shell(&name).await {
                // The shell or the whole sandbox has already ended.
                Ok(()) | Err(RunnerError::Refused(_) | RunnerError::Lost(_)) => {}
                Err(error) => tracing::warn!(shell = %name, %error, "a terminal's shell was not closed"),
            }
        });
    }
}

pub(super) async fn open(runner: &RunnerClient, spec: TerminalSpec) -> Result<(Lease, Attached), RunnerError> {
    let TerminalSpec { shell, cols, rows } = spec;
    let request = OpenShellRequest {
        name: shell.clone(),
        kind: ShellKind::Terminal,
        from: Some(ShellName::main()),
        cols,
        rows,
        ..OpenShellRequest::default()
    };
    let Some(name) = shell else {
        let view = runner.open_shell(&request).await?;
        let lease = Lease { name: view.name, close_with: Some(runner.clone()) };
        let attached = runner.attach(&lease.name, None, None).await?;
        return Ok((lease, attached));
    };
    let attached = match runner.attach(&name, cols, rows).await {
        Err(error) if error.code() == Some(ErrorCode::ShellNotFound) => {
            match runner.open_shell(&request).await {
                // Another client opened the shell in the meantime.
                Ok(_) => {}
                Err(error) if error.code() == Some(ErrorCode::Conflict) => {}
                Err(error) => return Err(error),
            }
            runner.attach(&name, cols, rows).await?
        }
        attached => attached?,
    };
    Ok((Lease { name, close_with: None }, attached))
}
