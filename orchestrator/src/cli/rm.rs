//! `cove rm`: ends sessions.

use clap::Args;
use futures_util::StreamExt;
use shared_protocol::SessionId;

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::output::{print, say};
use super::session_ref::SessionRef;
use crate::client::{Client, ClientError};

const EXAMPLES: &str = "\
Examples:
  cove rm 7183cb80-d6c
  cove rm web
  cove rm -f $(cove ps -q)                   also if there is none
  cove rm --all

Prints the id of each session that was ended.";

/// How many sessions are ended at the same time, so that the daemon can still serve other clients.
const AT_ONCE: usize = 8;

/// End sessions and everything that runs in them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RmArgs {
    /// Ids or names of the sessions
    #[arg(required_unless_present_any = ["all", "force"], value_name = "SESSION")]
    sessions: Vec<SessionRef>,
    /// Do not complain about sessions that have ended, nor if none is named
    #[arg(short = 'f', long)]
    force: bool,
    /// End all sessions
    #[arg(long, conflicts_with = "sessions")]
    all: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn rm(args: RmArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let sessions = match args.all {
        true => client.sessions(None, &[]).await?.into_iter().map(|session| session.id).collect(),
        false => named(&args, &client).await?,
    };
    let mut code = 0;
    let ends = sessions.into_iter().map(|id| {
        let client = &client;
        async move { (client.destroy_session(&id).await, id) }
    });
    let mut ends = futures_util::stream::iter(ends).buffered(AT_ONCE);
    while let Some((result, id)) = ends.next().await {
        match result {
            Ok(()) => print(&format!("{id}\n"))?,
            // Somebody else has ended it meanwhile.
            Err(error) if (args.all || args.force) && is_gone(&error) => {}
            Err(error) => {
                say(format!("{id}: {error}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}

/// The sessions that were named, all of them or none. With `--force`, those that cannot be found are left out.
async fn named(args: &RmArgs, client: &Client) -> Result<Vec<SessionId>, Failure> {
    if !args.force {
        return SessionRef::find_all(&args.sessions, client).await;
    }
    let mut found = Vec::new();
    for session in &args.sessions {
        found.extend(session.find_if_any(client).await?);
    }
    Ok(found)
}

fn is_gone(error: &ClientError) -> bool {
    error.is("SESSION_NOT_FOUND") || error.is("SESSION_EXPIRED")
}
