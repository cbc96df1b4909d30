//! The daemon as users run it: the real `cove serve` with its own port and data directory, accessed over HTTP.

mod ability;
mod api;
mod audit;
pub mod bombs;
mod cli;
mod pattern;
mod private_engine;
mod process;
pub mod registry;
pub mod rootfs;
mod runtime;
mod session;
mod stream;
mod terminal;
mod upstream;
mod window;

pub use ability::{Ability, lacks};
pub use api::Api;
pub use audit::{Leftovers, cgroups_of, loop_devices_of, snapshots_of};
pub use cli::{Cove, Finished, finished};
pub use pattern::Pattern;
pub use private_engine::PrivateEngine;
pub use process::{Daemon, DaemonBuilder, cove_binary, failpoints};
pub use runtime::{Engine, engine, is_local_only};
pub use session::Session;
pub use stream::{Event, EventStream};
pub use terminal::Terminal;
pub use upstream::{Seen, Upstream};
pub use window::{TerminalWindow, WindowEnd};

pub use crate::http::Answer;
