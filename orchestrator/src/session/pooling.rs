//! The registry's side of pools: who may be started ahead, who is given to a create, and who has to make room for one.
//!
//! Decided under the table's lock and then the shelf's, in this order wherever both are held; neither is held over an await.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use shared_protocol::RuntimeName;
use shared_protocol::api::{AcquireSource, CreateSessionRequest, PoolView};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

use super::admission::{Ask, Refusal};
use super::driver::Beginning;
use super::member::{Claim, MemberBeginning, NewMember};
use super::registry::fresh_id;
use super::shared::Facts;
use super::table::{Entry, Table};
use super::{Phase, Plan, Registry, SessionError, SessionHandle};
use crate::config::MAX_POOL_SIZE;
use crate::metrics::{Metrics, PoolResult};
use crate::pool::{Filler, Member, PoolKey, Shelf, Taken, illness, sacrifice};
use crate::runtime::Runtime;
use crate::store::{SessionRow, StoredKey};
use crate::workspace::{User, WorkspaceClaim};

/// For a member of an earlier daemon to be taken over. What takes longer is not worth it.
const ADOPT_PATIENCE: Duration = Duration::from_secs(10);

fn limit(refusal: &Refusal) -> SessionError {
    SessionError::Limit { message: refusal.message(), details: refusal.details() }
}

impl Registry {
    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub fn pools(&self) -> Vec<PoolView> {
        self.shelf().views()
    }

    /// Makes a pool, or changes how many shall wait in it; 0 ends it.
    pub fn set_pool(&self, image: &str, runtime: Option<&RuntimeName>, size: u64) -> Result<PoolView, SessionError> {
        let (key, view, is_known) = self.define_pool(image, runtime, size)?;
        if !is_known {
            self.start_filler(key);
        }
        Ok(view)
    }

    fn define_pool(
        &self,
        image: &str,
        runtime: Option<&RuntimeName>,
        size: u64,
    ) -> Result<(PoolKey, PoolView, bool), SessionError> {
        let size = usize::try_from(size)
            .ok()
            .filter(|_| size <= MAX_POOL_SIZE)
            .ok_or_else(|| SessionError::InvalidRequest(format!("size must be 0 to {MAX_POOL_SIZE}, not {size}")))?;
        let runtime = self.runtime(runtime)?;
        let request = CreateSessionRequest {
            image: Some(image.to_owned()),
            runtime: Some(runtime.name()),
            ..CreateSessionRequest::default()
        };
        // As a create that asks for nothing: what fits it fits the pool.
        let template = Plan::resolve(request, &self.0.config)?;
        if size > 0 {
            let id = fresh_id(|_| false)?;
            runtime.check(&template.spec(id))?;
        }
        let key = PoolKey { image: image.to_owned(), runtime: runtime.name() };
        let mut shelf = self.shelf();
        let is_known = shelf.set(key.clone(), template, runtime.can_give_workspace(), size).map_err(|most| {
            SessionError::Limit {
                message: format!("there are {most} pools already"),
                details: json!({ "what": "pools", "limit": most }),
            }
        })?;
        let view = shelf.get(&key).map(|pool| pool.view(&key));
        let view = view.ok_or_else(|| SessionError::Internal("the pool is gone".into()))?;
        Ok((key, view, is_known))
    }

    fn start_filler(&self, key: PoolKey) {
        let changed: Option<Arc<Notify>> = self.shelf().get(&key).map(|pool| pool.changed.clone());
        if let Some(changed) = changed {
            tokio::spawn(Filler::new(self.clone(), key, changed).run());
        }
    }

    /// Starts a member. It takes a place, and takes it from nobody.
    pub(crate) fn start_member(&self, template: &Plan) -> Result<NewMember, SessionError> {
        let runtime = self.runtime(template.runtime.as_ref())?;
        let ask = Ask::of(&template.resources);
        let mut table = self.table();
        if table.closed {
            let message = "the daemon is stopping".to_owned();
            return Err(SessionError::Limit { message, details: json!({ "what": "stopping" }) });
        }
        let spec = template.spec(fresh_id(|id| table.knows(id))?);
        runtime.check(&spec)?;
        table.admit(&ask).map_err(|refusal| limit(&refusal))?;
        let facts = self.facts(&spec, template, runtime.name(), AcquireSource::Pool);
        let row = facts.to_row(None);
        let beginning = MemberBeginning::Fill { spec: Box::new(spec), row: Box::new(row) };
        let (member, run) = self.member(facts, ask, runtime, self.0.turns.clone(), beginning);
        table.insert(Entry { handle: member.handle.clone(), ask, key: None }, 0);
        drop(table);
        tokio::spawn(run);
        Ok(member)
    }

    fn member(
        &self,
        facts: Facts,
        ask: Ask,
        runtime: Arc<dyn Runtime>,
        turns: Arc<Semaphore>,
        beginning: MemberBeginning,
    ) -> (NewMember, impl Future<Output = ()> + Send + use<>) {
        let (handle, driver) = self.driver(facts, runtime, None, turns);
        handle.0.set_phase(Phase::Filling);
        let (give, given) = oneshot::channel();
        let (registry, id) = (self.clone(), handle.id().clone());
        let run = driver.run_member(beginning, given, move |last| registry.bury(&id, last));
        (NewMember { handle, ask, give }, run)
    }

