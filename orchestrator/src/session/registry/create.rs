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

use shared_protocol::api::{AcquireSource, CreateSessionRequest, NetworkSpec, SessionView};
use shared_protocol::{RuntimeName, SessionId};
use tokio::time::Instant;

use super::Registry;
use super::admission::Demand;
use super::table::{Entry, KeyLookup, Table};
use crate::hash::stable_hash;
use crate::network::NetworkError;
use crate::owner::Creator;
use crate::runtime::{Origin, Purpose, Runtime, SandboxSpec, policy};
use crate::session::driver::{Creation, Driver, DriverParts, Restored, Role, SessionRecord, Start};
use crate::session::facts::Facts;
use crate::session::shared::Shared;
use crate::session::snapshots::{SnapshotHold, with_snapshot};
use crate::session::{Phase, Plan, SessionError, SessionHandle};
use crate::spec::{DiskPlace, SessionSpec, Variables};
use crate::store::StoredKey;
use crate::workspace::{User, WorkspaceError, WorkspaceHold};

pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// What a session that starts from a snapshot has beside its spec.
pub struct FromSnapshot {
    pub hold: SnapshotHold,
}

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

    /// The answer to a create that was asked for before, with the same key. What it was made from may be gone by now.
    pub(crate) async fn repeated(
        &self,
        creator: &Creator,
        request: &CreateSessionRequest,
        key: Option<&str>,
    ) -> Result<Option<SessionView>, SessionError> {
        let Some(key) = key.map(|key| stored_key(key, request)).transpose()? else { return Ok(None) };
        let known = known_or_closed(&mut self.table(), creator, Some(&key))?;
        match known {
            Some(handle) => answer_again(&handle).await.map(Some),
            None => Ok(None),
        }
    }

    /// The image and the runtime that a request asks for, if the request is one that could be created. It touches nothing.
    pub(crate) fn asked_image(
        &self,
        creator: &Creator,
        request: &CreateSessionRequest,
    ) -> Result<(String, RuntimeName), SessionError> {
        let mut request = request.clone();
        request.network.get_or_insert_with(|| self.0.network.default_spec().clone());
        let plan = self.resolve(request, creator)?;
        self.runtime(&plan.spec.runtime)?;
        Ok((plan.spec.image.clone(), plan.spec.runtime.clone()))
    }

    async fn create_or_repeat(
        &self,
        creator: &Creator,
        mut request: CreateSessionRequest,
        key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        let stored_key = key.map(|key| stored_key(key, &request)).transpose()?;
        let from = match request.snapshot.take() {
            Some(id) => {
                let hold = self.snapshots().hold(&id)?;
                request = with_snapshot(request, &hold.row)?;
                Some(FromSnapshot { hold })
            }
            None => None,
        };
        let is_asked = request.network.is_some();
        request.network.get_or_insert_with(|| self.0.network.default_spec().clone());
        let mut plan = self.resolve(request, creator)?;
        let runtime = self.runtime(&plan.spec.runtime)?;
        if !plan.spec.network.is_none() {
            let opened = runtime.opens_network(&plan.spec.network);
            match opened {
                // The daemon's default is for those who have it.
                Err(_) if !is_asked => Arc::make_mut(&mut plan.spec).network = NetworkSpec::default(),
                opened => opened?,
            }
        }
        if plan.spec.inject.is_some() {
            runtime.trusts_authorities(&plan.spec.network)?;
        }
        // This comes last of the checks: for `packages`, it may ask the package managers of the host.
        let policy = match self.0.network.compile(&plan.spec.network, creator).await {
            Err(NetworkError::AboveMaximum { .. }) if !is_asked => {
                Arc::make_mut(&mut plan.spec).network = NetworkSpec::default();
                self.0.network.compile(&plan.spec.network, creator).await?
            }
            compiled => compiled?,
        };
        if let Some(inject) = &plan.spec.inject {
            self.0.network.with_injections(policy, inject, &creator.owner)?;
        }
        plan.add_variables(self.0.network.variables(&plan.spec.network));
        match self.admit(creator, plan, &runtime, stored_key, from).await? {
            Admitted::Known(handle) => answer_again(&handle).await,
            Admitted::New(handle) => {
                // If the client disconnects, this future is dropped, and this value with it.
                let unknown = DestroyUnlessKept { handle: key.is_none().then(|| handle.clone()) };
                let view = handle.created().await;
                unknown.keep();
                view
            }
        }
    }

    /// A complete spec of what a request asks for.
    pub(in crate::session) fn resolve(
        &self,
        request: CreateSessionRequest,
        creator: &Creator,
    ) -> Result<Plan, SessionError> {
        // A runtime that does not exist is refused after this.
        let disks = |name: &RuntimeName| self.runtime(name).map_or(DiskPlace::Memory, |runtime| runtime.disks());
        Plan::resolve(request, creator, &self.0.config, &self.0.default_runtime, disks)
    }

    /// Decides, and starts the driver of an admitted session.
    async fn admit(
        &self,
        creator: &Creator,
        plan: Plan,
        runtime: &Arc<dyn Runtime>,
        key: Option<StoredKey>,
        from: Option<FromSnapshot>,
    ) -> Result<Admitted, SessionError> {
        let origin = origin(from.as_ref());
        {
            let mut table = self.table();
            if let Some(known) = known_or_closed(&mut table, creator, key.as_ref())? {
                return Ok(Admitted::Known(known));
            }
            table.refuse_taken_name(&creator.owner, plan.spec.name.as_ref())?;
            // The spec was checked when the pool was created. The disk of a pooled sandbox is empty.
            if origin == Origin::Empty
                && !runtime.is_fixed_network(&plan.spec.network)
                && let Some(handle) = self.claim_pooled(&mut table, creator, runtime, &plan, key.as_ref())?
            {
                return Ok(Admitted::New(handle));
            }
        }
        runtime.check(&plan.spec, &origin).await?;
        let mut table = self.table();
        if let Some(known) = known_or_closed(&mut table, creator, key.as_ref())? {
            return Ok(Admitted::Known(known));
        }
        table.refuse_taken_name(&creator.owner, plan.spec.name.as_ref())?;
        self.place(&mut table, creator, plan, runtime, key, from).map(Admitted::New)
    }

    /// Starts the driver of a session whose spec was checked, if there is room.
    pub(in crate::session) fn admit_new(
        &self,
        creator: &Creator,
        plan: Plan,
        runtime: &Arc<dyn Runtime>,
        from: FromSnapshot,
    ) -> Result<SessionHandle, SessionError> {
        let mut table = self.table();
        table.refuse_if_closed()?;
        self.place(&mut table, creator, plan, runtime, None, Some(from))
    }

    fn place(
        &self,
        table: &mut Table,
        creator: &Creator,
        plan: Plan,
        runtime: &Arc<dyn Runtime>,
        key: Option<StoredKey>,
        from: Option<FromSnapshot>,
    ) -> Result<SessionHandle, SessionError> {
        let Plan { spec, env } = plan;
        let id = fresh_id(|id| table.knows(id))?;
        let workspace = self.hold_workspace(&spec, &id)?;
        let demand = Demand::of(&spec.resources);
        self.make_room(table, &demand, creator)?;
        let sandbox = SandboxSpec {
            id,
            session: spec.clone(),
            workspace: None,
            awaits_workspace: false,
            env: with_trust(env, &spec),
            authority: None,
            purpose: Purpose::Session,
            origin: origin(from.as_ref()),
        };
        // What the client and the daemon say now takes the place of what the snapshot has.
        let newer = sandbox.env.clone();
        let (facts, mut creation) = self.creation(sandbox, AcquireSource::Cold, key.clone());
        creation.restored = from.map(|FromSnapshot { hold }| Restored { hold, env: newer });
        let permits = self.0.create_permits.clone();
        let (handle, driver) = self.driver(facts, Role::Session, runtime.clone(), workspace, permits);
        table.insert(Entry::session(handle.clone(), demand, key));
        self.spawn(driver, Start::Create(Box::new(creation)));
        Ok(handle)
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
        (facts, Creation { sandbox, row, restored: None })
    }

    /// Refuses, without any effect, a spec that can never work.
    pub(crate) async fn check(&self, spec: &SessionSpec) -> Result<(), SessionError> {
        Ok(self.runtime(&spec.runtime)?.check(spec, &Origin::Empty).await?)
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
        let sandbox = SandboxSpec {
            id: id.clone(),
            session: spec,
            workspace: None,
            awaits_workspace: false,
            env: Variables::default(),
            authority: None,
            purpose: Purpose::WorkspaceFiles,
            origin: Origin::Empty,
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

/// The variables of a session, with those that name the certificate authorities that its programs trust. What a client sets itself stays.
fn with_trust(mut env: Variables, spec: &SessionSpec) -> Variables {
    if spec.inject.is_some() {
        for (name, path) in policy::TRUST_VARIABLES {
            env.0.entry(name.to_owned()).or_insert_with(|| path.to_owned());
        }
    }
    env
}

fn origin(from: Option<&FromSnapshot>) -> Origin {
    from.map_or(Origin::Empty, |from| Origin::Snapshot(from.hold.row.id.clone()))
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

/// The answer to a repeated request: that of the first one, when it is there, or the current state of a session that has ended since.
async fn answer_again(handle: &SessionHandle) -> Result<SessionView, SessionError> {
    match handle.phase() {
        Phase::Creating => handle.created().await,
        _ => Ok(handle.view()),
    }
}

/// Destroys a session whose creator can no longer learn its id.
pub struct DestroyUnlessKept {
    handle: Option<SessionHandle>,
}

impl DestroyUnlessKept {
    pub fn new(handle: SessionHandle) -> Self {
        Self { handle: Some(handle) }
    }

    pub fn keep(mut self) {
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
