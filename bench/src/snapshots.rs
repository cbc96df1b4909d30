//! Measures a snapshot, and a fork to its first exec, beside a cold create: in turn, so that all three have the same load; once for a
//! session with an empty disk and once for one with much on it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::daemon::Daemon;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Client, EXEC_TRUE, session_path};
use crate::figures::{Times, row};
use crate::scale::Scale;

/// The longest time to write what a session's disk holds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// What sessions are made with. The disk has room for what is written and what is copied.
const SESSION: &str = r#"{"resources":{"disk_mb":8192}}"#;

/// The times of one kind of session.
struct Measured {
    create: Times,
    snapshot: Times,
    restored: Times,
    fork: Times,
}

pub async fn report(scale: &Scale) -> Result<()> {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(&daemon).await?;
    let probe = client.create(SESSION).await?;
    let can_fork = client.send(Method::POST, &format!("{probe}/fork"), "{}").await;
    client.send(Method::DELETE, &probe, "").await?;
    let made: Value = match can_fork {
        Ok(answer) => serde_json::from_slice(&answer)?,
        Err(why) => {
            println!("\nsnapshots and forks: skipped, {why}");
            daemon.stop().await;
            return Ok(());
        }
    };
    client.send(Method::DELETE, &session_path(&made["sessions"][0])?, "").await?;
    println!("\n{:<44} {:>9} {:>9} {:>9}", "snapshots and forks", "p50", "p99", "ratio");
    let mut medians = Vec::new();
    for held in [0, scale.held_bytes] {
        let measured = measure(&mut client, scale.creates, held).await?;
        println!("of a session with {} MiB on its disk:", held >> 20);
        row("  create, to the first exec's answer", &measured.create, None);
        for (what, times) in [
            ("  snapshot", &measured.snapshot),
            ("  from a snapshot, to the first exec's answer", &measured.restored),
            ("  fork, to the first exec's answer", &measured.fork),
        ] {
            row(what, times, None);
            println!("{:<44} {:>8.2}x a create", "", times.p50.as_secs_f64() / measured.create.p50.as_secs_f64());
        }
        medians.push(measured.fork.p50.as_secs_f64() / measured.create.p50.as_secs_f64());
    }
    println!("{:<44} {:>8.2}x an empty disk", "fork with much on the disk, in creates", medians[1] / medians[0]);
    daemon.stop().await;
    Ok(())
}

async fn measure(client: &mut Client, count: usize, held: u64) -> Result<Measured> {
    let parent = client.create(SESSION).await?;
    let write = json!({
        "cmd": format!("head -c {held} /dev/urandom > ~/held && sync ~/held && stat -c %s ~/held"),
        "timeout_ms": u64::try_from(WRITE_TIMEOUT.as_millis())?,
    });
    let written: Value =
        serde_json::from_slice(&client.send(Method::POST, &format!("{parent}/exec"), &write.to_string()).await?)?;
    ensure!(written["output"] == format!("{held}\n"), "{written}");
    let (mut creates, mut snapshots, mut restored, mut forks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        creates.push(first_exec(client, "/v1/sessions", SESSION, |answer| answer.clone()).await?);
        let start = Instant::now();
        let made = client.send(Method::POST, &format!("{parent}/snapshots"), "{}").await?;
        snapshots.push(start.elapsed());
        let made: Value = serde_json::from_slice(&made)?;
        let from = json!({ "snapshot": made["id"] }).to_string();
        restored.push(first_exec(client, "/v1/sessions", &from, |answer| answer.clone()).await?);
        let path = format!("/v1/snapshots/{}", made["id"].as_str().unwrap_or_default());
        client.send(Method::DELETE, &path, "").await?;
        forks.push(first_exec(client, &format!("{parent}/fork"), "{}", |answer| answer["sessions"][0].clone()).await?);
    }
    client.send(Method::DELETE, &parent, "").await?;
    let [create, snapshot, restored, fork] = [creates, snapshots, restored, forks].map(Times::of);
    Ok(Measured { create, snapshot, restored, fork })
}

/// The time from asking for a session to the answer of its first command. `session` finds it in the answer.
async fn first_exec(
    client: &mut Client,
    path: &str,
    body: &str,
    session: impl Fn(&Value) -> Value,
) -> Result<Duration> {
    let start = Instant::now();
    let answer: Value = serde_json::from_slice(&client.send(Method::POST, path, body).await?)?;
    let made = session_path(&session(&answer))?;
    client.send(Method::POST, &format!("{made}/exec"), EXEC_TRUE).await?;
    let took = start.elapsed();
    client.send(Method::DELETE, &made, "").await?;
    Ok(took)
}
