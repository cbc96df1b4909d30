//! The transitions of commands: from the queue to bash, and to their ending.

use std::time::{Duration, Instant};

use super::running::Running;
use super::state::State;
use super::{
    CloseReason, Effect, Effects, Ending, Finish, FinishKind, Job, JobId, KillReason, MAX_ATTEMPTS, Machine,
    NotRunReason, Report, Ticket,
};
use crate::reaper::Exit;

/// The longest time for a bash that is about to be replaced to write its state.
const SUSPECT_PATIENCE: Duration = Duration::from_secs(1);

/// The value of `$?` after a command whose status is unknown.
const UNKNOWN_STATUS: i32 = 1;

impl Machine {
    pub(super) fn queue(&mut self, id: JobId, timeout: Option<Duration>, patience: Option<Duration>, now: Instant) {
        let give_up_at = patience.and_then(|patience| now.checked_add(patience));
        self.queue.push_back(Job { id, timeout, give_up_at, attempts: 0 });
    }

    /// Sends the next command to an idle bash. The command's time counts from here.
    pub(super) fn send_next(&mut self, now: Instant, effects: &mut Effects) {
        let Some(mut job) = self.queue.pop_front() else { return };
        job.attempts += 1;
        let ticket = self.new_ticket();
        effects.push_back(Effect::Send { job: job.id, ticket, last_status: self.last_status });
        self.state = State::Running(Running::new(job, ticket, now));
    }

    /// Handles a failed send: the scratch directory is damaged or full, or bash no longer reads.
    pub(super) fn send_failed(&mut self, ticket: Ticket, effects: &mut Effects) {
        match &self.state {
            State::Starting(start) if start.ticket == ticket => self.kill(KillReason::SendFailed, effects),
            State::Running(running) if running.ticket == ticket => {
                self.replace_under_command(KillReason::SendFailed, effects);
            }
            _ => {}
        }
    }

    pub(super) fn reported(&mut self, report: Report, now: Instant, effects: &mut Effects) {
        if let Some(start) = self.state.start().filter(|start| start.ticket == report.ticket) {
            return self.start_reported(start, report.cwd, effects);
        }
        let State::Running(running) = &self.state else { return };
        if running.ticket != report.ticket {
            return;
        }
        if !report.has_begun {
            // The tail ran and the command did not: something that runs before the command is broken.
            return self.replace_under_command(KillReason::CommandNotBegun, effects);
        }
        let next = if running.is_bash_killed() {
            State::Killed { start: None }
        } else if report.may_have_broken_bash {
            State::Suspect { until: now + SUSPECT_PATIENCE }
        } else {
            State::Idle
        };
        let State::Running(running) = std::mem::replace(&mut self.state, next) else { return };
        effects.push_back(Effect::SetDirectory(report.cwd));
        let kind = if running.is_timed_out() { FinishKind::TimedOut } else { FinishKind::Exited };
        self.finish(&running, kind, report.status, effects);
        self.reported = Some(report.ticket);
        self.is_state_due = true;
    }

    /// Ends a command that had begun when bash exited.
    pub(super) fn finish_after_exit(&mut self, running: &Running, exit: Exit, effects: &mut Effects) {
        if running.is_status_unknown() {
            // The ending itself says that the shell is new.
            self.is_restart_unreported = false;
            self.last_status = UNKNOWN_STATUS;
            let ending = Ending::StatusUnknown { status: UNKNOWN_STATUS };
            return effects.push_back(Effect::End { job: running.job.id, ending });
        }
        let kind = match exit {
            _ if running.is_timed_out() => FinishKind::TimedOut,
            Exit::Code(_) => FinishKind::Exited,
            Exit::Signal(signal) => FinishKind::Signaled(signal),
        };
        self.finish(running, kind, exit.shell_code(), effects);
    }

    fn finish(&mut self, running: &Running, kind: FinishKind, status: i32, effects: &mut Effects) {
        self.last_status = status;
        self.quick_starts = 0;
        let was_restarted = std::mem::take(&mut self.is_restart_unreported);
        let was_awaiting_input = running.is_awaiting_input;
        let ending = Ending::Finished(Finish { kind, status, was_restarted, was_awaiting_input });
        effects.push_back(Effect::End { job: running.job.id, ending });
    }

    /// Kills a bash that has not begun its command, and sends the command to the next bash.
    fn replace_under_command(&mut self, reason: KillReason, effects: &mut Effects) {
        let State::Running(running) = std::mem::replace(&mut self.state, State::Killed { start: None }) else { return };
        self.is_restart_unreported = true;
        effects.push_back(Effect::TakeBack { job: running.job.id });
        self.send_again(running.job, effects);
        effects.push_back(Effect::Kill(reason));
    }

    pub(super) fn send_again(&mut self, job: Job, effects: &mut Effects) {
        if job.attempts >= MAX_ATTEMPTS {
            effects.push_back(Effect::End { job: job.id, ending: Ending::NeverRan(NotRunReason::NotTaken) });
        } else {
            self.queue.push_front(job);
        }
    }

    pub(super) fn abandon_running(&mut self, reason: CloseReason, effects: &mut Effects) {
        if let State::Running(running) = &self.state {
            effects.push_back(Effect::End { job: running.job.id, ending: Ending::Abandoned(reason) });
        }
    }

    pub(super) fn refuse_queued(&mut self, reason: &NotRunReason, effects: &mut Effects) {
        for job in self.queue.drain(..) {
            effects.push_back(Effect::End { job: job.id, ending: Ending::NeverRan(reason.clone()) });
        }
    }
}
