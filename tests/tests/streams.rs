//! Output and input of commands: two exact streams, one stream in true order, or a terminal.

use e2e::{Ask as _, Runner, ask, run, skipped};
use hyper::Method;
use shared_protocol::ExecId;
use shared_protocol::runner::{RunRequest, StdinView};

/// Whether a program is installed for the sandbox user. If not, it prints the skip.
async fn has(runner: &Runner, test: &str, program: &str) -> bool {
    let found = runner.sh(&format!("command -v {program}")).await.code() == 0;
    if !found {
        skipped(test, &format!("{program} is not installed"));
    }
    found
}

#[tokio::test]
async fn split_keeps_both_streams_exact() {
    let runner = Runner::start().await;
    let cmd = "for i in {1..2000}; do echo out $i; echo err $i >&2; done; printf no-newline";
    let done = runner.split(cmd).await;
    let lines = |word: &str| (1..=2000).map(|i| format!("{word} {i}\n")).collect::<String>();
    assert_eq!(done.stdout_text(), lines("out") + "no-newline");
    assert_eq!(done.stderr_text(), lines("err"));
    assert_eq!(done.outcome.output_bytes, done.received);
}

#[tokio::test]
async fn merged_keeps_the_true_order() {
    let runner = Runner::start().await;
    let done = runner.sh("for i in {1..2000}; do echo out $i; sh -c \"echo err $i >&2\"; done").await;
    assert_eq!(done.text(), (1..=2000).map(|i| format!("out {i}\nerr {i}\n")).collect::<String>());
}

#[tokio::test]
async fn outside_the_terminal_mode_nothing_is_a_terminal() {
    let runner = Runner::start().await;
    let look = "for fd in 0 1 2; do [ -t $fd ] && echo $fd is a terminal; done; true";
    assert_eq!(runner.output_of(look).await, "");
    assert_eq!(runner.split(look).await.stdout_text(), "");
    assert_eq!(runner.run(run(["sh", "-c", look])).await.stdout_text(), "");
}

#[tokio::test]
async fn the_terminal_mode_gives_a_terminal_on_all_three() {
    let runner = Runner::start().await;
    let done = runner.tty("for fd in 0 1 2; do [ -t $fd ] && echo -n $fd; done; tty").await;
    assert!(done.tty_text().starts_with("012/dev/pts/"), "{:?}", done.tty_text());
    let child = runner.tty("sh -c '[ -t 0 ] && [ -t 1 ] && [ -t 2 ]' && (: </dev/tty) && echo yes").await;
    assert_eq!(child.tty_text(), "yes\n");
}

#[tokio::test]
async fn the_size_of_the_terminal_is_what_was_asked_for() {
    let runner = Runner::start().await;
    runner.resize(None, 132, 43).await;
    assert_eq!(runner.tty("stty size").await.tty_text(), "43 132\n");
    let shell = runner.shell("main").await;
    assert_eq!((shell.cols, shell.rows), (132, 43));
    assert_eq!(runner.tty("tput cols 2>/dev/null || echo 132").await.tty_text(), "132\n");
}

#[tokio::test]
async fn a_resize_reaches_the_program_that_runs() {
    let runner = Runner::start().await;
    let cmd = "bash -c 'trap \"stty size; exit\" WINCH; echo ready; while :; do sleep 0.01; done'";
    let mut stream = runner.exec_stream(ask(cmd).tty()).await;
    stream.until_output("ready").await;
    runner.resize(None, 100, 30).await;
    assert!(stream.finish().await.tty_text().ends_with("30 100\n"));
}

#[tokio::test]
async fn interrupting_by_signal_ends_the_program_and_not_the_shell() {
    let runner = Runner::start().await;
    for request in
        [ask("echo ready; sleep 1000"), ask("echo ready; sleep 1000").split(), ask("echo ready; sleep 1000").tty()]
    {
        let mode = request.streams;
        let mut stream = runner.exec_stream(request).await;
        stream.until_output("ready").await;
        runner.until_program("sleep").await;
        runner.signal("INT").await;
        let done = stream.finish().await;
        assert_eq!((done.code(), done.outcome.shell_restarted), (130, false), "{mode:?}");
    }
}

