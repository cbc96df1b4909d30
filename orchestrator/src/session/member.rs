//! Members of pools: a sandbox that is nobody's yet, and how it becomes a session's.
//!
//! A member's driver keeps the sandbox until it is told to whom it goes. Then it hands the sandbox over, by value, and ends; from
//! there on it is the driver of the session that has it. What is promised is kept: even a sandbox that has just ended is handed over,
//! and whoever gets it finds out and makes another in its place. So there is never a moment with two owners, or with none.

use std::time::Duration;

use shared_protocol::api::{AcquireSource, SessionStatus};
use shared_protocol::runner::ClaimRequest;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::admission::Ask;
use super::driver::{Driver, NotThere, UNSEEN_END};
use super::{End, Phase, SessionError, SessionHandle};
use crate::failpoint;
use crate::metrics::{Metrics, PoolResult};
use crate::runner_client::RunnerClient;
use crate::runtime::{Sandbox, SandboxSpec};
use crate::store::SessionRow;

/// For the runner's answer to a claim: that it comes is how we know that the member lives.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells a member's driver to whom the sandbox goes. Dropped, the sandbox is removed.
pub(crate) type GiveTo = oneshot::Sender<oneshot::Sender<Sandbox>>;

/// A member that is being started.
pub(crate) struct NewMember {
    pub handle: SessionHandle,
    pub ask: Ask,
    pub give: GiveTo,
}

/// What a member's driver finds.
pub(crate) enum MemberBeginning {
    Fill {
        spec: Box<SandboxSpec>,
        row: Box<SessionRow>,
    },
    /// One of an earlier daemon.
    Adopt,
}

/// What a session's driver is given that claims a member.
pub(crate) struct Claim {
    /// With all that the session asked for: the claim gives what is missing, and without a member all of it is made.
    pub spec: Box<SandboxSpec>,
    pub row: Box<SessionRow>,
    pub sandbox: oneshot::Receiver<Sandbox>,
    pub runner: RunnerClient,
    pub metrics: Metrics,
}

enum Kept {
    Given,
    Over(End),
}

impl Driver {
    /// Until the sandbox is somebody's, or gone.
    pub async fn run_member(
        self,
        beginning: MemberBeginning,
        given: oneshot::Receiver<oneshot::Sender<Sandbox>>,
        before_end: impl FnOnce(&Phase),
    ) {
        let there = match beginning {
            MemberBeginning::Fill { spec, row } => self.fill(&spec, *row).await,
            MemberBeginning::Adopt => self.adopt(Phase::Pooled).await,
        };
        let kept = match there {
            Ok(sandbox) => self.keep(sandbox, given).await,
            Err(NotThere::Over(end)) => Kept::Over(end),
            Err(NotThere::Failed(error)) => {
                let last = Phase::Failed(error);
                before_end(&last);
                return self.shared.set_phase(last);
            }
        };
        let last = match kept {
            Kept::Given => return self.shared.set_phase(Phase::Ended(End::Destroyed)),
            Kept::Over(end) => self.remove_member(&end).await,
        };
        before_end(&last);
        self.shared.set_phase(last);
    }

    async fn fill(&self, spec: &SandboxSpec, row: SessionRow) -> Result<Sandbox, NotThere> {
        self.ledger.intend(row).await.map_err(NotThere::Failed)?;
        failpoint::pass("pool.intended");
        let failed = match self.make(spec).await {
            Ok(sandbox) => {
                failpoint::pass("pool.made");
                match self.ledger.pool_idle().await {
                    Ok(()) => {
                        failpoint::pass("pool.idle");
                        self.shared.set_pooled(RunnerClient::new(sandbox.address.clone()));
                        return Ok(sandbox);
                    }
                    Err(error) => {
                        self.remove_sandbox().await;
                        NotThere::Failed(error)
                    }
                }
            }
            Err(failed) => failed,
        };
        if let NotThere::Failed(_) = failed {
            self.ledger.forget().await;
        }
        Err(failed)
    }

    async fn keep(&self, mut sandbox: Sandbox, mut given: oneshot::Receiver<oneshot::Sender<Sandbox>>) -> Kept {
        let end = tokio::select! {
            biased;
            to = &mut given => match to {
                Ok(to) => return self.hand_over(sandbox, to),
                Err(_) => return Kept::Over(End::Destroyed),
            },
            ended = &mut sandbox.ended => End::Crashed(ended.unwrap_or_else(|_| UNSEEN_END.into())),
            () = self.shared.destroy_asked.notified() => End::Destroyed,
        };
        // It may have been promised in the same moment.
        given.close();
        match given.try_recv() {
            Ok(to) => self.hand_over(sandbox, to),
            Err(_) => Kept::Over(end),
        }
    }

