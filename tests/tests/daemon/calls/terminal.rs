//! A person at a terminal.

use e2e::daemon::{Ability, Daemon, Terminal};
use e2e::{DEADLINE, wait_until};
use serde_json::json;

async fn shells(daemon: &Daemon, path: &str) -> Vec<String> {
    let list = daemon.get(path).await.ok();
    list.as_array().expect("a list").iter().map(|shell| shell["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn what_is_typed_is_echoed_run_and_answered() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("cd /tmp; export MINE=yes; alias hello='echo hello there'").await;
    let mut terminal = Terminal::open(&session, "cols=100&rows=30").await;
    terminal.until("$").await;
    terminal.keys("echo $((6*7))-$MINE-$PWD\r").await;
    terminal.until("42-yes-/tmp").await;
    terminal.keys("hello\r").await;
    terminal.until("hello there").await;
    terminal.keys("stty size\r").await;
    terminal.until("30 100").await;
    terminal.resize(77, 22).await;
    terminal.keys("stty size\r").await;
    terminal.until("22 77").await;
    terminal.keys("tty; ls -la /proc/self/fd/0\r").await;
    terminal.until("/dev/pts/").await;
    daemon.stop().await;
}

#[tokio::test]
async fn control_c_interrupts_and_line_editing_works() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut terminal = Terminal::open(&session, "").await;
    // The program itself says that it is ready: before that, bash may be about to give it the terminal, and would take the
    // key for itself.
    terminal.keys("bash -c 'echo all-${A-ready}; exec sleep 1000'; echo not-$((1+1))\r").await;
    terminal.until("all-ready").await;
    terminal.keys([3]).await;
    terminal.until(if Ability::KeysShown.is_there("^C") { "^C" } else { "\u{3}" }).await;
    // A person would wait for the prompt too: keys before it may be discarded with the interrupted input.
    terminal.until("$ ").await;
    terminal.keys("echo after-$?\r").await;
    terminal.until("after-130").await;
    // This types wrong letters and deletes them.
    terminal.keys("echo right\x7f\x7f\x7f\x7f\x7fl-e-f-t$((2+2))\r").await;
    terminal.until("l-e-f-t4").await;
    // This repeats the last line.
    terminal.keys("\x1b[A\r").await;
    terminal.until("l-e-f-t4").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_full_screen_program_draws() {
    if std::process::Command::new("less").arg("--version").output().is_err() {
        return e2e::skipped("a full-screen program", "less is not installed");
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("seq 1 1000 > numbers").await;
    let mut terminal = Terminal::open(&session, "cols=80&rows=10").await;
    terminal.keys("TERM=xterm less numbers\r").await;
    terminal.until("\n9\r").await;
    terminal.keys("G").await;
    terminal.until("1000").await;
    terminal.keys("q").await;
    terminal.keys("echo left-$((1+1))\r").await;
    terminal.until("left-2").await;
    daemon.stop().await;
}

#[tokio::test]
async fn two_terminals_are_two_and_go_with_their_sockets() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let (mut one, mut other) = (Terminal::open(&session, "").await, Terminal::open(&session, "").await);
    assert_ne!(one.shell, other.shell);
    one.keys("export WHO=one; echo is-$WHO\r").await;
    one.until("is-one").await;
    other.keys("echo is-${WHO-nobody}\r").await;
    other.until("is-nobody").await;
    assert_eq!(session.sh("echo ${WHO-nobody}").await, "nobody\n");
    drop((one, other));
    let path = session.path("/shells");
    wait_until("the terminals' shells are closed", DEADLINE, async || {
        (shells(&daemon, &path).await == ["main"]).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_named_terminal_is_there_again_after_a_lost_connection() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut terminal = Terminal::open(&session, "shell=desk").await;
    assert_eq!(terminal.shell, "desk");
    terminal.keys("cd /usr; export KEPT=yes; echo set-$KEPT\r").await;
    terminal.until("set-yes").await;
    drop(terminal);
    let mut again = Terminal::open(&session, "shell=desk").await;
    again.keys("echo still-$KEPT-$PWD\r").await;
    again.until("still-yes-/usr").await;
    // A second person sees the same screen.
    let mut beside = Terminal::open(&session, "shell=desk").await;
    again.keys("echo shared-$((40+2))\r").await;
    again.until("shared-42").await;
    beside.until("shared-42").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_large_paste_arrives_whole() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut terminal = Terminal::open(&session, "").await;
    terminal.until("$").await;
    terminal.keys("cat > pasted; echo end-$((1+1))\r").await;
    terminal.until("\r\n").await;
    let lines: String = (0..20_000).map(|n| format!("line {n} of a paste that is long\n")).collect();
    for piece in lines.as_bytes().chunks(60_000) {
        terminal.keys(piece).await;
    }
    terminal.keys([4]).await;
    terminal.until("end-2").await;
    assert!(session.get("pasted").await.text() == lines, "the paste is not what was sent");
    daemon.stop().await;
}

#[tokio::test]
async fn a_shell_that_exits_says_so_and_closes() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut terminal = Terminal::open(&session, "").await;
    terminal.keys("exit 3\r").await;
    let exit = terminal.exit().await;
    assert_eq!(exit["type"], "exit", "{exit}");
    let terminal = Terminal::open(&session, "").await;
    session.destroy().await;
    let exit = terminal.exit().await;
    assert!(exit["type"] == "exit" && exit["reason"].is_string(), "{exit}");
    daemon.stop().await;
}

#[tokio::test]
async fn output_without_end_can_be_interrupted() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut terminal = Terminal::open(&session, "").await;
    terminal.keys("yes flood\r").await;
    for _ in 0..1000 {
        terminal.until("flood\r\n").await;
    }
    terminal.keys([3]).await;
    terminal.keys("echo dry-$((1+1))\r").await;
    terminal.until("dry-2").await;
    assert_eq!(session.ask(json!({ "cmd": "echo beside" })).await.ok()["output"], "beside\n");
    daemon.stop().await;
}
