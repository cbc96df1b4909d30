//! `bash`, `git`, `run_background`, `wait`, `output`, `kill`: commands, with their output made for a model's context.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use compact_output::{CommandHint, Compact, Compactor, Options};
use serde_json::{Value, json};
use shared_protocol::api::{ApiExecRequest, ApiRunRequest, ExecDone, TimeLimit};
use shared_protocol::runner::{OpenShellRequest, OutcomeKind, ShellKind, ShellState, SignalRequest};
use shared_protocol::{ExecId, ShellName};
use tokio::sync::watch;

use super::arguments::{
    BashArguments, GitArguments, KillArguments, OutputArguments, RunBackgroundArguments, WaitArguments,
};
use super::reply::ToolReply;
use super::{Following, On, Tools};
use crate::service::commands::{ExecEvent, ExecStream, Started, Until};
use crate::service::shells::{OpenShellSpec, SignalSpec};
use crate::service::{CallError, InvalidRequest, SessionError};

/// The most tokens of a command's output in an answer, by estimate.
const MAX_OUTPUT_TOKENS: usize = 8_000;
/// The most bytes of it.
const MAX_OUTPUT_BYTES: usize = 256 << 10;
/// How long `wait` waits if the call does not say.
const DEFAULT_WAIT_SECONDS: u64 = 60;
/// The most bytes that `output` shows, and what it shows if the call does not say.
const MAX_PAGE_BYTES: u64 = 256 << 10;
const DEFAULT_PAGE_BYTES: u64 = 32 << 10;
/// How long a cancelled command has after each signal.
const CANCEL_STEP: Duration = Duration::from_secs(3);
/// How long `kill` waits for a command that was sent all signals.
const END_TIME: Duration = Duration::from_secs(9);
/// The signals that end a cancelled command, one after the other.
const CANCEL_SIGNALS: [&str; 3] = ["INT", "TERM", "KILL"];
/// The beginning of the names of shells in which background commands run. A command has the name of its shell as its id.
const BACKGROUND_SHELL: &str = "background-";

