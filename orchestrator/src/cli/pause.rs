//! `cove pause` and `cove resume`: freeze sessions, and let them continue.

use clap::Args;
use shared_protocol::SessionId;

use super::connect::DaemonArgs;
use super::exec::session_id;
use super::exit::{self, Failure};
use super::output::{print, say};

const PAUSE_EXAMPLES: &str = "\
Examples:
  cove pause 7183cb80-d6c

All processes of a paused session stand still. A command, a file access or `cove resume` wakes it up.
Prints the id of each session that was paused.";

const RESUME_EXAMPLES: &str = "\
Examples:
  cove resume 7183cb80-d6c

Prints the id of each session that was resumed.";

/// Pause sessions until they are needed again
#[derive(Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub struct PauseArgs {
    #[command(flatten)]
    named: Sessions,
}

/// Resume paused sessions
#[derive(Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct ResumeArgs {
    #[command(flatten)]
    named: Sessions,
}

#[derive(Args)]
struct Sessions {
    /// Ids of the sessions, as `cove ps` shows them
    #[arg(value_parser = session_id, required = true, value_name = "SESSION")]
    sessions: Vec<SessionId>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn pause(args: PauseArgs) -> Result<u8, Failure> {
    each(args.named, "pause").await
}

pub async fn resume(args: ResumeArgs) -> Result<u8, Failure> {
    each(args.named, "resume").await
}

async fn each(named: Sessions, what: &str) -> Result<u8, Failure> {
    let client = named.daemon.client()?;
    let mut code = 0;
    for id in named.sessions {
        match client.change_session(&id, what).await {
            Ok(_) => print(&format!("{id}\n"))?,
            Err(error) => {
                say(format!("{id}: {error}"));
                code = exit::FAILED;
            }
        }
    }
    Ok(code)
}
