//! Measures a claim from a pool, compared with an exec in an existing session.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use e2e::daemon::Daemon;
use hyper::Method;
use serde_json::Value;

use crate::client::{Client, EXEC_TRUE, session_path};
use crate::figures::{Times, row};
use crate::scale::Scale;

const POOL_SIZE: usize = 8;
const FILL_DEADLINE: Duration = Duration::from_secs(60);
const FILL_POLL_INTERVAL: Duration = Duration::from_millis(5);

pub async fn report(scale: &Scale) -> Result<()> {
    let daemon = Daemon::builder().config(&format!("[pool]\nbase = {POOL_SIZE}\n")).start().await;
    let mut client = Client::connect(&daemon).await?;
    until_filled(&mut client).await?;
    let path = client.create("{}").await?;
    let exec = client.measure(scale, scale.execs, Method::POST, &format!("{path}/exec"), EXEC_TRUE).await?;
    println!("\n{:<44} {:>9} {:>9} {:>9}", "pools", "p50", "p99", "ratio");
    row("exec true, in a session that exists", &exec, None);
    for (what, body) in [
        ("claim, to the first exec's answer", "{}"),
        ("  with a variable", r#"{"env":{"TOKEN":"secret"}}"#),
        ("  with a workspace", r#"{"workspace_id":"bench"}"#),
    ] {
        let claims = claims(&mut client, scale.claims, body).await?;
        row(what, &claims, Some(&exec));
        println!("{:<44} {:>8.2}x an exec", "", claims.p50.as_secs_f64() / exec.p50.as_secs_f64());
    }
    daemon.stop().await;
    Ok(())
}

/// The times from a create to the answer of its first command, each with a full pool and no other load.
async fn claims(client: &mut Client, count: usize, body: &str) -> Result<Times> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        until_filled(client).await?;
        let start = Instant::now();
        let session: Value = serde_json::from_slice(&client.send(Method::POST, "/v1/sessions", body).await?)?;
        let path = session_path(&session)?;
        client.send(Method::POST, &format!("{path}/exec"), EXEC_TRUE).await?;
        times.push(start.elapsed());
        ensure!(session["acquire_source"] == "pool", "{session}");
        client.send(Method::DELETE, &path, "").await?;
    }
    Ok(Times::of(times))
}

async fn until_filled(client: &mut Client) -> Result<()> {
    let start = Instant::now();
    loop {
        let pools: Value = serde_json::from_slice(&client.send(Method::GET, "/v1/pools", "").await?)?;
        if pools[0]["idle"] == POOL_SIZE {
            return Ok(());
        }
        if start.elapsed() > FILL_DEADLINE {
            bail!("the pool is not filled: {pools}");
        }
        tokio::time::sleep(FILL_POLL_INTERVAL).await;
    }
}
