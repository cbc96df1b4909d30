//! Creates a sandbox, for a session or for a pool, in the same steps. Each step is stored before it is taken.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Creation, Driver, Gone, Restored, Role, UNSEEN_END};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::{RuntimeError, Sandbox, SandboxSpec, WorkspaceMount};
use crate::session::{EndReason, Phase, SessionError};
use crate::spec::Variables;
use crate::workspace::Reach;

/// The longest time to create a sandbox, counted from its turn.
pub(super) const CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time that a create waits for its turn.
pub(super) const CREATE_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a create that is no longer wanted may continue: a create that ends by itself leaves less behind than one that is
/// cut off.
pub(super) const CANCEL_GRACE: Duration = Duration::from_millis(500);

enum CreateError {
    Refused(SessionError),
    Runtime(RuntimeError),
    TimedOut,
}

impl Driver {
    pub(super) async fn create(&self, creation: Creation) -> Result<Sandbox, Gone> {
        let Creation { sandbox: spec, row, restored } = creation;
        if let Role::Session = self.role {
            failpoint::pass("create.admitted");
        }
        self.record.intend(row).await.map_err(Gone::Failed)?;
        match self.role {
            Role::Session => failpoint::pass("create.intended"),
            Role::Pooled(_) => failpoint::pass("pool.intended"),
        }
        let created = self.create_intended(&spec, restored).await;
        if let Err(Gone::Failed(_)) = created {
            if spec.session.inject.is_some() {
                self.shared.network.remove_authority().await;
            }
            self.record.forget().await;
        }
        created
    }

    async fn create_intended(&self, spec: &SandboxSpec, restored: Option<Restored>) -> Result<Sandbox, Gone> {
        // This happens before the create takes a turn: a stuck disk must not delay creates that do not need it.
        let workspace = self.prepare_workspace().await?;
        let spec = &self.with_authority(SandboxSpec { workspace, ..spec.clone() }).await?;
        let mut sandbox = self.make(spec).await?;
        let env = match restored {
            Some(Restored { env, hold }) => {
                // The sandbox has its own copy now.
                drop(hold);
                env
            }
            None => Variables::default(),
        };
        if let Err(error) = self.set_ready(&mut sandbox, env).await {
            self.remove_sandbox().await;
            return Err(Gone::Failed(error));
        }
        Ok(sandbox)
    }

    /// Makes the certificate authority of a session with injected headers. The sandbox's removal removes it.
    pub(super) async fn with_authority(&self, mut spec: SandboxSpec) -> Result<SandboxSpec, Gone> {
        if spec.session.inject.is_some() {
            let made = self.shared.network.make_authority().await.map_err(|error| {
                let cause = SessionError::chain(&error);
                warn!(session_id = %self.id, step = "authority", %cause, "session failed");
                Gone::Failed(SessionError::Internal(cause))
            })?;
            spec.authority = Some(made.certificate().to_owned());
        }
        Ok(spec)
    }

    /// Prepares the session's workspace, if it has one, which takes as long as the disk does. A destroy does not wait for it.
    pub(super) async fn prepare_workspace(&self) -> Result<Option<WorkspaceMount>, Gone> {
        let Some(workspace) = &self.workspace else { return Ok(None) };
        tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => {
                self.shared.set_phase(Phase::Ending(EndReason::Destroyed));
                Err(Gone::Over(EndReason::Destroyed))
            }
            prepared = workspace.prepare(self.reach()) => prepared.map(Some).map_err(|cause| {
                warn!(session_id = %self.id, step = "workspace", %cause, "session failed");
                Gone::Failed(cause.into())
            }),
        }
    }

    /// Which workspaces the session's runtime can mount.
    pub(super) fn reach(&self) -> Reach {
        if self.runtime.workspace_disks().is_some() { Reach::Disks } else { Reach::Paths }
    }

    /// Creates the sandbox. If that fails, nothing is left of it.
    async fn make(&self, spec: &SandboxSpec) -> Result<Sandbox, Gone> {
        let id = self.id.clone();
        let making = async {
            let permit = timeout(CREATE_TURN_TIMEOUT, self.permits.acquire()).await;
            let _permit = permit.ok().and_then(Result::ok).ok_or_else(too_many_creates)?;
            failpoint::pass("create.turn");
            match timeout(CREATE_TIMEOUT, self.runtime.create(spec)).await {
                Ok(made) => made.map_err(CreateError::Runtime),
                Err(_) => Err(CreateError::TimedOut),
            }
        };
        tokio::pin!(making);
        let made = tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => {
                self.shared.set_phase(Phase::Ending(EndReason::Destroyed));
                // The result does not matter, because the sandbox is removed in any case.
                let _ = timeout(CANCEL_GRACE, &mut making).await;
                return Err(Gone::Over(EndReason::Destroyed));
            }
            made = &mut making => made,
        };
        let mut sandbox = match made {
            Ok(sandbox) => sandbox,
            Err(CreateError::Refused(error)) => return Err(Gone::Failed(error)),
            Err(CreateError::Runtime(error)) => {
                let cause = SessionError::chain(&error);
                warn!(session_id = %id, step = "create", %cause, "session failed");
                return Err(Gone::Failed(error.into()));
            }
            Err(CreateError::TimedOut) => {
                warn!(session_id = %id, step = "create", cause = "timed out", "session failed");
                self.remove_sandbox().await;
                let message = format!("the sandbox was not there after {} s", CREATE_TIMEOUT.as_secs());
                return Err(Gone::Failed(SessionError::Internal(message)));
            }
        };
        // The sandbox may have ended before anybody could use it; then the create has failed.
        match sandbox.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            ended => {
                let reason = ended.unwrap_or_else(|_| UNSEEN_END.into());
                warn!(session_id = %id, step = "create", cause = %reason, "session failed");
                self.remove_sandbox().await;
                return Err(Gone::Failed(SessionError::Lost { id, reason }));
            }
        }
        Ok(sandbox)
    }

    /// Stores that the sandbox exists, and makes it visible to others.
    pub(super) async fn set_ready(&self, sandbox: &mut Sandbox, env: Variables) -> Result<(), SessionError> {
        let runner = RunnerClient::new(sandbox.address.clone());
        self.note_network(sandbox);
        self.note_start_dir(sandbox);
        let mut newer = std::mem::take(&mut sandbox.newer_variables);
        newer.extend(env.0);
        self.restore(&runner, sandbox.state.take(), Variables(newer)).await?;
        match self.role {
            Role::Session => {
                failpoint::pass("create.made");
                self.record.running().await?;
                failpoint::pass("create.running");
                self.shared.set_running(runner);
                let spec = &self.shared.facts.spec;
                info!(session_id = %self.id, image = %spec.image, runtime = %spec.runtime, "session runs");
            }
            Role::Pooled(_) => {
                failpoint::pass("pool.made");
                self.record.pool_idle().await?;
                failpoint::pass("pool.idle");
                self.shared.set_pooled(runner);
            }
        }
        Ok(())
    }
}

fn too_many_creates() -> CreateError {
    CreateError::Refused(SessionError::Limit {
        message: format!("too many sessions are being created: no turn within {} s", CREATE_TURN_TIMEOUT.as_secs()),
        details: serde_json::json!({ "what": "concurrent creates" }),
    })
}
