//! pytest: failures with their location and message first, passed tests as a count.
//!
//! Kept of a failure: its name, the line that failed, every `E` line, each location, captured output. Gone: the other source lines, which
//! are in the files. If the run ends before it reports a failure that the progress already showed, the progress line is the failure.

use super::{Reading, View};
use crate::out::Out;
use crate::words::{Weight, weight_of};

/// Progress lines with a failure that wait for its report.
const MAX_WAITING: usize = 2000;
/// Lines of captured output that are shown for a failure; after them only those that tell of a failure.
const MAX_CAPTURED: usize = 25;

#[derive(Default, PartialEq, Eq)]
enum Part {
    #[default]
    Progress,
    Failures,
    Summary,
    Other,
}

#[derive(Default)]
pub(crate) struct Pytest {
    part: Part,
    waiting: Vec<String>,
    /// The names of the failures that were reported.
    reported: Vec<String>,
    captured: Option<usize>,
    is_after_place: bool,
}

impl View for Pytest {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        if let Some(title) = banner(line, '=') {
            return self.start_part(title, out);
        }
        if is_result(line) {
            out.summary(line);
            self.part = Part::Other;
            return Reading::Done;
        }
        match self.part {
            Part::Progress => self.progress(line),
            Part::Failures => self.failure(line, out),
            Part::Summary => self.summary(line, out),
            Part::Other if line.starts_with("-- Docs: ") => Reading::Taken,
            Part::Other => Reading::Pass,
        }
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        if self.reported.is_empty() {
            self.waiting.drain(..).for_each(|line| out.failure(&line));
        }
        self.waiting.clear();
    }

    fn held_bytes(&self) -> usize {
        self.waiting.iter().chain(&self.reported).map(|line| line.capacity() + size_of::<String>()).sum()
    }
}

impl Pytest {
    fn start_part(&mut self, title: &str, out: &mut Out) -> Reading {
        if is_result(title) {
            out.summary(title);
            return Reading::Done;
        }
        self.part = match title {
            "FAILURES" | "ERRORS" => Part::Failures,
            "test session starts" => Part::Progress,
            "short test summary info" => Part::Summary,
            _ => {
                out.line(title);
                Part::Other
            }
        };
        Reading::Taken
    }

    fn progress(&mut self, line: &str) -> Reading {
        let is_header =
            ["platform ", "rootdir: ", "plugins: ", "cachedir: ", "configfile: ", "created: ", "testpaths: "];
        if line.is_empty() || is_header.iter().any(|start| line.starts_with(start)) {
            return Reading::Taken;
        }
        if (line.starts_with("collected ") || line.starts_with("collecting ")) && weight_of(line) == Weight::Plain {
            return Reading::Taken;
        }
        match progress_of(line) {
            Progress::Passed => Reading::Taken,
            Progress::Failed if self.waiting.len() < MAX_WAITING => {
                self.waiting.push(crate::fold::clamp(line, 300).into_owned());
                Reading::Taken
            }
            _ => Reading::Pass,
        }
    }

    fn failure(&mut self, line: &str, out: &mut Out) -> Reading {
        if let Some(name) = banner(line, '_') {
            if name.chars().all(|c| c == '_' || c == ' ') {
                return Reading::Taken;
            }
            self.captured = None;
            if self.reported.len() < MAX_WAITING {
                self.reported.push(crate::fold::clamp(name, 300).into_owned());
            }
            let kind = if name.starts_with("ERROR ") { "" } else { "FAILED " };
            out.failure(&format!("{kind}{name}"));
        } else if line.starts_with("---") && line.contains(" Captured ") {
            self.captured = Some(0);
            out.failure(line.trim_matches(['-', ' ']));
        } else if let Some(count) = &mut self.captured {
            *count += usize::from(!line.is_empty());
            if *count <= MAX_CAPTURED || weight_of(line) != Weight::Plain {
                out.failure(line);
            }
        } else if !line.starts_with("    ") || self.is_after_place {
            out.failure(line);
        }
        let text = line.trim_ascii();
        self.is_after_place = text.contains(": in ") || text.starts_with("File \"");
        Reading::Taken
    }

