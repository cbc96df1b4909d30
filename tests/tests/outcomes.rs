//! The outcome of a command is always correct: 20,000 commands with known statuses.

use std::time::Duration;

use e2e::{Ask as _, Client, MemoryCgroup, Runner, ask, run, skipped};
use shared_protocol::runner::{ExecRequest, OutcomeKind, RunRequest};

const COMMANDS: usize = 20_000;

/// The number of shells that run commands at the same time, each one after the other. One more worker does runs.
const SHELLS: usize = 4;

/// The signals that can kill a program without a core dump.
const SIGNALS: [i32; 8] = [1, 2, 9, 10, 12, 13, 14, 15];

/// A small random generator: it makes the same commands on every machine and in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn code(&mut self) -> i32 {
        i32::try_from(self.below(256)).expect("below 256")
    }

    fn signal(&mut self) -> i32 {
        SIGNALS[usize::try_from(self.below(8)).expect("below 8")]
    }
}

struct Known {
    request: ExecRequest,
    code: i32,
    kind: OutcomeKind,
}

/// The next command. Commands that end the shell are rare, because each costs a new shell; all others are equally frequent.
fn next_command(sequence: &mut Sequence, index: usize) -> Known {
    use OutcomeKind::{Exited, Signaled, TimedOut};
    let (code, signal) = (sequence.code(), sequence.signal());
    let (cmd, code, kind) = match sequence.below(400) {
        0 => (format!("exit {code}"), code, Exited),
        1 => ("kill -9 $$; sleep 100".to_owned(), 137, Signaled),
        2 => ("sleep 100".to_owned(), 124, TimedOut),
        3 => (format!("exec sh -c 'exit {code}'"), code, Exited),
        other => match other % 16 {
            0 => ("true".to_owned(), 0, Exited),
            1 => ("false".to_owned(), 1, Exited),
            2 => (format!("(exit {code})"), code, Exited),
            3 => (format!("sh -c 'exit {code}'"), code, Exited),
            4 => (format!("sh -c 'kill -{signal} $$'"), 128 + signal, Exited),
            5 => ("./not-executable".to_owned(), 126, Exited),
            6 => ("/".to_owned(), 126, Exited),
            7 => ("no-such-command-anywhere".to_owned(), 127, Exited),
            8 => (format!("(set -o pipefail; sh -c 'exit {}' | cat)", code / 2 + 1), code / 2 + 1, Exited),
            9 => (format!("(exit {code}) | true"), 0, Exited),
            10 => (format!("! (exit {code})"), i32::from(code == 0), Exited),
            11 => (format!("f() {{ return {code}; }}; f"), code, Exited),
            12 => (format!("eval '(exit {code})'"), code, Exited),
            13 => (format!("sh -c 'exit {code}' & wait $!"), code, Exited),
            14 => ("if".to_owned(), 2, Exited),
            _ => (format!("[[ a = b ]] || x=$(sh -c 'exit {code}')"), code, Exited),
        },
    };
    // A syntax error applies to the whole text: nothing of it runs, so it gets no prefix.
    let is_syntax_error = cmd == "if";
    let cmd = if is_syntax_error { cmd } else { format!("echo {index}\n{cmd}") };
    let request = if kind == TimedOut { ask(cmd).timeout_ms(30) } else { ask(cmd) };
    Known { request: request.split(), code, kind }
}

async fn runs_in_a_shell(client: Client, shell: String, seed: u64, count: usize) -> Vec<String> {
    client.open(&shell).await;
    let mut sequence = Sequence(seed);
    let mut wrong = Vec::new();
    for index in 0..count {
        let known = next_command(&mut sequence, index);
        let cmd = known.request.cmd.clone();
        let done = client.exec(known.request.in_shell(&shell)).await;
        let output = if cmd == "if" { String::new() } else { format!("{index}\n") };
        if (done.code(), done.outcome.kind, done.stdout_text()) != (known.code, known.kind, output) {
            let (expected, outcome) = (known.code, &done.outcome);
            wrong.push(format!("{shell}: {cmd:?}: expected {expected}, got {outcome:?} with {:?}", done.text()));
        }
    }
    wrong
}

