//! JSON that was written for people: its lines are joined. Everything that is not white space stays.
//!
//! It looks at the first and last signs of a line only, so a line of another text that looks like JSON (`}` in source code) must not start
//! it: the first line must be `{` or `[` alone, and the second one must be a key or another bracket.

use super::{Reading, View};
use crate::out::Out;

const LINE_BYTES: usize = 200;

#[derive(Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    /// A bracket came; the next line tells whether this is JSON.
    Opened,
    Json,
    Other,
}

#[derive(Default)]
pub(crate) struct Json {
    state: State,
    joined: String,
}

impl View for Json {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii();
        match self.state {
            State::Start if matches!(text, "{" | "[") && text == line => {
                self.state = State::Opened;
                text.clone_into(&mut self.joined);
                return Reading::Taken;
            }
            State::Opened if line.starts_with(' ') && (text.starts_with('"') || matches!(text, "{" | "[")) => {
                self.state = State::Json
            }
            State::Json => {}
            _ => {
                self.end(out);
                self.state = State::Other;
                return Reading::Pass;
            }
        }
        if !(line.starts_with([' ', '\t']) || matches!(text, "}" | "]")) {
            self.end(out);
            self.state = State::Other;
            return Reading::Pass;
        }
        let opens = matches!(text, "{" | "[");
        if self.joined.len() + text.len() > LINE_BYTES || (opens && !self.joined.ends_with(['[', '{', ':'])) {
            self.end(out);
        }
        if !self.joined.is_empty() && !self.joined.ends_with(['[', '{']) && !text.starts_with(['}', ']']) {
            self.joined.push(' ');
        }
        self.joined.push_str(&crate::fold::clamp(text, 2000));
        Reading::Taken
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.end(out);
    }

    fn held_bytes(&self) -> usize {
        self.joined.capacity()
    }
}

impl Json {
    fn end(&mut self, out: &mut Out) {
        if !self.joined.is_empty() {
            out.line(&std::mem::take(&mut self.joined));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn pretty_json_is_joined() {
        let text = compact(
            "cat a.json",
            "{\n  \"users\": [\n    {\n      \"id\": 1,\n      \"name\": \"a b\"\n    },\n    {\n      \"id\": 2\n    }\n  ]\n}\n",
        );
        assert_eq!(text, "{\"users\": [{\"id\": 1, \"name\": \"a b\"},\n{\"id\": 2}]}\n");
    }

    #[test]
    fn source_code_is_not_json() {
        let code = "{\nint x = 1;\n}\n";
        assert_eq!(compact("cat a.c", code), code);
    }
}
