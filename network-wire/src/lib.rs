//! Reads what programs inside a sandbox send to the network. Pure: bytes in, values and reply bytes out.
//!
//! ```text
//! FirstBytes   the start of a connection   →  TLS with a server name, HTTP with a host, something else, or malformed
//! dns::Query   a DNS query                 →  the name that is asked for, and the bytes of an answer
//! Proxy        SOCKS5 or an HTTP proxy     →  the host and port that are wanted, and the bytes of the replies
//! ```
//!
//! All input is hostile. Every length has a bound with a name, no input panics, and no byte is looked at more than a few times
//! however the input is split. What two servers could read in two ways is malformed, and the caller refuses it: otherwise a
//! program could name an allowed host to us and another one to the server.
//!
//! **Invariant:** nothing in this crate does I/O, reads the clock, or decides what is allowed. Names come out as the text that
//! was sent, in ASCII; the policy brings them into one form.

mod authority;
mod client_hello;
mod cursor;
mod denial;
pub mod dns;
mod first_bytes;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod http_head;
mod malformed;
mod proxy;

pub use authority::{Authority, HostOrAddress};
pub use denial::{Denial, denied_page};
pub use first_bytes::{FirstBytes, MAX_FIRST_BYTES, Reading};
pub use http_head::Body;
pub use malformed::Malformed;
pub use proxy::{Connecting, NotConnected, Proxy, Step, Wants};
