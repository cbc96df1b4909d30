//! A run: one program beside the shells, stateless, any number at once, its status from the reaper alone.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::{ExecOutcome, OutcomeKind, RunRequest, Stream, decode_payload};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::app::SharedApp;
use crate::exec::Exec;
use crate::output::Pump;
use crate::reaper::{Exit, Watch};
use crate::shell::check_variables;
use crate::sys::pipe;
use crate::sys::spawn::{Session, spawn_in};

/// The shells' codes for what could not be started: found and refused, and not found.
const NOT_RUNNABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Signals on their way to a run.
const SIGNAL_DEPTH: usize = 16;

/// From TERM to KILL when the time is up.
const KILL_AFTER: Duration = Duration::from_millis(500);

/// Starts a run. Whether its program can be started at all is part of its outcome, not an error of the request.
pub fn start(app: &SharedApp, request: RunRequest) -> Result<Rc<Exec>, ErrorBody> {
    let invalid = |message: &str| Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    if request.argv.first().is_none_or(String::is_empty) {
        return invalid("argv needs a program as its first element");
    }
    if request.argv.iter().chain(&request.cwd).any(|word| word.contains('\0')) {
        return invalid("argv and cwd cannot hold a NUL byte");
    }
    check_variables(request.env.iter())?;
    let stdin = decode_payload("stdin", request.stdin, request.stdin_base64)?;
    let (signals, signal_receiver) = mpsc::channel(SIGNAL_DEPTH);
    let exec = app.execs.admit(request.exec_id, None, Some(signals))?;
    exec.begin();

    let cwd = request.cwd.clone().map_or_else(|| app.environment.start_dir.clone(), Into::into);
    let mut command = Command::new(&request.argv[0]);
    command.args(&request.argv[1..]).env_clear().envs(app.environment.variables()).envs(&request.env);
    let ooms_before = app.oom.count();
    let started = start_program(app, command, &cwd, &exec, stdin.is_some());
    match started {
        Ok((watch, pumps, input)) => {
            if let (Some(mut input), Some(stdin)) = (input, stdin) {
                // Ends with the program at the latest: then the pipe breaks.
                tokio::task::spawn_local(async move {
                    let _ = input.write_all(&stdin).await;
                });
            }
            let deadline = request.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
            let run = Run { app: app.clone(), exec: exec.clone(), watch, pumps, signals: signal_receiver, ooms_before };
            tokio::task::spawn_local(run.until_the_end(deadline));
        }
        Err(error) => {
            let (exit_code, reason) = why_not(&request.argv[0], &cwd, app.environment.path(&request.env), &error);
            app.execs.end(&exec, outcome(&exec, OutcomeKind::NeverRan, exit_code, None, Some(reason)));
        }
    }
    Ok(exec)
}

/// The shell's code for a program that could not be started, and the words for it.
///
/// A directory in PATH that the user cannot enter makes the kernel's last word "permission denied" for a program that is
/// nowhere at all; shells say "not found" then, and so do we.
fn why_not(program: &str, cwd: &Path, path: Option<OsString>, error: &std::io::Error) -> (i32, String) {
    if !cwd.is_dir() {
        return (NOT_RUNNABLE, format!("the directory {}: {error}", cwd.display()));
    }
    let is_somewhere = program.contains('/')
        || path.is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if error.kind() == ErrorKind::NotFound || !is_somewhere {
        return (NOT_FOUND, format!("{program}: not found"));
    }
    (NOT_RUNNABLE, format!("{program}: {error}"))
}

type Started = (Watch, Vec<Rc<Pump>>, Option<tokio::net::unix::pipe::Sender>);

fn start_program(
    app: &SharedApp,
    mut command: Command,
    cwd: &Path,
    exec: &Rc<Exec>,
    has_stdin: bool,
) -> std::io::Result<Started> {
    let (stdout, stdout_writer) = pipe::output_pipe()?;
    let (stderr, stderr_writer) = pipe::output_pipe()?;
    command.stdout(stdout_writer).stderr(stderr_writer);
    let input = if has_stdin {
        let (reader, writer) = pipe::input_pipe()?;
        command.stdin(reader);
        Some(tokio::net::unix::pipe::Sender::from_owned_fd(writer)?)
    } else {
        command.stdin(Stdio::null());
        None
    };
    let pid = spawn_in(command, app.identity, Session::Detached, Some(cwd))?;
    let watch = app.reaper.watch(pid);
    let pumps = vec![
        Pump::new(stdout, Stream::Stdout, exec.log.clone())?,
        Pump::new(stderr, Stream::Stderr, exec.log.clone())?,
    ];
    for pump in &pumps {
        tokio::task::spawn_local(pump.clone().run());
    }
    Ok((watch, pumps, input))
}

struct Run {
    app: SharedApp,
    exec: Rc<Exec>,
    watch: Watch,
    pumps: Vec<Rc<Pump>>,
    signals: mpsc::Receiver<i32>,
    /// Out-of-memory kills before it.
    ooms_before: u64,
}

impl Run {
    async fn until_the_end(mut self, deadline: Option<Instant>) {
        let mut timed_out = false;
        let mut next = deadline;
        let exit = loop {
            let time_is_up = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                exit = self.watch.exit() => break exit,
                Some(number) = self.signals.recv() => self.watch.signal_group(number),
                () = time_is_up => {
                    self.watch.signal_group(if timed_out { libc::SIGKILL } else { libc::SIGTERM });
                    self.watch.signal_group(libc::SIGCONT);
                    next = (!timed_out).then(|| Instant::now() + KILL_AFTER);
                    timed_out = true;
                }
            }
        };
        // What the program wrote is in the pipes by now; what its children still write is late output.
        for pump in &self.pumps {
            let (target, read) = pump.drain();
            if !read {
                pump.wait_until_read(target).await;
            }
        }
        let (kind, exit_code, signal) = match (timed_out, exit) {
            (true, _) => (OutcomeKind::TimedOut, 124, None),
            (false, Exit::Code(code)) => (OutcomeKind::Exited, code, None),
            (false, Exit::Signal(signal)) => (OutcomeKind::Signaled, 128 + signal, Some(signal)),
        };
        let mut outcome = outcome(&self.exec, kind, exit_code, signal, None);
        outcome.oom_killed = signal == Some(libc::SIGKILL) && self.app.oom.count() > self.ooms_before;
        self.app.execs.end(&self.exec, outcome);
    }
}

fn outcome(exec: &Exec, kind: OutcomeKind, exit_code: i32, signal: Option<i32>, reason: Option<String>) -> ExecOutcome {
    ExecOutcome {
        exec_id: exec.id.clone(),
        kind,
        exit_code,
        signal,
        cwd: None,
        output_bytes: exec.log.end(),
        timed_out: kind == OutcomeKind::TimedOut,
        shell_restarted: false,
        oom_killed: false,
        awaiting_input: false,
        duration_ms: exec.duration_ms(),
        reason,
    }
}
