//! The daemon as its users have it: the real `cove serve` on a port and a data directory of its own, asked over HTTP.

mod answer;
mod api;
mod audit;
mod cli;
mod pattern;
mod process;
mod session;
mod stream;
mod terminal;

pub use answer::Answer;
pub use api::Api;
pub use audit::Leftovers;
pub use cli::{Cove, Finished, finished};
pub use pattern::Pattern;
pub use process::{Daemon, DaemonBuilder, cove_binary};
pub use session::Session;
pub use stream::{Event, EventStream};
pub use terminal::Terminal;
