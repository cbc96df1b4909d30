//! What the fuzzers of a shell assert; see `fuzz/`. The tests replay their inputs.

use std::io::Write as _;

use super::control::{Parser, Record};
use super::saved_state::{SavedState, turn_shopts_off};

/// Any bytes from bash, cut anywhere, are survived, and a record behind them is found.
pub fn control(bytes: &[u8]) {
    let mut parser = Parser::default();
    for chunk in bytes.chunks(7) {
        parser.feed(chunk, |_| {});
    }
    // Two: the garbage may have left the parser waiting for the directory of a record of its own.
    let mut found = false;
    for _ in 0..2 {
        parser.feed(b"\0D nonce 3\0/dir\0", |record| {
            found |= record == Record::Done { nonce: "nonce".to_owned(), status: 3, cwd: b"/dir".to_vec() };
        });
    }
    assert!(found);
}

/// The script that restores a state holds what bash wrote, once, if that is complete, and nothing of it otherwise. Around it are
/// only lines that set options, each with a plain name. So no name of an option that a sandbox makes up becomes a command.
///
/// The first line of an input has the `set -o` options, the second the `shopt` options, the rest is what bash wrote.
pub fn state(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let mut options = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (shellopts, bashopts) = (options(), options());
    let text = parts.next().unwrap_or_default();
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(text).expect("our own file");
    let mut lines = text.rsplit(|byte| *byte == b'\n');
    let is_complete = lines.next() == Some(b"") && lines.next().is_some_and(|last| last.starts_with(b"umask "));

    let fresh = SavedState::with_options("braceexpand:monitor", "cmdhist:sourcepath");
    let mut state = SavedState::new(&shellopts, &bashopts, file).expect("a small state");
    for fresh in [Some(&fresh), None] {
        let whole = state.restore_file(fresh);
        let around = SavedState::with_options(&shellopts, &bashopts).restore_file(fresh);
        let around = String::from_utf8(around).expect("our own lines");
        assert!(around.lines().all(sets_an_option), "{around}");
        let head = around.split_inclusive('\n').take_while(|line| *line != "\n").map(str::len).sum();
        let (head, tail) = around.as_bytes().split_at(head);
        assert!(whole == [head, if is_complete { text } else { b"" }, tail].concat());
        state.load();
        assert!(state.restore_file(fresh) == whole);
    }
}

fn sets_an_option(line: &str) -> bool {
    let forms = [r"\builtin shopt -s ", r"\builtin shopt -u ", r"\set -o ", r"\set +o "];
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // One line is the same whatever the sandbox says: it turns off what a new shell has.
    let is_ours = line.is_empty() || line == turn_shopts_off();
    is_ours || forms.iter().any(|form| line.strip_prefix(form).is_some_and(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("control", control);
        corpus::replay("state", state);
    }
}
