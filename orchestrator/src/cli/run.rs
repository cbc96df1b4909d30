//! `cove run`: runs one program in a new session, and ends the session afterwards.

use std::io::{self, IsTerminal};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use shared_protocol::SessionId;
use shared_protocol::api::{ApiExecRequest, ApiRunRequest, TimeLimit};

use super::connect::{AtEnd, DaemonArgs, in_own_session};
use super::exec::interactive;
use super::exit::{self, CommandEnd, Failure};
use super::feed::{self, Input};
use super::follow::{Follower, conclude, new_exec_id};
use super::interrupt::Interrupts;
use super::options::{Lifetime, SessionOptions, time_limit};
use super::output::print_json;
use super::{stdin, tty, words};
use crate::client::Client;

const EXAMPLES: &str = "\
Examples:
  cove run -- uname -a
  cove run python -e TOKEN --memory-mb 512 -- python3 -c 'print(6 * 7)'
  cat data.csv | cove run -- wc -l
  cove run -- python3                        at a terminal, the program has it

The exit code is the program's: 128+n if signal n ended it, 124 if its time ran out.
At a terminal the program has that terminal, unless standard output or standard error goes elsewhere.
Other standard input is passed on as it comes, whatever its size; -i passes a terminal's lines on too.
With --json it is read first, up to 8 MiB.";

/// Run one program in a new sandbox
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Image of the sandbox (default: the daemon's default image)
    pub image: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub argv: Vec<String>,
    #[command(flatten)]
    session: SessionOptions,
    /// End the program after this time, for example 30s or 5m, or none
    #[arg(long, value_parser = time_limit, value_name = "TIME")]
    timeout: Option<TimeLimit>,
    /// Pass standard input on even if it is a terminal, line by line
    #[arg(short = 'i', long)]
    interactive: bool,
    /// Connect the program to your terminal, or fail if there is none
    #[arg(short = 't', long, conflicts_with = "json")]
    tty: bool,
    /// Print the result as JSON at the end, instead of the output while it comes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn run(args: RunArgs) -> Result<u8, Failure> {
    if args.tty {
        tty::require()?;
    }
    // A script that wants JSON has no use for a terminal.
    let takes_terminal = args.tty || (!args.json && tty::is_at_hand());
    let mut interrupts = Interrupts::new()?;
    let wanted = args.session.request(args.image.as_deref(), Lifetime::OfCommand)?;
    let work = async |client: &Client, session: &SessionId, interrupts: &mut Interrupts| {
        if takes_terminal {
            return in_terminal(client, session, &args, interrupts).await;
        }
        let work = async {
            match args.json {
                true => whole(client, session, &args).await,
                false => streamed(client, session, &args).await,
            }
        };
        tokio::select! {
            result = work => result,
            signal = interrupts.next() => Ok(exit::signalled(signal)),
        }
    };
    in_own_session(
        args.daemon.client_or_private(wanted.workspace_id.as_ref()),
        &wanted,
        AtEnd::Destroy,
        &mut interrupts,
        work,
    )
    .await
}

fn request(args: &RunArgs) -> Result<ApiRunRequest, Failure> {
    Ok(ApiRunRequest {
        argv: args.argv.clone(),
        timeout_ms: args.timeout.unwrap_or_default(),
        exec_id: Some(new_exec_id()?),
        ..ApiRunRequest::default()
    })
}

/// Prints the output as it comes, and passes standard input on meanwhile.
async fn streamed(client: &Client, session: &SessionId, args: &RunArgs) -> Result<u8, Failure> {
    let exec = new_exec_id()?;
    let has_input = args.interactive || !io::stdin().is_terminal();
    let wanted = ApiRunRequest { exec_id: Some(exec.clone()), stdin_open: has_input, ..request(args)? };
    let begun = client.run_stream(session, &wanted).await;
    let feeding = async {
        if has_input {
            feed::feed(client, session, &exec, Input::stdin()).await?;
        }
        std::future::pending().await
    };
    let mut follower = Follower::new(client, session, exec.clone());
    tokio::select! {
        done = follower.follow(begun) => Ok(conclude(&done?)),
        failed = feeding => failed,
    }
}

async fn whole(client: &Client, session: &SessionId, args: &RunArgs) -> Result<u8, Failure> {
    let typed = stdin::read().await?;
    let wanted = ApiRunRequest { stdin_base64: typed.map(|bytes| STANDARD.encode(bytes)), ..request(args)? };
    let reply = client.run(session, &wanted).await?;
    print_json(&reply)?;
    Ok(CommandEnd { kind: reply.done.kind, exit_code: reply.done.exit_code, signal: reply.done.signal }.code())
}

/// Runs the program in the session's shell, because only that has a terminal. Nobody else uses this shell.
async fn in_terminal(
    client: &Client,
    session: &SessionId,
    args: &RunArgs,
    interrupts: &mut Interrupts,
) -> Result<u8, Failure> {
    let wanted = ApiExecRequest {
        cmd: words::quoted(&args.argv),
        timeout_ms: args.timeout.unwrap_or_default(),
        ..ApiExecRequest::default()
    };
    interactive(client, session, wanted, interrupts).await
}
