//! `cove run`: one program in a session of its own, which goes with it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use shared_protocol::SessionId;
use shared_protocol::api::{ApiExecRequest, ApiRunRequest};

use super::connect::{AtEnd, Daemon, in_own_session};
use super::exec::interactive;
use super::exit::{self, Ending, Failure};
use super::follow::{Follower, conclude, new_exec_id};
use super::interrupt::Interrupts;
use super::options::{Keeping, SessionOptions, duration, milliseconds};
use super::output::print_json;
use super::{stdin, tty, words};
use crate::client::Client;

const EXAMPLES: &str = "\
Examples:
  cove run -- uname -a
  cove run python -e TOKEN --memory-mb 512 -- python3 -c 'print(6 * 7)'
  cat data.csv | cove run -- wc -l
  cove run -t -- top

The exit code is the program's own; 128+n where a signal ended it, 124 where its time was up.
Standard input is passed on whole, up to 8 MiB, where it is not a terminal.";

/// Run one program in a sandbox of its own
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// What the sandbox is made from (default: the daemon's)
    pub image: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub argv: Vec<String>,
    #[command(flatten)]
    session: SessionOptions,
    /// End the program after this time, as in 30s or 5m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    /// Give the program a terminal: yours
    #[arg(short = 't', long, conflicts_with = "json")]
    tty: bool,
    /// Print the result as JSON at the end, instead of the output as it comes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub async fn run(args: RunArgs) -> Result<u8, Failure> {
    if args.tty {
        tty::require()?;
    }
    let mut interrupts = Interrupts::new()?;
    let wanted = args.session.request(args.image.as_deref(), Keeping::OwnedByClient)?;
    let typed = stdin::read();
    let work = async |client: &Client, session: &SessionId, interrupts: &mut Interrupts| {
        if args.tty {
            return in_terminal(client, session, &args, interrupts).await;
        }
        let work = async {
            let typed = typed.await?;
            match args.json {
                true => whole(client, session, &args, typed).await,
                false => streamed(client, session, &args, typed).await,
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

fn request(args: &RunArgs, typed: Option<Vec<u8>>) -> Result<ApiRunRequest, Failure> {
    Ok(ApiRunRequest {
        argv: args.argv.clone(),
        stdin_base64: typed.map(|bytes| STANDARD.encode(bytes)),
        timeout_ms: args.timeout.map(milliseconds),
        exec_id: Some(new_exec_id()?),
        ..ApiRunRequest::default()
    })
}

async fn streamed(client: &Client, session: &SessionId, args: &RunArgs, typed: Option<Vec<u8>>) -> Result<u8, Failure> {
    let exec = new_exec_id()?;
    let wanted = ApiRunRequest { exec_id: Some(exec.clone()), ..request(args, typed)? };
    let begun = client.run_stream(session, &wanted).await;
    let done = Follower::new(client, session, exec).follow(begun).await?;
    Ok(conclude(&done))
}

async fn whole(client: &Client, session: &SessionId, args: &RunArgs, typed: Option<Vec<u8>>) -> Result<u8, Failure> {
    let reply = client.run(session, &request(args, typed)?).await?;
    print_json(&reply)?;
    Ok(Ending { kind: reply.done.kind, exit_code: reply.done.exit_code, signal: reply.done.signal }.code())
}

/// In the session's own shell, since that is what has a terminal; nobody else uses it.
async fn in_terminal(
    client: &Client,
    session: &SessionId,
    args: &RunArgs,
    interrupts: &mut Interrupts,
) -> Result<u8, Failure> {
    let wanted = ApiExecRequest {
        cmd: words::quoted(&args.argv),
        timeout_ms: args.timeout.map(milliseconds),
        ..ApiExecRequest::default()
    };
    interactive(client, session, wanted, interrupts).await
}
