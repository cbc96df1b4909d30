//! The host holds the runner back. Whatever it does when it goes on, no shell loses anything.

use std::time::{Duration, Instant};

use e2e::procfs::{self, status_text};
use e2e::{DEADLINE, Runner, ask, wait_until};
use nix::sys::signal::Signal;

/// Every runner decides by chance what it does first when it goes on. One of these would notice a wrong decision.
const RUNNERS: usize = 8;

/// The longest time between two looks of a runner at a silent command.
const LONGEST_CHECK: Duration = Duration::from_secs(2);

fn wake_ups(pid: i32) -> u64 {
    status_text(pid, "voluntary_ctxt_switches").parse().expect("a number")
}

/// A command ends while the runner stands still, and so does the time after which the runner looks at a silent command. The
/// shell has reported, and is not told to exit.
async fn a_late_runner_keeps_its_shell() {
    let mut runner = Runner::start().await;
    runner.sh("sleep 1000 & kept=1").await;
    let shell = runner.shell("main").await.pid.expect("a shell");
    let before = wake_ups(runner.pid());
    // A command substitution is in bash's own process group, so bash seems to be at its prompt.
    let stream = runner.exec_stream(ask("x=$(until [ -e go ]; do sleep 0.05; done)")).await;
    // It looked, and looked again.
    wait_until("the runner to look at the command", DEADLINE, async || {
        (wake_ups(runner.pid()) >= before + 6).then_some(())
    })
    .await;
    runner.signal_runner(Signal::SIGSTOP);
    let stopped = Instant::now();
    std::fs::write(runner.workspace().join("go"), "").expect("a file");
    wait_until("bash to be at its prompt, and the runner to be late", DEADLINE, async || {
        let is_idle = procfs::children(shell).len() == 1 && status_text(shell, "State").starts_with('S');
        (is_idle && stopped.elapsed() > LONGEST_CHECK).then_some(())
    })
    .await;
    runner.signal_runner(Signal::SIGCONT);
    assert_eq!(stream.finish().await.code(), 0);
    assert_eq!(runner.output_of("jobs -p | wc -l; echo $kept").await, "1\n1\n", "{}", runner.log_text());
    assert_eq!(runner.shell("main").await.pid, Some(shell), "{}", runner.log_text());
}

#[tokio::test]
async fn a_runner_that_goes_on_late_hears_the_shell_before_it_judges_it() {
    let stories = async {
        let stories = (0..RUNNERS).map(|_| tokio::task::spawn_local(a_late_runner_keeps_its_shell()));
        for story in stories.collect::<Vec<_>>() {
            story.await.expect("each shell is kept");
        }
    };
    tokio::task::LocalSet::new().run_until(stories).await;
}
