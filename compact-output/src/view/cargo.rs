//! cargo build, check, clippy and test: errors and failed tests first, warnings in one line each, crates and passed tests as counts.
//!
//! Kept of an error: everything but the bare `|` lines; of the fourth and
//! later errors with the same message, message and place. Kept of a warning: message, place and the name of the lint.

use super::{Reading, View};
use crate::out::Out;

#[derive(Default, PartialEq, Eq)]
enum Part {
    #[default]
    Build,
    Error,
    Warning,
    /// Between the first `failures:` and the list of names.
    Failures,
    Names,
}

#[derive(Default)]
pub(crate) struct Cargo {
    part: Part,
    warning: String,
    crates: u64,
    /// Failed tests that wait for their report.
    waiting: Vec<String>,
    reported: bool,
    /// Messages of errors without their names, and how often each came.
    messages: Vec<(String, u32)>,
    /// Errors like this one came before, so only its message and its place are shown.
    is_brief: bool,
}

const MAX_WAITING: usize = 1000;
/// Errors with the same message that are shown with their source.
const MAX_WHOLE_ERRORS: u32 = 3;
const MAX_MESSAGES: usize = 128;
const VERBS: &[&str] = &[
    "Compiling ",
    "Checking ",
    "Downloading ",
    "Downloaded ",
    "Updating ",
    "Locking ",
    "Adding ",
    "Fresh ",
    "Documenting ",
    "Blocking ",
    "Building ",
    "Dirty ",
    "Removing ",
];
const CHATTER: &[&str] = &[
    "For more information about this error",
    "For more information about an error",
    "Some errors have detailed explanations",
    "note: run with `RUST_BACKTRACE=1`",
    "note: Some details are omitted",
];

impl View for Cargo {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii_start();
        if CHATTER.iter().any(|start| text.starts_with(start)) {
            return Reading::Taken;
        }
        if matches!(self.part, Part::Failures | Part::Names) && !line.starts_with("test result: ") {
            return self.failure(line, out);
        }
        if is_header(line, "error") {
            self.end_warning(out);
            self.part = Part::Error;
            self.is_brief = self.count_message(line) > MAX_WHOLE_ERRORS;
            out.failure(line);
            return Reading::Taken;
        }
        if is_header(line, "warning") {
            self.end_warning(out);
            self.part = Part::Warning;
            crate::fold::clamp(line, 1000).as_ref().clone_into(&mut self.warning);
            return Reading::Taken;
        }
        match self.part {
            Part::Error | Part::Warning if text.is_empty() => {
                self.end_warning(out);
                self.part = Part::Build;
                return Reading::Taken;
            }
            Part::Error if is_part_of_diagnostic(line) => {
                if self.is_brief {
                    if text.starts_with("--> ") {
                        out.failure(line);
                    }
                } else if let Some((_, lint)) = text.split_once("index.html#") {
                    out.failure(&format!("  = lint: {lint}"));
                } else if text != "|" && text != "..." && !text.contains("implied by `-D warnings`") {
                    out.failure(line);
                }
                return Reading::Taken;
            }
            Part::Warning if is_part_of_diagnostic(line) => {
                self.add_to_warning(text);
                return Reading::Taken;
            }
            _ => self.end_warning(out),
        }
        self.status(line, text, out)
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.end_warning(out);
        if self.crates > 0 {
            out.summary(&format!("cargo: {} crates and steps", self.crates));
            self.crates = 0;
        }
        if !self.reported {
            self.waiting.drain(..).for_each(|line| out.failure(&line));
        }
    }

    fn held_bytes(&self) -> usize {
        self.warning.capacity()
            + self.messages.iter().map(|(message, _)| message.capacity() + 32).sum::<usize>()
            + self.waiting.iter().map(|line| line.capacity() + size_of::<String>()).sum::<usize>()
    }
}

impl Cargo {
    fn status(&mut self, line: &str, text: &str, out: &mut Out) -> Reading {
        if is_step(line, text) {
            self.crates += 1;
            return Reading::Taken;
        }
        if line.starts_with("     Running ") && text.ends_with(')') {
            out.line(text.rfind(" (").and_then(|at| text.get(..at)).unwrap_or(text));
            return Reading::Taken;
        }
        if text.is_empty() || (line.starts_with("running ") && text.contains(" test")) {
            return Reading::Taken;
        }
        if line.starts_with("test result: ") {
            out.summary(line.strip_suffix('.').unwrap_or(line));
            (self.part, self.reported) = (Part::Build, false);
            self.waiting.clear();
            return Reading::Taken;
        }
        if line == "failures:" {
            (self.part, self.reported) = (Part::Failures, true);
            return Reading::Taken;
        }
        if let Some((_, result)) = line.rsplit_once(" ... ").filter(|_| line.starts_with("test ")) {
            if result == "ok" || result.starts_with("ignored") || result.starts_with("bench:") {
                return Reading::Taken;
            }
            return self.wait(line, result == "FAILED");
        }
        if line.ends_with(" --- FAILED") {
            return self.wait(line, true);
        }
        let dots = line.split(' ').next().unwrap_or(line);
        if dots.len() > 1 && dots.bytes().all(|sign| b".iF".contains(&sign)) {
            return Reading::Taken;
        }
        Reading::Pass
    }

