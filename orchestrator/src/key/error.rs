//! The errors of keys, by what a caller can do about them.

use shared_protocol::KeyName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("there is a key {0} already; remove it first, or choose another name")]
    Exists(KeyName),
    #[error("no key {0}")]
    NotFound(KeyName),
    #[error("the key {0} is the daemon's first key: change its file or the configuration, and restart the daemon")]
    First(KeyName),
    #[error("there are {0} keys already")]
    Full(usize),
    /// The key is refused from now on, but a restart of the daemon would bring it back.
    #[error("the key {name} is refused from now on, but it is still in the store ({cause}): remove it again")]
    StillStored { name: KeyName, cause: String },
    /// The host failed.
    #[error("{0}")]
    Failed(String),
}
