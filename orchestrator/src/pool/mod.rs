//! Pools: sandboxes started ahead, each for whoever asks next for just such a one.
//!
//! ```text
//!            room, runtime           waits             claimed by a create that fits
//!  Filler ──▶ Filling ──────▶ Pooled (on the shelf) ───────────────────────────▶ a session's driver has the sandbox
//!     ▲          │ failed: backoff      │ ended, sick, given up for a session, too many
//!     └──────────┴───────────◀──────────┘
//! ```
//!
//! `policy` decides, `shelf` holds who waits, one `Filler` for each pool starts what is missing. A member is an entry of the
//! registry's table like any session, with a place that counts, and is driven by the same driver; but it is nobody's, and a request
//! for it is refused. A claim moves the sandbox from the member's driver to the session's, by value: nobody else can have it.
//!
//! **Invariant:** no sandbox goes to two sessions, and none comes back from one. Nothing here speaks HTTP.

mod filler;
mod policy;
mod shelf;

pub(crate) use filler::{Filler, illness};
pub(crate) use policy::sacrifice;
pub(crate) use shelf::{Member, PoolKey, Shelf, Taken};
