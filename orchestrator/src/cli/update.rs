//! `cove update`: changes the lifetime and the labels of sessions.

use std::time::Duration;

use clap::Args;
use shared_protocol::api::UpdateSessionRequest;

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::options::{duration, pair};
use super::output::{print, say};
use super::session_ref::SessionRef;

const EXAMPLES: &str = "\
Examples:
  cove update 7183cb80-d6c --ttl 2h
  cove update 7183cb80-d6c --label job=tests --label owner=ci

The time starts again with the update. Labels take the place of all earlier ones.
Prints the id of each session that was changed.";

/// Change the lifetime or the labels of sessions
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[group(id = "changes", required = true, multiple = true, args = ["ttl", "labels"])]
pub struct UpdateArgs {
    /// Ids or names of the sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<SessionRef>,
    /// Let the session expire after this time without activity, for example 30m or 2h
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<Duration>,
    /// Label the session; the labels that it had are removed
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn update(args: UpdateArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let wanted = UpdateSessionRequest {
        ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()),
        idle_seconds: None,
        labels: (!args.labels.is_empty()).then(|| args.labels.into_iter().collect()),
    };
    let mut code = 0;
    for id in SessionRef::find_all(&args.sessions, &client).await? {
        match client.update_session(&id, &wanted).await {
            Ok(_) => print(&format!("{id}\n"))?,
            Err(error) => {
                say(format!("{id}: {error}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}
