//! Measures a command and a session through the daemon, over HTTP on loopback.

use anyhow::Result;
use e2e::daemon::Daemon;
use hyper::Method;

use crate::baseline::{Bash, bubblewrap};
use crate::client::{Client, EXEC_TRUE};
use crate::figures::{megabytes_per_second, row};
use crate::scale::Scale;

pub async fn report(scale: &Scale) -> Result<()> {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(&daemon).await?;
    let path = client.create("{}").await?;

    let exec = client.measure(scale, scale.execs, Method::POST, &format!("{path}/exec"), EXEC_TRUE).await?;
    let round_trip = client.measure(scale, scale.execs, Method::GET, "/healthz", "").await?;
    let bash = Bash::start()?.measure(scale, "true")?;
    println!("\n{:<44} {:>9} {:>9} {:>9}", "the daemon", "p50", "p99", "ratio");
    row("exec true, over the API", &exec, None);
    row("  one loopback round trip (/healthz)", &round_trip, Some(&exec));
    row("  bare bash over pipes", &bash, Some(&exec));
    let budget = bash.p50 * 3 + round_trip.p50;
    println!(
        "{:<44} {:>6.0} µs   the figure to be under: 3 × bare bash and a round trip",
        "",
        budget.as_secs_f64() * 1e6
    );

    let create = client.creates(scale).await?;
    row("create, to the first exec's answer", &create, None);
    match bubblewrap(scale.creates)? {
        Some(jail) => row("  bwrap … bash -lc true", &jail, Some(&create)),
        None => println!("  bwrap … bash -lc true: skipped, bubblewrap is not installed"),
    }

    let took = client.stream(scale, &path).await?;
    let rate = megabytes_per_second(scale.streamed_bytes, took);
    println!("\n{} of output, over the API: {rate:.0} MB/s", scale.streamed());
    println!("the daemon's peak RSS: {} KiB", e2e::procfs::status_kib(daemon.pid(), "VmHWM"));
    daemon.stop().await;
    Ok(())
}
