//! `cove kill`: sends a signal to commands of a session.

use clap::Args;
use shared_protocol::runner::ExecState;

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::logs::exec_of;
use super::output::{print, say};
use super::session_ref::SessionRef;

const EXAMPLES: &str = "\
Examples:
  cove kill web                              every command that runs in the session
  cove kill -s INT web cli-5d1c0f1e2a3b4c5d  one command, as Ctrl-C does

The session and its shells stay: `cove stop` ends all processes of a session, and `cove rm` the session itself.
Prints the id of each command that got the signal.";

/// Send a signal to the commands of a session
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct KillArgs {
    /// Id or name of the session
    session: SessionRef,
    /// Id of a command, or its beginning, as `cove logs --list` shows it (default: all that run)
    exec: Option<String>,
    /// Signal to send
    #[arg(short = 's', long, value_name = "SIGNAL", default_value = "KILL")]
    signal: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn kill(args: KillArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let session = args.session.find(&client).await?;
    let execs = client.execs(&session).await?;
    let wanted: Vec<_> = match &args.exec {
        Some(text) => vec![exec_of(&execs, text)?.exec_id.clone()],
        None => execs.iter().filter(|exec| exec.state == ExecState::Running).map(|exec| exec.exec_id.clone()).collect(),
    };
    if wanted.is_empty() {
        say(format!("no command runs in session {session}"));
    }
    let signal = args.signal.strip_prefix("SIG").unwrap_or(&args.signal);
    for exec in wanted {
        match client.signal(&session, &exec, signal).await {
            Ok(()) => print(&format!("{exec}\n"))?,
            // It has ended meanwhile.
            Err(error) if args.exec.is_none() && (error.is("EXEC_NOT_FOUND") || error.is("CONFLICT")) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(0)
}
