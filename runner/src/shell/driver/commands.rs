//! A command from the queue to its outcome.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::{ExecOutcome, OutcomeKind, Stream, StreamMode};
use tokio::time::Instant;

use super::super::bash::Bash;
use super::super::script::{self, Mark, file};
use super::messages::Job;
use super::time::FIRST_LOOK;
use super::{Current, Driver, End, Manner};
use crate::exec::Exec;
use crate::output::Pump;
use crate::reaper::Exit;

/// As `timeout` has it.
const TIMEOUT_EXIT_CODE: i32 = 124;

/// For a bash that is about to be replaced to have written its state.
const SUSPECT_PATIENCE: Duration = Duration::from_secs(1);

/// With this status bash refuses what it cannot parse.
const SYNTAX_ERROR: i32 = 2;

/// Bash 5.2 writes outside of its own buffers after a command substitution that never ends (valgrind shows it in a script of
/// two lines), and dies at some later command. Where that may have happened it is not used again. Brackets in quotes can make
/// this wrong, which costs a new shell and nothing else.
fn may_have_broken_bash(cmd: &str, status: i32) -> bool {
    let count = |bracket: u8| cmd.bytes().filter(|byte| *byte == bracket).count();
    status == SYNTAX_ERROR && ["$(", "<(", ">("].iter().any(|open| cmd.contains(open)) && count(b'(') > count(b')')
}

impl Driver {
    /// Sends the next command, if there is one and bash is ready for it.
    pub(super) fn dispatch(&mut self) {
        if self.current.is_some() || self.starting.is_some() || self.is_doomed || self.suspect_until.is_some() {
            return;
        }
        if self.bash.is_none() {
            if !self.queue.is_empty() && self.start_at.is_none() {
                self.start_at = Some(Instant::now());
                self.start_if_due();
            }
            return;
        }
        if std::mem::take(&mut self.is_claim_due) && self.has_to_know_of_claim() {
            return self.send_claim();
        }
        let Some(mut job) = self.queue.pop_front() else { return };
        job.attempts += 1;
        match self.send(&job) {
            Ok((mark, pumps, keepers)) => {
                let now = Instant::now();
                let timeout = job.request.timeout_ms.map(Duration::from_millis);
                job.exec.begin();
                self.current = Some(Current {
                    job,
                    mark,
                    pumps,
                    keepers,
                    deadline: timeout.and_then(|timeout| now.checked_add(timeout)),
                    ladder: None,
                    awaiting_input: false,
                    unheard: None,
                    look: (now + FIRST_LOOK, FIRST_LOOK),
                    end: End::Unsuspected,
                });
            }
            Err(error) => {
                // The scratch directory is damaged or full, or bash no longer reads.
                tracing::warn!(shell = %self.shared.view.borrow().name, %error, "replacing a shell that takes no command");
                self.restart_unreported = true;
                self.send_again(job);
                self.replace_bash();
            }
        }
    }

    pub(super) fn send(&mut self, job: &Job) -> std::io::Result<(Mark, Vec<Rc<Pump>>, Vec<OwnedFd>)> {
        let Some(bash) = &self.bash else { return Err(std::io::ErrorKind::NotConnected.into()) };
        let request = &job.request;
        let streams: &[(&str, Stream)] = match request.streams {
            StreamMode::Merged => &[(file::STDOUT, Stream::Merged)],
            StreamMode::Split => &[(file::STDOUT, Stream::Stdout), (file::STDERR, Stream::Stderr)],
            StreamMode::Tty => &[],
        };
        let (mut pumps, mut keepers) = (Vec::new(), Vec::new());
        for (name, stream) in streams {
            let (reader, keeper) = bash.scratch.output_fifo(name)?;
            pumps.push(Pump::new(reader, *stream, job.exec.log.clone())?);
            keepers.push(keeper);
        }
        let has_stdin = request.streams != StreamMode::Tty && job.stdin.is_some();
        if let (true, Some(stdin)) = (has_stdin, &job.stdin) {
            bash.scratch.write_anew(file::STDIN, stdin)?;
        }
        let mark = Mark::new(1 - self.ended.slot);
        let spec = script::CommandSpec {
            command: &request.cmd,
            streams: request.streams,
            has_stdin,
            variables: &mut request.env.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            cwd: request.cwd.as_deref(),
            last_status: self.last_status,
            terminal: &bash.terminal_path().to_string_lossy(),
            functrace: (self.shared.state.borrow().as_ref().or(self.fresh.as_ref()))
                .is_some_and(|state| state.has_option("functrace")),
            variable: &mark.variable,
        };
        bash.scratch.write(file::COMMAND, script::command_file(bash.scratch.dir(), spec).as_bytes())?;
        if request.streams == StreamMode::Tty {
            // What is on the terminal by now is not of this command.
            if let Some(bytes) = bash.drain_terminal() {
                self.on_terminal_output(&bytes);
            }
        }
        let Some(bash) = &mut self.bash else { return Err(std::io::ErrorKind::NotConnected.into()) };
        if let (StreamMode::Tty, Some(stdin)) = (request.streams, &job.stdin) {
            bash.type_in(stdin);
        }
        self.ooms_before = self.context.oom.count();
        bash.feed(&script::command_line(bash.scratch.dir(), &self.ended.variable))?;
        // From here on it may have begun, and may even have ended bash by now: then its exit tells, and nothing is sent again.
        bash.feed_tail(&mark);
        for pump in &pumps {
            tokio::task::spawn_local(pump.clone().run());
        }
        Ok((mark, pumps, keepers))
    }

