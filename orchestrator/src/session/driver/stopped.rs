//! A stopped session: its disk waits until a client starts it again, or destroys it. A start that fails leaves it stopped.

use shared_protocol::ShellName;
use shared_protocol::runner::{RestoreRequest, SandboxState};
use tokio::time::timeout;
use tracing::{info, warn};

use super::create::{CANCEL_GRACE, CREATE_TIMEOUT, CREATE_TURN_TIMEOUT};
use super::keep::KeepAsked;
use super::{Driver, Gone};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::{Origin, Purpose, Sandbox, SandboxSpec};
use crate::session::{EndReason, Phase, SessionError};
use crate::spec::Variables;

/// The crash reason of a stopped session whose disk is not there.
const DISK_IS_GONE: &str = "its disk was gone when the daemon came back";

impl Driver {
    /// Takes over a session that an earlier daemon stopped, and waits until it is started.
    pub(super) async fn adopt_stopped(&mut self) -> Result<Sandbox, Gone> {
        let permit = self.permits.acquire().await;
        let has_disk = self.end_processes().await;
        drop(permit);
        if !has_disk {
            return Err(Gone::Over(EndReason::Crashed(DISK_IS_GONE.into())));
        }
        failpoint::pass("recover.stopped");
        self.shared.set_phase(Phase::Stopped);
        self.wait_for_start().await.map_err(Gone::Over)
    }

    /// Waits until the session is started, or over.
    pub(super) async fn wait_for_start(&mut self) -> Result<Sandbox, EndReason> {
        loop {
            let asked = tokio::select! {
                biased;
                () = self.shared.destroy_asked.notified() => return Err(EndReason::Destroyed),
                Some(asked) = self.requests.keeps.recv() => asked,
            };
            match asked {
                KeepAsked::Start { done } => {
                    self.shared.set_phase(Phase::Creating);
                    let starting = self.start_again();
                    tokio::pin!(starting);
                    let started = tokio::select! {
                        biased;
                        () = self.shared.destroy_asked.notified() => {
                            self.shared.set_phase(Phase::Ending(EndReason::Destroyed));
                            // The result does not matter, because the sandbox is removed in any case.
                            let _ = timeout(CANCEL_GRACE, &mut starting).await;
                            return Err(EndReason::Destroyed);
                        }
                        started = &mut starting => started,
                    };
                    match started {
                        Ok(sandbox) => {
                            let _ = done.send(Ok(()));
                            return Ok(sandbox);
                        }
                        Err(error) => {
                            let _ = self.end_processes().await;
                            self.shared.set_phase(Phase::Stopped);
                            let _ = done.send(Err(error));
                        }
                    }
                }
                // Nothing writes to its disk.
                KeepAsked::Snapshot { id, state, done } => drop(done.send(self.copy(&id, state).await)),
                // It is stopped, which is what was asked for.
                KeepAsked::Stop { done, .. } => drop(done.send(Ok(()))),
            }
        }
    }

    /// Makes the sandbox on its old disk. Until that is stored, the session counts as stopped.
    async fn start_again(&self) -> Result<Sandbox, SessionError> {
        let refused = |gone: Gone| match gone {
            Gone::Failed(error) => error,
            Gone::Over(_) | Gone::HandedOver => SessionError::NotFound(self.id.clone()),
        };
        let workspace = match &self.workspace {
            Some(workspace) => Some(workspace.prepare(self.reach()).await?),
            None => None,
        };
        let spec = SandboxSpec {
            id: self.id.clone(),
            session: self.shared.facts.spec.clone(),
            workspace,
            awaits_workspace: false,
            // The state of the shells has them.
            env: Variables::default(),
            authority: None,
            purpose: Purpose::Session,
            origin: Origin::Stopped,
        };
        let spec = self.with_authority(spec).await.map_err(refused)?;
        let permit = timeout(CREATE_TURN_TIMEOUT, self.permits.acquire()).await;
        let late = |step: &str, after: std::time::Duration| {
            SessionError::Internal(format!("{step} within {} s; the session is still stopped", after.as_secs()))
        };
        let permit = permit.map_err(|_| late("too many sessions are being created: no turn", CREATE_TURN_TIMEOUT))?;
        failpoint::pass("start.turn");
        let mut sandbox = match timeout(CREATE_TIMEOUT, self.runtime.create(&spec)).await {
            Ok(made) => made.map_err(|error| {
                warn!(session_id = %self.id, step = "start", cause = %SessionError::chain(&error), "session stays stopped");
                SessionError::from(error)
            })?,
            Err(_) => return Err(late("the sandbox was not there", CREATE_TIMEOUT)),
        };
        // The runner's answer may take long, and says nothing about how busy the host is.
        drop(permit);
        failpoint::pass("start.made");
        self.set_ready(&mut sandbox, Variables::default()).await?;
        self.runtime.started_again(&self.id).await;
        info!(session_id = %self.id, "session is started again");
        Ok(sandbox)
    }

    /// Opens the shells of a sandbox whose disk is not empty.
    pub(super) async fn restore(
        &self,
        runner: &RunnerClient,
        state: Option<Box<SandboxState>>,
        env: Variables,
    ) -> Result<(), SessionError> {
        let Some(state) = state else { return Ok(()) };
        if let Some(main) = state.shells.iter().find(|shell| shell.name == ShellName::main()) {
            self.shared.set_cwd(&main.cwd);
        }
        let request = RestoreRequest { state: *state, env: env.0 };
        runner.restore(&request).await.map_err(|error| {
            let cause = SessionError::chain(&error);
            warn!(session_id = %self.id, step = "restore", %cause, "session failed");
            SessionError::Internal(format!("the shells could not be restored: {cause}"))
        })
    }
}
