//! Properties of the machine for any order of events. `simulation` checks each effect as it is performed.

use std::time::Duration;

use proptest::prelude::*;

use super::simulation::{Doing, Which, World};
use super::*;
use crate::reaper::Exit;

/// The most steps in which a fair world ends every job of a test.
const MAX_STEPS: usize = 2000;

/// How often a machine may ask for a wake-up at the same moment: once for each step of an escalation, and a few more.
const MAX_WAKES_AT_ONCE: usize = 16;

#[derive(Debug, Clone)]
enum Action {
    Queue(Option<Duration>),
    /// Queue a command that waits behind others for this long at most.
    QueueFor(Duration),
    /// Cancel one of the last commands, which may wait, run or be over.
    Cancel(u64),
    Begin,
    Report(Which, i32, bool),
    /// Bash begins its request, if it has not, and reports it.
    Complete(i32),
    WriteState(Which),
    Exit(Exit),
    Wake,
    Wait(Duration),
    Signal {
        may_be_lost: bool,
    },
    Type,
    Print,
    Claim,
    RequestState,
    Reset,
    Drain,
    Close,
    FailStarts(u32),
    FailSends(u32),
    See(Observation, bool, bool),
    /// From here on, a bash that starts gets no processor, or does.
    Starve(bool),
}

impl World {
    fn act(&mut self, action: Action) {
        match action {
            Action::Queue(timeout) => {
                self.queue(timeout);
            }
            Action::QueueFor(patience) => {
                self.queue_for(None, Some(patience));
            }
            Action::Cancel(back) => self.cancel(JobId((self.jobs.len() as u64).saturating_sub(back))),
            Action::Begin => self.begin(),
            Action::Report(which, status, is_broken) => self.report_as(which, status, is_broken),
            Action::Complete(status) => {
                self.begin();
                self.report(Which::Asked, status);
            }
            Action::WriteState(which) => self.write_state(which),
            Action::Exit(exit) => self.exit(exit),
            Action::Wake => self.wake(),
            Action::Wait(time) => self.wait(time),
            Action::Signal { may_be_lost } => self.handle(Event::Signalled { may_be_lost }),
            Action::Type => self.handle(Event::Typed),
            Action::Print => self.handle(Event::Printed),
            Action::Claim => self.handle(Event::Claimed),
            Action::RequestState => self.request_state(),
            Action::Reset => self.handle(Event::Reset),
            Action::Drain => self.handle(Event::Drain),
            Action::Close => self.handle(Event::Close(CloseReason::Closed)),
            Action::FailStarts(count) => self.failing_starts = count,
            Action::FailSends(count) => self.failing_sends = count,
            Action::Starve(is_starved) => self.is_starved = is_starved,
            Action::See(observation, is_interrupt_lost, is_claim_needed) => {
                self.observation = observation;
                self.is_interrupt_lost = is_interrupt_lost;
                self.is_claim_needed = is_claim_needed;
            }
        }
    }

    /// From here on everything works: bash answers until no job is left.
    fn settle(&mut self) {
        (self.failing_starts, self.failing_sends) = (0, 0);
        for _ in 0..MAX_STEPS {
            match self.bash.as_ref().map(|bash| (bash.doing, bash.is_killed)) {
                _ if self.unended() == 0 => return,
                Some((_, true)) => self.exit(Exit::Signal(libc::SIGKILL)),
                Some((Doing::Starting(_), false)) => self.report(Which::Asked, 0),
                Some((Doing::Command(..), false)) => {
                    self.begin();
                    self.report(Which::Asked, 0);
                }
                Some((Doing::Nothing, false)) | None => self.wake(),
            }
        }
        panic!("{} jobs do not end: {:?}", self.unended(), self.machine);
    }

    /// From here on bash reports nothing, does nothing, and exits only when it is killed.
    fn settle_with_silent_bash(&mut self) {
        self.observation = Observation { is_bash_asleep: true, has_read_all: true, is_awaiting_input: false };
        for _ in 0..MAX_STEPS {
            match self.bash.as_ref().map(|bash| bash.is_killed) {
                _ if self.unended() == 0 => return,
                Some(true) => self.exit(Exit::Signal(libc::SIGKILL)),
                _ => self.wake(),
            }
        }
        panic!("{} jobs do not end: {:?}", self.unended(), self.machine);
    }

    fn close(&mut self) {
        self.handle(Event::Close(CloseReason::Closed));
        assert!(self.machine.is_closed());
        assert_eq!(self.unended(), 0, "a closed shell leaves no job behind");
        assert!(self.bash.is_none(), "nor bash");
        assert_eq!(self.machine.next_wake(), None);
    }
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![6 => Just(Which::Asked), 1 => Just(Which::Reported), 1 => Just(Which::Unknown)]
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![(0..256i32).prop_map(Exit::Code), (1..32i32).prop_map(Exit::Signal)]
}

fn milliseconds(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most).prop_map(Duration::from_millis)
}

