//! Use cases for sessions: create, describe, list, change, pause, resume, stop, start, fork, destroy.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use shared_protocol::SessionId;
use shared_protocol::api::{
    CreateSessionRequest, ForkRequest, ForkView, PullProgress, SessionView, StatsView, UpdateSessionRequest,
};

use super::access::Access;
use super::error::ImagesError;
use super::images::PullWatch;
use super::{Caller, Images};
use crate::image::RunningPull;
use crate::session::{Registry, SessionError, SessionFilter};

pub struct Sessions {
    access: Access,
    registry: Registry,
    images: Arc<Images>,
}

/// A create, for whoever follows it.
pub enum Creation {
    /// The image was here, and so is the session.
    Made(Box<SessionView>),
    Pulling(CreateStream),
}

/// A create that pulls its image first. The pull goes on if this is dropped; the session is not made, or is removed.
pub struct CreateStream {
    watch: PullWatch,
    /// `None` when it has ended.
    work: Option<BoxFuture<'static, Result<SessionView, SessionError>>>,
}

/// What happens in a create that pulls.
pub enum CreateEvent {
    Progress(PullProgress),
    Done(Box<SessionView>),
    Failed(SessionError),
}

impl CreateStream {
    /// The next event; `None` after the last one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<CreateEvent> {
        let work = self.work.as_mut()?;
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            progress = self.watch.next() => return Some(CreateEvent::Progress(progress)),
        };
        self.work = None;
        Some(ended.map_or_else(CreateEvent::Failed, |session| CreateEvent::Done(Box::new(session))))
    }
}

impl Sessions {
    pub(super) fn new(access: Access, registry: Registry, images: Arc<Images>) -> Self {
        Self { access, registry, images }
    }

    /// Creates a session of the caller, after a pull if its image is one of a registry that is not here. A second call of the same
    /// caller with the same idempotency key and request returns the same session.
    pub async fn create(
        &self,
        caller: &Caller,
        request: CreateSessionRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        if let Some(known) = self.registry.repeated(&caller.creator(), &request, idempotency_key).await? {
            return Ok(known);
        }
        if let Some(pull) = self.pull_first(caller, &request).await? {
            pulled(pull).await?;
        }
        self.registry.create_for(&caller.creator(), request, idempotency_key).await
    }

    /// The same as `create`, except that a pull is not waited for, but told. What is wrong with the request is found before that.
    pub async fn create_telling(
        &self,
        caller: &Caller,
        request: CreateSessionRequest,
        idempotency_key: Option<&str>,
    ) -> Result<Creation, SessionError> {
        if let Some(known) = self.registry.repeated(&caller.creator(), &request, idempotency_key).await? {
            return Ok(Creation::Made(Box::new(known)));
        }
        let Some(pull) = self.pull_first(caller, &request).await? else {
            let made = self.registry.create_for(&caller.creator(), request, idempotency_key).await?;
            return Ok(Creation::Made(Box::new(made)));
        };
        let watch = PullWatch::new(&pull);
        let (registry, creator, key) = (self.registry.clone(), caller.creator(), idempotency_key.map(str::to_owned));
        let work = async move {
            pulled(pull).await?;
            registry.create_for(&creator, request, key.as_deref()).await
        };
        Ok(Creation::Pulling(CreateStream { watch, work: Some(work.boxed()) }))
    }

    /// The pull that a create has to wait for. A snapshot keeps its image.
    async fn pull_first(
        &self,
        caller: &Caller,
        request: &CreateSessionRequest,
    ) -> Result<Option<RunningPull>, SessionError> {
        match &request.snapshot {
            Some(id) => self.access.snapshot(caller, id).map(|_| None),
            None => Ok(self.images.pull_for(caller, request).await?),
        }
    }

    pub fn list(&self, caller: &Caller, filter: &SessionFilter) -> Vec<SessionView> {
        self.access.visible_sessions(caller, self.registry.list(filter))
    }

    pub fn get(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        Ok(self.access.session(caller, id)?.view())
    }

    /// Destroys a session. A session that has already ended stays as it is.
    pub async fn destroy(&self, caller: &Caller, id: &SessionId) -> Result<(), SessionError> {
        self.access.session(caller, id)?;
        self.registry.destroy(id).await
    }

    /// Changes a session's lifetime or labels. Everything is checked before the session is touched.
    pub async fn update(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: UpdateSessionRequest,
    ) -> Result<SessionView, SessionError> {
        let session = self.access.session(caller, id)?;
        session.update(self.registry.check_update(request)?).await
    }

    /// Freezes a session until a call needs its sandbox.
    pub async fn pause(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        self.access.session(caller, id)?.pause().await
    }

    /// Wakes a session. This counts as activity.
    pub async fn resume(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        self.access.session(caller, id)?.resume().await
    }

    /// Ends the processes of a session and keeps its disk and the state of its shells.
    pub async fn stop(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        self.registry.stop(&self.access.session(caller, id)?).await
    }

    /// Starts a stopped session again.
    pub async fn start(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        self.registry.start(&caller.creator(), &self.access.session(caller, id)?).await
    }

    /// Makes copies of a session. All of them are made, or none.
    pub async fn fork(&self, caller: &Caller, id: &SessionId, request: ForkRequest) -> Result<ForkView, SessionError> {
        self.registry.fork(&caller.creator(), &self.access.session(caller, id)?, request).await
    }

    /// Reads what a session uses now. This does not count as activity, so a monitor keeps no session alive.
    pub async fn stats(&self, caller: &Caller, id: &SessionId) -> Result<StatsView, SessionError> {
        self.access.session(caller, id)?;
        self.registry.stats(id).await
    }
}

async fn pulled(pull: RunningPull) -> Result<(), SessionError> {
    pull.done.await.map(drop).map_err(|error| ImagesError::from(error).into())
}
