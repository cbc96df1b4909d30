//! Which sessions a listing shows. Pure.

use shared_protocol::api::{SessionStatus, SessionView};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Any of these; empty: all that are somebody's and not over. A crashed one is shown, since somebody should look.
    pub statuses: Vec<SessionStatus>,
    /// All of these.
    pub labels: Vec<(String, String)>,
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
        self.wants_status(view.status) && self.labels.iter().all(|(key, value)| view.labels.get(key) == Some(value))
    }
}
