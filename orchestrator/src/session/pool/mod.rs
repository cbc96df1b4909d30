//! Pools: sandboxes that are started in advance, each for the next create that asks for exactly such a sandbox.
//!
//! ```text
//!            room, runtime           waits              claimed by a create that fits
//!  Filler ──▶ Filling ──────▶ Pooled (in an idle pool) ──────────────────────▶ a session's driver has the sandbox
//!     ▲          │ failed: backoff      │ ended, does not answer, evicted for a session, too many
//!     └──────────┴───────────◀──────────┘
//! ```
//!
//! `policy` decides, `idle_pools` holds the waiting sandboxes, one `Filler` per pool starts missing ones, and `pooling`
//! connects pools to the registry. A pooled sandbox has an entry and a counted place in the registry's table and its own
//! driver, like any session; but it belongs to no session, and a request for it is refused. A claim moves the sandbox by
//! value from its own driver to the session's driver, so no one else can have it.
//!
//! **Invariant:** no sandbox goes to two sessions, and none comes back from a session. Nothing here knows HTTP.

mod filler;
mod idle_pools;
mod policy;
mod pooling;

use shared_protocol::SessionId;

pub use idle_pools::IdlePools;

use super::SessionHandle;
use super::driver::HandOver;
use super::registry::Demand;
use crate::runner_client::RunnerClient;

/// A sandbox that is being started for a pool. If this value is dropped, the driver removes the sandbox.
pub struct FillingSandbox {
    pub handle: SessionHandle,
    pub demand: Demand,
    pub hand_over: HandOver,
}

/// A sandbox that waits for a session. If this value is dropped, the driver removes the sandbox.
#[derive(Debug)]
pub struct PooledSandbox {
    pub handle: SessionHandle,
    pub demand: Demand,
    /// A client with an open connection to the runner.
    pub runner: RunnerClient,
    pub hand_over: HandOver,
}

impl PooledSandbox {
    pub fn id(&self) -> &SessionId {
        self.handle.id()
    }
}