    fn wait(&mut self, line: &str, is_failed: bool) -> Reading {
        if !is_failed || self.waiting.len() == MAX_WAITING {
            return Reading::Pass;
        }
        self.waiting.push(crate::fold::clamp(line, 300).into_owned());
        Reading::Taken
    }

    fn failure(&mut self, line: &str, out: &mut Out) -> Reading {
        if line == "failures:" {
            self.part = Part::Names;
        } else if self.part == Part::Failures || !line.starts_with("    ") {
            out.failure(line);
        }
        Reading::Taken
    }

    /// How often the message came, this time included. What stands in backticks is a name.
    fn count_message(&mut self, line: &str) -> u32 {
        let words: String = line.split('`').step_by(2).collect();
        if let Some((_, count)) = self.messages.iter_mut().find(|(message, _)| *message == words) {
            *count += 1;
            return *count;
        }
        if self.messages.len() < MAX_MESSAGES && words.len() < 400 {
            self.messages.push((words, 1));
        }
        1
    }

    fn add_to_warning(&mut self, text: &str) {
        if self.warning.len() > 4000 {
            return;
        }
        if text.starts_with("--> ") && !self.warning.contains(" --> ") {
            self.warning.push(' ');
            self.warning.push_str(text);
        }
        let lint = text.split_once("`#[warn(").and_then(|(_, rest)| rest.split_once(')'));
        let linked = text.split_once("index.html#").map(|(_, name)| (name, ""));
        if let Some((name, _)) = lint.or(linked)
            && !self.warning.ends_with(']')
        {
            self.warning.push_str(&format!(" [{name}]"));
        }
    }

    fn end_warning(&mut self, out: &mut Out) {
        if !self.warning.is_empty() {
            out.exact(&std::mem::take(&mut self.warning));
        }
    }
}

/// `   Compiling serde v1.0.0`
fn is_step(line: &str, text: &str) -> bool {
    line.starts_with(' ') && VERBS.iter().any(|verb| text.starts_with(verb))
}

/// `error: …`, `error[E0425]: …`
fn is_header(line: &str, kind: &str) -> bool {
    line.strip_prefix(kind)
        .is_some_and(|rest| rest.starts_with(": ") || (rest.starts_with('[') && rest.contains("]: ")))
}

fn is_part_of_diagnostic(line: &str) -> bool {
    let text = line.trim_ascii_start();
    if line.starts_with("    ") && (text.starts_with("Finished ") || text.starts_with("Running "))
        || is_step(line, text)
    {
        return false;
    }
    line.starts_with(' ')
        || text.starts_with("...")
        || text.starts_with(|c: char| c.is_ascii_digit())
        || is_header(line, "help")
        || is_header(line, "note")
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn an_error_keeps_its_code_and_place() {
        let text = compact(
            "cargo build",
            "   Compiling a v0.1.0\nerror[E0425]: cannot find `x`\n --> src/lib.rs:1:5\n  |\n1 |     x;\n  |     ^ not found\n\nerror: could not compile `a`\n",
        );
        assert_eq!(
            text,
            "error[E0425]: cannot find `x`\n --> src/lib.rs:1:5\n1 |     x;\n  |     ^ not found\nerror: could not compile `a`\ncargo: 1 crates and steps\n"
        );
    }

    #[test]
    fn many_errors_with_one_message_keep_message_and_place() {
        let errors: String =
            (0..9).map(|n| format!("error: unused `x{n}`\n --> a.rs:{n}:1\n{n} | let x{n};\n\n")).collect();
        let text = compact("cargo clippy", &errors);
        assert!((0..9).all(|n| text.contains(&format!("error: unused `x{n}`\n --> a.rs:{n}:1\n"))), "{text}");
        assert!(text.contains("let x2;") && !text.contains("let x3;"), "{text}");
    }

    #[test]
    fn a_warning_becomes_one_line() {
        let text = compact(
            "cargo clippy",
            "warning: unused variable: `a`\n --> src/lib.rs:3:9\n  |\n3 | let a = 1;\n  |\n  = note: `#[warn(unused_variables)]` on by default\n\n",
        );
        assert_eq!(text, "warning: unused variable: `a` --> src/lib.rs:3:9 [unused_variables]\n");
    }

    #[test]
    fn failed_tests_come_first_and_passed_ones_are_counted() {
        let text = compact(
            "cargo test",
            "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nthread 'b' panicked at src/lib.rs:9:5:\nboom\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; finished in 0.0s\n",
        );
        assert_eq!(
            text,
            "---- b stdout ----\nthread 'b' panicked at src/lib.rs:9:5:\nboom\ntest result: FAILED. 1 passed; 1 failed; finished in 0.0s\n"
        );
    }

    #[test]
    fn a_run_that_is_killed_still_shows_what_failed() {
        assert_eq!(compact("cargo test", "running 9 tests\ntest b ... FAILED\n"), "test b ... FAILED\n");
    }
}