    fn hand_over(&self, sandbox: Sandbox, to: oneshot::Sender<Sandbox>) -> Kept {
        match to.send(sandbox) {
            Ok(()) => Kept::Given,
            Err(_) => Kept::Over(End::Destroyed),
        }
    }

    /// It never was anybody's: nothing of it is remembered.
    async fn remove_member(&self, end: &End) -> Phase {
        if let End::Crashed(cause) = end {
            warn!(session_id = %self.id, %cause, "pool member ended");
        }
        self.ledger.destroying(end).await;
        failpoint::pass("pool.discarding");
        if self.remove_sandbox().await {
            self.ledger.forget().await;
        }
        Phase::Failed(SessionError::NotFound(self.id.clone()))
    }

    /// Makes a member this session's. One that turns out to be dead is removed, and another made in its place, under the same id.
    pub(super) async fn claim(&self, claim: Claim) -> Result<Sandbox, NotThere> {
        let Claim { spec, mut row, sandbox, runner, metrics } = claim;
        let taken = match sandbox.await {
            Ok(sandbox) => self.take(sandbox, &spec, &mut row, &runner).await,
            Err(_) => Err("its driver has ended".to_owned()),
        };
        let cause = match taken {
            Ok(sandbox) => {
                self.shared.set_running(runner);
                info!(session_id = %self.id, image = %spec.image, runtime = %self.shared.facts.runtime, "session runs, from a pool");
                return Ok(sandbox);
            }
            Err(cause) => cause,
        };
        warn!(session_id = %self.id, step = "claim", %cause, "pool member cannot be used, making a sandbox instead");
        metrics.pool_claim(&spec.image, PoolResult::Dead);
        if !self.remove_sandbox().await {
            return Err(NotThere::Failed(SessionError::Internal(format!("a pool member could not be used: {cause}"))));
        }
        self.shared.set_source(AcquireSource::Cold);
        row.facts.source = AcquireSource::Cold;
        row.status = SessionStatus::Creating;
        self.ledger.forget().await;
        self.create(&spec, *row).await
    }

    async fn take(
        &self,
        mut sandbox: Sandbox,
        spec: &SandboxSpec,
        row: &mut SessionRow,
        runner: &RunnerClient,
    ) -> Result<Sandbox, String> {
        failpoint::pass("claim.given");
        match sandbox.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            ended => return Err(ended.unwrap_or_else(|_| UNSEEN_END.into())),
        }
        if let Some(workspace) = &spec.workspace {
            // Written down first: from then on it is not to be given to anybody else, whatever happens.
            row.status = SessionStatus::Creating;
            self.ledger.claim(row.clone()).await.map_err(|error| error.to_string())?;
            failpoint::pass("claim.intended");
            let given = self.runtime.give_workspace(&self.id, workspace).await;
            given.map_err(|error| SessionError::chain(&error))?;
            failpoint::pass("claim.workspace");
        }
        let request = ClaimRequest { env: spec.env.clone() };
        match timeout(CLAIM_TIMEOUT, runner.claim(&request)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer within {} s", CLAIM_TIMEOUT.as_secs())),
        }
        failpoint::pass("claim.claimed");
        // The runner lets itself be claimed once. A daemon that dies here leaves a member that says so, which nobody gets.
        let written = match spec.workspace {
            Some(_) => self.ledger.running().await,
            None => {
                row.status = SessionStatus::Running;
                self.ledger.claim(row.clone()).await
            }
        };
        written.map_err(|error| error.to_string())?;
        failpoint::pass("claim.running");
        Ok(sandbox)
    }
}

impl SessionHandle {
    /// Waits until it waits in a pool, which the driver bounds.
    pub(crate) async fn pooled(&self) -> Result<RunnerClient, SessionError> {
        let mut phases = self.0.watch();
        let over = match phases.wait_for(|phase| *phase != Phase::Filling).await {
            Ok(phase) => phase.refusal(self.id()),
            Err(_) => None,
        };
        self.0.pooled_runner().ok_or_else(|| over.unwrap_or_else(|| SessionError::NotFound(self.id().clone())))
    }
}
