//! The daemon as its users have it: the real `cove serve` on a port and a data directory of its own, asked over HTTP.

mod ability;
mod answer;
mod api;
mod audit;
pub mod bombs;
mod cli;
mod pattern;
mod private_engine;
mod process;
mod runtime;
mod session;
mod stream;
mod terminal;

pub use ability::{Ability, lacks};
pub use answer::Answer;
pub use api::Api;
pub use audit::{Leftovers, cgroups_of};
pub use cli::{Cove, Finished, finished};
pub use pattern::Pattern;
pub use private_engine::PrivateEngine;
pub use process::{Daemon, DaemonBuilder, cove_binary, failpoints};
pub use runtime::{Engine, engine, is_local_only};
pub use session::Session;
pub use stream::{Event, EventStream};
pub use terminal::Terminal;
