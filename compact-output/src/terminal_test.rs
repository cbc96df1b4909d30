//! Tests of what the screen shows at the end.

use proptest::prelude::*;

use super::*;

fn lines(chunks: &[&[u8]]) -> Vec<String> {
    let mut terminal = Terminal::new();
    let mut out = Vec::new();
    for chunk in chunks {
        terminal.push(chunk, &mut |line| out.push(line.to_owned()));
    }
    terminal.finish(&mut |line| out.push(line.to_owned()));
    out
}

#[test]
fn colors_links_and_titles_are_removed() {
    let text = b"\x1b]0;title\x07\x1b[1;31merror\x1b[0m: \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b(Bend\r\n";
    assert_eq!(lines(&[text]), ["error: link end"]);
}

#[test]
fn a_progress_bar_with_carriage_returns_shows_its_last_state() {
    assert_eq!(lines(&[b" 10%\r 50%\r100%\ndone\n"]), ["100%", "done"]);
}

#[test]
fn bars_that_move_the_cursor_up_show_their_last_state() {
    assert_eq!(lines(&[b"a 1%\nb 1%\n\x1b[2A\x1b[2Ka 9%\n\x1b[Kb 9%\nend"]), ["a 9%", "b 9%", "end"]);
}

#[test]
fn a_cleared_screen_is_not_lost() {
    assert_eq!(lines(&[b"FAIL x\n\x1b[2J\x1b[Hok\n\x1b[Hno\n"]), ["FAIL x", "", "no"]);
}

#[test]
fn a_title_that_never_ends_does_not_swallow_the_output() {
    let mut text = b"\x1b]0;".to_vec();
    text.extend(b"x".repeat(9000));
    text.extend(b" error here");
    assert!(lines(&[&text]).concat().ends_with("error here"));
    assert_eq!(lines(&[b"\x1b]0;open\nnext\n"]), ["", "next"]);
}

#[test]
fn nul_bytes_and_invalid_characters_do_no_harm() {
    assert_eq!(lines(&[b"a\0b\xffc\xe2\x82\n"]), ["ab\u{fffd}c\u{fffd}"]);
}

#[test]
fn saved_cursors_come_back() {
    assert_eq!(lines(&[b"one\x1b7 two\x1b8 2\n"]), ["one 2wo"]);
}

proptest! {
    #[test]
    fn the_screen_does_not_depend_on_the_chunks(pieces in prop::collection::vec(prop::sample::select(vec![
        "a", "é", "漢", "\n", "\r", "\x1b[A", "\x1b[2K", "\x1b[K", "\x1b[3D", "\x1b[2J", "\x1b[H", "\x08", "\x1b", "\x1b]x", "\x07", "long text ", "\x1b[5;9H", "\x1b[P", "\x1b7", "\x1b8",
    ]), 0..60), cut in 1usize..7) {
        let bytes = pieces.concat().into_bytes();
        let split: Vec<&[u8]> = bytes.chunks(cut).collect();
        prop_assert_eq!(lines(&[&bytes]), lines(&split));
    }

    #[test]
    fn any_bytes_in_any_chunks_give_the_same_lines(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 1usize..9) {
        let split: Vec<&[u8]> = bytes.chunks(cut).collect();
        prop_assert_eq!(lines(&[&bytes]), lines(&split));
    }
}