async fn runs_beside(client: Client, seed: u64, count: usize) -> Vec<String> {
    let mut sequence = Sequence(seed);
    let mut wrong = Vec::new();
    for index in 0..count {
        let (code, signal) = (sequence.code(), sequence.signal());
        let exit = format!("echo {index}; exit {code}");
        let kill = format!("echo {index}; kill -{signal} $$");
        let (request, code, signal) = match sequence.below(5) {
            0 => (run(["sh", "-c", &kill]), 128 + signal, Some(signal)),
            1 => (run(["./not-executable"]), 126, None),
            2 => (run(["no-such-program-anywhere"]), 127, None),
            _ => (run(["sh", "-c", &exit]), code, None),
        };
        let is_there = request.argv[0] == "sh";
        let argv = request.argv.clone();
        let done = client.run(request).await;
        let kind = match (is_there, signal) {
            (false, _) => OutcomeKind::NeverRan,
            (true, None) => OutcomeKind::Exited,
            (true, Some(_)) => OutcomeKind::Signaled,
        };
        let output = if is_there { format!("{index}\n") } else { String::new() };
        let seen = (done.code(), done.outcome.signal, done.outcome.kind, done.stdout_text());
        if seen != (code, signal, kind, output) {
            wrong.push(format!("run {argv:?}: expected {code}, got {:?} with {:?}", done.outcome, done.text()));
        }
    }
    wrong
}

async fn all_outcomes_are_right(runner: &Runner, commands: usize) {
    runner.sh("echo never >not-executable").await;
    let each = commands / (SHELLS + 1);
    let seeds = 1_u64..;
    let shells = seeds
        .zip(0..SHELLS)
        .map(|(seed, i)| tokio::spawn(runs_in_a_shell(runner.client(), format!("shell-{i}"), seed, each)));
    let mut workers: Vec<_> = shells.collect();
    workers.push(tokio::spawn(runs_beside(runner.client(), 99, commands - SHELLS * each)));
    let mut wrong = Vec::new();
    for worker in workers {
        wrong.extend(worker.await.expect("a worker"));
    }
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {commands} are wrong, among them:\n{}", wrong.len(), shown.join("\n"));
}

#[tokio::test]
async fn twenty_thousand_mixed_commands_end_as_they_should() {
    let runner = Runner::start().await;
    all_outcomes_are_right(&runner, COMMANDS).await;
}

#[tokio::test]
async fn outcomes_are_as_right_where_the_runner_is_pid_1() {
    if !e2e::is_root() {
        return skipped("outcomes_are_as_right_where_the_runner_is_pid_1", "a pid namespace needs root");
    }
    let runner = Runner::start_as_pid1().await;
    all_outcomes_are_right(&runner, COMMANDS / 10).await;
}

#[tokio::test]
async fn a_signal_to_the_shell_and_one_to_its_child_are_told_apart() {
    let runner = Runner::start().await;
    let child = runner.sh("sh -c 'kill -9 $$'").await.outcome;
    assert_eq!((child.kind, child.exit_code, child.shell_restarted), (OutcomeKind::Exited, 137, false));
    let shell = runner.sh("kill -9 $$").await.outcome;
    assert_eq!((shell.kind, shell.exit_code, shell.shell_restarted), (OutcomeKind::Signaled, 137, true));
    assert_eq!(shell.signal, Some(9));
}

