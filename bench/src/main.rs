//! What a command costs through Cove, beside what it costs without: one run, one machine, one client.
//!
//! `cargo run --release -p bench [runner|daemon]` prints times and their ratios. It is no test and asserts nothing: a time is
//! a property of the machine, and only the ratios travel.

mod baseline;
mod daemon;
mod figures;
mod runner;

use anyhow::{Result, bail};

const WARM_UP: usize = 200;
const SAMPLES: usize = 5000;
/// Starting a program is slower; fewer samples say as much.
const PROGRAM_SAMPLES: usize = 1000;
const STREAMED_BYTES: u64 = 1 << 30;

/// Prints a gigabyte without a byte that JSON would escape.
const PRINT_IT: &str = "head -c 1073741824 /dev/zero | tr '\\0' x";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => {
            runner::report().await?;
            daemon::report().await
        }
        Some("runner") => runner::report().await,
        Some("daemon") => daemon::report().await,
        Some(other) => bail!("{other:?} is not known: bench [runner|daemon]"),
    }
}
