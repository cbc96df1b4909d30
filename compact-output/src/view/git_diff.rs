//! git diff and show: every changed line stays, headers become one line per file, long runs of removed lines become a count.

use super::{Reading, View};
use crate::out::Out;

/// Removed lines in a row that are shown.
const MAX_REMOVED: u64 = 12;

#[derive(Default)]
pub(crate) struct GitDiff {
    is_in_hunk: bool,
    is_in_header: bool,
    removed: u64,
}

impl View for GitDiff {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        if let Some(paths) = line.strip_prefix("diff --git a/") {
            self.end_run(out);
            let (old, new) = paths.split_once(" b/").unwrap_or((paths, paths));
            out.exact(&if old == new { format!("diff {new}") } else { format!("diff {old} -> {new}") });
            (self.is_in_header, self.is_in_hunk) = (true, false);
            return Reading::Taken;
        }
        if line.starts_with("@@ ") {
            self.end_run(out);
            (self.is_in_header, self.is_in_hunk) = (false, true);
            out.exact(line);
            return Reading::Taken;
        }
        if self.is_in_header {
            let is_noise = ["index ", "--- ", "+++ ", "similarity index", "rename from ", "rename to "]
                .iter()
                .any(|start| line.starts_with(start));
            if !is_noise {
                out.exact(line);
            }
            return Reading::Taken;
        }
        if !self.is_in_hunk || !(line.is_empty() || line.starts_with(['+', '-', ' ', '\\'])) {
            self.end_run(out);
            self.is_in_hunk = false;
            // A line of --stat: every path stays.
            if let Some((path, changes)) = line.split_once(" | ").filter(|_| line.starts_with(' ')) {
                out.exact(&format!(" {} | {}", path.trim_ascii(), changes.trim_ascii()));
                return Reading::Taken;
            }
            return Reading::Pass;
        }
        if line.starts_with('-') {
            self.removed += 1;
            if self.removed > MAX_REMOVED {
                return Reading::Taken;
            }
        } else {
            self.end_run(out);
        }
        out.exact(&crate::fold::clamp(line, 2000));
        Reading::Taken
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.end_run(out);
    }
}

impl GitDiff {
    fn end_run(&mut self, out: &mut Out) {
        let more = std::mem::take(&mut self.removed).saturating_sub(MAX_REMOVED);
        if more > 0 {
            out.exact(&format!("… {more} more removed lines"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn changes_stay_and_headers_become_one_line() {
        let text = compact(
            "git diff",
            "diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
        );
        assert_eq!(text, "diff x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }

    #[test]
    fn a_long_removal_is_counted() {
        let removed: String = (0..50).map(|n| format!("-line {n}\n")).collect();
        let text = compact("git diff", &format!("diff --git a/x b/x\n@@ -1,50 +1 @@\n{removed}+end\n"));
        assert!(text.contains("-line 11\n… 38 more removed lines\n+end"), "{text}");
    }
}
