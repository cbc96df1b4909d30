//! `cove pause` and `cove resume`: put sessions to sleep, and wake them.

use clap::Args;
use shared_protocol::SessionId;

use super::connect::Daemon;
use super::exec::session_id;
use super::exit::{self, Failure};
use super::output::{print, say};

const PAUSE_EXAMPLES: &str = "\
Examples:
  cove pause 7183cb80-d6c

Everything in the session stands still until a command, a file or `cove resume` needs it.
Prints the id of each session that is paused.";

const RESUME_EXAMPLES: &str = "\
Examples:
  cove resume 7183cb80-d6c

Prints the id of each session that runs.";

/// Freeze sessions until they are needed
#[derive(Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub struct PauseArgs {
    #[command(flatten)]
    named: Named,
}

/// Wake sessions that are paused
#[derive(Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct ResumeArgs {
    #[command(flatten)]
    named: Named,
}

#[derive(Args)]
struct Named {
    /// Their ids, as in `cove ps`
    #[arg(value_parser = session_id, required = true, value_name = "SESSION")]
    sessions: Vec<SessionId>,
    #[command(flatten)]
    daemon: Daemon,
}

pub async fn pause(args: PauseArgs) -> Result<u8, Failure> {
    each(args.named, "pause").await
}

pub async fn resume(args: ResumeArgs) -> Result<u8, Failure> {
    each(args.named, "resume").await
}

async fn each(named: Named, what: &str) -> Result<u8, Failure> {
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
