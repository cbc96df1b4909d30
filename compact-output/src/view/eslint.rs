//! eslint: every problem with its place; columns without their padding.

use super::{Reading, View};
use crate::out::Out;

#[derive(Default)]
pub(crate) struct Eslint {
    /// The file whose problems follow, if it is not written yet.
    file: String,
}

impl View for Eslint {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii();
        if text.starts_with('✖') {
            out.summary(text);
            return Reading::Taken;
        }
        if is_problem(line) {
            let file = std::mem::take(&mut self.file);
            out.failure(&file);
            out.failure(&text.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
            return Reading::Taken;
        }
        if line.starts_with(['/', '.']) && !text.contains(' ') {
            // A file without a problem after it is not a heading.
            if !self.file.is_empty() {
                out.line(&self.file);
            }
            crate::fold::clamp(text, 1000).as_ref().clone_into(&mut self.file);
            return Reading::Taken;
        }
        Reading::Pass
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        if !self.file.is_empty() {
            out.line(&std::mem::take(&mut self.file));
        }
    }

    fn held_bytes(&self) -> usize {
        self.file.capacity()
    }
}

/// `  2:1  error  Unexpected var  no-var`
fn is_problem(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let is_place = words
        .next()
        .and_then(|place| place.split_once(':'))
        .is_some_and(|(line, column)| line.parse::<u32>().is_ok() && column.parse::<u32>().is_ok());
    line.starts_with(' ') && is_place && matches!(words.next(), Some("error" | "warning"))
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn every_problem_stays_under_its_file() {
        let text = compact(
            "npx eslint .",
            "\n/app/a.js\n  2:1   error    Unexpected var  no-var\n  3:10  warning  x               y\n\n✖ 2 problems (1 error, 1 warning)\n",
        );
        assert_eq!(
            text,
            "/app/a.js\n2:1 error Unexpected var no-var\n3:10 warning x y\n✖ 2 problems (1 error, 1 warning)\n"
        );
    }
}
