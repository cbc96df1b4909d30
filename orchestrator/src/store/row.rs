//! The stored form of a session.
//!
//! It has no variables: they may be secrets, and the sandbox already has them. No command needs this data. It serves to find
//! a session again, count it, expire it, and tell clients what it is or was.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shared_protocol::SessionId;
use shared_protocol::api::{AcquireSource, SessionStatus};

use crate::spec::SessionSpec;

#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    pub id: SessionId,
    /// The status: `creating`, `running`, `paused`, `stopped`, `pool_idle`, `destroying`, or how the session ended.
    pub status: SessionStatus,
    /// Why the session ends or has ended. Set from `destroying` on.
    pub end: Option<StoredEnd>,
    pub spec: Arc<SessionSpec>,
    pub source: AcquireSource,
    pub key: Option<StoredKey>,
    pub created_at: SystemTime,
    pub last_activity: SystemTime,
    pub ended_at: Option<SystemTime>,
    pub cwd: String,
}

/// The column `facts`: what a session was asked to be, as one JSON document. Only `Write::Update` changes it. Rows of older versions lack the
/// fields that were added later, so each of those has a default.
#[derive(Serialize, Deserialize)]
struct Facts<Spec> {
    #[serde(flatten)]
    spec: Spec,
    source: AcquireSource,
}

impl SessionRow {
    pub(super) fn facts_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Facts { spec: &*self.spec, source: self.source })
    }
}

pub(super) fn read_facts(text: &str) -> serde_json::Result<(Arc<SessionSpec>, AcquireSource)> {
    let Facts { spec, source } = serde_json::from_str::<Facts<SessionSpec>>(text)?;
    Ok((Arc::new(spec), source))
}

/// Why a session ends or has ended: one of the three last statuses, with the details of a crash if they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEnd {
    pub status: SessionStatus,
    pub reason: Option<String>,
}

/// The idempotency key of the session's create, with the fingerprint of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: String,
    pub fingerprint: u64,
}

/// The last use of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    pub id: SessionId,
    pub last_activity: SystemTime,
    pub cwd: String,
}

/// Converts a time to milliseconds since 1970, as the database stores it. A time outside that range becomes the nearest one
/// inside.
pub fn to_millis(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub fn from_millis(millis: i64) -> SystemTime {
    let since = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
