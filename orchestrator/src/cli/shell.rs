//! `cove shell`: opens a terminal in a session that exists, or in a new one.

use clap::Args;
use shared_protocol::{SessionId, ShellName};

use super::connect::{AtEnd, DaemonArgs, in_own_session};
use super::exec::shell_name;
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::options::{Lifetime, SessionOptions};
use super::output::say;
use super::session_ref::SessionRef;
use super::tty;
use crate::client::{Client, TerminalTarget};

const EXAMPLES: &str = "\
Examples:
  cove shell                                 in a new sandbox, which ends when you leave
  cove shell --image python --keep           in a new sandbox, which stays
  cove shell 7183cb80-d6c                    a new shell in a session that runs
  cove shell 7183cb80-d6c --name work        a shell that stays when you leave

At the start of a line, ~. leaves, ~? shows help and ~~ types a tilde.
The exit code is the shell's.";

/// Open a terminal in a sandbox
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ShellArgs {
    /// Id or name of a session (default: a new session, which ends when you leave)
    session: Option<SessionRef>,
    /// Use the shell with this name, which stays when you leave; it is created if needed
    #[arg(long, value_parser = shell_name, value_name = "SHELL")]
    name: Option<ShellName>,
    /// Image of the new session (default: the daemon's default image)
    #[arg(long, conflicts_with = "session")]
    image: Option<String>,
    /// Keep the new session when you leave
    #[arg(long, conflicts_with = "session")]
    keep: bool,
    #[command(flatten, next_help_heading = "For a new session")]
    options: SessionOptions,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn shell(args: ShellArgs) -> Result<u8, Failure> {
    tty::require()?;
    let mut interrupts = Interrupts::new()?;
    let name = args.name.as_ref();
    if let Some(session) = &args.session {
        if args.options != SessionOptions::default() {
            return Err(Failure::usage(format!(
                "session {session} exists already: its limits, variables and labels cannot be changed"
            )));
        }
        let client = args.daemon.client()?;
        let session = &session.find(&client).await?;
        return attach(&client, session, name, &mut interrupts, AfterLeaving::SessionStays).await;
    }
    let (lifetime, at_end, after) = match args.keep {
        true => (Lifetime::Kept, AtEnd::Keep, AfterLeaving::SessionStays),
        false => (Lifetime::OfCommand, AtEnd::Destroy, AfterLeaving::SessionEnds),
    };
    let wanted = args.options.request(args.image.as_deref(), lifetime)?;
    let work = async |client: &Client, session: &SessionId, interrupts: &mut Interrupts| {
        say(format!("session {session}"));
        attach(client, session, name, interrupts, after).await
    };
    in_own_session(args.daemon.client_or_private(&wanted), &wanted, at_end, &mut interrupts, work).await
}

/// Whether the session is still there after the user has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterLeaving {
    SessionStays,
    SessionEnds,
}

async fn attach(
    client: &Client,
    session: &SessionId,
    name: Option<&ShellName>,
    interrupts: &mut Interrupts,
    after: AfterLeaving,
) -> Result<u8, Failure> {
    let size = tty::size();
    let target = TerminalTarget { session: session.clone(), shell: name.cloned(), cols: size.cols, rows: size.rows };
    let (reader, writer) = client.terminal(&target).await?;
    let back = match (after, name) {
        (AfterLeaving::SessionStays, Some(name)) => {
            Some(format!("`cove shell {session} --name {name}` opens it again"))
        }
        (AfterLeaving::SessionStays, None) | (AfterLeaving::SessionEnds, _) => None,
    };
    match tty::attach(reader, writer, interrupts).await? {
        tty::AttachEnd::Exit { exit_code: Some(code), .. } => Ok(exit::low_byte(code)),
        tty::AttachEnd::Exit { exit_code: None, reason: None } => Ok(0),
        tty::AttachEnd::Exit { exit_code: None, reason: Some(why) } => Err(Failure::failed(why)),
        tty::AttachEnd::Detached => {
            if let Some(back) = back {
                say(format!("the shell keeps running; {back}"));
            }
            Ok(0)
        }
        tty::AttachEnd::Lost(why) => {
            let back = back.map(|back| format!("; the shell may still run: {back}")).unwrap_or_default();
            Err(Failure::failed(format!("the connection to the daemon was lost: {why}{back}")))
        }
        tty::AttachEnd::Signal(signal) => Ok(exit::signalled(signal)),
    }
}
