//! Why bytes are refused.

/// What is wrong with the bytes that a program sent, for the log and for the reply. Callers do not branch on it: they refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) &'static str);
