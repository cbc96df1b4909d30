//! The first process of a sandbox: a plain init for image builders, and a server that ends in bounded time with nothing left.

use std::time::{Duration, Instant};

use e2e::{Program, Runner, ask, is_root, procfs, skipped, wait_until};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(10);

/// The command's status as the init passes it on.
async fn code_of(command: &[&str]) -> Option<i32> {
    let as_process = Program::start(command).await.ended(SOON).await.code;
    if is_root() {
        assert_eq!(Program::start_as_pid1(command).await.ended(SOON).await.code, as_process, "as PID 1: {command:?}");
    }
    as_process
}

#[tokio::test]
async fn an_init_passes_the_exit_status_on() {
    for code in [0, 1, 7, 255] {
        assert_eq!(code_of(&["sh", "-c", &format!("exit {code}")]).await, Some(code));
    }
}

#[tokio::test]
async fn a_death_by_signal_is_128_and_its_number() {
    for signal in [1, 2, 9, 13, 15] {
        assert_eq!(code_of(&["sh", "-c", &format!("kill -{signal} $$")]).await, Some(128 + signal));
    }
}

#[tokio::test]
async fn what_cannot_be_run_is_127_or_126() {
    assert_eq!(code_of(&["no-such-program-anywhere"]).await, Some(127));
    assert_eq!(code_of(&["/etc/passwd"]).await, Some(126));
}

#[tokio::test]
async fn the_commands_output_and_arguments_are_its_own() {
    let mut program = Program::start(&["sh", "-c", "echo \"$0:$1:$#\"; echo err >&2", "a b", "", "--version"]).await;
    let ended = program.ended(SOON).await;
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("a b::2\n", "err\n"));
}

#[tokio::test]
async fn signals_are_forwarded_to_the_command() {
    for (name, signal) in
        [("TERM", Signal::SIGTERM), ("INT", Signal::SIGINT), ("USR1", Signal::SIGUSR1), ("HUP", Signal::SIGHUP)]
    {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.01; done");
        let mut program = Program::start(&["sh", "-c", &script]).await;
        program.until_output("ready").await;
        program.signal(signal);
        let ended = program.ended(SOON).await;
        assert_eq!((ended.code, ended.stdout), (Some(5), format!("ready\ngot {name}\n")));
    }
}

#[tokio::test]
async fn an_init_in_its_own_namespace_forwards_signals_too() {
    if !is_root() {
        return skipped("an_init_in_its_own_namespace_forwards_signals_too", "a pid namespace needs root");
    }
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut program = Program::start_as_pid1(&["sh", "-c", script]).await;
    program.until_output("ready").await;
    program.signal(Signal::SIGTERM);
    assert_eq!(program.ended(SOON).await.code, Some(5));
}

#[tokio::test]
async fn an_init_collects_orphans_while_its_command_runs() {
    if !is_root() {
        return skipped("an_init_collects_orphans_while_its_command_runs", "a pid namespace needs root");
    }
    let script = "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 & sleep 0.02 &); done; echo ready; sleep 1000";
    let mut program = Program::start_as_pid1(&["sh", "-c", script]).await;
    program.until_output("ready").await;
    wait_until("only the command and its sleep are left", SOON, async || {
        (procfs::descendants(program.pid()).len() <= 2).then_some(())
    })
    .await;
    assert!(procfs::zombies(program.pid()).is_empty());
    program.signal(Signal::SIGKILL);
    program.ended(SOON).await;
}

#[tokio::test]
async fn an_init_whose_command_ends_leaves_nothing_behind() {
    if !is_root() {
        return skipped("an_init_whose_command_ends_leaves_nothing_behind", "a pid namespace needs root");
    }
    let mut program = Program::start_as_pid1(&["sh", "-c", "setsid sleep 1000 & sleep 1000 & exit 3"]).await;
    assert_eq!(program.ended(SOON).await.code, Some(3));
    wait_until("nothing is left", SOON, async || program.left().is_empty().then_some(())).await;
}

/// Tells a server to end while it runs commands that do not want to, and gives how long it took.
async fn ends_with_nothing_left(mut runner: Runner) -> Duration {
    let stubborn = "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & echo ready; sleep 1000";
    let mut stream = runner.exec_stream(ask(stubborn)).await;
    stream.until_output("ready").await;
    wait_until("its processes are there", SOON, async || (runner.descendants().len() >= 4).then_some(())).await;
    let told = Instant::now();
    runner.signal_runner(Signal::SIGTERM);
    runner.ended(SOON).await;
    let took = told.elapsed();
    wait_until("nothing is left", Duration::from_secs(2), async || runner.left().is_empty().then_some(())).await;
    took
}

#[tokio::test]
async fn a_server_that_is_told_to_end_does_so_within_its_grace() {
    let took = ends_with_nothing_left(Runner::builder().arg("--grace-ms=700").start().await).await;
    assert!(took >= Duration::from_millis(600), "what ignores TERM was killed before its grace was over: {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_server_that_is_pid_1_ends_within_its_grace() {
    if !is_root() {
        return skipped("a_server_that_is_pid_1_ends_within_its_grace", "a pid namespace needs root");
    }
    let took = ends_with_nothing_left(Runner::builder().as_pid1().arg("--grace-ms=700").start().await).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let mut runner = Runner::builder().arg("--grace-ms=30000").start().await;
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
    runner.signal_runner(Signal::SIGTERM);
    assert!(runner.ended(SOON).await.success());
    assert!(runner.left().is_empty());
    assert!(!runner.socket().exists(), "its socket is gone with it");
}

#[tokio::test]
async fn commands_get_their_chance_to_end_well() {
    let mut runner = Runner::builder().arg("--grace-ms=8000").start().await;
    let cmd = "sh -c 'trap \"echo saved >state; exit\" TERM; echo ready; while :; do sleep 0.01; done'";
    let mut stream = runner.exec_stream(ask(cmd)).await;
    stream.until_output("ready").await;
    runner.signal_runner(Signal::SIGTERM);
    runner.ended(SOON).await;
    assert_eq!(std::fs::read_to_string(runner.workspace().join("state")).unwrap(), "saved\n");
}

async fn outlives(mut runner: Runner, signals: &[Signal]) {
    for signal in signals {
        runner.signal_runner(*signal);
        assert_eq!(runner.output_of("echo ok").await, "ok\n", "after {signal}");
    }
}

#[tokio::test]
async fn signals_that_mean_nothing_to_a_server_do_not_end_it() {
    outlives(Runner::start().await, &[Signal::SIGHUP, Signal::SIGPIPE, Signal::SIGUSR1, Signal::SIGUSR2]).await;
}

#[tokio::test]
async fn signals_that_mean_nothing_to_an_init_do_not_end_it() {
    use Signal::{SIGALRM, SIGHUP, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH};
    if !is_root() {
        return skipped("signals_that_mean_nothing_to_an_init_do_not_end_it", "a pid namespace needs root");
    }
    let signals = [SIGALRM, SIGHUP, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH];
    outlives(Runner::start_as_pid1().await, &signals).await;
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_explained() {
    let output = std::process::Command::new(e2e::runner_binary()).arg("--sokcet=/x").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--sokcet"), "{output:?}");
    let version = std::process::Command::new(e2e::runner_binary()).arg("--version").output().unwrap();
    assert!(version.status.success() && String::from_utf8_lossy(&version.stdout).contains("runner"), "{version:?}");
}
