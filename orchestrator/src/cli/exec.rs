//! `cove exec`: a command in a session's persistent shell.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use shared_protocol::api::ApiExecRequest;
use shared_protocol::runner::StreamMode;
use shared_protocol::{ExecId, SessionId, ShellName};
use tokio::signal::unix::{SignalKind, signal};

use super::connect::Daemon;
use super::exit::{self, Ending, Failure};
use super::follow::{Follower, conclude, new_exec_id};
use super::interrupt::Interrupts;
use super::options::{duration, milliseconds, variables};
use super::output::{print, print_json, say};
use super::{stdin, tty, words};
use crate::client::{Client, TerminalTarget};

const EXAMPLES: &str = "\
Examples:
  cove exec 7183cb80-d6c 'cd /tmp && export A=1'      one argument is bash source
  cove exec 7183cb80-d6c ls -la 'a file'              several are words, and stay so
  cove exec 7183cb80-d6c --timeout 30s make
  cove exec 7183cb80-d6c --detach 'make > log 2>&1'

Directory, variables and functions stay for the next command. The exit code is the command's.
Ctrl-C interrupts the command; a second one leaves, and the command goes on.";

/// How long the daemon may take to pass a signal on.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(5);

/// Run a command in a session's shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExecArgs {
    /// The session's id, as in `cove ps`
    #[arg(value_parser = session_id)]
    session: SessionId,
    /// The command: bash source in one argument, or words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD", required_unless_present = "attach")]
    pub words: Vec<String>,
    /// End the command after this time, as in 30s or 5m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    /// The shell to run it in (default: main)
    #[arg(long, value_parser = shell_name, value_name = "NAME")]
    shell: Option<ShellName>,
    /// The directory it begins in; the shell itself stays where it is
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// A variable for this command; a name alone passes on your own
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Pass standard input on: whole, up to 8 MiB; from a terminal, key by key
    #[arg(short = 'i', long, conflicts_with = "detach")]
    interactive: bool,
    /// Print the result as JSON at the end, instead of the output as it comes
    #[arg(long)]
    pub json: bool,
    /// Print the command's id and leave it to itself
    #[arg(long)]
    detach: bool,
    /// Follow a command that was begun before, from its beginning
    #[arg(long, value_parser = exec_id, value_name = "EXEC", conflicts_with_all = ["words", "detach", "json", "interactive"])]
    attach: Option<ExecId>,
    #[command(flatten)]
    daemon: Daemon,
}

pub fn session_id(text: &str) -> Result<SessionId, String> {
    SessionId::new(text).map_err(|e| e.to_string())
}

pub fn shell_name(text: &str) -> Result<ShellName, String> {
    ShellName::new(text).map_err(|e| e.to_string())
}

fn exec_id(text: &str) -> Result<ExecId, String> {
    ExecId::new(text).map_err(|e| e.to_string())
}

pub async fn exec(args: ExecArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let session = &args.session;
    if let Some(exec) = &args.attach {
        let mut follower = Follower::new(&client, session, exec.clone());
        let work = async { follower.follow(client.reattach(session, exec, 0).await).await.map(|done| conclude(&done)) };
        return interruptible(&client, session, exec, work).await;
    }
    let at_terminal = args.interactive && tty::is_terminal() && !args.json;
    let typed = if args.interactive && !at_terminal { stdin::read().await? } else { None };
    let exec = new_exec_id()?;
    let wanted = ApiExecRequest {
        cmd: words::command(&args.words),
        timeout_ms: args.timeout.map(milliseconds),
        streams: if is_one_place() { StreamMode::Merged } else { StreamMode::Split },
        stdin_base64: typed.map(|bytes| STANDARD.encode(bytes)),
        env: variables(&args.env)?,
        cwd: args.cwd,
        shell: args.shell,
        exec_id: Some(exec.clone()),
        detach: args.detach,
        ..ApiExecRequest::default()
    };
    if args.detach {
        let begun = client.exec_detached(session, &wanted).await?;
        if args.json {
            print_json(&begun)?
        } else {
            print(&format!("{}\n", begun.exec_id))?
        }
        return Ok(0);
    }
    if at_terminal {
        return interactive(&client, session, wanted, &mut Interrupts::new()?).await;
    }
    let work = async {
        if args.json {
            let reply = client.exec(session, &wanted).await?;
            print_json(&reply)?;
            return Ok(
                Ending { kind: reply.done.kind, exit_code: reply.done.exit_code, signal: reply.done.signal }.code()
            );
        }
        let begun = client.exec_stream(session, &wanted).await;
        let mut follower = Follower::new(&client, session, exec.clone());
        follower.follow(begun).await.map(|done| conclude(&done))
    };
    let result = interruptible(&client, session, &exec, work).await;
    if result.as_ref().is_err_and(Failure::is_silent) {
        // Our reader has gone, as `head` does: the command learns it as it would in a pipe.
        send(&client, session, &exec, "PIPE").await;
    }
    result
}

