//! `cove inspect`: describes sessions as JSON.

use clap::Args;

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::output::print_json;
use super::session_ref::SessionRef;

const EXAMPLES: &str = "\
Examples:
  cove inspect 7183cb80-d6c
  cove inspect web | jq -r '.[0].status'

Prints a JSON array with an object for each session, as `cove ps --json` does. The whole id of a session that
has ended works as long as the daemon remembers it. `cove image inspect` describes an image.";

/// Describe sessions as JSON
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArgs {
    /// Ids or names of the sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<SessionRef>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn inspect(args: InspectArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let mut views = Vec::new();
    for id in SessionRef::find_all(&args.sessions, &client).await? {
        views.push(client.session(&id).await?);
    }
    print_json(&views)?;
    Ok(0)
}
