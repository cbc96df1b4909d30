//! Ends execs, with the outcome that clients see.

use std::rc::Rc;

use shared_protocol::runner::{ExecOutcome, OutcomeKind, Stream};
use shared_protocol::{ErrorBody, ErrorCode, ExecId};

use super::super::machine::{CloseReason, Finish, FinishKind, NotRunReason};
use super::{Driver, RunningCommand};
use crate::exec::Exec;
use crate::oom::OomMark;

/// The exit code of a command that ran out of time, as with `timeout`.
const TIMED_OUT_CODE: i32 = 124;

/// The exit code of a command that never ran.
const NEVER_RAN_CODE: i32 = 126;

/// The exit code of a command whose shell was killed.
const KILLED_CODE: i32 = 128 + libc::SIGKILL;

/// The error of a command that waited too long for another one.
fn still_busy(exec_id: &ExecId, running: &ExecId) -> ErrorBody {
    let message = format!("exec {exec_id} did not run: exec {running} is still running, and queue_timeout_ms is over");
    let details = Some(serde_json::json!({ "running_exec_id": running }));
    ErrorBody { details, ..ErrorBody::new(ErrorCode::ShellBusy, message) }
}

impl Driver {
    /// Ends a command that ran, with all its output.
    pub(super) fn finish(&mut self, exec: &Rc<Exec>, finish: Finish) {
        let running = self.running.take();
        if let Some(live) = &mut self.live {
            if let Some(bytes) = live.bash.drain_terminal() {
                exec.log.append(Stream::Tty, &bytes);
                self.attachments.send(&bytes);
            }
            live.bash.refresh_terminal();
        }
        let (oom_mark, pumps) = match running {
            Some(running) => {
                // This happens before the pumps are drained: without a writer they find the end of the command's output.
                drop(running.held_writers);
                if let Some(live) = &mut self.live {
                    live.old_files.extend(running.files);
                }
                (running.oom_mark, running.pumps)
            }
            None => (self.context.oom.mark(), Vec::new()),
        };
        let targets: Vec<_> = pumps.into_iter().map(|pump| (pump.drain(), pump)).collect();
        let Finish { kind, status, was_restarted, was_awaiting_input } = finish;
        let (kind, exit_code, signal) = match kind {
            FinishKind::Exited => (OutcomeKind::Exited, status, None),
            FinishKind::Signaled(signal) => (OutcomeKind::Signaled, status, Some(signal)),
            FinishKind::TimedOut => (OutcomeKind::TimedOut, TIMED_OUT_CODE, None),
        };
        let mut outcome = ExecOutcome {
            exec_id: exec.id.clone(),
            kind,
            exit_code,
            signal,
            cwd: Some(self.view.borrow().cwd.clone()),
            output_bytes: exec.log.end(),
            timed_out: kind == OutcomeKind::TimedOut,
            shell_restarted: was_restarted,
            oom_killed: self.context.oom.has_killed_since(oom_mark),
            awaiting_input: was_awaiting_input,
            duration_ms: exec.duration_ms(),
            reason: None,
        };
        self.last_on_terminal = Some(exec.clone());
        let execs = self.context.execs.clone();
        if targets.iter().all(|((_, is_read), _)| *is_read) {
            execs.end(exec, outcome);
            return;
        }
        // A reading follower delays some of the output: the outcome waits for it, the shell does not.
        let exec = exec.clone();
        tokio::task::spawn_local(async move {
            for ((target, _), pump) in targets {
                pump.wait_until_read(target).await;
            }
            outcome.output_bytes = exec.log.end();
            execs.end(&exec, outcome);
        });
    }

    pub(super) fn end_with_unknown_status(&mut self, exec: &Exec, status: i32) {
        let running = self.running.take();
        for pump in running.iter().flat_map(|running| &running.pumps) {
            pump.drain();
        }
        let reason = "the command is over, but it left the shell unable to say how it ended";
        self.end_lost(exec, running, status, reason.to_owned());
    }

    pub(super) fn end_abandoned(&mut self, exec: &Exec, reason: CloseReason) {
        let running = self.running.take();
        self.end_lost(exec, running, KILLED_CODE, reason.to_string());
    }

    pub(super) fn end_unrun(&self, exec: &Exec, reason: &NotRunReason) {
        let exit_code = match reason {
            NotRunReason::Cancelled { signal } => 128 + signal,
            NotRunReason::WaitedTooLong { behind } => {
                if let Some(front) = self.jobs.get(behind) {
                    exec.refuse(still_busy(&exec.id, &front.exec.id));
                }
                NEVER_RAN_CODE
            }
            NotRunReason::Closed(_) | NotRunReason::NotTaken | NotRunReason::NoShell(_) => NEVER_RAN_CODE,
        };
        self.end_without_status(exec, OutcomeKind::NeverRan, exit_code, reason.to_string(), None);
    }

    fn end_lost(&self, exec: &Exec, running: Option<RunningCommand>, exit_code: i32, reason: String) {
        let oom_mark = running.map(|running| running.oom_mark);
        self.end_without_status(exec, OutcomeKind::Lost, exit_code, reason, oom_mark);
    }

    fn end_without_status(
        &self,
        exec: &Exec,
        kind: OutcomeKind,
        exit_code: i32,
        reason: String,
        oom_mark: Option<OomMark>,
    ) {
        let outcome = ExecOutcome {
            exec_id: exec.id.clone(),
            kind,
            exit_code,
            signal: None,
            cwd: Some(self.view.borrow().cwd.clone()),
            output_bytes: exec.log.end(),
            timed_out: false,
            shell_restarted: kind == OutcomeKind::Lost,
            oom_killed: oom_mark.is_some_and(|mark| self.context.oom.has_killed_since(mark)),
            awaiting_input: false,
            duration_ms: exec.duration_ms(),
            reason: Some(reason),
        };
        self.context.execs.end(exec, outcome);
    }
}
