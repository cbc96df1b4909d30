//! jest, vitest and mocha: failed tests with message, difference and place first; passed tests as a count.
//!
//! Of a code frame the marked line stays. A report that is repeated ("Summary of all failing tests") is shown once.

use super::{Reading, View};
use crate::out::Out;

const MAX_REPORTED: usize = 2000;

#[derive(Default)]
pub(crate) struct Jest {
    is_in_failure: bool,
    /// The report was shown before.
    is_repeated: bool,
    reported: Vec<String>,
    /// The last line of a code frame, which stays if the marker stands under it.
    code: String,
    passed: u64,
}

impl View for Jest {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii_start();
        if let Some(summary) = summary_of(text) {
            self.is_in_failure = false;
            if summary {
                out.summary(text);
            }
            return Reading::Taken;
        }
        if line.starts_with("PASS ") || text.starts_with(['✓', '✔']) || text.starts_with("√ ") {
            self.is_in_failure = false;
            self.passed += u64::from(!line.starts_with("PASS "));
            return Reading::Taken;
        }
        if text.starts_with("○ ") || text.starts_with("↓ ") {
            return Reading::Taken;
        }
        if text.starts_with(['⎯', '⎨'])
            || text.starts_with("Summary of all failing tests")
            || line.starts_with(" RUN  v")
        {
            return Reading::Taken;
        }
        let is_test = text.starts_with("● ")
            || text.starts_with("FAIL ")
            || text.starts_with(['✕', '×'])
            || (text.starts_with("❯ ") && text.contains(" failed"));
        if is_test {
            self.is_in_failure = text.starts_with("● ") || line.starts_with(" FAIL ");
            self.is_repeated = self.reported.iter().any(|reported| reported == text);
            if !self.is_repeated {
                if self.reported.len() < MAX_REPORTED {
                    self.reported.push(crate::fold::clamp(text, 300).into_owned());
                }
                out.failure(text);
            }
            return Reading::Taken;
        }
        if !self.is_in_failure {
            return Reading::Pass;
        }
        if !self.is_repeated {
            self.failure(line, text, out);
        }
        Reading::Taken
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        if self.passed > 0 {
            out.summary(&format!("{} passed tests or files are not listed", self.passed));
            self.passed = 0;
        }
    }

    fn held_bytes(&self) -> usize {
        self.code.capacity() + self.reported.iter().map(|line| line.capacity() + size_of::<String>()).sum::<usize>()
    }
}

impl Jest {
    fn failure(&mut self, line: &str, text: &str, out: &mut Out) {
        if let Some(marked) = text.strip_prefix("> ").filter(|marked| marked.contains(" | ")) {
            out.failure(&format!("> {}", marked.trim_ascii()));
        } else if is_code(text) {
            crate::fold::clamp(line, 400).as_ref().clone_into(&mut self.code);
        } else if text.starts_with('|') {
            // The marker stands under the code of vitest; jest marks the line itself.
            let code = std::mem::take(&mut self.code);
            if text.contains('^') && code.contains("| ") && !code.contains(" | ") {
                out.failure(code.trim_ascii());
            }
        } else {
            out.failure(line);
        }
    }
}

/// `7 |     expect(…)` and `7|  expect(…)`
fn is_code(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len() && rest.trim_ascii_start().starts_with('|')
}

/// Whether a line of the summary stays; `None` if it is another line.
fn summary_of(text: &str) -> Option<bool> {
    let kept = ["Test Suites: ", "Tests: ", "Test Files  ", "Tests  ", "Errors  "];
    let gone = ["Snapshots: ", "Time: ", "Ran all test suites", "Start at  ", "Duration  "];
    if kept.iter().any(|start| text.starts_with(start)) {
        return Some(true);
    }
    gone.iter().any(|start| text.starts_with(start)).then_some(false)
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn a_failed_test_keeps_message_and_marked_line() {
        let text = compact(
            "jest",
            "PASS a.test.js\nFAIL b.test.js\n  ✓ adds (1 ms)\n  ● subtracts\n\n    Expected: 30\n    Received: 25\n\n      6 |   x\n    > 7 |   expect(y)\n        |   ^\n      8 | }\n\n      at Object.x (b.test.js:7:3)\n\nTests:       1 failed, 1 passed, 2 total\nTime: 1 s\n",
        );
        assert_eq!(
            text,
            "FAIL b.test.js\n● subtracts\n    Expected: 30\n    Received: 25\n> 7 |   expect(y)\n      at Object.x (b.test.js:7:3)\nTests:       1 failed, 1 passed, 2 total\n1 passed tests or files are not listed\n"
        );
    }

    #[test]
    fn a_failed_test_of_vitest_keeps_message_and_marked_line() {
        let text = compact(
            "npx vitest run",
            " FAIL  b.test.js > subtracts\nAssertionError: expected 25 to be 30\n ❯ b.test.js:8:32\n      7|  a\n      8|  expect(y)\n       |  ^\n      9| }\n      Tests  1 failed (1)\n",
        );
        assert_eq!(
            text,
            "FAIL  b.test.js > subtracts\nAssertionError: expected 25 to be 30\n ❯ b.test.js:8:32\n8|  expect(y)\nTests  1 failed (1)\n"
        );
    }

    #[test]
    fn what_a_test_prints_is_passed_on() {
        assert_eq!(
            compact("jest", "  console.log\n    discount code SPRING\n"),
            "  console.log\n    discount code SPRING\n"
        );
    }
}
