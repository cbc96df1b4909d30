//! `cove shell`: a terminal in a session, or in one of its own.

use clap::Args;
use shared_protocol::{SessionId, ShellName};

use super::connect::{AtEnd, Daemon, in_own_session};
use super::exec::{session_id, shell_name};
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::options::{Keeping, SessionOptions};
use super::output::say;
use super::tty;
use crate::client::{Client, TerminalTarget};

const EXAMPLES: &str = "\
Examples:
  cove shell                                 in a sandbox that goes when you leave
  cove shell --image python --keep           in one that stays
  cove shell 7183cb80-d6c                    a fresh shell in a session that runs
  cove shell 7183cb80-d6c --name work        one that stays when you leave

At the beginning of a line, ~. leaves, ~? shows help and ~~ types a tilde.
The exit code is the shell's own.";

/// Open a terminal in a sandbox
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ShellArgs {
    /// The session (default: one of its own, destroyed at the end)
    #[arg(value_parser = session_id)]
    session: Option<SessionId>,
    /// A shell that stays when you leave; made where it is not there yet
    #[arg(long, value_parser = shell_name, value_name = "SHELL")]
    name: Option<ShellName>,
    /// What the sandbox is made from (default: the daemon's)
    #[arg(long, conflicts_with = "session")]
    image: Option<String>,
    /// Leave the session running at the end
    #[arg(long, conflicts_with = "session")]
    keep: bool,
    #[command(flatten, next_help_heading = "A session of its own")]
    options: SessionOptions,
    #[command(flatten)]
    daemon: Daemon,
}

pub async fn shell(args: ShellArgs) -> Result<u8, Failure> {
    tty::require()?;
    let mut interrupts = Interrupts::new()?;
    let name = args.name.as_ref();
    if let Some(session) = &args.session {
        if args.options != SessionOptions::default() {
            return Err(Failure::usage(format!(
                "session {session} is there already: its limits, variables and labels stay"
            )));
        }
        let client = args.daemon.client()?;
        return attach(&client, session, name, &mut interrupts, Stay::Session).await;
    }
    let (keeping, at_end, stay) = match args.keep {
        true => (Keeping::Kept, AtEnd::Keep, Stay::Session),
        false => (Keeping::OwnedByClient, AtEnd::Destroy, Stay::Nothing),
    };
    let wanted = args.options.request(args.image.as_deref(), keeping)?;
    let work = async |client: &Client, session: &SessionId, interrupts: &mut Interrupts| {
        say(format!("session {session}"));
        attach(client, session, name, interrupts, stay).await
    };
    in_own_session(args.daemon.client_or_private(wanted.workspace_id.as_ref()), &wanted, at_end, &mut interrupts, work)
        .await
}

/// What is left when the terminal is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    Session,
    Nothing,
}

async fn attach(
    client: &Client,
    session: &SessionId,
    name: Option<&ShellName>,
    interrupts: &mut Interrupts,
    stay: Stay,
) -> Result<u8, Failure> {
    let size = tty::size();
    let target = TerminalTarget { session: session.clone(), shell: name.cloned(), cols: size.cols, rows: size.rows };
    let (reader, writer) = client.terminal(&target).await?;
    let back = match (stay, name) {
        (Stay::Session, Some(name)) => Some(format!("`cove shell {session} --name {name}` comes back to it")),
        (Stay::Session, None) | (Stay::Nothing, _) => None,
    };
    match tty::attach(reader, writer, interrupts).await? {
        tty::Ended::Exit { exit_code: Some(code), .. } => Ok(exit::low_byte(code)),
        tty::Ended::Exit { exit_code: None, reason: None } => Ok(0),
        tty::Ended::Exit { exit_code: None, reason: Some(why) } => Err(Failure::failed(why)),
        tty::Ended::Detached => {
            if let Some(back) = back {
                say(format!("the shell goes on: {back}"));
            }
            Ok(0)
        }
        tty::Ended::Lost(why) => {
            let back = back.map(|back| format!("; the shell may still be there: {back}")).unwrap_or_default();
            Err(Failure::failed(format!("the connection to the daemon was lost: {why}{back}")))
        }
        tty::Ended::Signal(signal) => Ok(exit::signalled(signal)),
    }
}
