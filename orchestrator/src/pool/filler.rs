//! The one task that keeps a pool at its size: starts what is missing, a few at once, and looks after those that wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use shared_protocol::SessionId;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tracing::{info, warn};

use super::policy::Step;
use super::{Member, PoolKey};
use crate::runner_client::RunnerClient;
use crate::session::{NewMember, Registry, SessionError};

/// How often those that wait are asked whether they are well.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// For the answer. A host under full load takes long; a runner that is stopped takes for ever.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Members that are asked at the same moment.
const MAX_CONCURRENT_CHECKS: usize = 16;

pub struct Filler {
    registry: Registry,
    key: PoolKey,
    changed: Arc<Notify>,
}

/// What became of a member that was started.
struct Started {
    id: SessionId,
    took: Duration,
    result: Result<Member, SessionError>,
}

type Starting = Pin<Box<dyn Future<Output = Started> + Send>>;
type Checking = Pin<Box<dyn Future<Output = Vec<SessionId>> + Send>>;

impl Filler {
    pub fn new(registry: Registry, key: PoolKey, changed: Arc<Notify>) -> Self {
        Self { registry, key, changed }
    }

    /// Until the pool is to be no more and is empty.
    pub async fn run(self) {
        let mut starting: FuturesUnordered<Starting> = FuturesUnordered::new();
        let mut checking: Option<Checking> = None;
        let mut checks = interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if starting.is_empty() && self.registry.shelf().remove_if_over(&self.key) {
                return;
            }
            let again_at = self.fill(&starting);
            tokio::select! {
                () = self.changed.notified() => {}
                Some(started) = starting.next(), if !starting.is_empty() => self.started(started),
                () = sleep_until(again_at.unwrap_or_else(Instant::now)), if again_at.is_some() => {}
                _ = checks.tick(), if checking.is_none() => checking = Some(self.check()),
                sick = async { match checking.as_mut() {
                    Some(checking) => checking.await,
                    None => std::future::pending().await,
                } } => {
                    checking = None;
                    sick.iter().for_each(|id| self.registry.shelf().give_up(id));
                }
            }
        }
    }

    /// Starts what is missing, or gives up what is too much. Says when to look again.
    fn fill(&self, starting: &FuturesUnordered<Starting>) -> Option<Instant> {
        let (step, again_at, template) = {
            let mut shelf = self.registry.shelf();
            let pool = shelf.get_mut(&self.key)?;
            let (step, again_at) = pool.next_step(Instant::now());
            if let Step::Shed(count) = step {
                pool.shed(count);
            }
            (step, again_at, pool.template.clone())
        };
        let Step::Fill(count) = step else { return again_at };
        for _ in 0..count {
            match self.registry.start_member(&template) {
                Ok(member) => {
                    if let Some(pool) = self.registry.shelf().get_mut(&self.key) {
                        pool.filling(member.handle.clone(), member.ask);
                    }
                    starting.push(Box::pin(start(member)));
                }
                Err(error) => {
                    self.not_started(None, error);
                    break;
                }
            }
        }
        let shelf = self.registry.shelf();
        shelf.get(&self.key).and_then(|pool| pool.next_step(Instant::now()).1)
    }

    fn started(&self, started: Started) {
        let Started { id, took, result } = started;
        match result {
            Ok(member) => {
                self.registry.metrics().pool_filled(&self.key.image, took.as_secs_f64());
                if let Some(pool) = self.registry.shelf().get_mut(&self.key) {
                    pool.filled(member);
                }
            }
            Err(error) => self.not_started(Some(&id), error),
        }
    }

    fn not_started(&self, id: Option<&SessionId>, error: SessionError) {
        let mut shelf = self.registry.shelf();
        let Some(pool) = shelf.get_mut(&self.key) else { return };
        match (error, id) {
            // Given up for a session, which has its place now.
            (SessionError::NotFound(_), Some(id)) => pool.not_wanted(id),
            (SessionError::Limit { message, .. }, None) => pool.no_room(message),
            (error, id) => {
                let (image, cause) = (&self.key.image, error.to_string());
                warn!(%image, runtime = %self.key.runtime, %cause, "pool is not filled");
                self.registry.metrics().pool_not_filled(image);
                pool.not_filled(id, cause, Instant::now());
            }
        }
    }

    /// Asks all that wait whether they are well. Which are not?
    fn check(&self) -> Checking {
        let waiting = self.registry.shelf().get(&self.key).map(super::shelf::Pool::runners).unwrap_or_default();
        let image = self.key.image.clone();
        Box::pin(async move {
            let asked = waiting.into_iter().map(|(id, runner)| async move {
                let sick = illness(&runner).await;
                sick.map(|cause| (id, cause))
            });
            let found: Vec<_> =
                futures_util::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_CHECKS).collect().await;
            let found = found.into_iter().flatten();
            found
                .map(|(id, cause)| {
                    info!(session_id = %id, %image, %cause, "pool member is not well");
                    id
                })
                .collect()
        })
    }
}

async fn start(member: NewMember) -> Started {
    let begun = Instant::now();
    let NewMember { handle, ask, give } = member;
    let id = handle.id().clone();
    let result = match handle.pooled().await {
        // Asked once: then a line to it is open when somebody claims it.
        Ok(runner) => match illness(&runner).await {
            None => Ok(Member { handle, ask, runner, give }),
            Some(reason) => Err(SessionError::Lost { id: id.clone(), reason }),
        },
        Err(error) => Err(error),
    };
    Started { id, took: begun.elapsed(), result }
}

/// Why a sandbox that waits cannot be given to anybody.
pub async fn illness(runner: &RunnerClient) -> Option<String> {
    match timeout(CHECK_TIMEOUT, runner.health()).await {
        Ok(Ok(health)) if health.claimed => Some("it was claimed before".into()),
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {} s", CHECK_TIMEOUT.as_secs())),
    }
}
