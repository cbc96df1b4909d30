//! What a command and a session cost through the daemon, over HTTP on loopback.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::daemon::Daemon;
use hyper::Method;

use crate::baseline::{Bash, bubblewrap};
use crate::client::Client;
use crate::figures::{megabytes_per_second, row};
use crate::{CREATE_SAMPLES, SAMPLES, STREAMED_BYTES};

pub async fn report() -> Result<()> {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(&daemon).await?;
    let path = client.create("{}").await?;

    let exec = client.measure(SAMPLES, Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
    let round_trip = client.measure(SAMPLES, Method::GET, "/healthz", "").await?;
    let bash = Bash::start()?.measure("true")?;
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

    let create = client.creates().await?;
    row("create, to the first exec's answer", &create, None);
    match bubblewrap(CREATE_SAMPLES)? {
        Some(jail) => row("  bwrap … bash -lc true", &jail, Some(&create)),
        None => println!("  bwrap … bash -lc true: skipped, bubblewrap is not installed"),
    }

    let start = Instant::now();
    let received = client.stream(&format!("{path}/exec/stream")).await?;
    ensure!(received == STREAMED_BYTES, "{received} bytes arrived");
    println!("\n1 GiB of output, over the API: {:.0} MB/s", megabytes_per_second(received, start.elapsed()));
    println!("the daemon's peak RSS: {} KiB", e2e::procfs::status_kib(daemon.pid(), "VmHWM"));
    daemon.stop().await;
    Ok(())
}