    /// Gives a member to a create that fits, if one waits: a session that has its place, and from now on its sandbox.
    pub(super) fn claim_member(
        &self,
        table: &mut Table,
        runtime: &Arc<dyn Runtime>,
        plan: &Plan,
        key: Option<&StoredKey>,
    ) -> Result<Option<SessionHandle>, SessionError> {
        let mut shelf = self.shelf();
        loop {
            let member = match shelf.take(&runtime.name(), plan) {
                Taken::Member(member) => *member,
                Taken::Miss => {
                    self.0.metrics.pool_claim(&plan.image, PoolResult::Miss);
                    return Ok(None);
                }
                Taken::NoPool => return Ok(None),
            };
            let id = member.id().clone();
            if table.is_given_up(&id) {
                continue;
            }
            let claim = match &plan.workspace {
                None => None,
                Some(workspace) => match self.0.workspaces.claim(workspace, User::Session(id.clone())) {
                    Ok(claim) => Some(claim),
                    Err(error) => {
                        shelf.put_back(&PoolKey { image: plan.image.clone(), runtime: runtime.name() }, member);
                        return Err(error);
                    }
                },
            };
            let Member { ask, runner, give, .. } = member;
            let (to, sandbox) = oneshot::channel();
            if give.send(to).is_err() {
                // It ended, and its driver is about to say so.
                continue;
            }
            self.0.metrics.pool_claim(&plan.image, PoolResult::Hit);
            let mut spec = plan.spec(id);
            spec.workspace = claim.as_ref().map(WorkspaceClaim::mount);
            let facts = self.facts(&spec, plan, runtime.name(), AcquireSource::Pool);
            let row = facts.to_row(key.cloned());
            let (handle, driver) = self.driver(facts, runtime.clone(), claim, self.0.turns.clone());
            let entry = Entry { handle: handle.clone(), ask, key: key.map(|key| key.key.clone()) };
            // In the member's place.
            table.insert(entry, key.map_or(0, |key| key.fingerprint));
            let metrics = self.0.metrics.clone();
            let claim = Claim { spec: Box::new(spec), row: Box::new(row), sandbox, runner, metrics };
            self.spawn(driver, Beginning::Claim(Box::new(claim)));
            return Ok(Some(handle));
        }
    }

    /// Takes room for a session: where there is none left but for members that wait, from them. Their sandboxes go behind it.
    pub(super) fn make_room(&self, table: &mut Table, ask: &Ask) -> Result<(), SessionError> {
        let Err(refusal) = table.admit(ask) else { return Ok(()) };
        let mut shelf = self.shelf();
        // Tried out first: nobody is given up for a create that is refused all the same.
        let trial = std::cell::RefCell::new(table.admission());
        let given_up = sacrifice(
            shelf.expendable().into_iter().filter(|(id, _)| !table.is_given_up(id)),
            || trial.borrow_mut().admit(ask),
            |(_, ask)| trial.borrow_mut().release(ask),
        );
        let given_up = given_up.ok_or_else(|| limit(&refusal))?;
        for (id, _) in &given_up {
            info!(session_id = %id, "pool member makes room for a session");
            table.give_up(id);
            shelf.give_up(id);
        }
        table.admit(ask).map_err(|refusal| limit(&refusal))
    }

    /// A member of an earlier daemon.
    pub(super) fn take_up_member(&self, row: &SessionRow, turns: &Arc<Semaphore>) -> Option<NewMember> {
        let runtime = self.0.runtimes.get(&row.facts.runtime)?.clone();
        let facts = Facts::of_row(row, self.0.clock);
        let ask = Ask::of(&facts.resources);
        let (member, run) = self.member(facts, ask, runtime, turns.clone(), MemberBeginning::Adopt);
        self.table().restore(Entry { handle: member.handle.clone(), ask, key: None }, 0);
        tokio::spawn(run);
        Some(member)
    }

    pub(super) fn keep_for_pools(&self, members: Vec<NewMember>) {
        *self.0.adopted.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Makes the pools of the configuration, on the default runtime. Members of an earlier daemon are back in theirs before anything
    /// is started; those that nobody wants any more go. To be called once, behind `recover`.
    pub async fn open_pools(&self, sizes: &BTreeMap<String, u64>) {
        let mut keys = Vec::new();
        for (image, size) in sizes.iter().filter(|(_, size)| **size > 0) {
            match self.define_pool(image, None, *size) {
                Ok((key, ..)) => keys.push(key),
                Err(cause) => warn!(%image, %cause, "pool is left out"),
            }
        }
        let members = std::mem::take(&mut *self.0.adopted.lock().unwrap_or_else(PoisonError::into_inner));
        futures_util::future::join_all(members.into_iter().map(|member| self.adopt_member(member))).await;
        keys.into_iter().for_each(|key| self.start_filler(key));
    }

    /// Dropped where it does not fit, or is not well: then its driver removes it.
    async fn adopt_member(&self, member: NewMember) {
        let NewMember { handle, ask, give } = member;
        let facts = handle.facts();
        let key = PoolKey { image: facts.image.clone(), runtime: facts.runtime.clone() };
        let fits = |template: &Plan| {
            template.resources == facts.resources
                && template.network == facts.network
                && template.writable_root == facts.writable_root
        };
        let is_wanted = self.shelf().get(&key).is_some_and(|pool| fits(&pool.template));
        if !is_wanted {
            return info!(session_id = %handle.id(), "pool member of an earlier daemon is not wanted any more");
        }
        let cause = match timeout(ADOPT_PATIENCE, handle.pooled()).await {
            Ok(Ok(runner)) => match illness(&runner).await {
                None => {
                    if let Some(pool) = self.shelf().get_mut(&key) {
                        pool.adopted(Member { handle, ask, runner, give });
                    }
                    return;
                }
                Some(cause) => cause,
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".into(),
        };
        info!(session_id = %handle.id(), %cause, "pool member of an earlier daemon is not well");
    }
}

#[cfg(test)]
#[path = "pooling_test.rs"]
mod tests;
