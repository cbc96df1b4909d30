//! Creates a session: checks the request, looks for a pooled sandbox that fits, and checks for room.
//!
//! ```text
//!  resolve ─▶ known key? pooled sandbox? (table's lock) ─▶ runtime.check (no lock) ─▶ known key? room? (table's lock) ─▶ driver
//!  (pure)        │ yes: its session                         may touch the disk           nothing touches the disk
//! ```
//!
//! The hold on the workspace is taken in memory under the lock; the driver creates the directory. The key is looked up again
//! after the check, because another request with the same key may have come meanwhile: one of the two creates the session,
//! and both get it.
//!
//! A create continues if its client disconnects. If there is no idempotency key, no client can find that session again, so
//! it is destroyed.

use std::sync::Arc;

use shared_protocol::SessionId;
use shared_protocol::api::{AcquireSource, CreateSessionRequest, NetworkSpec, SessionView};
use tokio::time::Instant;

use super::Registry;
use super::admission::Demand;
use super::table::{Entry, KeyLookup, Table};
use crate::hash::stable_hash;
use crate::network::Asker;
use crate::owner::Creator;
use crate::runtime::{Purpose, Runtime, SandboxSpec};
use crate::session::driver::{Creation, Driver, DriverParts, Role, SessionRecord, Start};
use crate::session::facts::Facts;
use crate::session::shared::Shared;
use crate::session::{Phase, Plan, SessionError, SessionHandle};
use crate::spec::{SessionSpec, Variables};
use crate::store::StoredKey;
use crate::workspace::{User, WorkspaceError, WorkspaceHold};

pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// The result of admission: a new session, or the one that the same key created before.
enum Admitted {
    New(SessionHandle),
    Known(SessionHandle),
}

impl Registry {
    /// Creates a session of the first key.
    #[cfg(test)]
    pub async fn create(
        &self,
        request: CreateSessionRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        self.create_for(&Creator::first(), request, idempotency_key).await
    }

    pub async fn create_for(
        &self,
        creator: &Creator,
        request: CreateSessionRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        let start = Instant::now();
        let result = self.create_or_repeat(creator, request, idempotency_key).await;
        let seconds = start.elapsed().as_secs_f64();
        let source = result.as_ref().map_or(AcquireSource::Cold, |view| view.acquire_source);
        self.0.metrics.created(result.is_ok(), source, seconds);
        result
    }

    async fn create_or_repeat(
        &self,
        creator: &Creator,
        mut request: CreateSessionRequest,
        key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        let stored_key = key.map(|key| stored_key(key, &request)).transpose()?;
        let is_asked = request.network.is_some();
        request.network.get_or_insert_with(|| self.0.network.default_spec().clone());
        let mut plan = Plan::resolve(request, creator.owner.clone(), &self.0.config, &self.0.default_runtime)?;
        let runtime = self.runtime(&plan.spec.runtime)?;
        if !plan.spec.network.is_none() {
            let opened = runtime.opens_network(&plan.spec.network);
            match opened {
                // The daemon's default is for those who have it.
                Err(_) if !is_asked => Arc::make_mut(&mut plan.spec).network = NetworkSpec::default(),
                opened => opened?,
            }
        }
        // This comes last of the checks: for `packages`, it may ask the package managers of the host.
        self.0.network.compile(&plan.spec.network, Asker::of(creator)).await?;
        match self.admit(creator, plan, &runtime, stored_key).await? {
            // This is the answer of the first request, when it is there, or the current state of a session that has ended
            // since.
            Admitted::Known(handle) => match handle.phase() {
                Phase::Creating => handle.created().await,
                _ => Ok(handle.view()),
            },
            Admitted::New(handle) => {
                // If the client disconnects, this future is dropped, and this value with it.
                let unknown = DestroyUnlessKept { handle: key.is_none().then(|| handle.clone()) };
                let view = handle.created().await;
                unknown.keep();
                view
            }
        }
    }

    /// Decides, and starts the driver of an admitted session.
    async fn admit(
        &self,
        creator: &Creator,
        plan: Plan,
        runtime: &Arc<dyn Runtime>,
        key: Option<StoredKey>,
    ) -> Result<Admitted, SessionError> {
        {
            let mut table = self.table();
            if let Some(known) = known_or_closed(&mut table, creator, key.as_ref())? {
                return Ok(Admitted::Known(known));
            }
            // The spec was checked when the pool was created.
            if !runtime.is_fixed_network(&plan.spec.network)
                && let Some(handle) = self.claim_pooled(&mut table, creator, runtime, &plan, key.as_ref())?
            {
                return Ok(Admitted::New(handle));
            }
        }
        runtime.check(&plan.spec).await?;
        let mut table = self.table();
        if let Some(known) = known_or_closed(&mut table, creator, key.as_ref())? {
            return Ok(Admitted::Known(known));
        }
        let Plan { spec, env } = plan;
        let id = fresh_id(|id| table.knows(id))?;
        let workspace = self.hold_workspace(&spec, &id)?;
        let demand = Demand::of(&spec.resources);
        self.make_room(&mut table, &demand, creator)?;
        let mount = workspace.as_ref().map(WorkspaceHold::mount);
        let sandbox = SandboxSpec {
            id,
            session: spec,
            workspace: mount,
            awaits_workspace: false,
            env,
            purpose: Purpose::Session,
        };
        let (facts, creation) = self.creation(sandbox, AcquireSource::Cold, key.clone());
        let permits = self.0.create_permits.clone();
        let (handle, driver) = self.driver(facts, Role::Session, runtime.clone(), workspace, permits);
        table.insert(Entry::session(handle.clone(), demand, key));
        drop(table);
        self.spawn(driver, Start::Create(Box::new(creation)));
        Ok(Admitted::New(handle))
    }