#[tokio::test]
async fn an_interrupt_that_comes_while_bash_starts_a_program_ends_it() {
    // Bash itself loses some interrupts: a job that it has just forked is not in the foreground yet.
    const ROUNDS: usize = 1000;
    let runner = Runner::start().await;
    for round in 0..ROUNDS {
        // The interrupt comes at another moment each time.
        let cmd = format!("echo ready; for ((i = 0; i < {}; i++)); do :; done; sleep 1000", round % 100);
        let mut stream = runner.exec_stream(ask(cmd)).await;
        stream.until_output("ready").await;
        runner.signal("INT").await;
        let done = stream.finish().await;
        assert_eq!((done.code(), done.outcome.shell_restarted), (130, false), "round {round}");
    }
}

#[tokio::test]
async fn a_trap_hears_one_interrupt_once() {
    let runner = Runner::start().await;
    // The first command runs in bash itself, which then starts a program; the other one in a subshell with its own programs.
    let itself =
        "trap 'echo got' INT; echo ready; for ((i = 0; i < 100000; i++)); do :; done; sleep 0.2; echo end; trap - INT";
    let subshell = "(trap 'echo got' INT; echo ready; for i in 1 2 3 4; do sleep 0.05; done; echo end)";
    for cmd in [itself, subshell] {
        for _ in 0..10 {
            let mut stream = runner.exec_stream(ask(cmd)).await;
            stream.until_output("ready").await;
            runner.signal("INT").await;
            assert_eq!(stream.finish().await.text(), "ready\ngot\nend\n", "{cmd}");
        }
    }
}

#[tokio::test]
async fn typing_control_c_ends_the_program() {
    let runner = Runner::start().await;
    let mut stream = runner.exec_stream(ask("echo ready; sleep 1000").tty()).await;
    stream.until_output("ready").await;
    runner.until_program("sleep").await;
    runner.input("\u{3}").await;
    assert_eq!(stream.finish().await.code(), 130);
}

#[tokio::test]
async fn a_run_is_signalled_by_its_id() {
    let runner = Runner::start().await;
    let exec_id = Some("the-run".to_owned().try_into().unwrap());
    let request = RunRequest { exec_id, ..run(["sh", "-c", "echo ready; exec sleep 1000"]) };
    let mut stream = runner.run_stream(request).await.unwrap();
    stream.until_output("ready").await;
    runner.signal_exec("the-run", "SIGUSR1").await;
    assert_eq!(stream.finish().await.outcome.signal, Some(10));
}

#[tokio::test]
async fn a_program_handles_the_signal_itself_if_it_wants() {
    let runner = Runner::start().await;
    // There is no shell here: it would itself report the child that the same signal killed.
    let cmd = "perl -e '$| = 1; $SIG{USR2} = sub { print \"caught\\n\"; exit 3 }; print \"ready\\n\"; sleep 1 while 1'";
    let mut stream = runner.exec_stream(ask(cmd)).await;
    stream.until_output("ready").await;
    runner.signal("12").await;
    let done = stream.finish().await;
    assert_eq!((done.text().as_str(), done.code()), ("ready\ncaught\n", 3));
}

#[tokio::test]
async fn a_password_prompt_is_announced_and_answered_by_input() {
    let runner = Runner::start().await;
    let mut stream = runner.exec_stream(ask("read -rsp 'Password: ' pw; echo; echo \"it is $pw\"").tty()).await;
    stream.until_output("Password: ").await;
    if e2e::is_root() && stream.seen.awaiting_input == 0 {
        stream.until_awaiting_input().await;
    }
    runner.input("open sesame\n").await;
    let done = stream.finish().await;
    assert_eq!(done.tty_text(), "Password: \nit is open sesame\n", "the password is not echoed");
}

#[tokio::test]
async fn a_program_of_its_own_that_asks_gets_its_answer() {
    let runner = Runner::start().await;
    let cmd = "sh -c 'stty -echo; printf \"Name? \"; read name; stty echo; echo \"hello $name\"'";
    let mut stream = runner.exec_stream(ask(cmd).tty()).await;
    stream.until_output("Name? ").await;
    runner.input("ann\n").await;
    assert!(stream.finish().await.tty_text().ends_with("hello ann\n"));
}

#[tokio::test]
async fn what_the_request_types_is_read_at_the_terminal() {
    let runner = Runner::start().await;
    let done = runner.exec(ask("read a; read b; echo $b $a").tty().stdin("one\ntwo\n")).await;
    assert!(done.tty_text().ends_with("two one\n"), "{:?}", done.tty_text());
}

