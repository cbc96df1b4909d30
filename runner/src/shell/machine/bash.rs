//! The transitions of bash itself: it starts, applies a claim, is killed, and exits.

use std::time::{Duration, Instant};

use super::state::{STARTUP_DEADLINE, Start, State};
use super::{CloseReason, Effect, Effects, KillReason, Machine, NotRunReason, StartMode, Ticket};
use crate::reaper::Exit;
use crate::shell::saved_state::SavedState;

/// How many times in a row bash may exit without running a command before the next start waits for `START_PAUSE`.
const MAX_QUICK_STARTS: u32 = 4;
const START_PAUSE: Duration = Duration::from_millis(500);

impl Machine {
    pub(super) fn start(&mut self, now: Instant, effects: &mut Effects) {
        let (ticket, mode) = (self.new_ticket(), self.next_mode);
        self.state = State::Starting(Start::new(ticket, mode, now));
        effects.push_back(Effect::Start { ticket, mode });
    }

    /// Handles the fork of bash. Without a state to restore, bash starts with the environment, which includes everything
    /// from a claim.
    pub(super) fn started(&mut self) {
        if let State::Starting(start) = &self.state {
            self.is_claim_due &= start.mode.restores() && self.has_saved_state;
        }
    }

    pub(super) fn could_not_start(&mut self, why: &str, now: Instant, effects: &mut Effects) {
        if let State::Starting(start) = self.state {
            self.start_failed(start.mode, why, now, effects);
        }
    }

    fn start_failed(&mut self, mode: StartMode, why: &str, now: Instant, effects: &mut Effects) {
        if let Some(simpler) = mode.simpler() {
            self.next_mode = simpler;
            self.state = State::StartDue { at: now };
        } else {
            // There is no simpler mode: the waiting commands are refused, and the next command starts again with the first
            // mode.
            self.next_mode = StartMode::first(self.has_saved_state);
            self.state = State::Down;
            self.refuse_queued(&NotRunReason::NoShell(why.to_owned()), effects);
        }
    }

    /// Makes bash apply the claim if it did not start with it. The next command waits for that, as for a start.
    pub(super) fn claim_checked(&mut self, is_needed: bool, now: Instant, effects: &mut Effects) {
        if !matches!(self.state, State::CheckingClaim) {
            return;
        }
        if !is_needed {
            self.state = State::Idle;
            return;
        }
        // From here on a new shell does not get the state from before the claim: until the first command has left a new
        // state, it starts with the environment.
        self.has_saved_state = false;
        self.next_mode = StartMode::Login;
        let ticket = self.new_ticket();
        self.state = State::Starting(Start::new(ticket, StartMode::Claim, now));
        effects.extend([Effect::ForgetState, Effect::ResetDirectory, Effect::SendClaim { ticket }]);
    }

    pub(super) fn start_reported(&mut self, start: Start, cwd: Vec<u8>, effects: &mut Effects) {
        self.reported = Some(start.ticket);
        effects.extend([Effect::SetDirectory(cwd), Effect::RemoveScripts]);
        if start.mode != StartMode::Claim {
            self.next_mode = StartMode::Restore;
        }
        self.state = match self.state {
            // Bash became ready while it was being killed. It still exits.
            State::Killed { .. } => State::Killed { start: None },
            _ => State::Idle,
        };
    }

    pub(super) fn state_written(&mut self, ticket: Ticket, saved: Option<SavedState>, effects: &mut Effects) {
        if !self.state.has_bash() || self.reported != Some(ticket) {
            return;
        }
        // While bash applies a claim, it may still write the state from before the claim. A new shell must not get that
        // state.
        let is_claiming = self.state.start().is_some_and(|start| start.mode == StartMode::Claim);
        // A state that was not saved leaves the one before it.
        if let Some(saved) = saved.filter(|_| !is_claiming) {
            self.has_saved_state = true;
            self.next_mode = StartMode::Restore;
            effects.push_back(Effect::KeepState(saved));
        }
        self.is_state_due = false;
        effects.push_back(Effect::AnswerStateRequests);
        if matches!(self.state, State::Suspect { .. }) {
            self.kill(KillReason::MayBeBroken, effects);
        }
    }

