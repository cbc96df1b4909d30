//! Carries out the machine's effects.

use std::io;

use shared_protocol::runner::MAX_PATH_BYTES;

use super::super::machine::{Effect, Ending, Escalation, Event, JobId, KillReason, Observation};
use super::super::saved_state::SavedState;
use super::super::script;
use super::{Driver, LiveBash};
use crate::text;

impl Driver {
    /// Performs one effect. Returns an event if the machine needs to know the result.
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Start { ticket, mode } => return Some(self.start(ticket, mode)),
            Effect::CheckStart => {
                return Some(Event::StartChecked { is_starved: self.live.as_ref()?.bash.is_starved() });
            }
            Effect::CheckClaim => return Some(Event::ClaimChecked { is_needed: self.is_claim_needed() }),
            Effect::SendClaim { ticket } => return self.send_claim(ticket),
            Effect::Send { job, ticket, last_status } => return self.send(job, ticket, last_status),
            Effect::Observe => return self.observe(),
            Effect::CheckInput => {
                let live = self.live.as_ref()?;
                return Some(Event::InputChecked { is_awaited: live.bash.is_awaiting_input() == Some(true) });
            }
            Effect::CheckInterrupt { age } => {
                let (live, running) = (self.live.as_ref()?, self.running.as_ref()?);
                let was_lost = running.interrupt.as_ref().is_some_and(|sent| sent.was_lost(age, &live.bash));
                return Some(Event::InterruptChecked { was_lost });
            }
            Effect::RepeatInterrupt => self.repeat_interrupt(),
            Effect::Escalate(step) => {
                if let Some(live) = &self.live {
                    live.escalate(step);
                }
            }
            Effect::SendTail => {
                if let Some(live) = &self.live {
                    let _ = live.send_tail();
                }
            }
            Effect::SendExit => self.send_exit(),
            Effect::Kill(reason) => self.kill(reason),
            Effect::TellAwaitingInput => {
                if let Some(running) = &self.running {
                    running.exec.note_waiting();
                }
            }
            Effect::RemoveScripts => {
                if let Some(live) = &mut self.live {
                    live.scripts.clear();
                }
            }
            // Its files and FIFOs are removed with it.
            Effect::TakeBack { job: _ } => self.running = None,
            Effect::Collect => self.collect(),
            Effect::EndBash => self.end_bash(),
            Effect::SetDirectory(cwd) => self.set_directory(&cwd),
            Effect::ResetDirectory => {
                self.view.borrow_mut().cwd = self.context.environment.start_dir.to_string_lossy().into_owned();
            }
            Effect::KeepState(saved) => self.saved_state = Some(saved),
            Effect::ForgetState => self.saved_state = None,
            Effect::AnswerStateRequests => self.answer_state_requests(),
            Effect::End { job, ending } => self.end(job, ending),
        }
        None
    }

    fn end(&mut self, id: JobId, ending: Ending) {
        let Some(job) = self.jobs.remove(&id) else { return };
        match ending {
            Ending::Finished(finish) => self.finish(&job.exec, finish),
            Ending::StatusUnknown { status } => self.end_with_unknown_status(&job.exec, status),
            Ending::Abandoned(reason) => self.end_abandoned(&job.exec, reason),
            Ending::NeverRan(reason) => self.end_unrun(&job.exec, &reason),
        }
    }

    fn observe(&mut self) -> Option<Event> {
        let live = self.live.as_mut()?;
        if let Some(request) = live.marks.asked() {
            // Bash waits while there is no room for it to say that a command begins.
            live.bash.has_begun(&request.mark.variable);
        }
        let bash = &mut live.bash;
        let (sleeps, has_read_all) = (bash.sleeps(), bash.has_read_all());
        // Bash may have reported and then fallen asleep. Its report is in the socket by now.
        let is_bash_asleep = sleeps && !bash.has_reported();
        let is_awaiting_input = bash.is_awaiting_input() == Some(true);
        Some(Event::Observed(Observation { is_bash_asleep, has_read_all, is_awaiting_input }))
    }

    fn repeat_interrupt(&mut self) {
        let (Some(live), Some(running)) = (&self.live, &mut self.running) else { return };
        if let Some(sent) = running.interrupt.take() {
            let _ = live.bash.signal_foreground(sent.number);
            let _ = live.send_tail();
        }
    }

    fn send_exit(&self) {
        let Some(live) = &self.live else { return };
        tracing::warn!(shell = %self.view.borrow().name, "bash cannot report the end of a command");
        if let Some(request) = live.marks.asked() {
            let _ = live.bash.send_line(&script::exit_line(&request.mark));
        }
    }

    fn kill(&self, reason: KillReason) {
        if let Some(live) = &self.live {
            tracing::warn!(shell = %self.view.borrow().name, pid = live.bash.pid(), ?reason, "killing bash");
            live.bash.watch.signal(libc::SIGKILL);
        }
    }

    /// Reads the state into memory: the next bash starts with it.
    fn collect(&mut self) {
        if let Some(saved) = &mut self.saved_state {
            saved.load();
        }
        self.live = None;
        self.view.borrow_mut().restarts += 1;
    }

    /// Ends bash and its foreground program. Its background jobs get HUP, as from a closed terminal.
    fn end_bash(&mut self) {
        if let Some(LiveBash { bash, .. }) = self.live.take() {
            let group = bash.foreground();
            // Bash dies first: otherwise its script would go on after its program.
            bash.watch.signal(libc::SIGKILL);
            if let Some(group) = group {
                let _ = crate::sys::signal::kill_group(group, libc::SIGKILL);
            }
            tokio::task::spawn_local(super::super::end_session(bash.watch));
        }
    }

    fn set_directory(&self, cwd: &[u8]) {
        if cwd.starts_with(b"/") {
            self.view.borrow_mut().cwd = text::shown(cwd, MAX_PATH_BYTES);
        }
    }

    fn answer_state_requests(&mut self) {
        for request in self.state_requests.drain(..) {
            let mut saved: Option<SavedState> = self.saved_state.clone();
            if let Some(saved) = &mut saved {
                saved.load();
            }
            let _ = request.send(saved);
        }
    }
}

impl LiveBash {
    /// Makes bash run the line that reports the end of the command once more: an interrupt may have hit the first one.
    ///
    /// An error means that bash does not read, which its driver notices.
    pub(super) fn send_tail(&self) -> io::Result<()> {
        let Some(request) = self.marks.asked() else { return Ok(()) };
        self.bash.send_line(&script::tail_line(self.bash.scratch.dir(), &request.mark, request.state_path()))
    }

    fn escalate(&self, step: Escalation) {
        let number = match step {
            Escalation::Interrupt => libc::SIGINT,
            Escalation::Terminate => libc::SIGTERM,
            Escalation::Kill => libc::SIGKILL,
        };
        // Only an interrupt may reach bash itself, because it may be between two programs. Bash is killed in a separate
        // step.
        if step == Escalation::Interrupt || self.bash.foreground().is_some_and(|group| group != self.bash.pid()) {
            let _ = self.bash.signal_foreground(number);
            let _ = self.bash.signal_foreground(libc::SIGCONT);
        }
        let _ = self.send_tail();
    }
}
