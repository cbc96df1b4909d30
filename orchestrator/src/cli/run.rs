//! `cove run`: runs one program in a new session, and ends the session afterwards.

use std::io::{self, IsTerminal};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use shared_protocol::api::{ApiExecRequest, ApiRunRequest, CreateSessionRequest, TimeLimit};
use shared_protocol::{SessionId, SessionName};

use super::connect::{AtEnd, DaemonArgs, create_session, in_own_session};
use super::exec::interactive;
use super::exit::{self, CommandEnd, Failure};
use super::feed::{self, Input};
use super::follow::{Follower, conclude, new_exec_id};
use super::forward::{Forwarding, Forwards};
use super::interrupt::Interrupts;
use super::options::{Lifetime, SessionOptions, time_limit};
use super::output::{print, print_json, say};
use super::{docker_words, stdin, tty, words};
use crate::client::Client;

const USAGE: &str = "cove run [OPTIONS] IMAGE CMD [ARG]...\n       cove run [OPTIONS] [IMAGE] -- CMD [ARG]...";

/// What runs at a terminal if no program is given.
const DEFAULT_PROGRAM: &str = "bash";

const EXAMPLES: &str = "\
Examples:
  cove run python:3.12 python3 -c 'print(6 * 7)'
  cove run -it python:3.12                   a shell at your terminal
  cove run -e TOKEN -m 512m --network packages python pip download httpx
  cove run -p 8000 python python3 -m http.server 8000
  cove run -- uname -a                       in the default image
  cat data.csv | cove run -- wc -l

The first word is the image, and what follows it is the program, as in docker. Behind -- there is only the
program, and then the image is optional. Options of cove stand before the program.
The session ends with the program; --keep and -d leave it there.
The exit code is the program's: 128+n if signal n ended it, 124 if its time ran out.
At a terminal the program has that terminal, unless standard output or standard error goes elsewhere.
Other standard input is passed on as it comes, whatever its size; -i passes a terminal's lines on too.
With --json it is read first, up to 8 MiB.";

/// Run one program in a new sandbox
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct RunArgs {
    /// Image of the sandbox (default: the daemon's default image)
    pub image: Option<String>,
    /// The program and its arguments (default: bash, at a terminal)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub argv: Vec<String>,
    /// Whether the program stood behind `--`, so that it cannot be an image by mistake.
    #[arg(skip)]
    pub is_behind_dashes: bool,
    /// Name of the session, by which other commands find it meanwhile
    #[arg(long, value_name = "NAME")]
    name: Option<SessionName>,
    #[command(flatten)]
    session: SessionOptions,
    /// Directory to run the program in
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    workdir: Option<String>,
    /// Forward a port of the sandbox to this machine while the program runs
    #[arg(short = 'p', long = "publish", value_name = "[LOCAL:]REMOTE", conflicts_with = "detach")]
    publish: Vec<Forwarding>,
    /// End the session with the program, which is the default
    #[arg(long, conflicts_with_all = ["keep", "detach"])]
    rm: bool,
    /// Keep the session when the program has ended
    #[arg(long)]
    keep: bool,
    /// Start the program, print the id of its session, and exit; the session stays
    #[arg(short = 'd', long, conflicts_with_all = ["tty", "interactive", "json"])]
    detach: bool,
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

pub async fn run(mut args: RunArgs) -> Result<u8, Failure> {
    if args.tty {
        tty::require()?;
    }
    check_program(&mut args)?;
    if args.detach {
        return detached(&args).await.map_err(|failure| hinted(failure, &args));
    }
    // A script that wants JSON has no use for a terminal.
    let takes_terminal = args.tty || (!args.json && tty::is_at_hand());
    let mut interrupts = Interrupts::new()?;
    let (lifetime, at_end) = match args.keep {
        true => (Lifetime::Kept, AtEnd::Keep),
        false => (Lifetime::OfCommand, AtEnd::Destroy),
    };
    let wanted = wanted(&args, lifetime)?;
    let work = async |client: &Client, session: &SessionId, interrupts: &mut Interrupts| {
        if args.keep {
            say(format!("session {session}"));
        }
        let (_forwards, lines) = Forwards::open(client, session, &args.publish).await?;
        lines.lines().for_each(say);
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
    let result = in_own_session(args.daemon.client_or_private(&wanted), &wanted, at_end, &mut interrupts, work).await;
    result.map_err(|failure| hinted(failure, &args))
}

fn wanted(args: &RunArgs, lifetime: Lifetime) -> Result<CreateSessionRequest, Failure> {
    let request = args.session.request(args.image.as_deref(), lifetime)?;
    Ok(CreateSessionRequest { name: args.name.clone(), ..request })
}

/// Refuses a program that is an option by mistake. Without a program, there is a shell at a terminal, and an error elsewhere.
fn check_program(args: &mut RunArgs) -> Result<(), Failure> {
    match args.argv.first() {
        Some(_) if args.is_behind_dashes => Ok(()),
        Some(word) => docker_words::refuse_option(word, "run"),
        None if (args.tty || tty::is_at_hand()) && !args.detach => {
            args.argv = vec![DEFAULT_PROGRAM.to_owned()];
            Ok(())
        }
        None => {
            let image = args.image.as_deref().unwrap_or("IMAGE");
            Err(Failure::usage(format!(
                "give a program: `cove run {image} CMD` runs CMD in the image {image}, `cove run -- CMD` in the default image, and \
                 `cove create {image}` makes a session without one"
            )))
        }
    }
}

/// Says what to type if the first word of a program may have been taken for an image.
fn hinted(failure: Failure, args: &RunArgs) -> Failure {
    match &args.image {
        Some(image) if failure.is("INVALID_IMAGE") && !args.is_behind_dashes => {
            let program = words::quoted(&args.argv);
            failure.with_hint(&format!(
                "the first word is the image; to run it as a program in the default image, type `cove run -- {image} {program}`"
            ))
        }
        _ => failure,
    }
}

/// Starts the program in a session that stays, and prints the session's id.
async fn detached(args: &RunArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let wanted = wanted(args, Lifetime::Kept)?;
    let mut interrupts = Interrupts::new()?;
    let session = tokio::select! {
        session = create_session(&client, &wanted) => session?.id,
        signal = interrupts.next() => return Ok(exit::signalled(signal)),
    };
    if let Err(error) = client.run_detached(&session, &ApiRunRequest { detach: true, ..request(args)? }).await {
        // Nobody knows this session.
        client.destroy_session(&session).await?;
        return Err(error.into());
    }
    print(&format!("{session}\n"))?;
    Ok(0)
}

fn request(args: &RunArgs) -> Result<ApiRunRequest, Failure> {
    Ok(ApiRunRequest {
        argv: args.argv.clone(),
        timeout_ms: args.timeout.unwrap_or_default(),
        cwd: args.workdir.clone(),
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
        cwd: args.workdir.clone(),
        ..ApiExecRequest::default()
    };
    interactive(client, session, wanted, interrupts).await
}