/// Whether standard output and error are the same file or terminal: then one pipe keeps their order.
fn is_one_place() -> bool {
    let place = |fd: &str| std::fs::metadata(fd).map(|file| (file.dev(), file.ino(), file.rdev())).ok();
    let (out, err) = (place("/proc/self/fd/1"), place("/proc/self/fd/2"));
    out.is_some() && out == err
}

/// The first INT is for the command, the second for us.
async fn interruptible(
    client: &Client,
    session: &SessionId,
    exec: &ExecId,
    work: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let mut int = signal(SignalKind::interrupt()).map_err(|e| Failure::failed(e.to_string()))?;
    tokio::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        _ = int.recv() => {}
    }
    let interrupt = async {
        send(client, session, exec, "INT").await;
        std::future::pending().await
    };
    tokio::select! {
        result = &mut work => result,
        never = interrupt => never,
        _ = int.recv() => {
            say(format!("the command goes on: `cove exec {session} --attach {exec}` follows it again"));
            Ok(exit::signalled(libc::SIGINT))
        }
    }
}

async fn send(client: &Client, session: &SessionId, exec: &ExecId, name: &str) {
    match tokio::time::timeout(SIGNAL_PATIENCE, client.signal(session, exec, name)).await {
        Ok(Ok(())) => {}
        // It has ended meanwhile.
        Ok(Err(error)) if error.is("EXEC_NOT_FOUND") || error.is("CONFLICT") => {}
        Ok(Err(error)) => say(format!("{name} could not be sent: {error}")),
        Err(_) => say(format!("{name} could not be sent: no answer")),
    }
}

/// A command at the shell's terminal, which becomes the caller's: its output comes from the exec, so that its end is
/// exact; keys and the window's size go through an attachment.
pub async fn interactive(
    client: &Client,
    session: &SessionId,
    wanted: ApiExecRequest,
    interrupts: &mut Interrupts,
) -> Result<u8, Failure> {
    let exec = new_exec_id()?;
    let shell = wanted.shell.clone().unwrap_or_else(ShellName::main);
    let size = tty::size();
    let target = TerminalTarget { session: session.clone(), shell: Some(shell), cols: size.cols, rows: size.rows };
    let (reader, writer) = client.terminal(&target).await?;
    let wanted = ApiExecRequest {
        streams: StreamMode::Tty,
        raw_output: true,
        exec_id: Some(exec.clone()),
        stdin_base64: None,
        ..wanted
    };
    let mut follower = Follower::new(client, session, exec.clone());
    let work = async { follower.follow(client.exec_stream(session, &wanted).await).await };
    let ended = tty::drive_program(reader, writer, interrupts, work).await;
    if !matches!(ended, Ok(Ok(_))) {
        // Left in the middle.
        follower.screen().repair().await;
    }
    match ended? {
        Ok(done) => Ok(conclude(&done)),
        Err(tty::Typing::Detached) => Ok(0),
        Err(tty::Typing::Signal(signal)) => Ok(exit::signalled(signal)),
        Err(tty::Typing::Lost(why)) => Err(Failure::failed(why)),
    }
}