    pub(super) fn done(&mut self, nonce: &str, status: i32, begun: bool, cwd: &[u8]) {
        if let Some(starting) = self.starting.take_if(|s| s.mark.nonce == nonce) {
            self.set_cwd(cwd);
            self.ended = starting.mark;
            if starting.manner != Manner::Claim {
                self.next_manner = Manner::Restore;
            } else if let Some(bash) = &self.bash {
                bash.scratch.remove(file::CLAIM);
            }
            return;
        }
        let Some(current) = self.current.take_if(|c| c.mark.nonce == nonce) else { return };
        let has_begun = |bash: &Bash| bash.scratch.has_begun(&current.mark.variable);
        if !begun && !self.bash.as_ref().is_some_and(has_begun) {
            // The tail ran and the command did not: what stands in front of it is broken. Asked twice, since a command may
            // have unset the variable that says so, and must not be run a second time for it.
            self.restart_unreported = true;
            self.send_again(current.job);
            self.replace_bash();
            return;
        }
        self.last_status = status;
        self.set_cwd(cwd);
        let kind = if current.ladder.is_some() { OutcomeKind::TimedOut } else { OutcomeKind::Exited };
        self.suspect_until =
            may_have_broken_bash(&current.job.request.cmd, status).then(|| Instant::now() + SUSPECT_PATIENCE);
        self.finish(current, kind, status, None);
    }

    pub(super) fn finish_after_death(&mut self, current: Current, exit: Exit) {
        if current.end == End::Unknown {
            for pump in &current.pumps {
                pump.drain();
            }
            let reason = "the command is over, but it left the shell unable to say how it ended";
            self.restart_unreported = false;
            self.last_status = 1;
            return self.end_without_status(&current.job.exec, OutcomeKind::Lost, 1, reason);
        }
        let (kind, signal) = match (current.ladder.is_some(), exit) {
            (true, _) => (OutcomeKind::TimedOut, None),
            (false, Exit::Code(_)) => (OutcomeKind::Exited, None),
            (false, Exit::Signal(signal)) => (OutcomeKind::Signaled, Some(signal)),
        };
        self.last_status = exit.shell_code();
        self.finish(current, kind, exit.shell_code(), signal);
    }

    pub(super) fn finish(&mut self, mut current: Current, kind: OutcomeKind, status: i32, signal: Option<i32>) {
        current.keepers.clear();
        self.quick_starts = 0;
        let exec = current.job.exec.clone();
        if let Some(bytes) = self.bash.as_ref().and_then(Bash::drain_terminal) {
            exec.log.append(Stream::Tty, &bytes);
            self.attachments.send(&bytes);
        }
        if let Some(bash) = &mut self.bash {
            bash.refresh_terminal();
        }
        let targets: Vec<_> = current.pumps.iter().map(|pump| (pump.clone(), pump.drain())).collect();
        let timed_out = kind == OutcomeKind::TimedOut;
        let mut outcome = ExecOutcome {
            exec_id: exec.id.clone(),
            kind,
            exit_code: if timed_out { TIMEOUT_EXIT_CODE } else { status },
            signal,
            cwd: Some(self.shared.view.borrow().cwd.clone()),
            output_bytes: exec.log.end(),
            timed_out,
            shell_restarted: std::mem::take(&mut self.restart_unreported) || current.job.restarted,
            oom_killed: status == 128 + libc::SIGKILL && self.context.oom.count() > self.ooms_before,
            awaiting_input: current.awaiting_input,
            duration_ms: exec.duration_ms(),
            reason: None,
        };
        self.last_on_terminal = Some(exec.clone());
        self.ended = current.mark;
        self.is_state_due = self.bash.is_some();
        let execs = self.context.execs.clone();
        if targets.iter().all(|(_, (_, read))| *read) {
            execs.end(&exec, outcome);
            return;
        }
        // A follower that reads holds some of the output back: the end waits for it, the shell does not.
        tokio::task::spawn_local(async move {
            for (pump, (target, _)) in targets {
                pump.wait_until_read(target).await;
            }
            outcome.output_bytes = exec.log.end();
            execs.end(&exec, outcome);
        });
    }

    pub(super) fn never_ran(&self, job: &Job, reason: &str) {
        self.end_without_status(&job.exec, OutcomeKind::NeverRan, 126, reason);
    }

    pub(super) fn end_without_status(&self, exec: &Exec, kind: OutcomeKind, exit_code: i32, reason: &str) {
        let outcome = ExecOutcome {
            exec_id: exec.id.clone(),
            kind,
            exit_code,
            signal: None,
            cwd: Some(self.shared.view.borrow().cwd.clone()),
            output_bytes: exec.log.end(),
            timed_out: false,
            shell_restarted: kind == OutcomeKind::Lost,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: exec.duration_ms(),
            reason: Some(reason.to_owned()),
        };
        self.context.execs.end(exec, outcome);
    }

    pub(super) fn set_cwd(&self, cwd: &[u8]) {
        if cwd.starts_with(b"/") {
            self.shared.view.borrow_mut().cwd = String::from_utf8_lossy(cwd).into_owned();
        }
    }
}
