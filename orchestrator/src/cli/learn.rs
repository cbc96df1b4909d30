//! `cove network learn SESSION -- CMD`: runs a command with the network `learn`, puts the old network back, and tells what was used.
//!
//! ```text
//!  read the network ─▶ may this key set it? ─▶ learn ─▶ run CMD ─▶ read what was used ─▶ the old network again
//! ```
//!
//! A signal ends the command and not this process, so the old network comes back in each case but `kill -9`.

use std::time::Duration;

use shared_protocol::api::{ApiExecRequest, NetworkSpec, NetworkView, SetNetworkRequest};
use shared_protocol::{ExecId, SessionId};

use super::exec;
use super::exit::{self, Failure};
use super::follow::{Follower, conclude, new_exec_id};
use super::interrupt::Interrupts;
use super::output::say;
use super::words;
use crate::client::{Client, ClientError};

/// How often to try to put the old network back, if the daemon does not answer.
const RESTORE_ATTEMPTS: u32 = 6;
/// The pause after the first attempt. It doubles with each: about three seconds in all.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Runs the command, and returns its exit code and what it has used. Its output goes to standard error, because standard output is
/// for the rules.
pub async fn learn(client: &Client, session: &SessionId, words: &[String]) -> Result<(u8, Vec<String>), Failure> {
    let before = client.network(session).await?.network;
    let mut interrupts = Interrupts::new()?;
    // A key that could not put it back must not take it away.
    if !before.is_learn() {
        client.set_network(session, &of(&before)).await.map_err(|error| {
            Failure::failed(format!("this key could not put the session's network back afterwards: {error}"))
        })?;
    }
    client.set_network(session, &of(&NetworkSpec::preset(NetworkSpec::LEARN))).await?;
    let ran = run(client, session, words, &mut interrupts).await;
    let used = client.network(session).await.map(|view| view.used);
    if !before.is_learn() {
        restore(client, session, &before).await.map_err(|error| {
            Failure::failed(format!(
                "the session still has the network learn, because the old one cannot be put back: {error}; see `cove network set`"
            ))
        })?;
    }
    Ok((ran?, used?))
}

async fn run(
    client: &Client,
    session: &SessionId,
    words: &[String],
    interrupts: &mut Interrupts,
) -> Result<u8, Failure> {
    let exec: ExecId = new_exec_id()?;
    let wanted =
        ApiExecRequest { cmd: words::command(words), exec_id: Some(exec.clone()), ..ApiExecRequest::default() };
    let mut follower = Follower::new(client, session, exec.clone()).on_stderr();
    let work = async {
        let begun = client.exec_stream(session, &wanted).await;
        follower.follow(begun).await.map(|done| conclude(&done))
    };
    tokio::pin!(work);
    let signal = tokio::select! {
        result = &mut work => return result,
        signal = interrupts.next() => signal,
    };
    let end = async {
        exec::send(client, session, &exec, "INT").await;
        std::future::pending().await
    };
    tokio::select! {
        result = &mut work => result,
        never = end => never,
        _ = interrupts.next() => {
            say(format!("the command keeps running; `cove exec {session} --attach {exec}` follows it again"));
            Ok(exit::signalled(signal))
        }
    }
}

async fn restore(client: &Client, session: &SessionId, network: &NetworkSpec) -> Result<NetworkView, ClientError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..RESTORE_ATTEMPTS {
        match client.set_network(session, &of(network)).await {
            Err(ClientError::Unreachable { .. } | ClientError::Lost(_)) => {}
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    client.set_network(session, &of(network)).await
}

/// The request that sets this network and keeps the injected headers.
fn of(network: &NetworkSpec) -> SetNetworkRequest {
    SetNetworkRequest { network: network.clone(), inject: None }
}