fn timeout() -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![Just(None), milliseconds(2000).prop_map(Some), Just(Some(Duration::MAX))]
}

fn observation() -> impl Strategy<Value = Action> {
    any::<[bool; 5]>().prop_map(|[asleep, read, awaiting, is_lost, is_needed]| {
        let seen = Observation { is_bash_asleep: asleep, has_read_all: read, is_awaiting_input: awaiting };
        Action::See(seen, is_lost, is_needed)
    })
}

/// Any event in any order.
fn hostile() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => timeout().prop_map(Action::Queue),
        2 => prop_oneof![milliseconds(2000), Just(Duration::MAX)].prop_map(Action::QueueFor),
        2 => (0..4u64).prop_map(Action::Cancel),
        3 => Just(Action::Begin),
        4 => (which(), 0..4i32, any::<bool>()).prop_map(|(which, status, broken)| Action::Report(which, status, broken)),
        2 => which().prop_map(Action::WriteState),
        3 => exit().prop_map(Action::Exit),
        4 => Just(Action::Wake),
        2 => milliseconds(12_000).prop_map(Action::Wait),
        1 => any::<bool>().prop_map(|may_be_lost| Action::Signal { may_be_lost }),
        1 => Just(Action::Type),
        1 => Just(Action::Print),
        1 => Just(Action::Claim),
        1 => Just(Action::RequestState),
        1 => Just(Action::Reset),
        1 => (0..4u32).prop_map(Action::FailStarts),
        1 => (0..4u32).prop_map(Action::FailSends),
        1 => any::<bool>().prop_map(Action::Starve),
        2 => observation(),
    ]
}

/// The events of a shell in which nothing goes wrong, except that some starts are slow.
fn ordinary() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => Just(Action::Queue(None)),
        4 => (0..4i32).prop_map(Action::Complete),
        3 => Just(Action::WriteState(Which::Reported)),
        1 => Just(Action::Report(Which::Reported, 0, false)),
        1 => Just(Action::Wake),
        1 => any::<bool>().prop_map(|may_be_lost| Action::Signal { may_be_lost }),
        1 => Just(Action::Type),
        1 => Just(Action::Print),
        1 => Just(Action::Claim),
        1 => Just(Action::RequestState),
    ]
}

fn ending_action() -> impl Strategy<Value = Action> {
    prop_oneof![Just(Action::Drain), Just(Action::Close)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_job_ends_once_and_none_runs_twice_in_any_order_of_events(
        actions in prop::collection::vec(hostile(), 0..120),
    ) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        world.close();
    }

    #[test]
    fn every_job_ends_while_bash_answers_whatever_came_before(
        actions in prop::collection::vec(hostile(), 0..80),
    ) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        world.settle();
        world.close();
    }

    #[test]
    fn every_job_ends_although_bash_never_answers_again(
        actions in prop::collection::vec(hostile(), 0..80),
    ) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        world.settle_with_silent_bash();
        world.close();
    }

    #[test]
    fn where_nothing_goes_wrong_every_command_is_sent_once_and_exits(
        actions in prop::collection::vec(ordinary(), 0..200),
    ) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        world.settle();
        for (id, job) in &world.jobs {
            let finished = matches!(&job.ending, Some(Ending::Finished(finish)) if finish.kind == FinishKind::Exited);
            prop_assert!(finished && job.sends == 1, "{:?}: {:?}", id, job);
        }
    }

    #[test]
    fn a_shell_that_drains_or_is_closed_at_any_moment_leaves_nothing(
        before in prop::collection::vec(hostile(), 0..60),
        ending in ending_action(),
        after in prop::collection::vec(hostile(), 0..60),
    ) {
        let mut world = World::new();
        for action in before.into_iter().chain([ending]).chain(after) {
            world.act(action);
        }
        world.settle();
        prop_assert!(world.machine.is_closed(), "{:?}", world.machine);
        world.close();
    }

    #[test]
    fn a_closed_shell_does_nothing_but_refuse(
        before in prop::collection::vec(hostile(), 0..60),
        after in prop::collection::vec(hostile(), 0..60),
    ) {
        let mut world = World::new();
        for action in before {
            world.act(action);
        }
        world.close();
        world.log.clear();
        for action in after {
            world.act(action);
        }
        let refused = |effect: &Effect| matches!(effect, Effect::End { ending: Ending::NeverRan(_), .. });
        prop_assert!(world.log.iter().all(refused), "{:?}", world.log);
        prop_assert_eq!(world.unended(), 0);
    }

    #[test]
    fn no_wake_up_repeats_for_ever(actions in prop::collection::vec(hostile(), 0..80)) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
            let mut wakes = 0;
            while world.machine.next_wake().is_some_and(|at| at <= world.now) {
                world.handle(Event::TimePassed);
                wakes += 1;
                prop_assert!(wakes <= MAX_WAKES_AT_ONCE, "{:?}", world.machine);
            }
        }
    }
}
