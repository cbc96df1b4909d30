//! Tests of special cases of the machine, one story each.

use std::time::Duration;

use super::simulation::{Doing, Which, World};
use super::*;
use crate::reaper::Exit;

const KILLED: Exit = Exit::Signal(libc::SIGKILL);

impl World {
    fn ending(&self, job: JobId) -> Option<&Ending> {
        self.jobs[&job].ending.as_ref()
    }

    fn finish(&self, job: JobId) -> Finish {
        match self.ending(job) {
            Some(Ending::Finished(finish)) => *finish,
            other => panic!("{job:?} has no status: {other:?}"),
        }
    }

    /// The effects since the last call.
    fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.log)
    }

    fn start_mode(&mut self) -> Option<StartMode> {
        self.effects().iter().rev().find_map(|effect| match effect {
            Effect::Start { mode, .. } => Some(*mode),
            _ => None,
        })
    }

    fn see(&mut self, is_bash_asleep: bool, has_read_all: bool) {
        self.observation = Observation { is_bash_asleep, has_read_all, is_awaiting_input: false };
    }
}

#[test]
fn a_command_runs_and_its_status_is_the_next_ones() {
    let mut world = World::idle();
    let first = world.queue(None);
    let second = world.queue(None);
    world.begin();
    world.report(Which::Asked, 3);
    let finish = Finish { kind: FinishKind::Exited, status: 3, was_restarted: false, was_awaiting_input: false };
    assert_eq!(world.finish(first), finish);
    let sent = world.effects().pop();
    assert!(matches!(sent, Some(Effect::Send { job, last_status: 3, .. }) if job == second), "{sent:?}");
}

#[test]
fn a_command_that_had_begun_ends_with_bash() {
    let mut world = World::idle();
    for (exit, kind, status) in [(Exit::Code(7), FinishKind::Exited, 7), (KILLED, FinishKind::Signaled(9), 137)] {
        let job = world.queue(None);
        world.begin();
        world.exit(exit);
        assert_eq!(world.finish(job), Finish { kind, status, was_restarted: true, was_awaiting_input: false });
        world.report(Which::Asked, 0);
    }
}

#[test]
fn a_command_that_had_not_begun_is_sent_to_three_shells_and_not_to_a_fourth() {
    let mut world = World::idle();
    let job = world.queue(None);
    world.exit(KILLED);
    world.report(Which::Asked, 0);
    world.failing_sends = 0;
    world.report(Which::Asked, 0);
    assert_eq!(world.effects().last(), Some(&Effect::Kill(KillReason::CommandNotBegun)));
    world.exit(KILLED);
    world.failing_sends = 1;
    world.report(Which::Asked, 0);
    assert_eq!(world.ending(job), Some(&Ending::NeverRan(NotRunReason::NotTaken)));
    assert_eq!(world.effects().last(), Some(&Effect::Kill(KillReason::SendFailed)));
}

#[test]
fn a_replaced_shell_is_told_once() {
    let mut world = World::idle();
    world.exit(KILLED);
    world.report(Which::Asked, 0);
    for was_restarted in [true, false] {
        let job = world.queue(None);
        world.begin();
        world.report(Which::Asked, 0);
        assert_eq!(world.finish(job).was_restarted, was_restarted);
    }
}

#[test]
fn starts_become_simpler_until_those_who_wait_are_told_and_the_next_command_tries_anew() {
    let mut world = World::new();
    let job = world.queue(None);
    assert_eq!(world.start_mode(), Some(StartMode::Login));
    world.exit(Exit::Code(1));
    assert_eq!(world.start_mode(), Some(StartMode::Bare));
    world.exit(Exit::Code(1));
    let reason = NotRunReason::NoShell("bash ended while it started".to_owned());
    assert_eq!(world.ending(job), Some(&Ending::NeverRan(reason)));
    assert_eq!((world.start_mode(), world.machine.shell_state()), (None, ShellState::Down));
    world.queue(None);
    assert_eq!(world.start_mode(), Some(StartMode::Login));
}

