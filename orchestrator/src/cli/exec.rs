//! `cove exec`: runs a command in a session's persistent shell.
//!
//! If the client leaves or loses its connection, the command keeps running; `--attach` follows it again.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use shared_protocol::api::{ApiExecRequest, TimeLimit};
use shared_protocol::runner::StreamMode;
use shared_protocol::{ExecId, SessionId, ShellName};

use super::connect::DaemonArgs;
use super::exit::{self, CommandEnd, Failure};
use super::follow::{Follower, conclude, new_exec_id};
use super::interrupt::Interrupts;
use super::options::{duration, time_limit, variables, whole_milliseconds};
use super::output::{print, print_json, say};
use super::session_ref::SessionRef;
use super::{docker_words, stdin, tty, words};
use crate::client::{Client, TerminalTarget};

const EXAMPLES: &str = "\
Examples:
  cove exec 7183cb80-d6c 'cd /tmp && export A=1'      one argument is a line of bash
  cove exec 7183cb80-d6c ls -la 'a file'              several arguments are passed on as they are
  cove exec 7183cb80-d6c --timeout 30s make
  cove exec -d 7183cb80-d6c 'make > log 2>&1'
  cove exec -it web bash                              at your terminal, in the session with the name web

The next command sees the directory, variables and functions that this one leaves. The exit code is
the command's. Ctrl-C interrupts the command. A second Ctrl-C leaves it: it keeps running. While another
command runs in the shell, this one waits; then Ctrl-C takes it out of the queue.";

/// How long the daemon may take to pass a signal on.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Run a command in a session's shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExecArgs {
    /// Id or name of the session
    session: SessionRef,
    /// The command: one argument is a line of bash, several are a program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub words: Vec<String>,
    /// End the command after this time, for example 30s or 5m, or none
    #[arg(long, value_parser = time_limit, value_name = "TIME")]
    timeout: Option<TimeLimit>,
    /// Do not run the command if it has to wait longer than this behind another one
    #[arg(long, value_parser = duration, value_name = "TIME")]
    queue_timeout: Option<Duration>,
    /// Shell to run it in (default: main)
    #[arg(long, value_parser = shell_name, value_name = "NAME")]
    shell: Option<ShellName>,
    /// Directory to run it in; the shell's own directory does not change
    #[arg(short = 'w', long, visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,
    /// Set a variable for this command; a name alone passes your own value on
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Pass standard input on: as a whole up to 8 MiB, or key by key from a terminal
    #[arg(short = 'i', long, conflicts_with = "detach")]
    interactive: bool,
    /// Connect the command to your terminal, or fail if there is none
    #[arg(short = 't', long, conflicts_with_all = ["detach", "json"])]
    tty: bool,
    /// Print the result as JSON at the end, instead of the output while it comes
    #[arg(long)]
    pub json: bool,
    /// Print the command's id and exit; the command keeps running
    #[arg(short = 'd', long)]
    detach: bool,
    /// Follow a command that was started before, from the start of its output
    #[arg(long, value_parser = exec_id, value_name = "EXEC", conflicts_with_all = ["words", "detach", "json", "interactive", "tty"])]
    attach: Option<ExecId>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub fn shell_name(text: &str) -> Result<ShellName, String> {
    ShellName::new(text).map_err(|e| e.to_string())
}

fn exec_id(text: &str) -> Result<ExecId, String> {
    ExecId::new(text).map_err(|e| e.to_string())
}

