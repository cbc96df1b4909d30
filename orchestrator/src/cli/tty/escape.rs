//! Finds the keys that are meant for `cove` and not for the shell: a tilde at the start of a line, as in ssh. Pure.

pub const HELP: &str = "\
Escapes, at the start of a line:\r
  ~.  leave\r
  ~?  show this help\r
  ~~  type a tilde\r
";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Send(Vec<u8>),
    Detach,
    Help,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    LineStart,
    /// After a tilde, which is held back until the next key shows what it means.
    Tilde,
    MidLine,
}

pub struct Escapes(Position);

impl Escapes {
    pub fn new() -> Self {
        Self(Position::LineStart)
    }

    /// What to do, in order. Nothing follows a `Detach`.
    pub fn feed(&mut self, typed: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut send = Vec::with_capacity(typed.len() + 1);
        for byte in typed {
            let was = std::mem::replace(&mut self.0, Position::MidLine);
            match (was, *byte) {
                (Position::LineStart, b'~') => {
                    self.0 = Position::Tilde;
                    continue;
                }
                (Position::Tilde, b'.') => {
                    flush(&mut send, &mut actions);
                    actions.push(Action::Detach);
                    return actions;
                }
                (Position::Tilde, b'?') => {
                    flush(&mut send, &mut actions);
                    actions.push(Action::Help);
                    self.0 = Position::LineStart;
                    continue;
                }
                // This tilde is sent, the one that was held back is not.
                (Position::Tilde, b'~') => {}
                (Position::Tilde, _) => send.push(b'~'),
                (Position::LineStart | Position::MidLine, _) => {}
            }
            send.push(*byte);
            if matches!(byte, b'\r' | b'\n') {
                self.0 = Position::LineStart;
            }
        }
        flush(&mut send, &mut actions);
        actions
    }
}

fn flush(send: &mut Vec<u8>, actions: &mut Vec<Action>) {
    if !send.is_empty() {
        actions.push(Action::Send(std::mem::take(send)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(typed: &[u8]) -> Vec<Action> {
        Escapes::new().feed(typed)
    }

    fn send(text: &str) -> Action {
        Action::Send(text.into())
    }

    #[test]
    fn a_tilde_means_something_only_at_the_beginning_of_a_line() {
        assert_eq!(feed(b"~."), [Action::Detach]);
        assert_eq!(feed(b"ls\r~."), [send("ls\r"), Action::Detach]);
        assert_eq!(feed(b"ls ~.\r"), [send("ls ~.\r")]);
        assert_eq!(feed(b"cat\n~?x"), [send("cat\n"), Action::Help, send("x")]);
    }

    #[test]
    fn a_tilde_that_is_no_escape_is_typed() {
        assert_eq!(feed(b"~/bin\r"), [send("~/bin\r")]);
        assert_eq!(feed(b"~~/bin"), [send("~/bin")]);
        assert_eq!(feed(b"~\r~."), [send("~\r"), Action::Detach]);
    }

    #[test]
    fn an_escape_typed_key_by_key_is_one() {
        let mut escapes = Escapes::new();
        assert_eq!(escapes.feed(b"\r"), [send("\r")]);
        assert_eq!(escapes.feed(b"~"), []);
        assert_eq!(escapes.feed(b"?"), [Action::Help]);
        assert_eq!(escapes.feed(b"~"), []);
        assert_eq!(escapes.feed(b"."), [Action::Detach]);
    }

    proptest! {
        #[test]
        fn how_the_keys_are_cut_into_reads_makes_no_difference(typed in "[a~.?\\r]{0,24}", cut in 0usize..24) {
            let whole = collected(&[typed.as_bytes()]);
            let (head, tail) = typed.as_bytes().split_at(cut.min(typed.len()));
            prop_assert_eq!(collected(&[head, tail]), whole);
        }

        #[test]
        fn text_without_a_tilde_is_passed_on_as_it_is(typed in proptest::collection::vec(any::<u8>(), 0..200)) {
            let typed: Vec<u8> = typed.into_iter().filter(|byte| *byte != b'~').collect();
            let expected = if typed.is_empty() { vec![] } else { vec![Action::Send(typed.clone())] };
            prop_assert_eq!(feed(&typed), expected);
        }
    }

    fn collected(reads: &[&[u8]]) -> (Vec<u8>, usize, bool) {
        let mut escapes = Escapes::new();
        let (mut sent, mut helps, mut detached) = (Vec::new(), 0, false);
        for action in reads.iter().flat_map(|read| escapes.feed(read)) {
            match action {
                _ if detached => {}
                Action::Send(bytes) => sent.extend(bytes),
                Action::Help => helps += 1,
                Action::Detach => detached = true,
            }
        }
        (sent, helps, detached)
    }
}
