//! Other commands at a terminal: `cove shell` with a session of its own, `cove run -t`, `cove exec -i`.

use e2e::daemon::{Cove, TerminalWindow};

use super::Desk;

const CONTROL_C: &str = "\x03";

#[tokio::test]
async fn a_shell_without_a_daemon_has_its_own_and_leaves_nothing() {
    let home = tempfile::Builder::new().prefix("cove-alone-").tempdir().expect("a temporary directory");
    let cove = Cove::at(home.path(), &home.path().join("data"));
    let window = TerminalWindow::open(&cove, &["shell", "-e", "GREETING=hello there"]);
    window.shows("cove: session ").await;
    window.prompts().await;
    window.types("echo $GREETING from $PWD\r");
    window.shows("hello there from /workspace").await;
    window.types("exit 7\r");
    let end = window.ended().await;
    assert_eq!(end.code, 7, "{}", end.screen);
    let left: Vec<_> = std::fs::read_dir(home.path()).expect("our own directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_session_of_a_shell_is_gone_when_it_is_left_unless_it_is_kept() {
    let desk = Desk::new().await;
    let sessions = async || desk.cove.run(&["ps", "-q"]).await.ok().lines().count();
    let window = TerminalWindow::open(&desk.cove, &["shell"]);
    window.prompts().await;
    assert_eq!(sessions().await, 2);
    window.types("\r~.");
    assert_eq!(window.ended().await.code, 0);
    assert_eq!(sessions().await, 1);
    let window = TerminalWindow::open(&desk.cove, &["shell", "--keep"]);
    window.prompts().await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    assert_eq!(sessions().await, 2);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn run_gives_a_program_the_terminal() {
    let desk = Desk::new().await;
    let script = "stty size; read -p 'name: ' name; echo \"hello $name\"; exit 6";
    let window = TerminalWindow::open(&desk.cove, &["run", "-t", "--", "bash", "-c", script]);
    window.shows("name:").await;
    assert!(window.is_changed(), "the terminal is not raw while the program has it");
    window.types("größer\r");
    window.shows("hello größer").await;
    let end = window.ended().await;
    assert_eq!(end.code, 6, "{}", end.screen);
    assert!(end.screen.contains("24 80"), "{}", end.screen);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_program_that_is_run_at_a_terminal_has_it_without_asking() {
    let desk = Desk::new().await;
    let script = "tty -s && read -p 'name: ' name; echo \"hello $name\"; exit 6";
    for options in [&["run"][..], &["run", "-i"], &["run", "-it"]] {
        let window = TerminalWindow::open(&desk.cove, &[options, &["--", "bash", "-c", script]].concat());
        window.shows("name:").await;
        window.types("you\r");
        window.shows("hello you").await;
        let end = window.ended().await;
        assert_eq!(end.code, 6, "{options:?}: {}", end.screen);
    }
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_run_in_the_background_does_not_take_the_terminal() {
    let desk = Desk::new().await;
    let cove = e2e::daemon::cove_binary().display().to_string();
    // With `set -m` the command has a process group of its own; taking the terminal would stop it.
    let script = format!("set -m; '{cove}' run -- sh -c 'tty -s || echo no terminal' & wait; echo over");
    let window = TerminalWindow::open_program(&desk.cove, "bash", &["-c", &script]);
    window.shows("over").await;
    let end = window.ended().await;
    assert!(end.screen.contains("no terminal"), "{}", end.screen);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn an_interactive_exec_has_the_terminal_and_leaves_the_shell() {
    let desk = Desk::new().await;
    let cmd = "cd /usr; read -p 'name: ' NAME; echo \"hello $NAME\"; (exit 9)";
    let window = TerminalWindow::open(&desk.cove, &["exec", "-i", &desk.session.id, cmd]);
    window.shows("name:").await;
    window.types("you\r");
    window.shows("hello you").await;
    let end = window.ended().await;
    assert_eq!(end.code, 9, "{}", end.screen);
    assert_eq!(desk.session.sh("echo $NAME in $PWD").await, "you in /usr\n");
    desk.daemon.stop().await;
}

#[tokio::test]
async fn control_c_at_an_exec_interrupts_its_command() {
    let desk = Desk::new().await;
    let window = TerminalWindow::open(&desk.cove, &["exec", &desk.session.id, "echo begun; sleep 1000"]);
    window.shows("begun").await;
    window.types(CONTROL_C);
    let end = window.ended().await;
    assert_eq!(end.code, 130, "{}", end.screen);
    assert_eq!(desk.session.sh("echo well").await, "well\n");
    desk.daemon.stop().await;
}

#[tokio::test]
async fn control_c_at_an_exec_that_waits_leaves_the_running_command_alone() {
    let desk = Desk::new().await;
    let busy = "echo begun; until [ -e go ]; do sleep 0.01; done; echo over";
    let mut running =
        desk.session.stream(serde_json::json!({ "cmd": busy, "streams": "tty", "exec_id": "busy" })).await;
    running.until("chunk").await;
    let window = TerminalWindow::open(&desk.cove, &["exec", "-i", &desk.session.id, "touch ran"]);
    window.shows("busy with exec busy").await;
    window.types("keys for nobody");
    window.types(CONTROL_C);
    let end = window.ended().await;
    assert_eq!(end.code, 130, "{}", end.screen);
    desk.session.put("go", "").await.ok();
    let (output, done) = running.finish().await;
    assert_eq!((output.as_slice(), &done.data["exit_code"]), (&b"over\r\n"[..], &serde_json::json!(0)));
    assert_eq!(desk.session.exec("test -e ran").await["exit_code"], 1);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn exec_it_and_run_it_work_as_in_docker() {
    let desk = Desk::new().await;
    desk.cove.run(&["create", "--name", "web"]).await.ok();
    let window = TerminalWindow::open(&desk.cove, &["exec", "-it", "web", "bash"]);
    window.prompts().await;
    window.types("echo in $((6 * 7)); exit 5\r");
    window.shows("in 42").await;
    assert_eq!(window.ended().await.code, 5);
    let window = TerminalWindow::open(&desk.cove, &["run", "-it", "--rm", "base"]);
    window.prompts().await;
    window.types("echo in $PWD; exit 6\r");
    window.shows("in /workspace").await;
    assert_eq!(window.ended().await.code, 6);
    assert_eq!(desk.cove.run(&["ps", "-q"]).await.ok().lines().count(), 2, "only the one of `run` has ended");
    desk.daemon.stop().await;
}
