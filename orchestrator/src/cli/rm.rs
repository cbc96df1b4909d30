//! `cove rm`: ends sessions.

use clap::Args;
use futures_util::StreamExt;
use shared_protocol::SessionId;

use super::connect::Daemon;
use super::exec::session_id;
use super::exit::{self, Failure};
use super::output::{print, say};

const EXAMPLES: &str = "\
Examples:
  cove rm 7183cb80-d6c
  cove rm --all

Prints the id of each session that is gone.";

/// Ends at a time: each takes the daemon a moment, and it should have others for other clients.
const AT_ONCE: usize = 8;

/// End sessions, with all that runs in them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RmArgs {
    /// Their ids, as in `cove ps`
    #[arg(value_parser = session_id, required_unless_present = "all", value_name = "SESSION")]
    sessions: Vec<SessionId>,
    /// All there are
    #[arg(long, conflicts_with = "sessions")]
    all: bool,
    #[command(flatten)]
    daemon: Daemon,
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
            // Ended by another meanwhile: what was asked for is so.
            Err(error) if args.all && error.is("SESSION_NOT_FOUND") => {}
            Err(error) => {
                say(format!("{id}: {error}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}