    fn summary(&mut self, line: &str, out: &mut Out) -> Reading {
        let Some((status, test)) = line.split_once(' ') else { return Reading::Pass };
        if !matches!(status, "FAILED" | "ERROR") {
            return Reading::Pass;
        }
        let id = test.split(" - ").next().unwrap_or(test);
        let name = id.rsplit("::").next().unwrap_or(id);
        if !self.reported.iter().any(|reported| reported.ends_with(name) || reported.rsplit('.').next() == Some(name)) {
            out.failure(line);
            self.reported.push(name.to_owned());
        }
        Reading::Taken
    }
}

/// The text of a line such as `==== FAILURES ====`.
fn banner(line: &str, sign: char) -> Option<&str> {
    let is_banner = line.starts_with([sign]) && line.ends_with([sign]) && line.len() > 8;
    let text = line.trim_matches(sign);
    (is_banner && text.starts_with(' ') && text.ends_with(' ')).then(|| text.trim_ascii())
}

/// `5 failed, 43 passed in 0.12s`
fn is_result(line: &str) -> bool {
    let counts = [" passed", " failed", " error", " skipped", " deselected", " xfailed", "no tests ran"];
    let is_count = line.starts_with(|c: char| c.is_ascii_digit()) || line.starts_with("no tests ran");
    is_count && counts.iter().any(|count| line.contains(count)) && line.contains(" in ") && line.ends_with(['s', ')'])
}

enum Progress {
    Passed,
    Failed,
    None,
}

fn progress_of(line: &str) -> Progress {
    let mut words = line.split_ascii_whitespace();
    if line.contains("::") || line.starts_with('[') {
        let status = words.find(|word| matches!(*word, "PASSED" | "FAILED" | "ERROR" | "SKIPPED" | "XFAIL" | "XPASS"));
        return match status {
            Some("FAILED" | "ERROR") => Progress::Failed,
            Some(_) => Progress::Passed,
            // xdist announces a test before it runs.
            None if line.contains(".py::") && !line.contains(' ') => Progress::Passed,
            None => Progress::None,
        };
    }
    let line = line
        .rfind('[')
        .filter(|_| line.ends_with(']'))
        .map_or(line, |at| line.get(..at).unwrap_or(line))
        .trim_ascii_end();
    let signs = line.rsplit(' ').next().unwrap_or(line);
    let has_path = line.len() == signs.len() || line.contains(".py ");
    if !has_path || signs.is_empty() || !signs.bytes().all(|sign| b".FEsxX".contains(&sign)) {
        return Progress::None;
    }
    if signs.contains(['F', 'E']) { Progress::Failed } else { Progress::Passed }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    const FAILED: &str = "=================== test session starts ===================\nplatform linux\ncollected 2 items\n\ntest_a.py .F   [100%]\n\n========= FAILURES =========\n_________ test_x _________\n\n    def test_x():\n        a = 1\n>       assert a == 2\nE       assert 1 == 2\n\ntest_a.py:9: AssertionError\n========= short test summary info =========\nFAILED test_a.py::test_x - assert 1 == 2\n===== 1 failed, 1 passed in 0.01s =====\n";

    #[test]
    fn a_failure_keeps_its_name_line_and_message() {
        let text = compact("pytest", FAILED);
        assert_eq!(
            text,
            "FAILED test_x\n>       assert a == 2\nE       assert 1 == 2\ntest_a.py:9: AssertionError\n1 failed, 1 passed in 0.01s\n"
        );
    }

    #[test]
    fn the_view_starts_without_a_hint() {
        assert_eq!(compact("./run.sh", FAILED), compact("pytest", FAILED));
    }

    #[test]
    fn a_run_that_is_killed_still_shows_what_failed() {
        let killed = "test_a.py::test_x FAILED [ 50%]\ntest_a.py::test_y PASSED [ 60%]\n";
        assert_eq!(compact("pytest -v", killed), "test_a.py::test_x FAILED [ 50%]\n");
    }

    #[test]
    fn a_failure_that_only_the_summary_names_is_kept() {
        let text = compact(
            "pytest --tb=no",
            "F.\n=== short test summary info ===\nFAILED test_a.py::test_x - boom\n1 failed, 1 passed in 0.01s\n",
        );
        assert_eq!(text, "FAILED test_a.py::test_x - boom\n1 failed, 1 passed in 0.01s\n");
    }

    #[test]
    fn output_of_tests_is_passed_on() {
        assert!(compact("pytest -s", "test_a.py connecting to db\n").contains("connecting to db"));
    }
}