#[tokio::test]
async fn waiting_for_input_is_told_in_the_outcome_of_a_timeout() {
    if !e2e::is_root() {
        return skipped("waiting_for_input_is_told_in_the_outcome_of_a_timeout", "seeing it needs root");
    }
    let runner = Runner::start().await;
    let asks = runner.exec(ask("head -n1").tty().timeout_ms(1500)).await;
    assert!(asks.outcome.timed_out && asks.outcome.awaiting_input, "{:?}", asks.outcome);
    let sleeps = runner.exec(ask("sleep 1000").tty().timeout_ms(500)).await;
    assert!(sleeps.outcome.timed_out && !sleeps.outcome.awaiting_input, "{:?}", sleeps.outcome);
}

#[tokio::test]
async fn vim_starts_edits_and_quits() {
    let runner = Runner::start().await;
    if !has(&runner, "vim_starts_edits_and_quits", "vi").await {
        return;
    }
    let mut stream = runner.exec_stream(ask("vi -u NONE -n letter.txt").tty().env("TERM", "xterm")).await;
    stream.until_output("~").await;
    runner.input("idear reader\u{1b}:wq\r").await;
    assert_eq!(stream.finish().await.code(), 0);
    assert_eq!(runner.output_of("cat letter.txt; echo ok").await, "dear reader\nok\n");
}

#[tokio::test]
async fn less_shows_a_page_and_quits() {
    let runner = Runner::start().await;
    if !has(&runner, "less_shows_a_page_and_quits", "less").await {
        return;
    }
    runner.sh("seq 1000 >numbers").await;
    let mut stream = runner.exec_stream(ask("LESS= less numbers").tty().env("TERM", "xterm")).await;
    stream.until_output("numbers").await;
    runner.input("G").await;
    stream.until_output("1000").await;
    runner.input("q").await;
    assert_eq!(stream.finish().await.code(), 0);
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn what_a_program_writes_to_its_terminal_is_its_own_stream() {
    let runner = Runner::start().await;
    let done = runner.split("echo out; echo err >&2; echo aside >/dev/tty").await;
    assert_eq!((done.stdout_text().as_str(), done.stderr_text().as_str()), ("out\n", "err\n"));
    assert_eq!(done.tty_text(), "aside\n");
}

#[tokio::test]
async fn a_run_gets_its_input_environment_and_directory() {
    let runner = Runner::start().await;
    let request = RunRequest {
        stdin: Some("typed".to_owned()),
        env: [("COLOUR".to_owned(), "blue".to_owned())].into(),
        cwd: Some("/usr".to_owned()),
        ..run(["sh", "-c", "cat; echo; echo $COLOUR; pwd; echo err >&2"])
    };
    let done = runner.run(request).await;
    assert_eq!((done.stdout_text().as_str(), done.stderr_text().as_str()), ("typed\nblue\n/usr\n", "err\n"));
}

#[tokio::test]
async fn input_larger_than_a_pipe_reaches_the_command_whole() {
    let runner = Runner::start().await;
    let text = "0123456789abcdef".repeat(1 << 16);
    let done = runner.exec(ask("wc -c").stdin(&text)).await;
    assert_eq!(done.text().trim(), "1048576");
    let ignored = runner.exec(ask("true").stdin(&text)).await;
    assert_eq!(ignored.code(), 0, "a command need not read what it is given");
}

/// The most memory that the runner may need while a program reads input of any size.
const MAX_RSS_KIB: u64 = 32 << 10;

#[tokio::test]
async fn open_input_goes_through_the_runner_and_does_not_stay_there() {
    const BYTES: usize = 64 << 20;
    let runner = Runner::start().await;
    let exec_id = Some(ExecId::new("open").unwrap());
    let request = RunRequest { exec_id, stdin_open: true, ..run(["sh", "-c", "echo $$; wc -c"]) };
    let mut stream = runner.run_stream(request).await.unwrap();
    stream.until_output("\n").await;
    let pid = runner.exec_view("open").await.pid.expect("a run has a pid");
    let wrote = runner.raw(Method::POST, "/v1/execs/open/stdin?close=1", vec![b'x'; BYTES]).await;
    let wrote: StdinView = serde_json::from_slice(&wrote.body).unwrap_or_else(|e| panic!("{e}: {}", wrote.text()));
    assert_eq!(wrote, StdinView { bytes: BYTES as u64, closed: true });
    assert_eq!(stream.finish().await.stdout_text(), format!("{pid}\n{BYTES}\n"));
    assert!(runner.peak_rss_kib() < MAX_RSS_KIB, "{} KiB", runner.peak_rss_kib());
}
