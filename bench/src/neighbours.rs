//! Measures how much a session that uses up its resources slows down another session: the time of a command there while a
//! bomb runs, and just before it, so that a machine with other load is compared with itself.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::daemon::Daemon;
use e2e::daemon::bombs::BOMBS;
use hyper::Method;
use serde_json::json;

use crate::client::{Client, EXEC_TRUE};
use crate::figures::Times;
use crate::scale::Scale;

pub async fn report(scale: &Scale) -> Result<()> {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(&daemon).await?;
    let mut fuse = Client::connect(&daemon).await?;
    let neighbour = format!("{}/exec", client.create("{}").await?);
    let bomb_timeout_ms = u64::try_from(scale.bomb_timeout.as_millis())?;
    client.samples(scale.warm_up, &Method::POST, &neighbour, EXEC_TRUE).await?;
    let mut all_idle = Vec::new();
    let mut worst = Duration::ZERO;

    println!(
        "\n{:<12} {:>9} {:>9}   {:>9} {:>9}   {:>7} {:>7}",
        "neighbours", "idle p50", "p99", "bomb p50", "p99", "p50 ×", "p99 ×"
    );
    for (name, bomb) in BOMBS {
        let idle = client.samples(scale.idle_execs, &Method::POST, &neighbour, EXEC_TRUE).await?;
        all_idle.extend_from_slice(&idle);
        let body = json!({ "resources": { "cpus": 0.5, "memory_mb": 128, "pids": 64, "disk_mb": 64 } }).to_string();
        let bomber = fuse.create(&body).await?;
        let exec = format!("{bomber}/exec");
        let mut during = Vec::with_capacity(scale.bomb_execs);
        while during.len() < scale.bomb_execs {
            let body = json!({ "cmd": bomb, "timeout_ms": bomb_timeout_ms }).to_string();
            let mut exploding = Box::pin(fuse.send(Method::POST, &exec, &body));
            loop {
                let start = Instant::now();
                let mut asked = Box::pin(client.send(Method::POST, &neighbour, EXEC_TRUE));
                tokio::select! {
                    biased;
                    answer = &mut asked => { answer?; during.push(start.elapsed()); }
                    ended = &mut exploding => { ended?; asked.await?; break; }
                }
            }
            drop(exploding);
            let clean = json!({ "cmd": "rm -rf /tmp/* /workspace/*" }).to_string();
            fuse.send(Method::POST, &exec, &clean).await?;
        }
        fuse.send(Method::DELETE, &bomber, "").await?;
        let during = Times::of(during);
        print_row(name, &Times::of(idle), &during);
        worst = worst.max(during.p99);
    }
    let idle = Times::of(all_idle).p99;
    let ratio = worst.as_secs_f64() / idle.as_secs_f64();
    println!("the worst p99 beside a bomb is {ratio:.2} × that of all idle times together ({} µs)", idle.as_micros());
    daemon.stop().await;
    Ok(())
}

fn print_row(name: &str, idle: &Times, during: &Times) {
    let micros = |d: Duration| format!("{:.0} µs", d.as_secs_f64() * 1e6);
    let ratio = |a: Duration, b: Duration| format!("{:.2}", b.as_secs_f64() / a.as_secs_f64());
    println!(
        "{name:<12} {:>9} {:>9}   {:>9} {:>9}   {:>7} {:>7}",
        micros(idle.p50),
        micros(idle.p99),
        micros(during.p50),
        micros(during.p99),
        ratio(idle.p50, during.p50),
        ratio(idle.p99, during.p99),
    );
}
