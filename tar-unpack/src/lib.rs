//! Unpacks a tar stream from a stranger into a directory. The runner does it for `PUT /v1/archive`, as the sandbox user;
//! `cove cp` does it on the host, with what a sandbox packed.
//!
//! ```text
//! unpack → Reader (the format: entries, one by one) → Unpacking (the files: one entry at a time, below one directory)
//! ```
//!
//! It promises bounded memory whatever the stream claims, that nothing is made or changed outside the destination, and that a
//! stream which stops anywhere before its end marker is an error.
//!
//! It refuses absolute paths, `..`, devices, FIFOs and sparse entries, and names the entry. It drops setuid, setgid and sticky
//! bits. It does not decompress.

mod error;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod reader;
mod unpack;

pub use error::{Failure, UnpackError};
pub use reader::{BLOCK, TarError, padding};
pub use unpack::{Options, Summary, unpack};
