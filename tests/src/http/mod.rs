//! HTTP/1.1 for the tests and the benchmarks: only this module opens connections and sends requests over them.
//!
//! [`Connection`] carries one request after another; [`Answer`] is a complete answer, and [`Lines`] an answer that is read
//! line by line. The client of the runner ([`crate::Client`]) and the client of the daemon ([`crate::daemon::Api`]) only add
//! the paths, keys and types of their server.
//!
//! This module does not send requests that no HTTP library would send (malformed or incomplete ones): stories about them
//! write to a socket directly.

mod answer;
mod connection;
mod lines;

pub use answer::Answer;
pub use connection::{Address, Connection};
pub use lines::Lines;