    /// Kills a bash that runs no command. The rest follows from its exit.
    pub(super) fn kill(&mut self, reason: KillReason, effects: &mut Effects) {
        self.state = State::Killed { start: None };
        effects.push_back(Effect::Kill(reason));
    }

    pub(super) fn time_passed(&mut self, now: Instant, effects: &mut Effects) {
        match &mut self.state {
            State::Starting(start) if start.deadline <= now && now < start.last_deadline => {
                effects.push_back(Effect::CheckStart);
            }
            State::Starting(start) | State::Killed { start: Some(start) } if start.deadline <= now => {
                let start = *start;
                self.kill_start(start, now, effects);
            }
            State::Suspect { until } if *until <= now => self.kill(KillReason::MayBeBroken, effects),
            State::Running(running) => running.time_passed(now, effects),
            _ => {}
        }
    }

    /// Handles what was seen of a bash that takes long to start.
    pub(super) fn start_checked(&mut self, is_starved: bool, now: Instant, effects: &mut Effects) {
        let State::Starting(start) = &mut self.state else { return };
        if is_starved && now < start.last_deadline {
            start.deadline = (now + STARTUP_DEADLINE).min(start.last_deadline);
        } else {
            let start = *start;
            self.kill_start(start, now, effects);
        }
    }

    /// Kills a bash that starts. If it survives that, it is killed again.
    fn kill_start(&mut self, start: Start, now: Instant, effects: &mut Effects) {
        self.state = State::Killed { start: Some(Start { deadline: now + STARTUP_DEADLINE, ..start }) };
        effects.push_back(Effect::Kill(KillReason::StartTimedOut));
    }

    pub(super) fn exited(&mut self, exit: Exit, has_begun: bool, now: Instant, effects: &mut Effects) {
        if !self.state.has_bash() {
            return;
        }
        let start = self.state.start();
        // A start that fails belongs to the restart before it, and is not reported again.
        self.is_restart_unreported |= start.is_none();
        if let State::Running(running) = std::mem::replace(&mut self.state, State::Down) {
            if has_begun {
                self.finish_after_exit(&running, exit, effects);
            } else {
                effects.push_back(Effect::TakeBack { job: running.job.id });
                self.send_again(running.job, effects);
            }
        }
        self.reported = None;
        self.is_state_due = false;
        effects.extend([Effect::Collect, Effect::AnswerStateRequests]);
        self.quick_starts += 1;
        match start {
            Some(start) => self.start_failed(start.mode, "bash ended while it started", now, effects),
            None => {
                let pause = if self.quick_starts > MAX_QUICK_STARTS { START_PAUSE } else { Duration::ZERO };
                self.state = State::StartDue { at: now + pause };
            }
        }
    }

    /// Resets the shell: the running command is lost, the waiting ones never run, and nothing is restored.
    pub(super) fn reset(&mut self, now: Instant, effects: &mut Effects) {
        self.abandon(CloseReason::Reset, effects);
        effects.extend([Effect::ForgetState, Effect::ResetDirectory]);
        self.has_saved_state = false;
        self.last_status = 0;
        self.is_restart_unreported = false;
        self.next_mode = StartMode::Login;
        self.state = State::StartDue { at: now };
    }

    pub(super) fn close(&mut self, reason: CloseReason, effects: &mut Effects) {
        self.abandon(reason, effects);
        self.state = State::Closed;
    }

    /// Ends the running command, the waiting ones, and bash.
    fn abandon(&mut self, reason: CloseReason, effects: &mut Effects) {
        self.abandon_running(reason, effects);
        self.refuse_queued(&NotRunReason::Closed(reason), effects);
        if self.state.has_bash() {
            effects.push_back(Effect::EndBash);
        }
        self.reported = None;
    }
}
