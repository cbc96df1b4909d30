//! `cove pause`, `cove resume`, `cove stop` and `cove start`: freeze sessions and let them continue, or end their processes and start
//! them again.

use clap::Args;

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::output::{print, say};
use super::session_ref::SessionRef;

const PAUSE_EXAMPLES: &str = "\
Examples:
  cove pause 7183cb80-d6c

All processes of a paused session stand still. A command, a file access or `cove resume` wakes it up.
Prints the id of each session that was paused.";

const RESUME_EXAMPLES: &str = "\
Examples:
  cove resume 7183cb80-d6c

Prints the id of each session that was resumed.";

const STOP_EXAMPLES: &str = "\
Examples:
  cove stop 7183cb80-d6c

Ends every process of a session. Its files and the state of its shells stay, also over a restart of the host.
Prints the id of each session that was stopped.";

const START_EXAMPLES: &str = "\
Examples:
  cove start 7183cb80-d6c

The session has its files, its shells their directories, variables, functions and options. Processes do not come back.
Prints the id of each session that was started.";

/// Stop sessions, and keep their files and shells until they are started again
#[derive(Args)]
#[command(after_help = STOP_EXAMPLES)]
pub struct StopArgs {
    #[command(flatten)]
    named: Sessions,
}

/// Start stopped sessions again
#[derive(Args)]
#[command(after_help = START_EXAMPLES)]
pub struct StartArgs {
    #[command(flatten)]
    named: Sessions,
}

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
    /// Ids or names of the sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<SessionRef>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn pause(args: PauseArgs) -> Result<u8, Failure> {
    each(args.named, "pause").await
}

pub async fn resume(args: ResumeArgs) -> Result<u8, Failure> {
    each(args.named, "resume").await
}

pub async fn stop(args: StopArgs) -> Result<u8, Failure> {
    each(args.named, "stop").await
}

pub async fn start(args: StartArgs) -> Result<u8, Failure> {
    each(args.named, "start").await
}

async fn each(named: Sessions, what: &str) -> Result<u8, Failure> {
    let client = named.daemon.client()?;
    let mut code = 0;
    for id in SessionRef::find_all(&named.sessions, &client).await? {
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
