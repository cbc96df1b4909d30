//! `cove rm`: ends sessions.

use clap::Args;
use futures_util::StreamExt;
use shared_protocol::SessionId;

use super::connect::DaemonArgs;
use super::exec::session_id;
use super::exit::{self, Failure};
use super::output::{print, say};

const EXAMPLES: &str = "\
Examples:
  cove rm 7183cb80-d6c
  cove rm --all

Prints the id of each session that was ended.";

/// How many sessions are ended at the same time, so that the daemon can still serve other clients.
const AT_ONCE: usize = 8;

/// End sessions and everything that runs in them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RmArgs {
    /// Ids of the sessions, as `cove ps` shows them
    #[arg(value_parser = session_id, required_unless_present = "all", value_name = "SESSION")]
    sessions: Vec<SessionId>,
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
        false => args.sessions,
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
            Err(error) if args.all && error.is("SESSION_NOT_FOUND") => {}
            Err(error) => {
                say(format!("{id}: {error}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}
