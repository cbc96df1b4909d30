//! A named shell keeps running when its window is left: a person who comes back finds its screen and its programs.

use e2e::daemon::TerminalWindow;
use nix::sys::signal::Signal;

use super::Desk;

/// A program that answers each line, so that a restarted program is noticed.
const ECHO_PROGRAM: &str =
    "n=0; echo answer''ing; while read -r word; do n=$((n+1)); echo \"answer $n: $word\"; done\r";

#[tokio::test]
async fn who_comes_back_finds_the_screen_and_the_program() {
    let desk = Desk::new().await;
    let window = desk.named_shell("desk").await;
    window.prompts().await;
    window.types("cd /usr; export KEPT=yes\r");
    window.types(ECHO_PROGRAM);
    window.shows("answering").await;
    window.types("one\r");
    window.shows("answer 1: one").await;
    window.types("~.");
    let end = window.ended().await;
    assert_eq!(end.code, 0, "{}", end.screen);
    let back = format!("cove shell {} --name desk", desk.session.id);
    assert!(end.screen.contains(&back), "it does not say how to come back:\n{}", end.screen);

    let window = desk.named_shell("desk").await;
    window.shows("answer 1: one").await;
    window.types("two\r");
    window.shows("answer 2: two").await;
    window.types("\x04");
    window.prompts().await;
    window.types("echo kept $KEPT in $PWD\r");
    window.shows("kept yes in /usr").await;
    window.types("exit 4\r");
    assert_eq!(window.ended().await.code, 4);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_window_of_another_size_makes_the_shell_as_large() {
    let desk = Desk::new().await;
    let window = desk.named_shell("desk").await;
    window.prompts().await;
    window.types("\r~.");
    window.ended().await;
    let window = desk.named_shell("desk").await;
    window.resize(120, 40);
    window.prompts().await;
    window.types("stty size\r");
    window.shows("40 120").await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_window_that_is_closed_leaves_the_named_shell_as_it_is() {
    let desk = Desk::new().await;
    let window = desk.named_shell("desk").await;
    window.prompts().await;
    window.types(ECHO_PROGRAM);
    window.shows("answering").await;
    e2e::procfs::signal(window.pid(), Signal::SIGKILL);
    // Only a kill leaves the terminal raw, because no process is left to restore it.
    drop(window);
    let window = desk.named_shell("desk").await;
    window.shows("answering").await;
    window.types("again\r");
    window.shows("answer 1: again").await;
    window.types("~.");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn two_windows_show_the_same_shell() {
    let desk = Desk::new().await;
    let (one, other) = (desk.named_shell("desk").await, desk.named_shell("desk").await);
    one.prompts().await;
    other.prompts().await;
    one.types("echo from o''ne\r");
    other.shows("from one").await;
    other.types("echo from the ot''her\r");
    one.shows("from the other").await;
    one.types("\r~.");
    assert_eq!(one.ended().await.code, 0);
    other.types("echo still he''re\r");
    other.shows("still here").await;
    other.types("exit 6\r");
    assert_eq!(other.ended().await.code, 6);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_shell_outlives_a_daemon_that_is_killed() {
    let mut desk = Desk::new().await;
    let window = desk.named_shell("desk").await;
    window.prompts().await;
    window.types(ECHO_PROGRAM);
    window.shows("answering").await;
    window.types("one\r");
    window.shows("answer 1: one").await;
    desk.daemon.kill().await;
    let end = window.ended().await;
    assert_eq!(end.code, 1, "{}", end.screen);
    assert!(end.screen.contains("the shell may still run"), "{}", end.screen);
    let back = format!("cove shell {} --name desk", desk.session.id);
    assert!(end.screen.contains(&back), "it does not say how to come back:\n{}", end.screen);
    desk.daemon = desk.daemon.start_again();
    let window = desk.named_shell("desk").await;
    window.shows("answer 1: one").await;
    window.types("two\r");
    window.shows("answer 2: two").await;
    window.types("~.");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

/// The first window answers nothing, so that what programs ask is only in the output. The second one is a real terminal: what it is
/// asked again, it answers again, into whatever reads the keys now.
#[tokio::test]
async fn who_comes_back_after_vim_has_an_empty_command_line() {
    let desk = Desk::new().await;
    let window = desk.named_shell("desk").await;
    window.prompts().await;
    window.types("printf 'asked\\033[6n\\033[c\\033[>c\\n'\r");
    window.shows("asked").await;
    window.prompts().await;
    if desk.has("vi", "vim before coming back to cove shell").await {
        window.types("vi -N -u NONE -i NONE -n\r");
        window.until("vim shows its screen", |screen| screen.alternate_screen()).await;
        window.types(":q\r");
        window.until("the shell's screen is back", |screen| !screen.alternate_screen()).await;
        window.prompts().await;
    }
    window.types("\r~.");
    window.ended().await;

    let window = TerminalWindow::open_answering(&desk.cove, &["shell", &desk.session.id, "--name", "desk"]);
    window.shows("asked").await;
    window.prompts().await;
    window.types("echo back and we''ll\r");
    window.shows("back and well").await;
    let text = window.text();
    assert!(!text.contains("0;0c") && !text.contains("1;2c"), "the terminal has answered the replay:\n{text}");
    // What is asked live is answered.
    window.types("printf '\\033[>c'; IFS= read -rsd c answer; printf '%q\\n' \"$answer\"\r");
    window.shows("84;0;0").await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}