#[tokio::test]
async fn real_time_signals_are_told_as_any_other() {
    let runner = Runner::start().await;
    let done = runner.run(run(["sh", "-c", "kill -40 $$"])).await.outcome;
    assert_eq!((done.kind, done.signal, done.exit_code), (OutcomeKind::Signaled, Some(40), 168));
    assert_eq!(runner.sh("sh -c 'kill -64 $$'").await.code(), 192);
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended_and_says_so() {
    let runner = Runner::start().await;
    let request =
        RunRequest { timeout_ms: Some(200), ..run(["sh", "-c", "echo before; trap '' TERM INT; sleep 1000"]) };
    let done = runner.run(request).await;
    assert_eq!((done.outcome.kind, done.code(), done.text().as_str()), (OutcomeKind::TimedOut, 124, "before\n"));
    e2e::wait_until("the sleep is gone", Duration::from_secs(5), async || {
        (!runner.descendants().iter().any(|p| p.name == "sleep")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn queued_commands_of_a_shell_that_is_reset_never_ran() {
    let runner = Runner::start().await;
    let mut running = runner.exec_stream(ask("echo begun; sleep 1000")).await;
    running.until_output("begun").await;
    let queued = runner.exec_stream(ask("touch ran").with_id("queued")).await;
    runner.reset_shell("main").await;
    assert_eq!(running.finish().await.outcome.kind, OutcomeKind::Lost);
    let queued = queued.finish().await.outcome;
    assert_eq!(queued.kind, OutcomeKind::NeverRan);
    assert!(queued.reason.is_some(), "{queued:?}");
    assert_eq!(runner.output_of("ls").await, "");
}

#[tokio::test]
async fn running_out_of_memory_ends_the_command_and_not_the_runner() {
    let cgroup = match MemoryCgroup::with_limit(64 << 20) {
        Ok(cgroup) => cgroup,
        Err(why) => return skipped("running_out_of_memory_ends_the_command_and_not_the_runner", &why),
    };
    let runner = Runner::builder().in_cgroup(&cgroup).start().await;
    runner.sh("x=kept").await;
    let done = runner.sh("tail /dev/zero").await;
    assert_eq!((done.code(), done.outcome.oom_killed), (137, true), "{:?}", done.outcome);
    assert_eq!(runner.output_of("echo $x").await, "kept\n");
    let other = runner.sh("sh -c 'kill -9 $$'").await;
    assert_eq!((other.code(), other.outcome.oom_killed), (137, false), "a plain kill is not taken for it");
    let alone = runner.run(run(["tail", "/dev/zero"])).await;
    assert_eq!((alone.code(), alone.outcome.oom_killed), (137, true), "{:?}", alone.outcome);
}

#[tokio::test]
async fn a_kill_for_memory_is_told_also_if_the_command_went_on() {
    let cgroup = match MemoryCgroup::with_limit(64 << 20) {
        Ok(cgroup) => cgroup,
        Err(why) => return skipped("a_kill_for_memory_is_told_also_if_the_command_went_on", &why),
    };
    let runner = Runner::builder().in_cgroup(&cgroup).start().await;
    for cmd in
        ["tail /dev/zero || true", "tail /dev/zero; echo on", "sh -c 'tail /dev/zero; exit 0'", "tail /dev/zero | cat"]
    {
        let done = runner.sh(cmd).await;
        assert_eq!((done.code(), done.outcome.oom_killed), (0, true), "{cmd}: {:?}", done.outcome);
        assert!(!runner.sh("true").await.outcome.oom_killed, "it is told once");
    }
    let alone = runner.run(run(["sh", "-c", "tail /dev/zero; exit 0"])).await;
    assert_eq!((alone.code(), alone.outcome.oom_killed), (0, true), "{:?}", alone.outcome);
    // A program in the background is killed when no command runs: the next command tells it.
    assert!(
        !runner
            .sh("(until [ -e go ]; do sleep 0.01; done; tail /dev/zero; touch gone) & disown -a")
            .await
            .outcome
            .oom_killed
    );
    std::fs::write(runner.workspace().join("go"), "").unwrap();
    e2e::wait_until("it is killed", Duration::from_secs(20), async || {
        runner.workspace().join("gone").exists().then_some(())
    })
    .await;
    assert!(runner.sh("true").await.outcome.oom_killed);
    assert!(!runner.sh("true").await.outcome.oom_killed);
}

#[tokio::test]
async fn a_command_that_eats_the_shells_memory_leaves_a_usable_shell() {
    let cgroup = match MemoryCgroup::with_limit(64 << 20) {
        Ok(cgroup) => cgroup,
        Err(why) => return skipped("a_command_that_eats_the_shells_memory_leaves_a_usable_shell", &why),
    };
    let runner = Runner::builder().in_cgroup(&cgroup).start().await;
    let done = runner.exec(ask("x=xxxxxxxxxx; while :; do x+=$x; done").timeout_ms(15_000)).await;
    assert!(done.outcome.shell_restarted, "{:?}", done.outcome);
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}
