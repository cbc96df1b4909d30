//! Decides which sessions a list contains. Pure.

use shared_protocol::SessionName;
use shared_protocol::api::{SessionStatus, SessionView};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The session must have one of these statuses. If there are none, any status but `destroyed`, `expired` and `pool_idle`
    /// matches. Crashed sessions are listed, because a person should look at them.
    pub statuses: Vec<SessionStatus>,
    /// The session must have all of these labels.
    pub labels: Vec<(String, String)>,
    /// The session must have this name.
    pub name: Option<SessionName>,
}

impl SessionFilter {
    pub fn wants_status(&self, status: SessionStatus) -> bool {
        if self.statuses.is_empty() {
            !matches!(status, SessionStatus::Destroyed | SessionStatus::Expired | SessionStatus::PoolIdle)
        } else {
            self.statuses.contains(&status)
        }
    }

    pub fn wants(&self, view: &SessionView) -> bool {
        self.wants_status(view.status)
            && self.name.as_ref().is_none_or(|name| view.name.as_ref() == Some(name))
            && self.labels.iter().all(|(key, value)| view.labels.get(key) == Some(value))
    }
}
