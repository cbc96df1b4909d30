//! API keys: a name, a role, limits, and a secret of which only the hash is kept.
//!
//! ```text
//!  add ──▶ store ──▶ memory ──▶ the secret, once
//!  remove ──▶ memory ──▶ store          the key is refused before the store has answered
//!  identify(secret) ──▶ memory
//! ```
//!
//! The first key is not in the store: the daemon's configuration or the file `api-key` has it. It cannot be removed here, so an
//! operator cannot lock himself out.
//!
//! **Why a plain SHA-256.** A slow hash protects passwords, which people choose from a small set. A secret made here is 256
//! random bits: nobody can try them, however fast the hash is, and a request must not cost a slow hash.
//!
//! **Constant time.** A given secret is hashed, and its hash is compared with all known ones, each in constant time. So the time
//! of a refusal says nothing about any key.

mod error;
mod table;

pub use error::KeyError;
pub use table::{KeyFacts, KeySpec, KeyTable, Secret};
