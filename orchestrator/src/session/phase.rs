//! The phase of a session, and what it means for requests. Pure.

use shared_protocol::SessionId;
use shared_protocol::api::SessionStatus;

use super::SessionError;
use crate::store::StoredEnd;

/// Why a session is over.
#[derive(Debug, Clone, PartialEq)]
pub enum EndReason {
    Destroyed,
    Expired,
    /// The sandbox ended by itself, with the cause as far as it is known.
    Crashed(String),
}

impl EndReason {
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
    /// A pooled sandbox that is being started. It belongs to no session.
    Filling,
    /// A pooled sandbox that waits for a claim. It belongs to no session.
    Pooled,
    /// The create failed, and nothing is left of the sandbox.
    Failed(SessionError),
    Running,
    Paused,
    /// The session has no processes. Its disk and the state of its shells are kept until it is started.
    Stopped,
    /// The session is over for its clients, and the sandbox is being removed.
    Ending(EndReason),
    Ended(EndReason),
}

impl Phase {
    pub fn status(&self) -> SessionStatus {
        match self {
            Self::Creating => SessionStatus::Creating,
            Self::Filling | Self::Pooled => SessionStatus::PoolIdle,
            Self::Running => SessionStatus::Running,
            Self::Paused => SessionStatus::Paused,
            Self::Stopped => SessionStatus::Stopped,
            Self::Ending(EndReason::Destroyed) => SessionStatus::Destroying,
            Self::Failed(_) | Self::Ended(EndReason::Destroyed) => SessionStatus::Destroyed,
            Self::Ending(EndReason::Expired) | Self::Ended(EndReason::Expired) => SessionStatus::Expired,
            Self::Ending(EndReason::Crashed(_)) | Self::Ended(EndReason::Crashed(_)) => SessionStatus::Crashed,
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Ending(EndReason::Crashed(reason)) | Self::Ended(EndReason::Crashed(reason)) => Some(reason),
            _ => None,
        }
    }

    /// The error for a request that needs the sandbox. `None` if the sandbox exists, or may exist soon.
    pub fn refusal(&self, id: &SessionId) -> Option<SessionError> {
        match self {
            Self::Creating | Self::Running | Self::Paused => None,
            Self::Stopped => {
                let message =
                    format!("session {id} is stopped: start it with POST /v1/sessions/{id}/start, or cove start {id}");
                Some(SessionError::Conflict(message))
            }
            Self::Filling | Self::Pooled => {
                let message = format!("{id} waits in a pool and is nobody's session; a create may get it");
                Some(SessionError::Conflict(message))
            }
            Self::Failed(error) => Some(error.clone()),
            Self::Ending(end) | Self::Ended(end) => Some(match end {
                EndReason::Destroyed => SessionError::NotFound(id.clone()),
                EndReason::Expired => SessionError::Expired(id.clone()),
                EndReason::Crashed(reason) => SessionError::Lost { id: id.clone(), reason: reason.clone() },
            }),
        }
    }

    /// Whether the driver is done and nothing is left of the sandbox.
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
        for over in [Phase::Ending as fn(EndReason) -> Phase, Phase::Ended] {
            assert_eq!(over(EndReason::Destroyed).refusal(&id), Some(SessionError::NotFound(id.clone())));
            assert_eq!(over(EndReason::Expired).refusal(&id), Some(SessionError::Expired(id.clone())));
            let lost = over(EndReason::Crashed("killed".into()));
            assert_eq!(lost.refusal(&id), Some(SessionError::Lost { id: id.clone(), reason: "killed".into() }));
            assert_eq!(lost.status(), SessionStatus::Crashed);
        }
    }
}
