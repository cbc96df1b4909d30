//! A session's phase, and what it means to those who ask. Pure.

use shared_protocol::SessionId;
use shared_protocol::api::SessionStatus;

use super::SessionError;
use crate::store::StoredEnd;

/// Why a session is over.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Destroyed,
    Expired,
    /// The sandbox ended by itself; what is known of why.
    Crashed(String),
}

impl End {
    pub fn to_stored(&self) -> StoredEnd {
        let (status, reason) = match self {
            Self::Destroyed => (SessionStatus::Destroyed, None),
            Self::Expired => (SessionStatus::Expired, None),
            Self::Crashed(reason) => (SessionStatus::Crashed, Some(reason.clone())),
        };
        StoredEnd { status, reason }
    }

    pub fn of_stored(stored: &StoredEnd) -> Self {
        match stored.status {
            SessionStatus::Expired => Self::Expired,
            SessionStatus::Crashed => Self::Crashed(stored.reason.clone().unwrap_or_default()),
            _ => Self::Destroyed,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    Creating,
    /// A member of a pool, being started; nobody's.
    Filling,
    /// A member of a pool that waits; nobody's.
    Pooled,
    /// It never came to be, and nothing of it is left.
    Failed(SessionError),
    Running,
    Paused,
    /// Over for its clients; the sandbox is being removed.
    Ending(End),
    Ended(End),
}

impl Phase {
    pub fn status(&self) -> SessionStatus {
        match self {
            Self::Creating => SessionStatus::Creating,
            Self::Filling | Self::Pooled => SessionStatus::PoolIdle,
            Self::Running => SessionStatus::Running,
            Self::Paused => SessionStatus::Paused,
            Self::Ending(End::Destroyed) => SessionStatus::Destroying,
            Self::Failed(_) | Self::Ended(End::Destroyed) => SessionStatus::Destroyed,
            Self::Ending(End::Expired) | Self::Ended(End::Expired) => SessionStatus::Expired,
            Self::Ending(End::Crashed(_)) | Self::Ended(End::Crashed(_)) => SessionStatus::Crashed,
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Ending(End::Crashed(reason)) | Self::Ended(End::Crashed(reason)) => Some(reason),
            _ => None,
        }
    }

    /// What a request gets that needs the sandbox; `None` where there is one, or may be soon.
    pub fn refusal(&self, id: &SessionId) -> Option<SessionError> {
        match self {
            Self::Creating | Self::Running | Self::Paused => None,
            Self::Filling | Self::Pooled => {
                let message = format!("{id} waits in a pool and is nobody's session; a create may get it");
                Some(SessionError::Conflict(message))
            }
            Self::Failed(error) => Some(error.clone()),
            Self::Ending(end) | Self::Ended(end) => Some(match end {
                End::Destroyed => SessionError::NotFound(id.clone()),
                End::Expired => SessionError::Expired(id.clone()),
                End::Crashed(reason) => SessionError::Lost { id: id.clone(), reason: reason.clone() },
            }),
        }
    }

    /// Whether the driver is done: nothing of the sandbox is left.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Ended(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_refused_with_the_reason_that_ended_it() {
        let id = SessionId::new("7183cb80-d6c").unwrap();
        for phase in [Phase::Creating, Phase::Running, Phase::Paused] {
            assert_eq!(phase.refusal(&id), None);
        }
        for over in [Phase::Ending as fn(End) -> Phase, Phase::Ended] {
            assert_eq!(over(End::Destroyed).refusal(&id), Some(SessionError::NotFound(id.clone())));
            assert_eq!(over(End::Expired).refusal(&id), Some(SessionError::Expired(id.clone())));
            let lost = over(End::Crashed("killed".into()));
            assert_eq!(lost.refusal(&id), Some(SessionError::Lost { id: id.clone(), reason: "killed".into() }));
            assert_eq!(lost.status(), SessionStatus::Crashed);
        }
    }
}
