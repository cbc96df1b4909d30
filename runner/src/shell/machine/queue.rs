//! The queue of waiting commands: who is in front, and how a command leaves the queue without running.

use std::time::Instant;

use super::state::State;
use super::{Effect, Effects, Ending, JobId, Machine, NotRunReason};

impl Machine {
    /// The command that a waiting one waits for: the running one or, while bash starts, the first one in the queue. `None` if
    /// the command does not wait, or is the next one.
    pub fn in_front_of(&self, job: JobId) -> Option<JobId> {
        let is_queued = self.queue.iter().any(|queued| queued.id == job);
        self.front().filter(|front| is_queued && *front != job)
    }

    fn front(&self) -> Option<JobId> {
        match &self.state {
            State::Running(running) => Some(running.job.id),
            _ => self.queue.front().map(|job| job.id),
        }
    }

    /// Takes a waiting command out of the queue. A command that was sent to bash is not affected.
    pub(super) fn cancel(&mut self, job: JobId, signal: i32, effects: &mut Effects) {
        let Some(at) = self.queue.iter().position(|queued| queued.id == job) else { return };
        self.queue.remove(at);
        effects.push_back(Effect::End { job, ending: Ending::NeverRan(NotRunReason::Cancelled { signal }) });
    }

    /// Takes out the commands that have waited too long behind another one. The next command stays: it waits for bash, and
    /// for no command.
    pub(super) fn give_up_waiting(&mut self, now: Instant, effects: &mut Effects) {
        let Some(behind) = self.front() else { return };
        self.queue.retain(|job| {
            let is_late = job.id != behind && job.give_up_at.is_some_and(|at| at <= now);
            if is_late {
                let ending = Ending::NeverRan(NotRunReason::WaitedTooLong { behind });
                effects.push_back(Effect::End { job: job.id, ending });
            }
            !is_late
        });
    }

    /// When the next command gives up waiting.
    pub(super) fn next_give_up(&self) -> Option<Instant> {
        let front = self.front();
        self.queue.iter().filter(|job| Some(job.id) != front).filter_map(|job| job.give_up_at).min()
    }
}