impl Tools {
    pub(super) async fn bash(
        &self,
        on: On<'_>,
        arguments: BashArguments,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let restarted = arguments.restart == Some(true);
        if restarted {
            self.parts.shells.reset(on.caller, on.id, &ShellName::main()).await?;
        }
        let Some(command) = arguments.command else {
            return Ok(ToolReply::text("The shell was started anew.", json!({ "exit_code": 0 })));
        };
        if arguments.background == Some(true) {
            return self.run_background(on, RunBackgroundArguments { command }).await;
        }
        let timeout_ms = arguments
            .timeout_seconds
            .map_or(TimeLimit::Unset, |seconds| TimeLimit::Milliseconds(seconds.saturating_mul(1000)));
        let request = ApiExecRequest { cmd: command.clone(), timeout_ms, ..ApiExecRequest::default() };
        let spec = match self.parts.commands.check_exec_stream(request) {
            Ok(spec) => spec,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let stream = self.parts.commands.stream_exec(on.caller, on.id, &spec).await?;
        self.follow(on, stream, CommandHint::of(&command), following, None).await
    }

    pub(super) async fn git(
        &self,
        on: On<'_>,
        arguments: GitArguments,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let words = match arguments.words() {
            Ok(words) => words,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let cwd = match arguments.cwd {
            Some(cwd) if cwd.starts_with('/') => cwd,
            Some(cwd) => format!("/workspace/{cwd}"),
            None => self.parts.sessions.get(on.caller, on.id)?.cwd,
        };
        let hint = CommandHint::of(&format!("git {}", words.join(" ")));
        let mut argv: Vec<String> = ["git", "--no-pager", "-c", "color.ui=false"].map(str::to_owned).to_vec();
        argv.extend(words);
        // Nothing may wait for a person.
        let env = [("GIT_TERMINAL_PROMPT", "0"), ("GIT_EDITOR", "true"), ("GIT_PAGER", "cat")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect::<BTreeMap<_, _>>();
        let request = ApiRunRequest { argv, env, cwd: Some(cwd), ..ApiRunRequest::default() };
        let spec = match self.parts.commands.check_run_stream(request) {
            Ok(spec) => spec,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let stream = self.parts.commands.stream_run(on.caller, on.id, &spec).await?;
        self.follow(on, stream, hint, following, None).await
    }

    pub(super) async fn run_background(
        &self,
        on: On<'_>,
        arguments: RunBackgroundArguments,
    ) -> Result<ToolReply, CallError> {
        self.close_ended(on).await?;
        let name = format!("{BACKGROUND_SHELL}{:08x}", random()?);
        let named = ShellName::new(name.clone()).and_then(|shell| Ok((shell, ExecId::new(name)?)));
        let (name, exec_id) = named.map_err(|error| internal(&error))?;
        // A shell of its own, so that `main` takes the next command meanwhile; a copy, so that the command finds the same variables.
        let open = OpenShellRequest {
            name: Some(name.clone()),
            kind: ShellKind::Exec,
            from: Some(ShellName::main()),
            ..OpenShellRequest::default()
        };
        let request = ApiExecRequest {
            cmd: arguments.command,
            shell: Some(name),
            exec_id: Some(exec_id),
            detach: true,
            ..ApiExecRequest::default()
        };
        let checked = OpenShellSpec::new(open).and_then(|open| Ok((open, self.parts.commands.check_exec(request)?)));
        let (open, spec) = match checked {
            Ok(checked) => checked,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        self.parts.shells.open(on.caller, on.id, &open).await?;
        match self.parts.commands.exec(on.caller, on.id, &spec).await? {
            Started::Detached(exec_id) => Ok(ToolReply::text(
                format!("Started in the background. exec_id: {exec_id}\nUse wait, output or kill with it."),
                json!({ "exec_id": exec_id }),
            )),
            Started::Ended(exec) => Ok(ToolReply::text(exec.output.text, json!({ "exec_id": exec.done.exec_id }))),
        }
    }

    /// Closes the shells of background commands that have ended.
    async fn close_ended(&self, on: On<'_>) -> Result<(), CallError> {
        for shell in self.parts.shells.list(on.caller, on.id).await? {
            if shell.name.as_str().starts_with(BACKGROUND_SHELL) && shell.state == ShellState::Idle {
                // Another call may have closed it.
                let _ = self.parts.shells.close(on.caller, on.id, &shell.name).await;
            }
        }
        Ok(())
    }

    pub(super) async fn wait(
        &self,
        on: On<'_>,
        arguments: WaitArguments,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let stream = self.parts.commands.reattach(on.caller, on.id, &arguments.exec_id, 0, Until::End).await?;
        let time = Duration::from_secs(arguments.timeout_seconds.unwrap_or(DEFAULT_WAIT_SECONDS));
        self.follow(on, stream, CommandHint::default(), following, Some(time)).await
    }

    pub(super) async fn output(&self, on: On<'_>, arguments: OutputArguments) -> Result<ToolReply, CallError> {
        let limit = arguments.max_bytes.unwrap_or(DEFAULT_PAGE_BYTES).clamp(1, MAX_PAGE_BYTES);
        let from = arguments.from.unwrap_or(0);
        let mut stream = self.parts.commands.reattach(on.caller, on.id, &arguments.exec_id, from, Until::Now).await?;
        let (mut text, mut next, mut done, mut notes) = (String::new(), from, None, Vec::new());
        let mut is_full = false;
        while let Some(event) = stream.next().await {
            match event {
                ExecEvent::Output { piece, .. } if !is_full => {
                    let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(text.len());
                    let length = piece.exact.as_ref().map_or(piece.text.len(), Vec::len);
                    let kept = floor_char_boundary(&piece.text, room);
                    is_full = kept < piece.text.len();
                    text.push_str(&piece.text[..kept]);
                    // Bytes that are no text are shown as a whole piece, or not at all.
                    let taken = if is_full && piece.exact.is_none() { kept } else { length };
                    next = piece.offset + taken as u64;
                }
                ExecEvent::Gap { offset, bytes } if !is_full => {
                    notes.push(format!("[{bytes} bytes from {offset} on are no longer kept]"));
                    next = offset + bytes;
                }
                ExecEvent::Done(ended) => done = Some(ended),
                ExecEvent::Failed(error) => return Err(error),
                _ => {}
            }
            if is_full {
                break;
            }
        }
        let exit_code = done.as_ref().map(|done| done.exit_code);
        let state = match (&done, is_full) {
            (_, true) => format!("[more output: call output with from {next}]"),
            (Some(done), false) => format!("[end of output; {}]", ending(done)),
            (None, false) => format!("[still running; call output with from {next} for what comes]"),
        };
        notes.push(state);
        let text = format!("{}{}", ended_line(text), notes.join("\n"));
        let structured = json!({
            "exec_id": arguments.exec_id, "from": from, "next_from": next, "is_running": done.is_none() && !is_full,
            "exit_code": exit_code,
        });
        Ok(ToolReply::text(text, without_nulls(structured)))
    }

    pub(super) async fn kill(&self, on: On<'_>, arguments: KillArguments) -> Result<ToolReply, CallError> {
        let Some(signal) = arguments.signal else { return self.end(on, &arguments.exec_id).await };
        if let Err(error) = self.signal(on, &arguments.exec_id, &signal).await? {
            return Ok(ToolReply::failure(error.to_string()));
        }
        let text = format!("Sent {signal} to {}.", arguments.exec_id);
        Ok(ToolReply::text(text, json!({ "exec_id": arguments.exec_id, "signal": signal })))
    }

    /// Ends a command as a cancelled call does, and tells how that went. A script that ignores all signals but KILL, which its programs
    /// get and not itself, ends with its shell, if that is a shell for one background command.
    async fn end(&self, on: On<'_>, exec_id: &ExecId) -> Result<ToolReply, CallError> {
        let (_cancel, cancelled) = watch::channel(true);
        let following = Following { cancelled: Some(cancelled), ..Following::default() };
        let mut ended = self.ended_within(on, exec_id, following, END_TIME).await?;
        let shell = ShellName::new(exec_id.as_str()).ok().filter(|name| name.as_str().starts_with(BACKGROUND_SHELL));
        if let (true, Some(shell)) = (ended["is_running"] == true, shell) {
            self.parts.shells.close(on.caller, on.id, &shell).await?;
            ended = self.ended_within(on, exec_id, Following::default(), CANCEL_STEP).await?;
        }
        let (is_running, exit_code) = (ended["is_running"] == true, ended["exit_code"].clone());
        let text = match is_running {
            true => format!("{exec_id} still runs, although it was sent {}.", CANCEL_SIGNALS.join(", ")),
            false => format!("{exec_id} has ended, with exit code {exit_code}."),
        };
        let structured = json!({ "exec_id": exec_id, "is_running": is_running, "exit_code": exit_code });
        Ok(ToolReply { is_error: is_running, ..ToolReply::text(text, without_nulls(structured)) })
    }

    /// The facts about a command that was waited for.
    async fn ended_within(
        &self,
        on: On<'_>,
        exec_id: &ExecId,
        following: Following,
        time: Duration,
    ) -> Result<Value, CallError> {
        let stream = self.parts.commands.reattach(on.caller, on.id, exec_id, 0, Until::End).await?;
        let ended = self.follow(on, stream, CommandHint::default(), following, Some(time)).await?;
        Ok(ended.structured.unwrap_or_default())
    }

    async fn signal(
        &self,
        on: On<'_>,
        exec_id: &ExecId,
        signal: &str,
    ) -> Result<Result<(), InvalidRequest>, CallError> {
        let request = SignalRequest { signal: signal.to_owned(), shell: None, exec_id: Some(exec_id.clone()) };
        match SignalSpec::new(request) {
            Ok(spec) => self.parts.shells.signal(on.caller, on.id, &spec).await.map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Follows a command to its end, or until `time` is over, and makes the answer of it.
    async fn follow(
        &self,
        on: On<'_>,
        mut stream: ExecStream,
        hint: CommandHint,
        mut following: Following,
        time: Option<Duration>,
    ) -> Result<ToolReply, CallError> {
        let options = Options { max_tokens: Some(MAX_OUTPUT_TOKENS), max_bytes: Some(MAX_OUTPUT_BYTES) };
        let mut compactor = Box::new(Compactor::new(hint, options));
        let exec_id = stream.exec_id().clone();
        let mut signals = CANCEL_SIGNALS.into_iter();
        let mut was_cancelled = false;
        let deadline = async move {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(deadline);
        let next_step = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(next_step);
        let done = loop {
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = following.until_cancelled(), if !was_cancelled => {
                    was_cancelled = true;
                    next_step.as_mut().reset(tokio::time::Instant::now());
                    continue;
                }
                () = &mut next_step, if was_cancelled && signals.len() > 0 => {
                    if let Some(signal) = signals.next() {
                        // It may have ended meanwhile.
                        let _ = self.signal(on, &exec_id, signal).await;
                    }
                    next_step.as_mut().reset(tokio::time::Instant::now() + CANCEL_STEP);
                    continue;
                }
                () = &mut deadline => break None,
            };
            match event {
                Some(ExecEvent::Output { piece, .. }) => {
                    following.tell(|| last_line(&piece.text));
                    compactor.push(piece.exact.as_deref().unwrap_or(piece.text.as_bytes()));
                }
                Some(ExecEvent::Gap { bytes, .. }) => {
                    compactor.push(format!("\n[{bytes} bytes left out]\n").as_bytes());
                }
                Some(ExecEvent::Queued { running_exec_id, .. }) => {
                    following
                        .tell(|| format!("waiting for the command {running_exec_id}, which runs in the same shell"));
                }
                Some(ExecEvent::Done(done)) => break Some(done),
                Some(ExecEvent::Failed(error)) => return Err(error),
                Some(ExecEvent::Started { .. } | ExecEvent::Running { .. } | ExecEvent::AwaitingInput) => {}
                None => break None,
            }
        };
        let compact = compactor.finish(done.as_ref().map(|done| done.exit_code));
        Ok(answer(&exec_id, &compact, done.as_deref(), was_cancelled))
    }
}

/// The answer for a command: its output, and what a model should know about its end.
fn answer(exec_id: &ExecId, compact: &Compact, done: Option<&ExecDone>, was_cancelled: bool) -> ToolReply {
    let mut text = ended_line(compact.text.clone());
    let left_out = compact.estimated_tokens_original.saturating_sub(compact.estimated_tokens_kept);
    if compact.is_cut || left_out > 0 {
        let _ =
            writeln!(text, "[output shortened by about {left_out} tokens; output with exec_id {exec_id} shows all]");
    }
    let mut structured = json!({
        "exec_id": exec_id, "is_running": done.is_none(), "is_shortened": compact.is_changed,
        "output_bytes": compact.original_bytes, "was_cancelled": was_cancelled,
    });
    match done {
        None => text.push_str(&format!("[still running; wait, output or kill with exec_id {exec_id}]")),
        Some(done) => {
            text.push_str(&format!("[{}]", ending(done)));
            if was_cancelled {
                text.push_str("\n[the call was cancelled]");
            }
            if !done.network_denied.is_empty() {
                let hosts = done.network_denied.join(", ");
                text.push_str(&format!("\n[the network policy denied: {hosts}; network_request can ask for them]"));
            }
            structured["exit_code"] = json!(done.exit_code);
            structured["cwd"] = json!(done.cwd);
            structured["timed_out"] = json!(done.timed_out);
            structured["output_bytes"] = json!(done.output_bytes);
            structured["network_denied"] = json!(done.network_denied);
        }
    }
    ToolReply { is_error: done.is_some_and(|done| done.exit_code != 0), ..ToolReply::text(text, structured) }
}

/// How a command ended, in words.
fn ending(done: &ExecDone) -> String {
    let mut said = match done.kind {
        OutcomeKind::NeverRan => format!("it never ran: {}", done.reason.as_deref().unwrap_or("unknown")),
        OutcomeKind::Lost => format!("it was lost: {}", done.reason.as_deref().unwrap_or("unknown")),
        _ if done.timed_out => format!("timed out after {}", seconds(done.duration_ms)),
        _ => format!("exit code {}", done.exit_code),
    };
    if !done.cwd.is_empty() {
        let _ = write!(said, ", in {}", done.cwd);
    }
    if !done.timed_out {
        let _ = write!(said, ", {}", seconds(done.duration_ms));
    }
    if done.shell_restarted {
        said.push_str("; the shell was replaced, and its state restored");
    }
    if done.oom_killed {
        said.push_str("; memory ran out, and the kernel killed a process");
    }
    if done.awaiting_input {
        said.push_str("; a program was waiting for input");
    }
    said
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

/// The text with a newline at its end, unless it is empty.
fn ended_line(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The last line of a piece of output that is not empty, short enough for a progress message.
fn last_line(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.chars().filter(|character| !character.is_control()).take(MAX_CHARS).collect()
}

/// The last boundary between characters at or before `index`.
fn floor_char_boundary(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

fn random() -> Result<u32, CallError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| internal(&error))?;
    Ok(u32::from_le_bytes(bytes))
}

fn internal(error: &impl std::fmt::Display) -> CallError {
    CallError::Session(SessionError::Internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(kind: OutcomeKind) -> ExecDone {
        ExecDone {
            exec_id: ExecId::new("e").unwrap(),
            kind,
            exit_code: 1,
            signal: None,
            cwd: "/workspace".into(),
            output_bytes: 5,
            truncated: false,
            timed_out: false,
            shell_restarted: false,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: 1234,
            network_denied: Vec::new(),
            reason: None,
        }
    }

    #[test]
    fn the_end_of_a_command_is_told_in_one_line() {
        assert_eq!(ending(&done(OutcomeKind::Exited)), "exit code 1, in /workspace, 1.2 s");
        let late = ExecDone { timed_out: true, ..done(OutcomeKind::TimedOut) };
        assert_eq!(ending(&late), "timed out after 1.2 s, in /workspace");
        let lost = ExecDone { reason: Some("the shell was closed".into()), ..done(OutcomeKind::Lost) };
        assert!(ending(&lost).starts_with("it was lost: the shell was closed"));
        let full = ExecDone { oom_killed: true, shell_restarted: true, ..done(OutcomeKind::Signaled) };
        assert!(ending(&full).contains("memory ran out") && ending(&full).contains("replaced"));
    }

    #[test]
    fn a_denied_host_is_named_in_the_answer() {
        let ended = ExecDone { network_denied: vec!["example.com:443".into()], ..done(OutcomeKind::Exited) };
        let mut compactor = Compactor::new(CommandHint::default(), Options::default());
        compactor.push(b"curl: (6) no");
        let reply = answer(&ended.exec_id.clone(), &compactor.finish(Some(1)), Some(&ended), false);
        let super::super::ToolContent::Text(text) = &reply.content[0] else { panic!() };
        assert!(reply.is_error && text.contains("denied: example.com:443"), "{text}");
        assert_eq!(reply.structured.unwrap()["network_denied"], json!(["example.com:443"]));
    }

    #[test]
    fn progress_is_the_last_line_without_control_characters() {
        assert_eq!(last_line("a\n\x1b[1mb\x07\n\n"), "[1mb");
        assert_eq!(last_line(""), "");
    }
}
