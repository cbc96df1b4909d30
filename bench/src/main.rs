//! What a command costs through Cove, beside what it costs without: one run, one machine, one client.
//!
//! `cargo run --release -p bench [runner|daemon|neighbours|pool|docker]` prints times and their ratios; `docker`, which needs an
//! engine, only when asked. It is no test and asserts nothing: a time is a property of the machine, and only the ratios travel.

mod baseline;
mod client;
mod daemon;
mod docker;
mod figures;
mod neighbours;
mod pool;
mod runner;

use anyhow::{Result, bail};

const WARM_UP: usize = 200;
const SAMPLES: usize = 5000;
/// Starting a program is slower; fewer samples say as much.
const PROGRAM_SAMPLES: usize = 1000;
/// Starting a sandbox is slower still.
const CREATE_SAMPLES: usize = 50;
const STREAMED_BYTES: u64 = 1 << 30;

/// Prints a gigabyte without a byte that JSON would escape.
const PRINT_IT: &str = "head -c 1073741824 /dev/zero | tr '\\0' x";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => {
            runner::report().await?;
            daemon::report().await?;
            neighbours::report().await?;
            pool::report().await
        }
        Some("runner") => runner::report().await,
        Some("daemon") => daemon::report().await,
        Some("neighbours") => neighbours::report().await,
        Some("pool") => pool::report().await,
        Some("docker") => docker::report().await,
        Some(other) => bail!("{other:?} is not known: bench [runner|daemon|neighbours|pool|docker]"),
    }
}
