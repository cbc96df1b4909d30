//! Runs: programs outside the shells. Runs share no state, any number can run at the same time, and their status comes only
//! from the reaper.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::ErrorBody;
use shared_protocol::runner::{ExecOutcome, OutcomeKind, RunRequest, Stream, decode_payload};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::environment::Environment;
use crate::exec::{Exec, ExecTable};
use crate::file_kind;
use crate::oom::{OomCounter, OomMark};
use crate::open_stdin::OpenStdin;
use crate::output::Pump;
use crate::reaper::{Exit, Reaper, Watch};
use crate::sys::identity::Identity;
use crate::sys::pipe;
use crate::sys::spawn::{Session, spawn_in};
use crate::text;

/// The exit codes that shells use for a program that was found but could not be started, and for one that was not found.
const NOT_RUNNABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// The exit code of `timeout(1)` for a program whose time was up.
const TIMED_OUT: i32 = 124;

/// The most bytes of a program's name or directory in the reason of an outcome.
const MAX_SHOWN: usize = 512;

/// The most signals that wait for one run.
const SIGNAL_DEPTH: usize = 16;

/// The time between TERM and KILL when a run has timed out.
const KILL_AFTER: Duration = Duration::from_millis(500);

/// Starts runs, and holds what all of them need. Cheap to clone.
#[derive(Clone)]
pub struct Runs {
    pub identity: Identity,
    pub environment: Environment,
    pub reaper: Reaper,
    pub execs: ExecTable,
    pub oom: Rc<OomCounter>,
}

impl Runs {
    /// Starts a run. If the program cannot be started, that is the outcome of the run and not an error of the request.
    pub fn start(&self, request: RunRequest) -> Result<Rc<Exec>, ErrorBody> {
        request.check()?;
        let stdin = decode_payload("stdin", request.stdin, request.stdin_base64)?;
        let (signals, signal_receiver) = mpsc::channel(SIGNAL_DEPTH);
        let exec = self.execs.admit(request.exec_id, None, Some(signals))?;
        exec.begin();

        let cwd = request.cwd.map_or_else(|| self.environment.start_dir.clone(), Into::into);
        let mut command = Command::new(&request.argv[0]);
        command.args(&request.argv[1..]).env_clear().envs(self.environment.variables()).envs(&request.env);
        let oom_mark = self.oom.mark();
        match self.start_program(command, &cwd, &exec, stdin.is_some() || request.stdin_open) {
            Ok(Started { watch, pumps, input }) => {
                exec.pid.set(u32::try_from(watch.pid()).ok());
                match (input, stdin) {
                    (Some(mut input), Some(stdin)) => {
                        // This task ends with the program at the latest, because the pipe breaks then.
                        tokio::task::spawn_local(async move {
                            let _ = input.write_all(&stdin).await;
                        });
                    }
                    (Some(input), None) => *exec.stdin.borrow_mut() = Some(Rc::new(OpenStdin::new(input))),
                    (None, _) => {}
                }
                let deadline = request.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
                let (execs, oom) = (self.execs.clone(), self.oom.clone());
                let run = Run { execs, oom, exec: exec.clone(), watch, pumps, signals: signal_receiver, oom_mark };
                tokio::task::spawn_local(run.until_exit(deadline));
            }
            Err(error) => {
                let path = self.environment.path(&request.env);
                let (exit_code, reason) = start_failure(&request.argv[0], &cwd, path, &error);
                self.execs.end(&exec, outcome(&exec, OutcomeKind::NeverRan, exit_code, None, Some(reason)));
            }
        }
        Ok(exec)
    }

    fn start_program(
        &self,
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
            Some(Sender::from_owned_fd(writer)?)
        } else {
            command.stdin(Stdio::null());
            None
        };
        let pid = spawn_in(command, self.identity, Session::Detached, Some(cwd))?;
        let watch = self.reaper.watch_program(pid);
        let pumps = vec![
            Pump::new(stdout, Stream::Stdout, exec.log.clone())?,
            Pump::new(stderr, Stream::Stderr, exec.log.clone())?,
        ];
        for pump in &pumps {
            tokio::task::spawn_local(pump.clone().run());
        }
        Ok(Started { watch, pumps, input })
    }
}

/// The exit code and the reason for a program that could not be started.
///
/// If a directory in PATH cannot be entered by the user, `execvp` reports "permission denied" even for a program that does
/// not exist anywhere. Shells say "not found" then, and so does this.
fn start_failure(program: &str, cwd: &Path, path: Option<OsString>, error: &std::io::Error) -> (i32, String) {
    if !file_kind::is_dir(cwd) {
        let cwd = text::shown(cwd.as_os_str().as_bytes(), MAX_SHOWN);
        return (NOT_RUNNABLE, format!("the directory {cwd}: {error}"));
    }
    let exists = program.contains('/')
        || path.is_some_and(|path| std::env::split_paths(&path).any(|dir| file_kind::is_file(&dir.join(program))));
    let program = text::shown(program.as_bytes(), MAX_SHOWN);
    if error.kind() == ErrorKind::NotFound || !exists {
        return (NOT_FOUND, format!("{program}: not found"));
    }
    (NOT_RUNNABLE, format!("{program}: {error}"))
}

/// A started program.
struct Started {
    watch: Watch,
    pumps: Vec<Rc<Pump>>,
    /// The pipe to its standard input, if the request has input or keeps it open.
    input: Option<Sender>,
}

/// The task that owns one running program.
struct Run {
    execs: ExecTable,
    oom: Rc<OomCounter>,
    exec: Rc<Exec>,
    watch: Watch,
    pumps: Vec<Rc<Pump>>,
    signals: mpsc::Receiver<i32>,
    oom_mark: OomMark,
}

impl Run {
    /// Waits for the program, passes signals on, enforces the deadline, and ends the exec.
    async fn until_exit(mut self, deadline: Option<Instant>) {
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
        if let Some(stdin) = &*self.exec.stdin.borrow() {
            stdin.end();
        }
        // Everything that the program wrote is in the pipes now. What its children write later is late output.
        for pump in &self.pumps {
            let (target, read) = pump.drain();
            if !read {
                pump.wait_until_read(target).await;
            }
        }
        let (kind, exit_code, signal) = match (timed_out, exit) {
            (true, _) => (OutcomeKind::TimedOut, TIMED_OUT, None),
            (false, Exit::Code(code)) => (OutcomeKind::Exited, code, None),
            (false, Exit::Signal(signal)) => (OutcomeKind::Signaled, exit.shell_code(), Some(signal)),
        };
        let mut outcome = outcome(&self.exec, kind, exit_code, signal, None);
        outcome.oom_killed = self.oom.has_killed_since(self.oom_mark);
        self.execs.end(&self.exec, outcome);
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
