//! The sandbox of one MCP session. It is a session that exists, or one that is made at the first call that needs it.
//!
//! ```text
//!  Existing ─────────────────────────────────────────▶ stays, whatever happens to the MCP session; so does one that `restore` makes
//!  Made ──first call──▶ running ──DELETE─────────────▶ destroyed
//!                         ├──idle, daemon stops──────▶ destroyed, unless it has a name by which its client finds it again
//!                         ├──it expired by itself────▶ the call says so, and the next one makes another
//!                         └──restore─────────────────▶ destroyed; the session from the snapshot takes its place
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use shared_protocol::api::{CreateSessionRequest, SessionView};
use shared_protocol::{ErrorBody, ErrorCode, SessionId, SessionName};
use tokio::sync::Mutex;

use crate::service::{CallError, Caller, Service, SessionError, SessionFilter};

/// The label of sessions that were made for an MCP session.
const LABEL: &str = "mcp";
const LABEL_VALUE: &str = "1";

/// Which sandbox a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxChoice {
    /// A session, by id or by name.
    Named(String),
    /// A session that exists.
    Existing(SessionId),
    /// A session to make when it is needed. If it has a name and was made before, it is used again.
    Made(Box<CreateSessionRequest>),
}

impl SandboxChoice {
    /// The same choice, with a session that was looked up. Touches nothing.
    pub(super) fn found(self, service: &Service, caller: &Caller) -> Result<Self, ErrorBody> {
        let Self::Named(text) = self else { return Ok(self) };
        if let Ok(id) = SessionId::new(&text)
            && let Ok(view) = service.sessions().get(caller, &id)
        {
            return Ok(Self::Existing(view.id));
        }
        let named = SessionName::new(&text).ok().and_then(|name| of_caller(service, caller, &name));
        named.map(|view| Self::Existing(view.id)).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            ErrorBody::new(ErrorCode::SessionNotFound, format!("no session has the id or the name {shown:?}"))
        })
    }
}

/// The caller's own session with a name. An admin sees those of others too, and they may have the same name.
fn of_caller(service: &Service, caller: &Caller, name: &SessionName) -> Option<SessionView> {
    let filter = SessionFilter { name: Some(name.clone()), ..SessionFilter::default() };
    let mut named = service.sessions().list(caller, &filter);
    named.retain(|view| view.owner == *caller.name());
    named.pop()
}

/// Why an MCP session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client said so.
    Client,
    Idle,
    DaemonStops,
}

/// Whether a sandbox that was made for an MCP session ends with it. Pure.
fn is_destroyed(has_name: bool, end: End) -> bool {
    match end {
        End::Client => true,
        // A client that knows a name comes back with it. If it does not, the session expires like any other.
        End::Idle | End::DaemonStops => !has_name,
    }
}

pub struct Sandbox {
    service: Service,
    /// Who opened the MCP session.
    caller: Caller,
    choice: SandboxChoice,
    state: Mutex<State>,
    /// Whether the daemon stops, so that commands are left to go on.
    is_left: AtomicBool,
}

/// The session that was made, if one was. Whoever makes or ends it holds the lock meanwhile, so there is never a second one.
enum State {
    NotMade,
    Made(SessionId),
    Ended,
}

impl Sandbox {
    pub fn new(service: Service, caller: Caller, choice: SandboxChoice) -> Self {
        Self { service, caller, choice, state: Mutex::new(State::NotMade), is_left: AtomicBool::new(false) }
    }

    /// Whether a request without an MCP session finds the same sandbox as the one before.
    pub fn is_fixed(&self) -> bool {
        matches!(self.choice, SandboxChoice::Existing(_))
    }

