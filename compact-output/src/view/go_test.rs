//! go test, build and vet: failed tests with what they logged, panics and compiler errors first; passed tests as a count.
//!
//! With `-v`, a test logs before its result is known. Those lines wait. If the test passes, they go, except those that tell of a
//! failure.

use super::{Reading, View};
use crate::out::Out;
use crate::words::{Weight, weight_of};

/// Lines that wait for the result of their test. More of them are passed on.
const MAX_WAITING: usize = 2000;

#[derive(Default)]
pub(crate) struct GoTest {
    /// The test that logs now.
    current: String,
    /// The test that failed, whose lines follow.
    is_in_failure: bool,
    is_in_panic: bool,
    waiting: Vec<(String, String)>,
    passed: u64,
    skipped: u64,
}

impl View for GoTest {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii_start();
        if self.is_in_panic && !line.starts_with("FAIL\t") {
            out.failure(line);
            return Reading::Taken;
        }
        if let Some((kind, name)) = text.strip_prefix("=== ").and_then(|rest| rest.split_once(' '))
            && matches!(kind, "RUN" | "PAUSE" | "CONT" | "NAME")
        {
            self.is_in_failure = false;
            crate::fold::clamp(name.trim_ascii(), 300).as_ref().clone_into(&mut self.current);
            return Reading::Taken;
        }
        if let Some((kind, rest)) = text.strip_prefix("--- ").and_then(|rest| rest.split_once(": ")) {
            return self.result(kind, rest, text, out);
        }
        if ["panic: ", "fatal error: ", "goroutine "].iter().any(|start| line.starts_with(start)) {
            self.is_in_panic = true;
            self.release(None, out);
            out.failure(line);
            return Reading::Taken;
        }
        self.package(line, out)
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.release(None, out);
        if self.passed + self.skipped > 0 {
            out.summary(&format!("go test: {} tests passed, {} skipped", self.passed, self.skipped));
        }
        (self.passed, self.skipped) = (0, 0);
    }

    fn held_bytes(&self) -> usize {
        let one = |(name, line): &(String, String)| name.capacity() + line.capacity() + 2 * size_of::<String>();
        self.waiting.iter().map(one).sum::<usize>() + self.current.capacity()
    }
}

impl GoTest {
    fn result(&mut self, kind: &str, rest: &str, text: &str, out: &mut Out) -> Reading {
        let name = rest.split(" (").next().unwrap_or(rest);
        self.is_in_failure = kind == "FAIL";
        match kind {
            "PASS" => {
                self.passed += 1;
                // A test that passes may still have logged a failure of something else.
                let logged: Vec<_> = self.waiting.extract_if(.., |(test, _)| test == name).collect();
                let failures = logged.iter().filter(|(_, line)| weight_of(line) == Weight::Failure);
                failures.for_each(|(_, line)| out.line(line));
            }
            "FAIL" => {
                out.failure(text);
                self.release(Some(name), out);
            }
            "SKIP" => {
                self.skipped += 1;
                let reasons: Vec<_> = self.waiting.extract_if(.., |(test, _)| test == name).collect();
                reasons.iter().for_each(|(_, line)| out.line(line));
            }
            _ => return Reading::Pass,
        }
        self.current.clear();
        Reading::Taken
    }

    /// Shows the lines of a test that failed, or of all of them.
    fn release(&mut self, name: Option<&str>, out: &mut Out) {
        for (_, line) in self.waiting.extract_if(.., |(test, _)| name.is_none_or(|name| test == name)) {
            out.failure(&line);
        }
    }

    fn package(&mut self, line: &str, out: &mut Out) -> Reading {
        if matches!(line, "PASS" | "FAIL") || (line.starts_with("?   \t") && line.ends_with("[no test files]")) {
            return Reading::Taken;
        }
        if line.starts_with("ok  \t") {
            (self.is_in_failure, self.is_in_panic) = (false, false);
            out.line(line);
            return Reading::Taken;
        }
        if line.starts_with("FAIL\t") || line.starts_with("# ") || is_error(line) {
            (self.is_in_failure, self.is_in_panic) = (false, false);
            out.failure(line);
            return Reading::Taken;
        }
        if self.is_in_failure && line.starts_with("    ") {
            out.failure(line);
            return Reading::Taken;
        }
        if !self.current.is_empty() && self.waiting.len() < MAX_WAITING {
            self.waiting.push((self.current.clone(), crate::fold::clamp(line, 1000).into_owned()));
            return Reading::Taken;
        }
        Reading::Pass
    }
}

/// `./broken.go:7:9: undefined: x`, also after `vet: `
fn is_error(line: &str) -> bool {
    let line = line.strip_prefix("vet: ").unwrap_or(line);
    crate::place::Place::parse(line).is_some_and(|place| place.path.ends_with(".go"))
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn a_failed_test_keeps_what_it_logged_before_its_result() {
        let text = compact(
            "go test -v",
            "=== RUN   TestA\n    a_test.go:8: got 3\n--- FAIL: TestA (0.00s)\n=== RUN   TestB\n    a_test.go:9: fine\n--- PASS: TestB (0.00s)\nFAIL\nFAIL\tx\t0.1s\n",
        );
        assert_eq!(
            text,
            "--- FAIL: TestA (0.00s)\n    a_test.go:8: got 3\nFAIL\tx\t0.1s\ngo test: 1 tests passed, 0 skipped\n"
        );
    }

    #[test]
    fn lines_of_a_test_without_a_result_are_kept() {
        assert!(compact("go test -v", "=== RUN   TestA\nwaiting for the lock\n").contains("waiting for the lock"));
    }

    #[test]
    fn compiler_errors_come_first() {
        let text = compact("go build ./...", "note\n# example.org/x\n./a.go:7:9: undefined: y\n");
        assert_eq!(text, "# example.org/x\n./a.go:7:9: undefined: y\nnote\n");
    }
}
