//! What a claim from a pool costs beside an exec in a session that exists.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use e2e::daemon::Daemon;
use hyper::Method;
use serde_json::Value;

use crate::SAMPLES;
use crate::client::Client;
use crate::figures::{Times, row};

const POOL_SIZE: usize = 8;
const CLAIMS: usize = 200;
const FILL_DEADLINE: Duration = Duration::from_secs(60);

pub async fn report() -> Result<()> {
    let daemon = Daemon::builder().config(&format!("[pool]\nbase = {POOL_SIZE}\n")).start().await;
    let mut client = Client::connect(&daemon).await?;
    until_filled(&mut client).await?;
    let path = client.create("{}").await?;
    let exec = client.measure(SAMPLES, Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
    println!("\n{:<44} {:>9} {:>9} {:>9}", "pools", "p50", "p99", "ratio");
    row("exec true, in a session that exists", &exec, None);
    for (what, body) in [
        ("claim, to the first exec's answer", "{}"),
        ("  with a variable", r#"{"env":{"TOKEN":"secret"}}"#),
        ("  with a workspace", r#"{"workspace_id":"bench"}"#),
    ] {
        let claims = claims(&mut client, body).await?;
        row(what, &claims, Some(&exec));
        println!("{:<44} {:>8.2}x an exec", "", claims.p50.as_secs_f64() / exec.p50.as_secs_f64());
    }
    daemon.stop().await;
    Ok(())
}

/// Each from a full pool, with nothing else going on.
async fn claims(client: &mut Client, body: &str) -> Result<Times> {
    let mut times = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        until_filled(client).await?;
        let start = Instant::now();
        let session: Value = serde_json::from_slice(&client.send(Method::POST, "/v1/sessions", body).await?)?;
        let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap_or_default());
        client.send(Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
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
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
