//! Ids and names that appear in URLs and file names: short, plain ASCII, checked once when they arrive.

use serde::{Deserialize, Serialize};

/// The longest id: enough for a UUID with a prefix, and short enough for a log line.
pub const MAX_ID_BYTES: usize = 64;

/// The pattern that `is_valid` accepts, for JSON schemas.
pub const ID_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

/// An id that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidId {
    /// The kind of id, such as `session id`.
    pub what: &'static str,
    pub given: String,
}

impl std::fmt::Display for InvalidId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: String = self.given.chars().take(MAX_ID_BYTES).collect();
        write!(
            f,
            "{shown:?} is not a valid {}: use 1 to {MAX_ID_BYTES} of A-Z a-z 0-9 . _ - and begin with a letter or digit",
            self.what
        )
    }
}

impl std::error::Error for InvalidId {}

fn is_valid(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
        && id.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
        #[cfg_attr(any(test, feature = "schema"), schemars(extend("pattern" = ID_PATTERN)))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn new(id: impl Into<String>) -> Result<Self, InvalidId> {
                let given = id.into();
                if is_valid(&given) { Ok(Self(given)) } else { Err(InvalidId { what: $what, given }) }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(id: String) -> Result<Self, InvalidId> {
                Self::new(id)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(id: &str) -> Result<Self, InvalidId> {
                Self::new(id)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// The id of a command in a shell or of a run. The client may choose it, to be able to reattach; otherwise the runner makes one.
    ExecId,
    "exec id"
);
id!(
    /// The name of a shell in a session. The shell `main` exists from the start.
    ShellName,
    "shell name"
);

id!(
    /// The id of a session. The orchestrator makes it; an example is `7183cb80-d6c`.
    SessionId,
    "session id"
);
id!(
    /// The name of a session, besides its id. The client chooses it; no two sessions of one owner have the same name at a time.
    SessionName,
    "session name"
);
id!(
    /// The name of a workspace, a directory that outlives sessions. The client chooses it.
    WorkspaceId,
    "workspace id"
);
id!(
    /// The id of a snapshot. The orchestrator makes it; an example is `snap-7183cb80d6c1`.
    SnapshotId,
    "snapshot id"
);
id!(
    /// The name of an API key. It is the owner of the sessions and workspaces that are created with the key.
    KeyName,
    "key name"
);
id!(
    /// The name of a secret. Each owner has names of its own.
    SecretName,
    "secret name"
);
id!(
    /// The name of a runtime, the part that makes sandboxes: `local` or `docker`.
    RuntimeName,
    "runtime"
);

/// The letters of a session id on each side of its dash.
const SESSION_ID_PARTS: (usize, usize) = (8, 3);

impl SessionId {
    /// Whether a text has the form of the ids that the orchestrator makes.
    pub fn is_made_form(text: &str) -> bool {
        let is_hex = |part: &str, len: usize| {
            part.len() == len && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        text.split_once('-')
            .is_some_and(|(head, tail)| is_hex(head, SESSION_ID_PARTS.0) && is_hex(tail, SESSION_ID_PARTS.1))
    }
}

impl ShellName {
    pub fn main() -> Self {
        Self("main".to_owned())
    }
}

impl KeyName {
    /// The name of the first key, which the daemon's configuration or its data directory has. It also owns everything that was
    /// created before keys had names.
    pub fn first() -> Self {
        Self("default".to_owned())
    }

    pub fn is_first(&self) -> bool {
        *self == Self::first()
    }
}

impl RuntimeName {
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    pub fn docker() -> Self {
        Self("docker".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_session_id_is_told_from_a_name() {
        assert!(SessionId::is_made_form("7183cb80-d6c"));
        for other in ["7183cb80", "7183cb80-d6", "7183CB80-d6c", "agent-one", "7183cb80-d6c-", "7183cb80-d6g", ""] {
            assert!(!SessionId::is_made_form(other), "{other:?}");
        }
    }

    #[test]
    fn an_id_that_could_leave_a_directory_is_refused() {
        for bad in ["", "..", ".", "-rf", "a/b", "a b", "a\n", "é", &"x".repeat(65)] {
            assert!(ExecId::new(bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["main", "7183cb80-d6c", "a", "A.b_c-1", &"x".repeat(64)] {
            assert!(ExecId::new(good).is_ok(), "{good:?} was refused");
        }
    }
}