    /// The session, which is made if there is none yet.
    pub async fn session(&self) -> Result<SessionId, SessionError> {
        if let State::Made(id) = &*self.state.lock().await {
            return Ok(id.clone());
        }
        let request = match &self.choice {
            SandboxChoice::Existing(id) => return Ok(id.clone()),
            SandboxChoice::Made(request) => request,
            SandboxChoice::Named(name) => {
                return Err(SessionError::InvalidRequest(format!("the session {name:?} was not looked up")));
            }
        };
        let mut state = self.state.lock().await;
        match &*state {
            State::Made(id) => return Ok(id.clone()),
            State::Ended => return Err(SessionError::Conflict("this MCP session has ended".into())),
            State::NotMade => {}
        }
        let id = match request.name.as_ref().and_then(|name| of_caller(&self.service, &self.caller, name)) {
            Some(view) if view.labels.get(LABEL).is_some_and(|value| value == LABEL_VALUE) => view.id,
            Some(view) => {
                let message =
                    format!("session {} has that name, and was not made for MCP: use it by ?session=", view.id);
                return Err(SessionError::Conflict(message));
            }
            None => {
                let mut request = (**request).clone();
                request.labels.insert(LABEL.into(), LABEL_VALUE.into());
                let made = self.service.sessions().create(&self.caller, request, /* idempotency key */ None).await?;
                tracing::info!(session_id = %made.id, caller = %self.caller.name(), "session made for an MCP client");
                made.id
            }
        };
        *state = State::Made(id.clone());
        Ok(id)
    }

    /// The session, if there is one. A request that only looks makes none.
    pub async fn session_if_made(&self) -> Option<SessionId> {
        match (&self.choice, &*self.state.lock().await) {
            (_, State::Made(id)) | (SandboxChoice::Existing(id), _) => Some(id.clone()),
            _ => None,
        }
    }

    /// Leaves running commands alone: a session that outlives the daemon keeps them.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Goes on with another session, which a tool has made from a snapshot. The one before is destroyed, if it was made for this MCP session.
    pub async fn move_to(&self, next: &SessionId) {
        let mut state = self.state.lock().await;
        let before = match std::mem::replace(&mut *state, State::Made(next.clone())) {
            State::Made(before) => Some(before),
            State::NotMade => None,
            State::Ended => {
                // Nobody will use it any more.
                *state = State::Ended;
                Some(next.clone())
            }
        };
        if let Some(before) = before.filter(|_| !self.is_fixed())
            && let Err(cause) = self.service.sessions().destroy(&self.caller, &before).await
        {
            tracing::warn!(session_id = %before, %cause, "the session of an MCP client stays until it expires");
        }
    }

    /// Takes note of a failed call. Returns what a model should know beyond the error: its sandbox is gone.
    pub async fn failed(&self, id: &SessionId, error: &CallError) -> Option<&'static str> {
        let CallError::Session(SessionError::NotFound(_) | SessionError::Expired(_) | SessionError::Lost { .. }) =
            error
        else {
            return None;
        };
        let mut state = self.state.lock().await;
        if !matches!(&*state, State::Made(made) if made == id) {
            return None;
        }
        *state = State::NotMade;
        Some("The next call starts a new sandbox with an empty workspace.")
    }

    /// Ends the sandbox if it was made for the MCP session, which is over.
    pub async fn end(&self, end: End) {
        let mut state = self.state.lock().await;
        let State::Made(id) = std::mem::replace(&mut *state, State::Ended) else { return };
        let has_name = matches!(&self.choice, SandboxChoice::Made(request) if request.name.is_some());
        if !self.is_fixed()
            && is_destroyed(has_name, end)
            && let Err(cause) = self.service.sessions().destroy(&self.caller, &id).await
        {
            tracing::warn!(session_id = %id, %cause, "the session of an MCP client stays until it expires");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_with_a_name_outlives_what_its_client_did_not_ask_for() {
        for has_name in [true, false] {
            assert!(is_destroyed(has_name, End::Client));
        }
        for end in [End::Idle, End::DaemonStops] {
            assert!(is_destroyed(/* has_name */ false, end) && !is_destroyed(/* has_name */ true, end), "{end:?}");
        }
    }
}
