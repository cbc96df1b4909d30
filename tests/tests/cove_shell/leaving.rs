//! Every way of leaving restores the terminal. `TerminalWindow::ended` checks that at the end of each story.

use std::time::Duration;

use e2e::daemon::TerminalWindow;
use e2e::{DEADLINE, procfs, wait_until};
use nix::sys::signal::Signal;

use super::Desk;

const CONTROL_D: &str = "\x04";
/// A program that uses the whole screen, with a hidden cursor, reported keys and mouse, and marked pastes.
const FULL_SCREEN: &str = "printf '\\e[?1049h\\e[?25l\\e[?1h\\e=\\e[?1000h\\e[?2004h%s' full''screen; sleep 1000\r";

/// A window in whose shell a full-screen program runs.
async fn full_screen(desk: &Desk) -> TerminalWindow {
    let window = desk.shell().await;
    assert!(window.is_changed(), "the terminal is not raw while the shell is shown");
    window.types(FULL_SCREEN);
    window
        .until("the program's screen", |screen| screen.alternate_screen() && screen.contents().contains("fullscreen"))
        .await;
    window
}

async fn shells(desk: &Desk) -> Vec<String> {
    let list = desk.daemon.get(&desk.session.path("/shells")).await.ok();
    list.as_array().expect("a list").iter().map(|shell| shell["name"].as_str().expect("a name").to_owned()).collect()
}

/// Waits until the shell that the person left is closed, with everything that ran in it.
async fn only_main_is_left(desk: &Desk) {
    wait_until("the terminal's shell is closed", DEADLINE, async || (shells(desk).await == ["main"]).then_some(()))
        .await;
}

#[tokio::test]
async fn exit_gives_its_code() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    assert!(window.is_changed(), "the terminal is not raw while the shell is shown");
    window.types("exit 5\r");
    assert_eq!(window.ended().await.code, 5);
    only_main_is_left(&desk).await;
    desk.daemon.stop().await;
}

#[tokio::test]
async fn control_d_leaves_with_the_last_status() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    window.types("(exit 3)\r");
    window.until("the next prompt", |screen| screen.cursor_position().0 > 0).await;
    window.prompts().await;
    window.types(CONTROL_D);
    assert_eq!(window.ended().await.code, 3);
    only_main_is_left(&desk).await;
    desk.daemon.stop().await;
}

#[tokio::test]
async fn tilde_and_dot_leave_a_full_screen_program() {
    let desk = Desk::new().await;
    let window = full_screen(&desk).await;
    window.types("\r~.");
    assert_eq!(window.ended().await.code, 0);
    only_main_is_left(&desk).await;
    assert_eq!(desk.session.sh("echo well").await, "well\n");
    desk.daemon.stop().await;
}

#[tokio::test]
async fn tilde_and_question_mark_help_and_two_tildes_are_one() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    window.types("~?");
    window.shows("~.  leave").await;
    window.types("~~\x7f echo ti''lde ~~. is text here\r");
    window.shows("tilde ~~. is text here").await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_signal_ends_the_command_and_not_the_session() {
    let desk = Desk::new().await;
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131)]
    {
        let window = full_screen(&desk).await;
        procfs::signal(window.pid(), signal);
        assert_eq!(window.ended().await.code, code, "{signal}");
        only_main_is_left(&desk).await;
    }
    assert_eq!(desk.session.sh("echo well").await, "well\n");
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_session_that_is_destroyed_underneath_is_told() {
    let desk = Desk::new().await;
    let window = full_screen(&desk).await;
    desk.session.destroy().await;
    let end = window.ended().await;
    assert_eq!(end.code, 1, "{}", end.screen);
    assert!(end.screen.contains("cove: ") && end.screen.contains("destroyed"), "{}", end.screen);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_underneath_is_told() {
    let mut desk = Desk::new().await;
    let window = full_screen(&desk).await;
    desk.daemon.kill().await;
    let end = window.ended().await;
    assert_eq!(end.code, 1, "{}", end.screen);
    assert!(end.screen.contains("cove: the connection to the daemon was lost"), "{}", end.screen);
    let daemon = desk.daemon.start_again();
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_that_was_stopped_goes_on_with_a_raw_terminal() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    let raw = window.modes();
    procfs::signal(window.pid(), Signal::SIGSTOP);
    wait_until("it has stopped", DEADLINE, async || {
        procfs::process(window.pid()).is_some_and(|process| process.state == 'T').then_some(())
    })
    .await;
    // The person's own shell does this when it takes the terminal back.
    window.put_modes_back();
    assert!(!window.is_changed());
    window.resize(100, 30);
    procfs::signal(window.pid(), Signal::SIGCONT);
    wait_until("the terminal is raw again", Duration::from_secs(10), async || (window.modes() == raw).then_some(()))
        .await;
    window.types("stty size\r");
    window.shows("30 100").await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}
