//! Sessions. Each has one sandbox, from the request that creates it until nothing is left of it.
//!
//! ```text
//!                       made                    pause
//!  create ─▶ Creating ─────────▶ Running ◀──────────────▶ Paused
//!               │ │                 │      next request     │
//!         failed│ │destroy          └──────────┬────────────┘
//!               ▼ │                            │ destroy │ expiry │ the sandbox ended
//!            Failed└──────────▶ Ending(why) ◀──┘
//!       (as if never asked for)      │ the runtime has removed it
//!                                    ▼
//!                               Ended(why) ─▶ a tombstone for a while, then unknown
//! ```
//!
//! A stop leads from `Running` or `Paused` to `Stopped`, which has no processes, and a start back over `Creating`. A start that fails
//! leaves the session `Stopped`.
//!
//! Each step is stored before it is taken, so a daemon that restarts (`recovery`) finds every session in one of these
//! phases: it adopts `Running` and `Paused` sessions, keeps `Stopped` ones, undoes `Creating`, and finishes `Ending`.
//!
//! A pooled sandbox (`pool`) is `Filling`, then `Pooled`, until a session claims it. The `Creating` of that session is the
//! claim.
//!
//! One task, the `Driver`, owns a session's phase, and only the driver changes it while the sandbox exists. Handles count
//! activity beside it, under a short lock that is never held over an await: an exec does not go through the driver. The
//! `Registry` knows all sessions, decides admission (a pure value), and keeps the tombstones.
//!
//! **Invariant:** nothing here knows HTTP or how a sandbox is made. Whatever a runtime does (fails, hangs, ends by itself),
//! a session leaves `Creating` and `Ending` in bounded time, and its place is free afterwards.

mod activity;
mod clock;
mod driver;
mod error;
mod facts;
#[cfg(test)]
pub(crate) mod fake;
mod filter;
mod handle;
mod phase;
mod pool;
mod recovery;
mod registry;
mod resolve;
mod shared;
mod snapshots;

pub use activity::{Activity, DetachedActivity};
pub use clock::{Clock, show_wall};
pub use error::SessionError;
pub use filter::SessionFilter;
pub use handle::SessionHandle;
pub use phase::{EndReason, Phase};
pub use recovery::Recovered;
pub use registry::{Registry, RegistryParts};
use resolve::Plan;
pub use resolve::Update;
pub use snapshots::{HeldRoot, view as snapshot_view};
