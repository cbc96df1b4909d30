//! Python's unittest: failures with their traceback first, passed tests as a count.

use super::{Reading, View};
use crate::out::Out;

#[derive(Default)]
pub(crate) struct Unittest {
    is_in_failure: bool,
    /// A rule of `=` stood before; the next line names a failure.
    is_after_rule: bool,
    reported: bool,
    /// Failures of the progress that wait for their report.
    waiting: Vec<String>,
    passed: u64,
}

const MAX_WAITING: usize = 1000;

impl View for Unittest {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let is_rule = |sign: char| line.len() == 70 && line.chars().all(|c| c == sign);
        if is_rule('=') {
            (self.is_after_rule, self.is_in_failure) = (true, true);
            return Reading::Taken;
        }
        if is_rule('-') {
            return Reading::Taken;
        }
        if std::mem::take(&mut self.is_after_rule) {
            self.reported = true;
            out.failure(line);
            return Reading::Taken;
        }
        if line.starts_with("Ran ") && line.contains(" test") {
            self.is_in_failure = false;
            out.summary(line);
            return Reading::Taken;
        }
        if !self.is_in_failure
            && (line == "OK" || line.starts_with("OK (") || line.starts_with("FAILED (") || line == "NO TESTS RAN")
        {
            out.summary(line);
            return Reading::Done;
        }
        if self.is_in_failure {
            out.failure(line);
            return Reading::Taken;
        }
        if is_result(line) {
            if line.ends_with("... FAIL") || line.ends_with("... ERROR") {
                if self.waiting.len() < MAX_WAITING {
                    self.waiting.push(crate::fold::clamp(line, 300).into_owned());
                } else {
                    return Reading::Pass;
                }
            } else if line.contains("... skipped") {
                return Reading::Pass;
            } else {
                self.passed += 1;
            }
            return Reading::Taken;
        }
        let is_dots = !line.is_empty() && line.bytes().all(|sign| b".FEsxu".contains(&sign));
        if is_dots && !line.contains(['F', 'E']) {
            return Reading::Taken;
        }
        if is_dots && self.waiting.len() < MAX_WAITING {
            self.waiting.push(line.to_owned());
            return Reading::Taken;
        }
        Reading::Pass
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        if self.passed > 0 {
            out.summary(&format!("{} tests ok", self.passed));
            self.passed = 0;
        }
        if !self.reported {
            self.waiting.drain(..).for_each(|line| out.failure(&line));
        }
        self.waiting.clear();
    }

    fn held_bytes(&self) -> usize {
        self.waiting.iter().map(|line| line.capacity() + size_of::<String>()).sum()
    }
}

/// `test_x (test_a.Case.test_x) ... ok`
pub(super) fn is_result(line: &str) -> bool {
    let Some((test, result)) = line.rsplit_once(" ... ") else { return false };
    test.ends_with(')')
        && (matches!(result, "ok" | "FAIL" | "ERROR" | "expected failure") || result.starts_with("skipped '"))
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn passed_tests_become_a_count_and_failures_come_first() {
        let (double, single) = ("=".repeat(70), "-".repeat(70));
        let text = format!(
            "test_a (t.T.test_a) ... ok\ntest_b (t.T.test_b) ... FAIL\n\n{double}\nFAIL: test_b (t.T.test_b)\n{single}\nTraceback (most recent call last):\n  File \"t.py\", line 9, in test_b\nAssertionError: 1 != 2\n\n{single}\nRan 2 tests in 0.001s\n\nFAILED (failures=1)\n"
        );
        let compacted = compact("python3 -m unittest -v", &text);
        assert!(compacted.starts_with("FAIL: test_b (t.T.test_b)\nTraceback"), "{compacted}");
        assert!(
            compacted.contains("AssertionError: 1 != 2\nRan 2 tests in 0.001s\nFAILED (failures=1)\n"),
            "{compacted}"
        );
        assert!(!compacted.contains("test_a"), "{compacted}");
    }

    #[test]
    fn a_run_that_is_killed_still_shows_what_failed() {
        assert_eq!(
            compact("python3 -m unittest -v", "test_b (t.T.test_b) ... ERROR\n"),
            "test_b (t.T.test_b) ... ERROR\n"
        );
    }
}
