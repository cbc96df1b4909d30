//! The task that keeps one pool at its size: it starts missing sandboxes, a few at a time, and checks the waiting ones.

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

use super::idle_pools::{IdlePool, PoolKey};
use super::policy::PoolStep;
use super::{FillingSandbox, PooledSandbox};
use crate::runner_client::RunnerClient;
use crate::session::{Registry, SessionError};

/// The time between two checks of the waiting sandboxes.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// The longest wait for a sandbox's answer to a check. A host under full load takes long; a stopped runner never answers.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The most sandboxes that are checked at the same time.
const MAX_CONCURRENT_CHECKS: usize = 16;

pub struct Filler {
    registry: Registry,
    key: PoolKey,
    changed: Arc<Notify>,
}

/// The result of starting a sandbox.
struct Started {
    id: SessionId,
    took: Duration,
    result: Result<PooledSandbox, SessionError>,
}

type Starting = Pin<Box<dyn Future<Output = Started> + Send>>;
type Checking = Pin<Box<dyn Future<Output = Vec<SessionId>> + Send>>;

impl Filler {
    pub fn new(registry: Registry, key: PoolKey, changed: Arc<Notify>) -> Self {
        Self { registry, key, changed }
    }

    /// Keeps the pool filled until the pool is closed and empty.
    pub async fn run(self) {
        let mut starting: FuturesUnordered<Starting> = FuturesUnordered::new();
        let mut checking: Option<Checking> = None;
        let mut checks = interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if starting.is_empty() && self.registry.idle_pools().remove_if_over(&self.key) {
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
                    sick.iter().for_each(|id| self.registry.idle_pools().discard(id));
                }
            }
        }
    }

    /// Starts missing sandboxes, or removes surplus ones. Returns the time to look again.
    fn fill(&self, starting: &FuturesUnordered<Starting>) -> Option<Instant> {
        let (step, again_at, template) = {
            let mut pools = self.registry.idle_pools();
            let pool = pools.get_mut(&self.key)?;
            let (step, again_at) = pool.next_step(Instant::now());
            if let PoolStep::Remove(count) = step {
                pool.drop_youngest(count);
            }
            (step, again_at, pool.template.clone())
        };
        let PoolStep::Fill(count) = step else { return again_at };
        for _ in 0..count {
            match self.registry.start_pooled(&template) {
                Ok(filling) => {
                    if let Some(pool) = self.registry.idle_pools().get_mut(&self.key) {
                        pool.filling(filling.handle.clone(), filling.demand);
                    }
                    starting.push(Box::pin(start(filling)));
                }
                Err(error) => {
                    self.not_started(None, error);
                    break;
                }
            }
        }
        let pools = self.registry.idle_pools();
        pools.get(&self.key).and_then(|pool| pool.next_step(Instant::now()).1)
    }

    fn started(&self, started: Started) {
        let Started { id, took, result } = started;
        match result {
            Ok(pooled) => {
                self.registry.metrics().pool_filled(&self.key.image, took.as_secs_f64());
                if let Some(pool) = self.registry.idle_pools().get_mut(&self.key) {
                    pool.filled(pooled);
                }
            }
            Err(error) => self.not_started(Some(&id), error),
        }
    }

    fn not_started(&self, id: Option<&SessionId>, error: SessionError) {
        let mut pools = self.registry.idle_pools();
        let Some(pool) = pools.get_mut(&self.key) else { return };
        match (error, id) {
            // The sandbox was evicted, and a session has its place now.
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

    /// Checks all waiting sandboxes, and returns the ids of those that do not work.
    fn check(&self) -> Checking {
        let waiting = self.registry.idle_pools().get(&self.key).map(IdlePool::runners).unwrap_or_default();
        let image = self.key.image.clone();
        Box::pin(async move {
            let asked = waiting.into_iter().map(|(id, runner)| async move {
                let problem = health_problem(&runner).await;
                problem.map(|cause| (id, cause))
            });
            let found: Vec<_> =
                futures_util::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_CHECKS).collect().await;
            let found = found.into_iter().flatten();
            found
                .map(|(id, cause)| {
                    info!(session_id = %id, %image, %cause, "pooled sandbox does not work");
                    id
                })
                .collect()
        })
    }
}

async fn start(filling: FillingSandbox) -> Started {
    let begun = Instant::now();
    let FillingSandbox { handle, demand, hand_over } = filling;
    let id = handle.id().clone();
    let result = match handle.pooled().await {
        // After this check, a connection is already open when a session claims the sandbox.
        Ok(runner) => match health_problem(&runner).await {
            None => Ok(PooledSandbox { handle, demand, runner, hand_over }),
            Some(reason) => Err(SessionError::Lost { id: id.clone(), reason }),
        },
        Err(error) => Err(error),
    };
    Started { id, took: begun.elapsed(), result }
}

/// The reason why a waiting sandbox cannot be claimed, if there is one.
pub async fn health_problem(runner: &RunnerClient) -> Option<String> {
    match timeout(CHECK_TIMEOUT, runner.health()).await {
        Ok(Ok(health)) if health.claimed => Some("it was claimed before".into()),
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {} s", CHECK_TIMEOUT.as_secs())),
    }
}
