//! Creates a sandbox, for a session or for a pool, in the same steps. Each step is stored before it is taken.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Creation, Driver, Gone, Role, UNSEEN_END};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::{RuntimeError, Sandbox, SandboxSpec};
use crate::session::{EndReason, Phase, SessionError};

/// The longest time to create a sandbox, counted from its turn.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time that a create waits for its turn.
const CREATE_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a create that is no longer wanted may continue: a create that ends by itself leaves less behind than one that is
/// cut off.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

enum CreateError {
    Refused(SessionError),
    Runtime(RuntimeError),
    TimedOut,
}

impl Driver {
    pub(super) async fn create(&self, creation: Creation) -> Result<Sandbox, Gone> {
        let Creation { sandbox: spec, row } = creation;
        if let Role::Session = self.role {
            failpoint::pass("create.admitted");
        }
        self.record.intend(row).await.map_err(Gone::Failed)?;
        match self.role {
            Role::Session => failpoint::pass("create.intended"),
            Role::Pooled(_) => failpoint::pass("pool.intended"),
        }
        let created = self.create_intended(&spec).await;
        if let Err(Gone::Failed(_)) = created {
            self.record.forget().await;
        }
        created
    }

    async fn create_intended(&self, spec: &SandboxSpec) -> Result<Sandbox, Gone> {
        // This happens before the create takes a turn: a stuck disk must not delay creates that do not need it.
        self.prepare_workspace().await?;
        let sandbox = self.make(spec).await?;
        if let Err(error) = self.set_ready(&sandbox).await {
            self.remove_sandbox().await;
            return Err(Gone::Failed(error));
        }
        Ok(sandbox)
    }

    /// Prepares the workspace's directory, which takes as long as the disk does. A destroy does not wait for it.
    pub(super) async fn prepare_workspace(&self) -> Result<(), Gone> {
        let Some(workspace) = &self.workspace else { return Ok(()) };
        tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => {
                self.shared.set_phase(Phase::Ending(EndReason::Destroyed));
                Err(Gone::Over(EndReason::Destroyed))
            }
            prepared = workspace.prepare_directory() => prepared.map_err(|cause| {
                warn!(session_id = %self.id, step = "workspace", %cause, "session failed");
                Gone::Failed(cause.into())
            }),
        }
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
    async fn set_ready(&self, sandbox: &Sandbox) -> Result<(), SessionError> {
        let runner = RunnerClient::new(sandbox.address.clone());
        self.note_network(sandbox);
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
