//! What the daemon bears. A program of its own, whose stories run one after another: they measure, or take the whole machine,
//! and would make those beside them wait.

mod bombs;
mod connections;
mod many;
mod soak;
mod storm;

use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

/// Held by the one story that runs.
async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}
