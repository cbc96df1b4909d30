//! `cove create`: creates a session and prints its id.

use std::time::Duration;

use clap::Args;
use shared_protocol::api::{ApiExecRequest, CreateSessionRequest, SessionView};
use shared_protocol::{SessionId, SessionName};

use super::connect::{DaemonArgs, create_session};
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::options::{Lifetime, SessionOptions, duration};
use super::output::{escape_control, print, print_json};
use super::words;
use crate::client::Client;

const EXAMPLES: &str = "\
Examples:
  cove create
  cove create --name web python
  cove create -m 2g --cpus 2 --network packages python:3.12
  ID=$(cove create) && cove exec $ID 'echo hello'

Prints the id of the session. It ends with `cove rm`, or after some time without use (--ttl).";

/// Create a session and print its id
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CreateArgs {
    /// Image of the sandbox (default: the daemon's default image)
    image: Option<String>,
    /// Docker takes a command here.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
    /// Name of the session, by which commands find it
    #[arg(long, value_name = "NAME")]
    name: Option<SessionName>,
    #[command(flatten)]
    session: SessionOptions,
    /// Directory in which the session's shell begins
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    workdir: Option<String>,
    /// End the session after this time without use, for example 30m or 8h (default: the daemon's)
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<Duration>,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn create(args: CreateArgs) -> Result<u8, Failure> {
    if let Some(word) = args.words.first() {
        super::docker_words::refuse_option(word, "create")?;
        return Err(Failure::usage(
            "a session has no command of its own: create it, then type `cove exec SESSION CMD`; or type `cove run -d IMAGE CMD`",
        ));
    }
    let wanted = CreateSessionRequest {
        name: args.name.clone(),
        ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()),
        ..args.session.request(args.image.as_deref(), Lifetime::Kept)?
    };
    let client = args.daemon.client()?;
    let mut interrupts = Interrupts::new()?;
    // If the create is cut off, the daemon removes the session itself.
    let session = tokio::select! {
        session = create_session(&client, &wanted) => session?,
        signal = interrupts.next() => return Ok(exit::signalled(signal)),
    };
    if let Some(dir) = &args.workdir
        && let Err(failure) = enter(&client, &session.id, dir).await
    {
        client.destroy_session(&session.id).await?;
        return Err(failure);
    }
    show(&session, args.json)?;
    Ok(0)
}

/// Changes the directory of the session's shell, where its commands begin.
async fn enter(client: &Client, session: &SessionId, dir: &str) -> Result<(), Failure> {
    let cmd = format!("cd -- {}", words::quoted(&[dir.to_owned()]));
    let reply = client.exec(session, &ApiExecRequest { cmd, ..ApiExecRequest::default() }).await?;
    match reply.done.exit_code {
        0 => Ok(()),
        _ => {
            Err(Failure::failed(format!("the session cannot begin in {dir}: {}", escape_control(reply.output.trim()))))
        }
    }
}

fn show(session: &SessionView, is_json: bool) -> Result<(), Failure> {
    if is_json { print_json(session) } else { print(&format!("{}\n", session.id)) }
}
