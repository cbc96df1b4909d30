//! `cove logs`: prints what a command has written, and lists the commands of a session.

use clap::Args;
use shared_protocol::SessionId;
use shared_protocol::api::{ApiExecView, SessionStatus};
use shared_protocol::runner::ExecState;

use super::connect::DaemonArgs;
use super::exec::interruptible;
use super::exit::Failure;
use super::follow::{Follower, conclude};
use super::list::ListForm;
use super::output::{Colour, Style};
use super::session_ref::SessionRef;
use super::table::{Cell, Table};
use super::tail::MAX_TAIL_LINES;
use crate::client::Client;

const EXAMPLES: &str = "\
Examples:
  cove logs web                              the last command of the session
  cove logs -f web                           also what it writes from now on
  cove logs -f --tail 20 web                 the last 20 lines, and what it writes from now on
  cove logs web cli-5d1c                     one command, by its id or the beginning of it
  cove logs cli-5d1c0f1e2a3b4c5d             in whichever session it is
  cove logs --list web

With -f, the exit code is the command's, and Ctrl-C interrupts the command. A session keeps the last part of
the output of its recent commands.";

/// Print the output of a command
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct LogsArgs {
    /// Id or name of the session; or the id of a command
    #[arg(value_name = "SESSION")]
    session: SessionRef,
    /// Id of the command, or its beginning (default: the last command of the session)
    #[arg(value_name = "EXEC", conflicts_with = "list")]
    exec: Option<String>,
    /// Wait for more output until the command ends
    #[arg(short = 'f', long, conflicts_with = "list")]
    follow: bool,
    /// Begin with the last N lines of what it has written
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "list", value_parser = clap::value_parser!(u64).range(..=MAX_TAIL_LINES))]
    tail: Option<u64>,
    /// List the commands of the session instead
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    form: ListForm,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn logs(args: LogsArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    if !args.form.is_table() && !args.list {
        return Err(Failure::usage("--json and -q are for `cove logs --list`"));
    }
    if args.list {
        let execs = client.execs(&args.session.find(&client).await?).await?;
        args.form.show(&execs, |exec| exec.exec_id.to_string(), table)?;
        return Ok(0);
    }
    let (session, exec) = found(&args, &client).await?;
    let mut follower = Follower::new(&client, &session, exec.exec_id.clone());
    if let Some(lines) = args.tail {
        follower.skip_to_tail(exec.output_bytes, lines).await?;
    }
    if !args.follow {
        follower.copy_until(exec.output_bytes).await?;
        return Ok(0);
    }
    let work = async {
        let begun = client.reattach(&session, &exec.exec_id, follower.next_offset()).await;
        follower.follow(begun).await.map(|done| conclude(&done))
    };
    interruptible(&client, &session, &exec.exec_id, work).await
}

/// The command that is meant. One word is a session, and else a command in any session.
async fn found(args: &LogsArgs, client: &Client) -> Result<(SessionId, ApiExecView), Failure> {
    if let Some(session) = args.session.find_if_any(client).await? {
        let execs = client.execs(&session).await?;
        let exec = match &args.exec {
            Some(text) => exec_of(&execs, text)?,
            None => execs.last().ok_or_else(|| Failure::failed(format!("no command ran in session {session} yet")))?,
        };
        return Ok((session, exec.clone()));
    }
    let text = args.session.to_string();
    let sessions = if args.exec.is_none() { client.sessions(None, &[]).await? } else { Vec::new() };
    // A paused session stays paused.
    for session in sessions.into_iter().filter(|session| session.status == SessionStatus::Running) {
        // A session that ends meanwhile has no commands any more.
        let execs = client.execs(&session.id).await.unwrap_or_default();
        if let Some(exec) = execs.into_iter().find(|exec| exec.exec_id.as_str() == text) {
            return Ok((session.id, exec));
        }
    }
    Err(Failure::failed(format!("no session and no command {text}; `cove ps` lists the sessions")))
}

/// The command with this id, or the only one whose id begins so.
pub fn exec_of<'a>(execs: &'a [ApiExecView], text: &str) -> Result<&'a ApiExecView, Failure> {
    if let Some(exec) = execs.iter().find(|exec| exec.exec_id.as_str() == text) {
        return Ok(exec);
    }
    let begin: Vec<&ApiExecView> = execs.iter().filter(|exec| exec.exec_id.as_str().starts_with(text)).collect();
    match begin[..] {
        [exec] => Ok(exec),
        [] => Err(Failure::failed(format!(
            "no command {text}; `cove logs --list SESSION` lists the commands of a session"
        ))),
        _ => Err(Failure::usage(format!("{text} is the beginning of the ids of {} commands", begin.len()))),
    }
}

fn table(execs: &[ApiExecView], style: Style) -> String {
    let mut table = Table::new(&["COMMAND", "SHELL", "STATE", "EXIT", "OUTPUT", "TIME"]);
    for exec in execs {
        let (state, colour) = match exec.state {
            ExecState::Queued => ("queued", Colour::Yellow),
            ExecState::Running => ("running", Colour::Green),
            ExecState::Ended => ("ended", Colour::Dim),
        };
        let done = exec.done.as_ref();
        table.row(vec![
            Cell::new(exec.exec_id.as_str()),
            Cell::new(exec.shell.as_ref().map(ToString::to_string).unwrap_or_default()),
            Cell::coloured(state, colour),
            Cell::new(done.map(|done| done.exit_code.to_string()).unwrap_or_default()),
            Cell::new(indicatif::BinaryBytes(exec.output_bytes).to_string()),
            Cell::new(done.map(|done| format!("{:.1}s", done.duration_ms as f64 / 1000.0)).unwrap_or_default()),
        ]);
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(id: &str) -> ApiExecView {
        let text = format!(r#"{{"exec_id":"{id}","state":"running","output_bytes":2048,"first_offset":0}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_command_is_found_by_its_id_or_the_beginning_of_it() {
        let execs = [exec("build"), exec("build-2"), exec("test")];
        assert_eq!(exec_of(&execs, "build").unwrap().exec_id.as_str(), "build", "a whole id comes first");
        assert_eq!(exec_of(&execs, "te").unwrap().exec_id.as_str(), "test");
        assert!(exec_of(&execs, "buil").is_err_and(|e| format!("{e:?}").contains("2 commands")));
        assert!(exec_of(&execs, "lint").is_err_and(|e| format!("{e:?}").contains("--list")));
    }

    #[test]
    fn a_command_is_a_line() {
        let expected = "\
COMMAND  SHELL  STATE    EXIT  OUTPUT    TIME
test            running        2.00 KiB
";
        assert_eq!(table(&[exec("test")], Style::plain()), expected);
    }
}
