//! Sessions, as far as the handlers need them: one runner under one id.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use shared_protocol::SessionId;
use tokio::sync::watch;

use crate::runner_client::RunnerClient;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SessionError {
    #[error("no session {0}: it never was, or it was destroyed")]
    NotFound(SessionId),
    #[error("session {0} has expired; create another")]
    Expired(SessionId),
    #[error("the sandbox of session {id} is gone: {reason}")]
    Lost { id: SessionId, reason: String },
}

#[derive(Debug)]
struct Shared {
    id: SessionId,
    runner: RunnerClient,
    end: watch::Sender<Option<SessionError>>,
    cwd: Mutex<String>,
}

#[derive(Debug, Clone)]
pub struct SessionHandle(Arc<Shared>);

pub struct StandInView {
    pub cwd: String,
}

impl SessionHandle {
    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    pub fn view(&self) -> StandInView {
        StandInView { cwd: self.0.cwd.lock().map(|cwd| cwd.clone()).unwrap_or_default() }
    }

    pub async fn begin(&self) -> Result<Activity, SessionError> {
        match &*self.0.end.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(Activity(self.0.clone())),
        }
    }

    pub fn end(&self, error: SessionError) {
        self.0.end.send_replace(Some(error));
    }
}

#[derive(Debug)]
pub struct Activity(Arc<Shared>);

impl Activity {
    pub fn runner(&self) -> &RunnerClient {
        &self.0.runner
    }

    pub fn session_id(&self) -> &SessionId {
        &self.0.id
    }

    pub fn set_cwd(&self, cwd: &str) {
        if let Ok(mut kept) = self.0.cwd.lock() {
            cwd.clone_into(&mut kept);
        }
    }

    pub fn ended(&self) -> impl Future<Output = SessionError> + Send + 'static {
        let mut end = self.0.end.subscribe();
        let id = self.0.id.clone();
        async move {
            let over = end.wait_for(Option::is_some).await;
            over.ok().and_then(|end| end.clone()).unwrap_or(SessionError::NotFound(id))
        }
    }
}

#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<HashMap<SessionId, SessionHandle>>>);

impl Registry {
    pub fn insert(&self, id: SessionId, runner: RunnerClient) -> SessionHandle {
        let (end, _) = watch::channel(None);
        let handle = SessionHandle(Arc::new(Shared { id: id.clone(), runner, end, cwd: Mutex::default() }));
        if let Ok(mut all) = self.0.lock() {
            all.insert(id, handle.clone());
        }
        handle
    }

    pub fn get(&self, id: &SessionId) -> Result<SessionHandle, SessionError> {
        let found = self.0.lock().ok().and_then(|all| all.get(id).cloned());
        found.ok_or_else(|| SessionError::NotFound(id.clone()))
    }
}