#[test]
fn a_bash_that_does_not_come_up_is_killed_again_and_again_and_replaced_by_a_bare_one() {
    let mut world = World::new();
    for _ in 0..2 {
        world.wake();
        assert_eq!(world.effects().last(), Some(&Effect::Kill(KillReason::StartTimedOut)));
    }
    world.exit(KILLED);
    assert_eq!(world.start_mode(), Some(StartMode::Bare));
}

#[test]
fn a_bash_that_gets_no_processor_has_more_time_to_start_but_not_for_ever() {
    let mut world = World::new();
    world.is_starved = true;
    let began = world.now;
    world.effects();
    for _ in 0..5 {
        world.wake();
        assert_eq!(world.effects(), [Effect::CheckStart]);
    }
    world.wake();
    assert_eq!(world.effects(), [Effect::Kill(KillReason::StartTimedOut)]);
    assert_eq!(world.now - began, Duration::from_secs(60));
}

#[test]
fn a_restore_that_fails_is_tried_once_more_before_the_state_is_given_up() {
    let mut world = World::idle();
    world.exit(KILLED);
    assert_eq!(world.start_mode(), Some(StartMode::Restore));
    world.exit(KILLED);
    assert_eq!(world.start_mode(), Some(StartMode::RestoreAgain));
    world.exit(KILLED);
    assert_eq!(world.start_mode(), Some(StartMode::Bare));
}

#[test]
fn a_bash_that_dies_too_often_without_a_command_waits_before_the_next_start() {
    let mut world = World::idle();
    for _ in 0..4 {
        world.exit(KILLED);
        world.report(Which::Asked, 0);
    }
    world.effects();
    world.exit(KILLED);
    assert_eq!(world.start_mode(), None);
    assert_eq!(world.machine.next_wake(), Some(world.now + Duration::from_millis(500)));
    world.wake();
    assert_eq!(world.start_mode(), Some(StartMode::Restore));
}

#[test]
fn a_bash_that_cannot_report_is_asked_then_told_to_exit_and_then_killed() {
    let mut world = World::idle();
    let job = world.queue(None);
    world.begin();
    world.effects();
    world.see(true, false);
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe, Effect::SendTail]);
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe], "it has not read the tail: it may be in a builtin that waits");
    world.see(true, true);
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe, Effect::SendExit]);
    world.wake();
    assert_eq!(world.effects(), [Effect::Kill(KillReason::CannotReport)]);
    world.exit(KILLED);
    assert_eq!(world.ending(job), Some(&Ending::StatusUnknown { status: 1 }));
}

#[test]
fn a_bash_that_exits_when_it_is_told_gives_the_commands_status() {
    let mut world = World::idle();
    let job = world.queue(None);
    world.begin();
    world.see(true, true);
    world.wake();
    world.wake();
    world.exit(Exit::Code(5));
    assert_eq!((world.finish(job).kind, world.finish(job).status), (FinishKind::Exited, 5));
}

#[test]
fn a_command_out_of_time_meets_every_step_and_then_bash_does() {
    let mut world = World::idle();
    let job = world.queue(Some(Duration::from_millis(50)));
    world.begin();
    world.effects();
    world.observation.is_awaiting_input = true;
    world.wake();
    assert_eq!(world.effects(), [Effect::CheckInput, Effect::Escalate(Escalation::Interrupt)]);
    world.wake();
    assert_eq!(world.effects(), [Effect::Escalate(Escalation::Terminate)]);
    while world.machine.next_wake().is_some() {
        world.wake();
    }
    let steps = world.effects();
    let (last, kills) = steps.split_at(steps.len() - 2);
    assert_eq!(kills, [Effect::Kill(KillReason::CommandTimedOut), Effect::SendTail]);
    assert!(last.len() > 1 && last.iter().all(|step| *step == Effect::Escalate(Escalation::Kill)), "{last:?}");
    world.exit(KILLED);
    let finish = Finish { kind: FinishKind::TimedOut, status: 137, was_restarted: true, was_awaiting_input: true };
    assert_eq!(world.finish(job), finish);
}