pub async fn exec(args: ExecArgs) -> Result<u8, Failure> {
    if args.tty {
        tty::require()?;
    }
    if args.attach.is_none() {
        check_command(&args)?;
    }
    let client = args.daemon.client()?;
    let session = &args.session.find(&client).await?;
    if let Some(exec) = &args.attach {
        let mut follower = Follower::new(&client, session, exec.clone());
        let work = async { follower.follow(client.reattach(session, exec, 0).await).await.map(|done| conclude(&done)) };
        return interruptible(&client, session, exec, work).await;
    }
    let at_terminal = args.tty || (args.interactive && tty::is_terminal() && !args.json);
    let typed = if args.interactive && !at_terminal { stdin::read().await? } else { None };
    let exec = new_exec_id()?;
    let wanted = ApiExecRequest {
        cmd: words::command(&args.words),
        timeout_ms: args.timeout.unwrap_or_default(),
        queue_timeout_ms: args.queue_timeout.map(whole_milliseconds),
        streams: if is_same_file() { StreamMode::Merged } else { StreamMode::Split },
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
            return Ok(CommandEnd {
                kind: reply.done.kind,
                exit_code: reply.done.exit_code,
                signal: reply.done.signal,
            }
            .code());
        }
        let begun = client.exec_stream(session, &wanted).await;
        let mut follower = Follower::new(&client, session, exec.clone());
        follower.follow(begun).await.map(|done| conclude(&done))
    };
    let result = interruptible(&client, session, &exec, work).await;
    if result.as_ref().is_err_and(Failure::is_silent) {
        // Whoever read our output has gone, as `head` does. The command gets SIGPIPE, as it would in a pipe.
        send(&client, session, &exec, "PIPE").await;
    }
    result
}

/// Refuses a command that was forgotten, and an option of docker that would be the command.
fn check_command(args: &ExecArgs) -> Result<(), Failure> {
    let session = &args.session;
    match args.words.first() {
        None => Err(Failure::usage(format!(
            "give a command, as in `cove exec {session} ls`; `cove shell {session}` opens a terminal"
        ))),
        Some(word) => docker_words::refuse_option(word, "exec"),
    }
}

/// Whether standard output and standard error are the same file or terminal. Then the command gets one pipe for both, which keeps
/// their order.
fn is_same_file() -> bool {
    let place = |fd: &str| std::fs::metadata(fd).map(|file| (file.dev(), file.ino(), file.rdev())).ok();
    let (out, err) = (place("/proc/self/fd/1"), place("/proc/self/fd/2"));
    out.is_some() && out == err
}

/// Runs `work`. The first INT is passed on to the command, the second ends this process.
pub async fn interruptible(
    client: &Client,
    session: &SessionId,
    exec: &ExecId,
    work: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let mut interrupts = Interrupts::ctrl_c()?;
    tokio::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        _ = interrupts.next() => {}
    }
    let interrupt = async {
        send(client, session, exec, "INT").await;
        std::future::pending().await
    };
    tokio::select! {
        result = &mut work => result,
        never = interrupt => never,
        _ = interrupts.next() => {
            say(format!("the command keeps running; `cove exec {session} --attach {exec}` follows it again"));
            Ok(exit::signalled(libc::SIGINT))
        }
    }
}

pub async fn send(client: &Client, session: &SessionId, exec: &ExecId, name: &str) {
    match tokio::time::timeout(SIGNAL_TIMEOUT, client.signal(session, exec, name)).await {
        Ok(Ok(())) => {}
        // The command has ended meanwhile.
        Ok(Err(error)) if error.is("EXEC_NOT_FOUND") || error.is("CONFLICT") => {}
        Ok(Err(error)) => say(format!("cannot send {name} to the command: {error}")),
        Err(_) => say(format!("cannot send {name} to the command: no answer")),
    }
}

/// Runs a command at the shell's terminal and connects the caller's terminal to it. The output comes from the exec, so that its end
/// is exact. Keys and the window's size go through a terminal connection.
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
    let is_waiting = Rc::new(Cell::new(false));
    let mut follower = Follower::new(client, session, exec.clone()).in_raw_mode(is_waiting.clone());
    let work = async { follower.follow(client.exec_stream(session, &wanted).await).await };
    let ended = tty::drive_program(reader, writer, interrupts, || is_waiting.get(), work).await;
    if !matches!(ended, Ok(Ok(_))) {
        // The program did not end by itself, so it could not restore the screen.
        follower.screen().restore().await;
    }
    match ended? {
        Ok(done) => Ok(conclude(&done)),
        Err(tty::TypingEnd::Detached) => Ok(0),
        Err(tty::TypingEnd::Cancelled) => {
            send(client, session, &exec, "INT").await;
            say("the command did not run: it was taken out of the queue");
            Ok(exit::signalled(libc::SIGINT))
        }
        Err(tty::TypingEnd::Signal(signal)) => Ok(exit::signalled(signal)),
        Err(tty::TypingEnd::Lost(why)) => Err(Failure::failed(why)),
    }
}
