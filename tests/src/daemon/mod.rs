//! The daemon as its users have it: the real `cove serve` on a port and a data directory of its own, asked over HTTP.

mod answer;
mod api;
mod audit;
mod process;
mod session;
mod stream;

pub use answer::Answer;
pub use api::Api;
pub use audit::Leftovers;
pub use process::{Daemon, DaemonBuilder, cove_binary};
pub use session::Session;
pub use stream::{Event, EventStream};