#[test]
fn a_report_that_comes_after_bash_was_killed_counts_and_the_next_command_goes_to_the_next_bash() {
    let mut world = World::idle();
    let first = world.queue(Some(Duration::ZERO));
    world.queue(None);
    world.begin();
    while world.machine.next_wake().is_some() {
        world.wake();
    }
    world.effects();
    world.report(Which::Asked, 0);
    assert_eq!(world.finish(first).kind, FinishKind::TimedOut);
    assert!(!world.effects().iter().any(|effect| matches!(effect, Effect::Send { .. })));
    world.exit(KILLED);
    world.report(Which::Asked, 0);
    assert!(matches!(world.effects().last(), Some(Effect::Send { .. })));
}

#[test]
fn waiting_for_input_is_told_when_it_begins() {
    let mut world = World::idle();
    world.queue(None);
    world.observation.is_awaiting_input = true;
    world.effects();
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe, Effect::TellAwaitingInput]);
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe]);
    world.handle(Event::Typed);
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe, Effect::TellAwaitingInput]);
}

#[test]
fn a_lost_interrupt_is_repeated_once() {
    let mut world = World::idle();
    world.queue(None);
    world.effects();
    world.handle(Event::Signalled { may_be_lost: true });
    assert_eq!(world.effects(), [Effect::SendTail]);
    world.wake();
    assert_eq!(world.effects(), [Effect::CheckInterrupt { age: Duration::from_millis(2) }]);
    world.is_interrupt_lost = true;
    world.wake();
    let check = Effect::CheckInterrupt { age: Duration::from_millis(6) };
    assert_eq!(world.effects(), [check, Effect::RepeatInterrupt]);
    world.wake();
    assert_eq!(world.effects(), [Effect::Observe]);
}

#[test]
fn an_interrupt_that_was_not_lost_is_checked_for_ten_seconds() {
    let mut world = World::idle();
    world.queue(None);
    world.handle(Event::Signalled { may_be_lost: true });
    let sent = world.now;
    world.effects();
    while world.now < sent + Duration::from_secs(30) {
        world.wake();
    }
    let ages: Vec<_> = world
        .effects()
        .iter()
        .filter_map(|effect| match effect {
            Effect::CheckInterrupt { age } => Some(*age),
            _ => None,
        })
        .collect();
    let last = ages.last().copied().unwrap_or_default();
    assert!((Duration::from_secs(10)..Duration::from_secs(11)).contains(&last), "{last:?}");
}

#[test]
fn a_bash_that_may_be_broken_is_replaced_when_its_state_is_written_or_late() {
    for is_written in [true, false] {
        let mut world = World::idle();
        let job = world.queue(None);
        world.queue(None);
        world.begin();
        world.report_as(Which::Asked, 2, true);
        assert_eq!(world.finish(job).status, 2);
        assert_eq!(world.bash.as_ref().unwrap().doing, Doing::Nothing, "the next command waits");
        if is_written {
            world.write_state(Which::Reported)
        } else {
            world.wake()
        }
        assert_eq!(world.effects().last(), Some(&Effect::Kill(KillReason::MayBeBroken)));
        world.exit(KILLED);
        assert_eq!(world.start_mode(), Some(StartMode::Restore));
    }
}

#[test]
fn a_claim_is_taken_before_the_next_command_and_forgets_the_state_before_it() {
    let mut world = World::idle();
    let job = world.queue(None);
    world.handle(Event::Claimed);
    world.queue(None);
    world.begin();
    world.effects();
    world.report(Which::Asked, 0);
    let effects = world.effects();
    assert!(
        matches!(
            effects[2..],
            [Effect::CheckClaim, Effect::ForgetState, Effect::ResetDirectory, Effect::SendClaim { .. },]
        ),
        "{effects:?}"
    );
    assert!(world.ending(job).is_some());
    world.write_state(Which::Reported);
    assert_eq!(world.effects(), [Effect::AnswerStateRequests], "the state from before the claim is not kept");
    world.report(Which::Asked, 0);
    assert!(matches!(world.effects()[..], [Effect::SetDirectory(_), Effect::RemoveScripts, Effect::Send { .. }]));
    world.exit(KILLED);
    assert_eq!(world.start_mode(), Some(StartMode::Login));
}

#[test]
fn a_claim_that_changes_nothing_is_not_sent_and_one_that_fails_makes_a_login() {
    let mut world = World::idle();
    world.effects();
    world.is_claim_needed = false;
    world.handle(Event::Claimed);
    assert_eq!(world.effects(), [Effect::CheckClaim]);
    world.is_claim_needed = true;
    world.handle(Event::Claimed);
    world.exit(KILLED);
    assert_eq!(world.start_mode(), Some(StartMode::Login));
}

