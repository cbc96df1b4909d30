//! Every orphan is collected, and no signal ever reaches a process that does not belong to the runner.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use e2e::{Ask as _, Runner, ask, procfs, run, skipped, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared_protocol::runner::RunRequest;

/// The number of orphans. They come in bursts: each parent makes a thousand children and ends, and they end after it.
const ORPHANS: usize = 100_000;
const BURST: usize = 1000;

fn make_orphans(count: usize) -> String {
    let bursts = count / BURST;
    format!(
        "perl -MPOSIX -e 'for (1..{bursts}) {{ my $p = fork; if (!$p) {{ pipe(R, W); for (1..{BURST}) {{ \
         my $c = fork; die \"fork: $!\" unless defined $c; if (!$c) {{ close W; sysread(R, $x, 1); POSIX::_exit(0) }} }} \
         POSIX::_exit(0) }} waitpid($p, 0); die \"status $?\" if $? }}'"
    )
}

/// Makes the orphans and returns how long the runner then took to collect all of them.
async fn no_zombie_is_left(runner: &Runner) -> Duration {
    let stream = runner.exec_stream(ask(make_orphans(ORPHANS))).await;
    let done = stream.finish_within(Duration::from_secs(300)).await;
    let ended = Instant::now();
    assert_eq!(done.code(), 0, "{:?} {}", done.outcome, done.text());
    wait_until("no zombie is left", Duration::from_secs(1), async || {
        procfs::zombies(runner.pid()).is_empty().then_some(())
    })
    .await;
    ended.elapsed()
}

#[tokio::test]
async fn a_hundred_thousand_orphans_leave_no_zombie_to_an_init() {
    if !e2e::is_root() {
        return skipped("a_hundred_thousand_orphans_leave_no_zombie_to_an_init", "a pid namespace needs root");
    }
    let runner = Runner::start_as_pid1().await;
    let took = no_zombie_is_left(&runner).await;
    println!("{ORPHANS} orphans collected {took:?} after the last command's end");
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn a_hundred_thousand_orphans_leave_no_zombie_to_a_subreaper() {
    let runner = Runner::start().await;
    no_zombie_is_left(&runner).await;
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn commands_are_answered_while_orphans_are_collected() {
    let runner = Runner::start().await;
    runner.open("busy").await;
    let orphans = runner.exec_stream(ask(make_orphans(20_000)).in_shell("busy")).await;
    for code in 0..50 {
        assert_eq!(runner.sh(&format!("sh -c 'exit {code}'")).await.code(), code, "a status was stolen");
    }
    assert_eq!(orphans.finish_within(Duration::from_secs(120)).await.code(), 0);
}

#[tokio::test]
async fn an_orphan_of_a_detached_daemon_is_the_runners() {
    let runner = Runner::start().await;
    let daemon = runner.output_of("setsid --wait sh -c 'sleep 1000 & echo $!'").await;
    let pid: i32 = daemon.trim().parse().unwrap();
    wait_until("the runner is its parent", Duration::from_secs(5), async || {
        (procfs::process(pid)?.parent == runner.pid()).then_some(())
    })
    .await;
}

/// Processes that do not belong to the runner: one of the tests' user and, if the tests are root, one of the sandbox user.
struct Bystanders(Vec<std::process::Child>);

impl Bystanders {
    fn start() -> Self {
        let spawn = |argv: &[&str]| {
            Command::new(argv[0])
                .args(&argv[1..])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("the program can be started")
        };
        let mut all = vec![spawn(&["sleep", "1000"])];
        if e2e::is_root() {
            all.push(spawn(&["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "sleep", "1000"]));
        }
        Self(all)
    }

    fn assert_unharmed(&mut self) {
        assert!(
            self.0.iter_mut().all(|child| child.try_wait().expect("our own child").is_none()),
            "a bystander was hit"
        );
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[tokio::test]
async fn timeouts_signals_and_shutdown_hit_no_bystander() {
    let mut bystanders = Bystanders::start();
    let mut runner = Runner::start().await;
    for cmd in ["sleep 1000", "(trap '' INT TERM; sleep 1000)", "setsid sleep 1000 & exec sleep 1000"] {
        for request in [ask(cmd), ask(cmd).tty()] {
            assert!(runner.exec(request.timeout_ms(100)).await.outcome.timed_out, "{cmd}");
        }
    }
    for signal in ["INT", "TERM", "HUP", "KILL"] {
        // Between commands there is no foreground program, so the answer may be a refusal.
        let _: Result<Value, _> = runner.post("/v1/signal", &json!({ "signal": signal })).await;
        let mut stream = runner.exec_stream(ask("echo ready; tail -f /dev/null").tty()).await;
        stream.until_output("ready").await;
        runner.until_program("tail").await;
        runner.signal(signal).await;
        stream.finish().await;
    }
    runner.signal_runner(Signal::SIGTERM);
    runner.ended(Duration::from_secs(10)).await;
    bystanders.assert_unharmed();
}

#[tokio::test]
async fn a_signal_to_an_ended_run_does_not_reach_who_has_its_number_now() {
    let name = "a_signal_to_an_ended_run_does_not_reach_who_has_its_number_now";
    if !e2e::is_root() {
        return skipped(name, "a pid namespace needs root");
    }
    if !std::path::Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        return skipped(name, "this kernel cannot be told which pid comes next");
    }
    let runner = Runner::start_as_pid1().await;
    let exec_id = Some("ended".to_owned().try_into().unwrap());
    let done = runner.run(RunRequest { exec_id, ..run(["sh", "-c", "echo $$"]) }).await;
    let number: i32 = done.text().trim().parse().unwrap();
    // In the runner's own pid namespace, this makes the next process get that number.
    let script = format!("echo {} >/proc/sys/kernel/ns_last_pid; sleep 1000 & echo $!; wait", number - 1);
    let target = runner.pid().to_string();
    let mut heir = Command::new("nsenter")
        .args(["--target", &target, "--pid", "--mount", "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(heir.stdout.as_mut().unwrap()), &mut line).unwrap();
    assert_eq!(line.trim(), number.to_string(), "the number was given to another process first");
    for signal in ["KILL", "TERM"] {
        let _: Result<Value, _> = runner.post("/v1/signal", &json!({ "signal": signal, "exec_id": "ended" })).await;
    }
    assert_eq!(
        runner
            .run(run(["sh", "-c", &format!("kill -0 {number} 2>&1; ps -o comm= -p {number}")]))
            .await
            .text()
            .lines()
            .last(),
        Some("sleep")
    );
    heir.kill().unwrap();
    heir.wait().unwrap();
}
