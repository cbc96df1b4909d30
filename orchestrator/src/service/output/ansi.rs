//! Turns terminal output into plain text: removes escape sequences, and replaces the terminal's line ends by `\n`.
//!
//! A carriage return alone stays: this code does not work out what a progress bar overwrote. It interprets no sequence and
//! waits for nothing: an unfinished sequence hides at most the rest of its line.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte, as in a sequence that selects a character set.
    Intermediate,
    /// In a CSI sequence, up to its final byte.
    Control,
    /// In an OSC, DCS, SOS, PM or APC string, up to BEL or ST.
    String,
}

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

/// Removes escape sequences.
pub fn clean(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut state = State::Text;
    for &byte in bytes {
        state = match (state, byte) {
            (_, CAN | SUB) if state != State::Text => State::Text,
            (_, ESC) => State::Escape,
            // A real terminal would hide everything until the end of the string; a reader wants to see the rest.
            (State::String, b'\n') => {
                push(byte, &mut text);
                State::Text
            }
            (State::String, BEL) => State::Text,
            (State::String, _) => State::String,
            (State::Text, _) => {
                push(byte, &mut text);
                State::Text
            }
            // A terminal handles a control character inside a sequence as if it came before the sequence.
            (State::Escape | State::Intermediate | State::Control, 0..0x20) => {
                push(byte, &mut text);
                state
            }
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::String,
            (State::Escape | State::Intermediate, 0x20..=0x2f) => State::Intermediate,
            (State::Control, 0x20..=0x3f) => State::Control,
            (State::Escape | State::Intermediate | State::Control, 0x30..=0x7f) => State::Text,
            // No sequence contains such a byte, so it is text again.
            (State::Escape | State::Intermediate | State::Control, _) => {
                push(byte, &mut text);
                State::Text
            }
        };
    }
    text
}

fn push(byte: u8, text: &mut Vec<u8>) {
    match byte {
        b'\n' => {
            while text.last() == Some(&b'\r') {
                text.pop();
            }
            text.push(byte);
        }
        BEL => {}
        _ => text.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cleaned(bytes: &[u8]) -> String {
        String::from_utf8(clean(bytes)).unwrap()
    }

    #[test]
    fn sequences_go_and_text_stays() {
        assert_eq!(cleaned(b"\x1b[1;31mred\x1b[0m\r\n"), "red\n");
        assert_eq!(cleaned(b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b"), "ab");
        assert_eq!(cleaned(b"\x1b(Ba\x1b=b\x1b7c\x1bP1$r0m\x1b\\d"), "abcd");
        assert_eq!(cleaned(b"\x1b[?25l10%\r20%\r\x1b[K30%\r\n"), "10%\r20%\r30%\n");
        assert_eq!(cleaned("\x1b[1mgrün\x1b[0m ✓".as_bytes()), "grün ✓");
        assert_eq!(cleaned(b"a\r\r\nb"), "a\nb");
        assert_eq!(cleaned(b"bell\x07"), "bell");
    }

    #[test]
    fn a_sequence_without_an_end_swallows_no_more_than_its_line() {
        assert_eq!(cleaned(b"a\x1b]0;title\r\nnext"), "a\nnext");
        assert_eq!(cleaned(b"a\x1b[12"), "a");
        assert_eq!(cleaned(b"a\x1b[12\x18b"), "ab");
        assert_eq!(cleaned("\x1b[é".as_bytes()), "é");
    }

    proptest! {
        #[test]
        fn plain_text_is_left_alone(text in "[ -~äöü✓\t\n]*") {
            prop_assert_eq!(cleaned(text.as_bytes()), text);
        }

        #[test]
        fn nothing_is_added(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = clean(&bytes);
            prop_assert!(text.len() <= bytes.len());
            prop_assert!(!text.contains(&ESC));
        }
    }
}
