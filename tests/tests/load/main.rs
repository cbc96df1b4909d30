//! The load that the daemon can take. This is a separate program whose stories run one after another: they measure, or take
//! the whole machine, and would delay other stories.

mod bombs;
mod connections;
mod counters;
mod many;
mod memory;
mod network;
mod soak;
mod storm;

use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

/// A lock that the running story holds, so that the others wait.
async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}
