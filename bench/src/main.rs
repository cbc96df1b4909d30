//! Compares a command through Cove with the same command without it: one run, one machine, one client.
//!
//! `cargo run --release -p bench -- [--short] [NAME…]` prints times and their ratios. Without a name it runs all benchmarks
//! except `docker`, which needs a container engine. It asserts no times: a time depends on the machine, and only ratios can
//! be compared between machines. It checks every answer, and ends with an error if one is wrong. `--short` does everything
//! only a few times; the tests run it (`bench/tests/short.rs`), so that a broken benchmark is noticed.

mod baseline;
mod client;
mod daemon;
mod docker;
mod figures;
mod neighbours;
mod network;
mod pool;
mod runner;
mod scale;
mod snapshots;

use anyhow::{Result, bail};
use scale::Scale;

const USAGE: &str = "usage: bench [--short] [runner] [daemon] [neighbours] [pool] [network] [snapshots] [docker]";
const DEFAULT: [&str; 6] = ["runner", "daemon", "neighbours", "pool", "network", "snapshots"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let count = names.len();
    names.retain(|name| name != "--short");
    let scale = if names.len() < count { Scale::SHORT } else { Scale::FULL };
    if names.is_empty() {
        names = DEFAULT.map(str::to_owned).to_vec();
    }
    for name in names {
        match name.as_str() {
            "runner" => runner::report(&scale).await?,
            "daemon" => daemon::report(&scale).await?,
            "neighbours" => neighbours::report(&scale).await?,
            "pool" => pool::report(&scale).await?,
            "network" => network::report(&scale).await?,
            "snapshots" => snapshots::report(&scale).await?,
            "docker" => docker::report(&scale).await?,
            _ => bail!("{name:?} is not known\n{USAGE}"),
        }
    }
    Ok(())
}
