//! Turns a pooled sandbox into a session's sandbox: the pooled sandbox's driver passes it by value to this session's driver.

use std::time::Duration;

use shared_protocol::api::{AcquireSource, SessionStatus};
use shared_protocol::runner::ClaimRequest;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Creation, Driver, Gone, UNSEEN_END};
use crate::failpoint;
use crate::metrics::{Metrics, PoolResult};
use crate::runner_client::RunnerClient;
use crate::runtime::{Sandbox, SandboxSpec};
use crate::session::SessionError;
use crate::store::SessionRow;

/// The longest wait for the runner's answer to a claim. The answer shows that the sandbox works.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// What a session's driver needs to claim a pooled sandbox.
pub struct Claim {
    /// Everything that the session asked for. The claim sets what the pooled sandbox lacks; if the claim fails, all of it is
    /// created.
    pub creation: Creation,
    pub sandbox: oneshot::Receiver<Sandbox>,
    pub runner: RunnerClient,
    pub metrics: Metrics,
}

/// Why a pooled sandbox was not claimed.
enum NotTaken {
    /// This sandbox does not work. A new one may.
    Unusable(String),
    /// The session itself is over, or cannot have its workspace. A new sandbox changes nothing.
    Gone(Gone),
}

impl Driver {
    /// Claims a pooled sandbox for this session. If the sandbox turns out to be dead, it is removed, and a new one is
    /// created under the same id.
    pub(super) async fn claim(&self, claim: Claim) -> Result<Sandbox, Gone> {
        let Claim { creation, sandbox, runner, metrics } = claim;
        let Creation { sandbox: spec, mut row, .. } = creation;
        // This comes first: until the sandbox is handed over, its own driver could still remove it under this session's id.
        let taken = match sandbox.await {
            Ok(sandbox) => self.take(sandbox, &spec, &mut row, &runner).await,
            Err(_) => Err(NotTaken::Unusable("its driver has ended".to_owned())),
        };
        let session = &spec.session;
        let cause = match taken {
            Ok(sandbox) => {
                self.note_network(&sandbox);
                self.note_start_dir(&sandbox);
                self.shared.set_running(runner);
                info!(session_id = %self.id, image = %session.image, runtime = %session.runtime, "session runs, from a pool");
                return Ok(sandbox);
            }
            Err(NotTaken::Unusable(cause)) => cause,
            Err(NotTaken::Gone(gone)) => {
                if let Gone::Failed(_) = gone {
                    self.remove_sandbox().await;
                    self.record.forget().await;
                }
                return Err(gone);
            }
        };
        warn!(session_id = %self.id, step = "claim", %cause, "pooled sandbox cannot be used, making another instead");
        metrics.pool_claim(&session.image, PoolResult::Dead);
        if !self.remove_sandbox().await {
            return Err(Gone::Failed(SessionError::Internal(format!("a pooled sandbox could not be used: {cause}"))));
        }
        self.shared.set_source(AcquireSource::Cold);
        row.source = AcquireSource::Cold;
        row.status = SessionStatus::Creating;
        self.record.forget().await;
        self.create(Creation { sandbox: spec, row, restored: None }).await
    }

    async fn take(
        &self,
        mut sandbox: Sandbox,
        spec: &SandboxSpec,
        row: &mut SessionRow,
        runner: &RunnerClient,
    ) -> Result<Sandbox, NotTaken> {
        failpoint::pass("claim.given");
        match sandbox.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            ended => return Err(NotTaken::Unusable(ended.unwrap_or_else(|_| UNSEEN_END.into()))),
        }
        if self.workspace.is_some() {
            // The claim is stored first: from then on no other session gets the sandbox, whatever happens.
            row.status = SessionStatus::Creating;
            // The workspace is prepared meanwhile: it is the workspace's and not the sandbox's, so their order does not matter.
            let (stored, prepared) = tokio::join!(self.record.claim(row.clone()), self.prepare_workspace());
            let prepared = prepared.map_err(NotTaken::Gone)?;
            stored.map_err(unusable)?;
            failpoint::pass("claim.intended");
            if let Some(workspace) = prepared {
                let mounted = self.runtime.mount_workspace(&self.id, &workspace).await;
                mounted.map_err(|error| NotTaken::Unusable(SessionError::chain(&error)))?;
            }
            failpoint::pass("claim.workspace");
        }
        let request = ClaimRequest { env: spec.env.0.clone() };
        match timeout(CLAIM_TIMEOUT, runner.claim(&request)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(unusable(error)),
            Err(_) => return Err(NotTaken::Unusable(format!("no answer within {} s", CLAIM_TIMEOUT.as_secs()))),
        }
        failpoint::pass("claim.claimed");
        // A runner accepts one claim. If the daemon dies here, it leaves a claimed sandbox, which no session gets.
        let written = match self.workspace {
            Some(_) => self.record.running().await,
            None => {
                row.status = SessionStatus::Running;
                self.record.claim(row.clone()).await
            }
        };
        written.map_err(unusable)?;
        failpoint::pass("claim.running");
        Ok(sandbox)
    }
}

fn unusable(error: impl std::fmt::Display) -> NotTaken {
    NotTaken::Unusable(error.to_string())
}