    /// Holds the workspace that a session asks for, so that it cannot be deleted.
    pub(in crate::session) fn hold_workspace(
        &self,
        spec: &SessionSpec,
        id: &SessionId,
    ) -> Result<Option<WorkspaceHold>, SessionError> {
        let hold = |workspace| self.0.workspaces.hold(&workspace, User::Session(id.clone()));
        Ok(spec.workspace_name().map(hold).transpose()?)
    }

    /// What the driver of a new sandbox gets: the facts, and the row to store before the create.
    pub(in crate::session) fn creation(
        &self,
        sandbox: SandboxSpec,
        source: AcquireSource,
        key: Option<StoredKey>,
    ) -> (Facts, Creation) {
        let (id, spec) = (sandbox.id.clone(), sandbox.session.clone());
        let facts = Facts { id, spec, source, created: Instant::now(), clock: self.0.clock };
        let row = facts.to_row(key);
        (facts, Creation { sandbox, row })
    }

    /// Refuses, without any effect, a spec that can never work.
    pub(crate) async fn check(&self, spec: &SessionSpec) -> Result<(), SessionError> {
        Ok(self.runtime(&spec.runtime)?.check(spec).await?)
    }

    /// Starts a workspace sandbox: it is neither counted nor listed, and no client asks for it. This decides and spawns, and
    /// touches no disk. `gone` runs when nothing is left of the sandbox.
    pub(crate) fn start_internal(
        &self,
        spec: Arc<SessionSpec>,
        hold: impl FnOnce(&SessionId) -> Result<WorkspaceHold, WorkspaceError>,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<SessionHandle, SessionError> {
        let runtime = self.runtime(&spec.runtime)?;
        let id = fresh_id(|id| self.table().knows(id))?;
        let workspace = hold(&id)?;
        let mount = Some(workspace.mount());
        let sandbox = SandboxSpec {
            id: id.clone(),
            session: spec,
            workspace: mount,
            awaits_workspace: false,
            env: Variables::default(),
            purpose: Purpose::WorkspaceFiles,
        };
        let (facts, creation) = self.creation(sandbox, AcquireSource::Cold, None);
        // The sandbox has no row in the store: after a crash, the next start removes it.
        let record = SessionRecord::new(None, id, facts.clock);
        let shared = Arc::new(Shared::new(facts, &self.0.network, self.0.used.clone()));
        let permits = self.0.create_permits.clone();
        let parts = DriverParts { shared, role: Role::Session, runtime, record, workspace: Some(workspace), permits };
        let (handle, driver) = Driver::new(parts);
        tokio::spawn(driver.run(Start::Create(Box::new(creation)), move |_| gone()));
        Ok(handle)
    }
}

/// The session that this key already created. Refused if the key came with a different request, or if the daemon is
/// stopping.
fn known_or_closed(
    table: &mut Table,
    creator: &Creator,
    key: Option<&StoredKey>,
) -> Result<Option<SessionHandle>, SessionError> {
    if let Some(StoredKey { key, fingerprint }) = key {
        match table.look_up_key(&creator.owner, key, *fingerprint) {
            KeyLookup::New => {}
            KeyLookup::Same(handle) => return Ok(Some(handle)),
            KeyLookup::OtherRequest => {
                let message = format!("the idempotency key {key:?} came with another request before");
                return Err(SessionError::Conflict(message));
            }
        }
    }
    table.refuse_if_closed()?;
    Ok(None)
}

/// Destroys a session whose creator can no longer learn its id.
struct DestroyUnlessKept {
    handle: Option<SessionHandle>,
}

impl DestroyUnlessKept {
    fn keep(mut self) {
        self.handle = None;
    }
}

impl Drop for DestroyUnlessKept {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            tracing::info!(session_id = %handle.id(), "client disconnected before its session was ready");
            handle.ask_destroy();
        }
    }
}

/// Checks a key, and adds a fingerprint of the request that is the same in every build, because both are stored.
fn stored_key(key: &str, request: &CreateSessionRequest) -> Result<StoredKey, SessionError> {
    let is_valid =
        (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_valid {
        let message =
            format!("an idempotency key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} characters of plain ASCII, no spaces");
        return Err(SessionError::InvalidRequest(message));
    }
    let bytes = serde_json::to_vec(request).map_err(|e| SessionError::Internal(e.to_string()))?;
    Ok(StoredKey { key: key.to_owned(), fingerprint: stable_hash(&bytes) })
}

/// Makes a new id such as `7183cb80-d6c`.
pub fn fresh_id(taken: impl Fn(&SessionId) -> bool) -> Result<SessionId, SessionError> {
    const ATTEMPTS: usize = 16;
    for _ in 0..ATTEMPTS {
        let random = getrandom::u64().map_err(|e| SessionError::Internal(format!("no randomness: {e}")))?;
        let text = format!("{:08x}-{:03x}", (random >> 12) & 0xffff_ffff, random & 0xfff);
        let id = SessionId::new(text).map_err(|e| SessionError::Internal(e.to_string()))?;
        if !taken(&id) {
            return Ok(id);
        }
    }
    Err(SessionError::Internal("no free session id was found".into()))
}
