//! Sessions: one sandbox each, from the request that makes it to the last trace of it.
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
//! Each of these steps is in the store before it is taken, so that a daemon that comes back (`recovery`) finds every session in
//! one of them: `Running` and `Paused` are adopted, `Creating` is undone, `Ending` is finished.
//!
//! A member of a pool (`member`) is `Filling`, then `Pooled`, until its sandbox goes to a session, whose `Creating` is then the
//! claim.
//!
//! One task, the `Driver`, owns a session's phase and is the only one that changes it while the sandbox exists. Handles count
//! activity beside it, behind a short lock that is never held over an await: an exec does not pass through the driver's hands.
//! The `Registry` knows all sessions, decides admission (a pure value), and keeps the tombstones.
//!
//! **Invariant:** nothing here speaks HTTP or knows how a sandbox is made. Whatever a runtime does (fails, hangs, ends by
//! itself), a session leaves `Creating` and `Ending` in bounded time, and its slot is free afterwards.

mod activity;
mod admission;
mod clock;
mod driver;
mod error;
mod expiry;
#[cfg(test)]
pub(crate) mod fake;
mod filter;
mod handle;
mod ledger;
mod member;
mod pause;
mod plan;
mod pooling;
mod reconcile;
mod recovery;
#[cfg(test)]
mod recovery_test;
mod registry;
mod shared;
mod state;
mod table;
mod upkeep;

pub use activity::{Activity, DetachedActivity};
pub use admission::{Admission, Ask, Limits, Refusal};
pub use clock::{Clock, show_wall};
pub(crate) use driver::Driver;
pub use error::SessionError;
pub use filter::SessionFilter;
pub use handle::SessionHandle;
pub(crate) use member::{GiveTo, NewMember};
pub(crate) use plan::Plan;
pub use recovery::Recovered;
pub use registry::{Registry, RegistryParts};
pub use state::{End, Phase};
