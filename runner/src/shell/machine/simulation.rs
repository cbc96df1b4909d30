//! A simulated world for tests of the machine: it performs effects on a simulated bash, and checks each of them.
//!
//! The simulated bash does what a test says, plausible or not, within the driver's guarantees: reports and exits come only
//! from an existing bash, an exit comes once, and `has_begun` is never false for a command that has begun.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::state::State;
use super::*;
use crate::reaper::Exit;
use crate::shell::saved_state::SavedState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Nothing,
    /// Bash starts, or applies a claim.
    Starting(Ticket),
    Command(Ticket, JobId),
}

#[derive(Debug)]
pub(super) struct SimulatedBash {
    pub(super) doing: Doing,
    pub(super) is_killed: bool,
    reported: Option<Ticket>,
}

#[derive(Debug, Default)]
pub(super) struct SimulatedJob {
    pub(super) sends: u32,
    /// When it no longer waits behind another job.
    give_up_at: Option<Instant>,
    pub(super) may_have_begun: bool,
    pub(super) ending: Option<Ending>,
}

/// The ticket of a simulated report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Asked,
    Reported,
    Unknown,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) now: Instant,
    pub(super) bash: Option<SimulatedBash>,
    pub(super) jobs: BTreeMap<JobId, SimulatedJob>,
    /// All effects so far.
    pub(super) log: Vec<Effect>,
    /// How many of the next starts and sends fail.
    pub(super) failing_starts: u32,
    pub(super) failing_sends: u32,
    /// The driver's observation.
    pub(super) observation: Observation,
    pub(super) is_interrupt_lost: bool,
    pub(super) is_claim_needed: bool,
    pub(super) is_starved: bool,
    has_saved_state: bool,
    waiting_for_state: u32,
}

