//! The first process of a sandbox: a plain init for image builders, and a server that ends in bounded time and leaves
//! nothing.

use std::time::{Duration, Instant};

use e2e::{OnTerminal, Program, Runner, ask, is_root, procfs, skipped, wait_until};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(10);

/// The command's status that the init passes on.
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

/// A shell that reports one signal and ends with 5.
fn reporting(name: &str) -> String {
    format!("trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.01; done")
}

#[tokio::test]
async fn fault_signals_that_somebody_sends_are_forwarded_like_any_other() {
    for name in ["SEGV", "ABRT", "BUS", "FPE", "ILL", "TRAP", "SYS"] {
        let signal: Signal = format!("SIG{name}").parse().unwrap();
        let script = reporting(name);
        let mut programs = vec![Program::start(&["sh", "-c", &script]).await];
        if is_root() {
            programs.push(Program::start_as_pid1(&["sh", "-c", &script]).await);
        }
        for mut program in programs {
            program.until_output("ready").await;
            program.signal(signal);
            assert_eq!(program.ended(SOON).await.code, Some(5), "{name}");
        }
    }
}

#[tokio::test]
async fn a_real_time_signal_is_forwarded() {
    let mut program = Program::start(&["bash", "-c", &reporting("RTMIN+3")]).await;
    program.until_output("ready").await;
    let sent = std::process::Command::new("bash").args(["-c", &format!("kill -s RTMIN+3 {}", program.pid())]).status();
    assert!(sent.unwrap().success());
    assert_eq!(program.ended(SOON).await.code, Some(5));
}

#[test]
fn the_command_has_the_ignored_and_blocked_signals_of_the_caller() {
    let shown = |ignored: &str, runner: &[&str]| {
        let mut command = std::process::Command::new("env");
        // PIPE and CHLD are those that a runner could change for itself.
        command.args(["--default-signal", ignored, "--block-signal=USR1,TERM,CHLD"]).args(runner);
        let output = command.args(["grep", "-E", "Sig(Ign|Blk|Cgt)", "/proc/self/status"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let runner = e2e::runner_binary().to_str().unwrap();
    for ignored in ["--ignore-signal=HUP,PIPE,CHLD,INT", "--ignore-signal=HUP"] {
        assert_eq!(shown(ignored, &[runner, "--"]), shown(ignored, &[]), "{ignored}");
    }
}

#[tokio::test]
async fn with_g_the_whole_process_group_gets_a_signal() {
    // A child that hears the signal ends by itself; one that does not is ended by its parent.
    for (flags, heard, end) in [(&["-g"][..], true, "wait"), (&[], false, "kill")] {
        let script = format!(
            "sh -c \"trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.01; done\" &
            trap 'echo parent; {end} $!; exit 5' USR1; while :; do sleep 0.01; done"
        );
        let mut program = Program::start_with(flags, &["sh", "-c", &script]).await;
        program.until_output("ready").await;
        program.signal(Signal::SIGUSR1);
        if heard {
            program.until_output("child").await;
        }
        let ended = program.ended(SOON).await;
        assert_eq!((ended.code, ended.stdout.contains("child")), (Some(5), heard), "{flags:?}: {ended:?}");
    }
}

#[tokio::test]
async fn with_e_an_exit_code_becomes_zero() {
    let flags = ["-e", "143", "-e", "7"];
    for (script, code) in [("exit 7", 0), ("exit 8", 8), ("kill -TERM $$", 0), ("exit 0", 0)] {
        assert_eq!(Program::start_with(&flags, &["sh", "-c", script]).await.ended(SOON).await.code, Some(code));
    }
}

/// A process that is killed when it is dropped, also by a test that fails.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn with_p_the_command_hears_of_the_death_of_the_runners_parent() {
    let directory = tempfile::tempdir().unwrap();
    let (log, runner) = (directory.path().join("log"), e2e::runner_binary());
    let said = async |what: &str| {
        let read = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(what));
        wait_until(&format!("the command says {what:?}"), SOON, async || read().then_some(())).await;
    };
    let script = "\"$0\" -p USR1 -- sh -c \"$2\" >\"$1\" & exec sleep 1000";
    let mut parent = std::process::Command::new("sh");
    parent.args(["-c", script]).args([runner.as_os_str(), log.as_os_str(), reporting("USR1").as_ref()]);
    let parent = Killed(parent.spawn().unwrap());
    said("ready").await;
    drop(parent);
    said("got USR1").await;
}

/// Rounds of the race for the terminal, and how many programs race at once, which are each other's load.
const ROUNDS: usize = 10;
const AT_ONCE: usize = 12;

#[tokio::test]
async fn a_command_that_reads_at_once_has_the_terminal() {
    let argv = [e2e::runner_binary().to_str().unwrap(), "--", "head", "-n", "1"];
    for round in 0..ROUNDS {
        let mut programs: Vec<OnTerminal> = (0..AT_ONCE).map(|_| OnTerminal::start(&argv)).collect();
        for program in &mut programs {
            program.types("typed\n");
        }
        for program in &mut programs {
            assert_eq!(program.ended(SOON).await, 0, "round {round}: {:?}", program.text());
        }
    }
}

#[tokio::test]
async fn a_script_has_its_terminal_back_after_the_command() {
    let script = "\"$0\" -- true; read -r line && echo \"got $line\"";
    let mut program = OnTerminal::start(&["sh", "-c", script, e2e::runner_binary().to_str().unwrap()]);
    program.types("hello\n");
    assert_eq!(program.ended(SOON).await, 0, "{:?}", program.text());
    program.shows("got hello").await;
}

#[tokio::test]
async fn a_runner_in_the_background_leaves_the_terminal_to_whoever_has_it() {
    let script = "set -m; \"$0\" -- sh -c 'echo begun; exec sleep 1000' & read -r line && echo \"got $line\"; kill %1";
    let mut program = OnTerminal::start(&["bash", "-c", script, e2e::runner_binary().to_str().unwrap()]);
    program.shows("begun").await;
    program.types("hello\n");
    program.shows("got hello").await;
    program.ended(SOON).await;
}

#[tokio::test]
async fn ctrl_c_reaches_the_command_alone() {
    let script = reporting("INT");
    let mut program = OnTerminal::start(&[e2e::runner_binary().to_str().unwrap(), "--", "sh", "-c", &script]);
    program.shows("ready").await;
    program.types("\x03");
    assert_eq!(program.ended(SOON).await, 5, "{:?}", program.text());
}

/// Tells a server to end while it runs commands that resist, and returns how long that took.
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
    let output = std::process::Command::new(e2e::runner_binary()).args(["-z", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("-z"), "{output:?}");
    let help = std::process::Command::new(e2e::runner_binary()).arg("-h").output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("-p SIGNAL"), "{help:?}");
    let version = std::process::Command::new(e2e::runner_binary()).arg("--version").output().unwrap();
    assert!(version.status.success() && String::from_utf8_lossy(&version.stdout).contains("runner"), "{version:?}");
}
