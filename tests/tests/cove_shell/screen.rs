//! What a person sees and types: full-screen programs, the window's size, wide characters, large pastes.

use super::Desk;

const CONTROL_C: &str = "\x03";
const CONTROL_D: &str = "\x04";
const ESCAPE: &str = "\x1b";
const BACKSPACE: &str = "\x7f";

/// An editor without personal settings that shows when it is in insert mode.
const EDITOR: &str = "vi -N -u NONE -i NONE -n -c 'set showmode'";

#[tokio::test]
async fn vim_edits_a_file_and_gives_the_screen_back() {
    let desk = Desk::new().await;
    if !desk.has("vi", "vim in cove shell").await {
        return;
    }
    desk.session.put("letter", "dear reader\n").await;
    let window = desk.shell().await;
    window.types("echo shown before v''im\r");
    window.shows("shown before vim").await;
    window.types(format!("{EDITOR} letter\r"));
    window
        .until("vim shows the file", |screen| screen.alternate_screen() && screen.contents().contains("dear reader"))
        .await;
    window.until("the shell's screen is hidden", |screen| !screen.contents().contains("shown before")).await;
    window.types("owith a second line");
    window.until("insert mode", |screen| screen.contents().contains("INSERT")).await;
    window.shows("with a second line").await;
    window.types(ESCAPE);
    window.until("normal mode", |screen| !screen.contents().contains("INSERT")).await;
    window.types(":wq\r");
    window
        .until("the shell's screen is back", |screen| {
            !screen.alternate_screen() && screen.contents().contains("shown before vim")
        })
        .await;
    window.prompts().await;
    assert!(!window.text().contains("second line"), "vim's screen is left:\n{}", window.text());
    assert_eq!(desk.session.get("letter").await.text(), "dear reader\nwith a second line\n");
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn programs_see_the_size_of_the_window_and_each_change() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    window.types("stty size\r");
    window.shows("24 80").await;
    // A running program is told by a signal.
    window.types("bash -c 'trap exit INT; trap \"stty size; echo tol''d\" WINCH; echo list''ens; while :; do sleep 0.01; done'\r");
    window.shows("listens").await;
    window.resize(100, 30);
    window.shows("30 100\ntold").await;
    window.types(CONTROL_C);
    window.prompts().await;
    window.types("clear; echo $LINES-$COLUMNS; stty size\r");
    window.shows("30-100").await;
    window.shows("30 100").await;
    // A line as long as the window fills one row.
    window.types("clear; printf %0100d 7; echo; echo be''low\r");
    window.shows(&format!("{}7\nbelow", "0".repeat(99))).await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_full_screen_program_draws_itself_anew_when_the_window_grows() {
    let desk = Desk::new().await;
    if !desk.has("less", "less in cove shell").await {
        return;
    }
    desk.session.sh("seq 1 1000 > numbers").await;
    let window = desk.shell().await;
    window.types("less numbers\r");
    window.until("a page", |screen| screen.contents().lines().any(|line| line == "23")).await;
    assert!(!window.text().contains("\n24\n"));
    window.resize(80, 40);
    window.until("a longer page", |screen| screen.contents().lines().any(|line| line == "39")).await;
    window.types("q");
    window.prompts().await;
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn control_c_interrupts_the_program_and_neither_shell_nor_session() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    window.types("export KEPT=yes; bash -c 'echo beg''un; exec sleep 1000'\r");
    window.shows("begun").await;
    window.types(CONTROL_C);
    window.prompts().await;
    window.types("echo status $?, kept $KEPT\r");
    window.shows("status 130, kept yes").await;
    // At the prompt, the key only discards the line.
    window.types("echo never ru''n");
    window.shows("echo never").await;
    window.types(CONTROL_C);
    window.prompts().await;
    window.types("echo go''es on\r");
    window.shows("goes on").await;
    assert!(!window.text().contains("never run"));
    assert_eq!(desk.session.sh("echo well").await, "well\n");
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn wide_characters_are_typed_shown_and_deleted_whole() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    window.types("echo '日本語 🦀 größer é' > wide; cat wide\r");
    window
        .until("a line of wide characters", |screen| screen.contents().lines().any(|line| line == "日本語 🦀 größer é"))
        .await;
    assert_eq!(desk.session.get("wide").await.text(), "日本語 🦀 größer é\n");
    // A delete key removes a whole character with both of its columns.
    window.types(format!("echo 日本語{BACKSPACE}{BACKSPACE}本 > wide; clear; cat wide\r"));
    window.until("the characters that are left", |screen| screen.contents().lines().any(|line| line == "日本")).await;
    assert_eq!(desk.session.get("wide").await.text(), "日本\n");
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}

#[tokio::test]
async fn a_large_paste_arrives_whole() {
    let desk = Desk::new().await;
    let window = desk.shell().await;
    window.types("stty -echo; echo re''ady; cat > pasted; echo en''ded\r");
    window.shows("ready").await;
    // The tilde is not at the beginning of a line, where it would be an escape of `cove shell`.
    let lines: String = (0..10_000).map(|n| format!("line {n} of a paste: ~. größer 日本語\n")).collect();
    window.types(&lines);
    window.types(CONTROL_D);
    window.shows("ended").await;
    assert!(desk.session.get("pasted").await.text() == lines, "the paste is not what was typed");
    window.types("exit\r");
    assert_eq!(window.ended().await.code, 0);
    desk.daemon.stop().await;
}