#[test]
fn a_bash_that_began_with_the_claim_is_not_told_and_one_that_was_starting_is() {
    let mut world = World::new();
    world.handle(Event::Claimed);
    world.effects();
    world.report(Which::Asked, 0);
    assert_eq!(world.effects().get(2), Some(&Effect::CheckClaim));
    let mut world = World::new();
    world.failing_starts = 1;
    world.exit(KILLED);
    world.handle(Event::Claimed);
    world.queue(None);
    world.effects();
    world.report(Which::Asked, 0);
    assert!(!world.effects().contains(&Effect::CheckClaim));
}

#[test]
fn the_state_is_asked_for_until_it_is_written_or_bash_is_gone() {
    let mut world = World::new();
    world.effects();
    world.request_state();
    assert_eq!(world.effects(), []);
    world.report(Which::Asked, 0);
    world.write_state(Which::Reported);
    assert_eq!(world.effects().last(), Some(&Effect::AnswerStateRequests));
    world.request_state();
    assert_eq!(world.effects(), [Effect::AnswerStateRequests]);
}

#[test]
fn a_reset_loses_what_runs_refuses_what_waits_and_begins_anew() {
    let mut world = World::idle();
    let (running, waiting) = (world.queue(None), world.queue(None));
    world.effects();
    world.handle(Event::Reset);
    assert_eq!(world.ending(running), Some(&Ending::Abandoned(CloseReason::Reset)));
    assert_eq!(world.ending(waiting), Some(&Ending::NeverRan(NotRunReason::Closed(CloseReason::Reset))));
    assert_eq!(world.start_mode(), Some(StartMode::Login));
}

#[test]
fn a_shell_that_drains_ends_with_its_command() {
    let mut world = World::idle();
    let (running, waiting) = (world.queue(None), world.queue(None));
    world.handle(Event::Drain);
    assert_eq!(world.ending(waiting), Some(&Ending::NeverRan(NotRunReason::Closed(CloseReason::RunnerEnds))));
    assert!(!world.machine.is_closed());
    world.begin();
    world.report(Which::Asked, 0);
    assert_eq!(world.finish(running).status, 0);
    assert!(world.machine.is_closed());
}

#[test]
fn a_command_behind_another_gives_up_when_its_patience_ends_and_the_rest_goes_on() {
    let mut world = World::idle();
    let running = world.queue(None);
    world.begin();
    let patient = world.queue(None);
    let hasty = world.queue_for(None, Some(Duration::from_millis(50)));
    assert_eq!(world.machine.in_front_of(hasty), Some(running));
    world.wait(Duration::from_millis(49));
    assert_eq!(world.ending(hasty), None);
    world.wait(Duration::from_millis(1));
    let reason = NotRunReason::WaitedTooLong { behind: running };
    assert_eq!(world.ending(hasty), Some(&Ending::NeverRan(reason)));
    world.report(Which::Asked, 0);
    assert_eq!((world.jobs[&patient].sends, world.jobs[&hasty].sends), (1, 0));
}

#[test]
fn a_command_that_waits_for_bash_alone_does_not_give_up() {
    let mut world = World::new();
    let first = world.queue_for(None, Some(Duration::ZERO));
    let second = world.queue_for(None, Some(Duration::ZERO));
    assert_eq!(world.ending(second), Some(&Ending::NeverRan(NotRunReason::WaitedTooLong { behind: first })));
    world.wait(Duration::from_secs(1));
    world.report(Which::Asked, 0);
    assert_eq!((world.ending(first), world.jobs[&first].sends), (None, 1));
}

#[test]
fn a_cancelled_command_leaves_the_queue_and_a_running_one_stays() {
    let mut world = World::idle();
    let (running, waiting) = (world.queue(None), world.queue(None));
    world.begin();
    world.cancel(waiting);
    world.cancel(running);
    world.report(Which::Asked, 0);
    assert_eq!(world.finish(running).kind, FinishKind::Exited);
    assert_eq!(world.jobs[&waiting].sends, 0);
}