impl World {
    /// A shell whose bash was forked and has not reported.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let mut world = Self {
            machine: Machine::new(false, now),
            now,
            bash: None,
            jobs: BTreeMap::new(),
            log: Vec::new(),
            failing_starts: 0,
            failing_sends: 0,
            observation: Observation { is_bash_asleep: false, has_read_all: false, is_awaiting_input: false },
            is_interrupt_lost: false,
            is_claim_needed: true,
            is_starved: false,
            has_saved_state: false,
            waiting_for_state: 0,
        };
        world.handle(Event::TimePassed);
        world
    }

    /// A shell that is idle.
    pub(super) fn idle() -> Self {
        let mut world = Self::new();
        world.report(Which::Asked, 0);
        world.write_state(Which::Reported);
        world
    }

    /// Handles an event as the driver does.
    pub(super) fn handle(&mut self, event: Event) {
        let mut effects = Effects::new();
        self.machine.on(event, self.now, &mut effects);
        while let Some(effect) = effects.pop_front() {
            self.log.push(effect.clone());
            if let Some(answer) = self.perform(effect) {
                self.machine.on(answer, self.now, &mut effects);
            }
        }
        self.check();
    }

    fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Start { ticket, mode } => return Some(self.start(ticket, mode)),
            Effect::SendClaim { ticket } => return self.ask(ticket, Doing::Starting(ticket)),
            Effect::Send { job, ticket, .. } => return self.send(job, ticket),
            Effect::CheckClaim => {
                assert_eq!(self.ready_bash().doing, Doing::Nothing);
                return Some(Event::ClaimChecked { is_needed: self.is_claim_needed });
            }
            Effect::CheckStart => {
                assert!(matches!(self.ready_bash().doing, Doing::Starting(_)));
                return Some(Event::StartChecked { is_starved: self.is_starved });
            }
            Effect::Observe => {
                self.command();
                return Some(Event::Observed(self.observation));
            }
            Effect::CheckInput => {
                self.command();
                return Some(Event::InputChecked { is_awaited: self.observation.is_awaiting_input });
            }
            Effect::CheckInterrupt { .. } => {
                self.command();
                return Some(Event::InterruptChecked { was_lost: self.is_interrupt_lost });
            }
            Effect::SendTail
            | Effect::SendExit
            | Effect::RepeatInterrupt
            | Effect::Escalate(_)
            | Effect::TellAwaitingInput => {
                self.command();
            }
            Effect::RemoveScripts => assert!(self.bash.is_some(), "of which bash?"),
            Effect::TakeBack { job } => {
                let bash = self.bash.as_mut().expect("there is a bash to take a command back from");
                if let Doing::Command(_, sent) = bash.doing {
                    assert_eq!(sent, job);
                    bash.doing = Doing::Nothing;
                }
                assert!(!self.jobs[&job].may_have_begun, "{job:?} may have begun");
            }
            Effect::Kill(_) => self.bash.as_mut().expect("there is a bash to kill").is_killed = true,
            Effect::Collect | Effect::EndBash => {
                let bash = self.bash.take().expect("there is a bash to let go of");
                assert!(!matches!(bash.doing, Doing::Command(..)), "its command is neither ended nor taken back");
            }
            Effect::KeepState(_) => {
                assert!(self.bash.is_some(), "whose state?");
                self.has_saved_state = true;
            }
            Effect::ForgetState => self.has_saved_state = false,
            Effect::AnswerStateRequests => self.waiting_for_state = 0,
            Effect::SetDirectory(_) | Effect::ResetDirectory => {}
            Effect::End { job, ending } => self.end(job, ending),
        }
        None
    }

    fn start(&mut self, ticket: Ticket, mode: StartMode) -> Event {
        assert!(self.bash.is_none(), "two at once");
        assert_ne!(mode, StartMode::Claim, "no bash is started to take a claim");
        if self.failing_starts > 0 {
            self.failing_starts -= 1;
            return Event::StartFailed { why: "so it was asked".to_owned() };
        }
        self.bash = Some(SimulatedBash { doing: Doing::Starting(ticket), is_killed: false, reported: None });
        Event::Started
    }

    fn send(&mut self, id: JobId, ticket: Ticket) -> Option<Event> {
        let first = self.jobs.iter().find(|(_, job)| job.ending.is_none()).map(|(id, _)| *id);
        assert_eq!(first, Some(id), "commands run in the order in which they came");
        let job = self.jobs.get_mut(&id).expect("a job that was queued");
        assert!(!job.may_have_begun, "{id:?} is sent again and may have begun");
        job.sends += 1;
        assert!(job.sends <= MAX_ATTEMPTS, "{id:?} is sent too often");
        self.ask(ticket, Doing::Command(ticket, id))
    }

    fn ask(&mut self, ticket: Ticket, doing: Doing) -> Option<Event> {
        assert_eq!(self.ready_bash().doing, Doing::Nothing, "bash does something already");
        if self.failing_sends > 0 {
            self.failing_sends -= 1;
            return Some(Event::SendFailed { ticket });
        }
        self.ready_bash().doing = doing;
        None
    }

    fn ready_bash(&mut self) -> &mut SimulatedBash {
        let bash = self.bash.as_mut().expect("there is a bash");
        assert!(!bash.is_killed, "bash was killed");
        bash
    }

    /// The running command. Effects that concern it need one.
    fn command(&self) -> JobId {
        match self.bash.as_ref().expect("there is a bash").doing {
            Doing::Command(_, job) => job,
            other => panic!("no command runs: {other:?}"),
        }
    }

    fn end(&mut self, id: JobId, ending: Ending) {
        let running = self.bash.as_ref().is_some_and(|bash| matches!(bash.doing, Doing::Command(_, job) if job == id));
        if let Ending::NeverRan(NotRunReason::WaitedTooLong { behind }) = &ending {
            assert!(*behind < id && self.jobs[behind].ending.is_none(), "{id:?} does not wait for {behind:?}");
        }
        let job = self.jobs.get_mut(&id).expect("a job that was queued");
        assert_eq!(job.ending, None, "{id:?} ends twice: {ending:?}");
        match &ending {
            Ending::Finished(finish) => {
                assert!(job.may_have_begun, "{id:?} finished and did not begin");
                assert!(job.sends == 1 || finish.was_restarted, "{id:?} was sent twice, and does not say so");
            }
            Ending::StatusUnknown { .. } => assert!(job.may_have_begun, "{id:?} is lost and did not begin"),
            Ending::Abandoned(_) => assert!(running, "{id:?} is abandoned and did not run"),
            Ending::NeverRan(reason) => {
                assert!(!job.may_have_begun, "{id:?} never ran and may have begun");
                assert!(*reason != NotRunReason::NotTaken || job.sends == MAX_ATTEMPTS, "{id:?} had more attempts");
                let has_given_up = matches!(reason, NotRunReason::WaitedTooLong { .. });
                assert!(!has_given_up || job.give_up_at.is_some_and(|at| at <= self.now), "{id:?} may wait longer");
            }
        }
        job.ending = Some(ending);
        if let (true, Some(bash)) = (running, &mut self.bash) {
            bash.doing = Doing::Nothing;
        }
    }

    /// Checks the invariants that hold between two events.
    fn check(&self) {
        let machine = &self.machine;
        assert_eq!(machine.state.has_bash(), self.bash.is_some(), "{:?}", machine.state);
        assert_eq!(machine.has_saved_state, self.has_saved_state);
        let doing = self.bash.as_ref().map_or(Doing::Nothing, |bash| bash.doing);
        let running = match &machine.state {
            State::Running(running) => {
                assert_eq!(doing, Doing::Command(running.ticket, running.job.id));
                1
            }
            state => {
                assert!(!matches!(doing, Doing::Command(..)), "{doing:?} is unknown to the machine in {state:?}");
                0
            }
        };
        assert_eq!(self.unended(), machine.queued() + running, "jobs that are queued or running");
        let first = self.jobs.iter().find(|(_, job)| job.ending.is_none()).map(|(id, _)| *id);
        for (id, job) in self.jobs.iter().filter(|(id, job)| job.ending.is_none() && Some(**id) != first) {
            assert!(job.give_up_at.is_none_or(|at| at > self.now), "{id:?} waits for too long");
            assert_eq!(machine.in_front_of(*id), first);
        }
        let is_killed = self.bash.as_ref().is_some_and(|bash| bash.is_killed);
        let is_waiting = machine.next_wake().is_some() || is_killed;
        assert!(self.unended() == 0 || is_waiting, "nothing will happen: {machine:?}");
    }

    pub(super) fn unended(&self) -> usize {
        self.jobs.values().filter(|job| job.ending.is_none()).count()
    }

    pub(super) fn queue(&mut self, timeout: Option<Duration>) -> JobId {
        self.queue_for(timeout, None)
    }

    /// Queues a command that waits behind others for `patience` at most.
    pub(super) fn queue_for(&mut self, timeout: Option<Duration>, patience: Option<Duration>) -> JobId {
        let job = JobId(self.jobs.len() as u64);
        let give_up_at = patience.and_then(|patience| self.now.checked_add(patience));
        self.jobs.insert(job, SimulatedJob { give_up_at, ..SimulatedJob::default() });
        self.handle(Event::Queued { job, timeout, patience });
        job
    }

    /// Cancels a job by its number, queued or not.
    pub(super) fn cancel(&mut self, job: JobId) {
        let before = self.jobs.get(&job).map(|job| (job.ending.clone(), job.sends));
        let is_waiting = self.machine.queue.iter().any(|queued| queued.id == job);
        self.handle(Event::Cancelled { job, signal: libc::SIGINT });
        let cancelled = Some(Ending::NeverRan(NotRunReason::Cancelled { signal: libc::SIGINT }));
        match self.jobs.get(&job) {
            Some(now) if is_waiting => assert_eq!(now.ending, cancelled, "{job:?} waited"),
            now => assert_eq!(now.map(|job| (job.ending.clone(), job.sends)), before, "{job:?} did not wait"),
        }
    }

    fn ticket(&self, which: Which) -> Option<Ticket> {
        let bash = self.bash.as_ref()?;
        match (which, bash.doing) {
            (Which::Asked, Doing::Starting(ticket) | Doing::Command(ticket, _)) => Some(ticket),
            (Which::Asked, Doing::Nothing) => None,
            (Which::Reported, _) => bash.reported,
            (Which::Unknown, _) => Some(Ticket(u64::MAX)),
        }
    }

    /// Bash begins its command.
    pub(super) fn begin(&mut self) {
        if let Some(SimulatedBash { doing: Doing::Command(_, job), .. }) = &self.bash {
            self.jobs.get_mut(job).expect("a job that was queued").may_have_begun = true;
        }
    }

    fn has_begun(&self) -> bool {
        match self.bash.as_ref().map(|bash| bash.doing) {
            Some(Doing::Command(_, job)) => self.jobs[&job].may_have_begun,
            _ => false,
        }
    }

    pub(super) fn report(&mut self, which: Which, status: i32) {
        self.report_as(which, status, false);
    }

    pub(super) fn report_as(&mut self, which: Which, status: i32, may_have_broken_bash: bool) {
        let Some(ticket) = self.ticket(which) else { return };
        let (has_begun, effects_before) = (self.has_begun(), self.log.len());
        let bash = self.bash.as_mut().expect("it has a ticket");
        if which == Which::Asked {
            bash.reported = Some(ticket);
            if let Doing::Starting(_) = bash.doing {
                bash.doing = Doing::Nothing;
            }
        }
        self.handle(Event::Reported(Report { ticket, status, has_begun, may_have_broken_bash, cwd: b"/".to_vec() }));
        let counts = which == Which::Asked;
        assert!(counts || self.log.len() == effects_before, "{which:?} had effects: {:?}", self.log.last());
    }

    pub(super) fn write_state(&mut self, which: Which) {
        let Some(ticket) = self.ticket(which) else { return };
        let effects_before = self.log.len();
        self.handle(Event::StateWritten { ticket, saved: Some(SavedState::with_options("", "")) });
        let counts = which == Which::Reported;
        assert!(counts || self.log.len() == effects_before, "{which:?} had effects: {:?}", self.log.last());
    }

    pub(super) fn exit(&mut self, exit: Exit) {
        if self.bash.is_some() {
            let has_begun = self.has_begun();
            self.handle(Event::Exited { exit, has_begun });
            assert_eq!(self.waiting_for_state, 0, "the state will not come any more");
        }
    }

    pub(super) fn request_state(&mut self) {
        self.waiting_for_state += 1;
        self.handle(Event::StateRequested);
    }

    /// Lets time pass until the machine wants to be woken.
    pub(super) fn wake(&mut self) {
        if let Some(at) = self.machine.next_wake() {
            self.now = self.now.max(at);
            self.handle(Event::TimePassed);
        }
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.handle(Event::TimePassed);
    }
}
