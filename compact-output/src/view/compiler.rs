//! gcc, clang, tsc, javac, mypy and ruff: errors with their places first, warnings in one line each.
//!
//! Kept of an error: its line, and the source line below it. Notes are kept up to a number, because templates give hundreds. The same
//! message at several places in a row is written once, with all the places.

use super::{Reading, View};
use crate::out::Out;
use crate::place::Place;
use crate::words::{Weight, weight_of};

/// Notes that are shown for an error.
const MAX_NOTES: u32 = 6;
/// Places that are written on one line.
const MAX_PLACES: u32 = 8;

#[derive(Default)]
pub(crate) struct Compiler {
    /// An error came before, so its source line may follow.
    is_in_error: bool,
    is_in_warning: bool,
    source_lines: u32,
    notes: u32,
    message: String,
    places: String,
    place_count: u32,
    is_warning: bool,
    /// A line after a diagnostic: it is source if a marker stands under it.
    unsure: Option<String>,
}

impl View for Compiler {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        if let Some((place, kind)) =
            Place::parse(line).and_then(|place| kind_of(place.message).map(|kind| (place, kind)))
        {
            return self.diagnostic(line, &place, kind, out);
        }
        let text = line.trim_ascii_start();
        if is_result(line) {
            self.end(out);
            out.summary(line);
            return Reading::Taken;
        }
        if self.is_in_error && (text.starts_with("symbol: ") || text.starts_with("location: ")) {
            out.failure(line);
            return Reading::Taken;
        }
        if self.is_in_error || self.is_in_warning {
            if is_marker(text) {
                if let Some(source) = self.unsure.take().filter(|_| self.is_in_error) {
                    self.end_places(out);
                    self.message.clear();
                    out.failure(&format!("    {source}"));
                }
                return Reading::Taken;
            }
            self.release_unsure(out);
            // An indented line with such a word may be source or a failure of something else: it stays.
            let is_doubtful = !text.contains('|')
                && (self.is_in_warning || self.source_lines > 0)
                && weight_of(line) == Weight::Failure;
            if let Some(source) = source_of(line).filter(|_| !is_doubtful) {
                self.source_lines += 1;
                if self.is_in_error && self.source_lines == 1 && !source.is_empty() {
                    self.end_places(out);
                    self.message.clear();
                    out.failure(&format!("    {source}"));
                }
                return Reading::Taken;
            }
            if text.is_empty() {
                return Reading::Taken;
            }
        }
        if line.contains(": In function ")
            || line.contains(": In member function ")
            || line.contains(": At global scope")
            || line.starts_with("In file included from ")
            || (line.starts_with("                 from "))
        {
            return Reading::Taken;
        }
        if line.contains("undefined reference to") || line.starts_with("collect2: ") || line.contains("ld: ") {
            self.end(out);
            out.failure(line);
            return Reading::Taken;
        }
        if (self.is_in_error || self.is_in_warning) && self.source_lines == 0 && !text.is_empty() {
            self.source_lines = 1;
            self.unsure = Some(crate::fold::clamp(line, 2000).into_owned());
            return Reading::Taken;
        }
        self.end(out);
        Reading::Pass
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.end(out);
    }

    fn held_bytes(&self) -> usize {
        self.message.capacity() + self.places.capacity() + self.unsure.as_ref().map_or(0, String::capacity)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Error,
    Warning,
    Note,
}

impl Compiler {
    fn diagnostic(&mut self, line: &str, place: &Place<'_>, kind: Kind, out: &mut Out) -> Reading {
        self.release_unsure(out);
        self.source_lines = 0;
        if kind == Kind::Note {
            self.notes += 1;
            if self.is_in_error && self.notes <= MAX_NOTES {
                self.end_places(out);
                self.message.clear();
                out.failure(line);
            }
            return Reading::Taken;
        }
        self.end_notes(out);
        let is_warning = kind == Kind::Warning;
        (self.is_in_error, self.is_in_warning) = (!is_warning, is_warning);
        if place.message == self.message && self.is_warning == is_warning {
            self.places.push_str(if self.place_count == 0 { " " } else { ", " });
            self.places.push_str(&crate::fold::clamp(place.at, 400));
            self.places.push_str(if is_warning { ": warning" } else { ": error" });
            self.place_count += 1;
            if self.place_count == MAX_PLACES {
                self.end_places(out);
            }
            return Reading::Taken;
        }
        self.end_places(out);
        crate::fold::clamp(place.message, 4000).as_ref().clone_into(&mut self.message);
        self.is_warning = is_warning;
        if is_warning {
            out.exact(&crate::fold::clamp(line, 1000));
        } else {
            out.failure(line);
        }
        Reading::Taken
    }

    fn release_unsure(&mut self, out: &mut Out) {
        if let Some(line) = self.unsure.take() {
            out.line(&line);
        }
    }

    fn end(&mut self, out: &mut Out) {
        self.release_unsure(out);
        self.end_places(out);
        self.end_notes(out);
        self.message.clear();
        (self.is_in_error, self.is_in_warning) = (false, false);
    }

    fn end_places(&mut self, out: &mut Out) {
        if self.place_count > 0 {
            let line = format!("  the same:{}", std::mem::take(&mut self.places));
            if self.is_warning {
                out.exact(&line)
            } else {
                out.failure(&line)
            }
            self.place_count = 0;
        }
    }

    fn end_notes(&mut self, out: &mut Out) {
        let more = self.notes.saturating_sub(MAX_NOTES);
        if more > 0 && self.is_in_error {
            out.failure(&format!("  … {more} more notes"));
        }
        self.notes = 0;
    }
}

fn kind_of(message: &str) -> Option<Kind> {
    let starts = |words: &[&str]| words.iter().any(|word| message.starts_with(word));
    if starts(&["error: ", "error:", "fatal error: ", "error TS"]) || (is_code(message)) {
        return Some(Kind::Error);
    }
    if starts(&["warning: ", "warning TS"]) {
        return Some(Kind::Warning);
    }
    starts(&["note: ", "required from", "required by"]).then_some(Kind::Note)
}

/// `F821 Undefined name`, as ruff writes it.
fn is_code(message: &str) -> bool {
    let code = message.split(' ').next().unwrap_or_default();
    let digits = code.trim_start_matches(|c: char| c.is_ascii_uppercase());
    digits.len() >= 3
        && digits.len() < code.len()
        && code.len() <= 8
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// `^~~~`, `|   ^`, `+++ |+#include`
fn is_marker(text: &str) -> bool {
    let text = text.trim_start_matches(['|', ' ']);
    let rest = text.trim_start_matches(['^', '~', ' ', '|', '-', '+']);
    !text.is_empty() && rest.len() < text.len() && (rest.is_empty() || text.contains('^') || text.contains('~'))
}

/// The source in `   10 |     return x;`, `5   return x;` and, of clang and javac, an indented line.
fn source_of(line: &str) -> Option<&str> {
    let text = line.trim_ascii_start();
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if let Some(source) = rest.trim_ascii_start().strip_prefix('|') {
        return Some(source.trim_ascii());
    }
    let is_numbered = rest.len() < text.len() && rest.starts_with(' ');
    (is_numbered || line.starts_with([' ', '\t'])).then(|| rest.trim_ascii())
}

fn is_result(line: &str) -> bool {
    let counts = [" error generated.", " errors generated.", " warnings generated.", " warning generated."];
    counts.iter().any(|count| line.ends_with(count))
        || (line.starts_with("Found ") && line.contains(" error"))
        || (line.starts_with(|c: char| c.is_ascii_digit()) && (line.ends_with(" errors") || line.ends_with(" error")))
}

/// Whether only a compiler prints such a line.
pub(super) fn is_diagnostic(line: &str) -> bool {
    Place::parse(line).is_some_and(|place| matches!(kind_of(place.message), Some(Kind::Error | Kind::Warning)))
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn an_error_comes_before_warnings_and_keeps_its_source() {
        let text = compact(
            "gcc a.c",
            "a.c: In function ‘f’:\na.c:8:9: warning: unused [-W]\n    8 |     int x;\n      |         ^\na.c:10:5: error: no member\n   10 |     o->price;\n      |      ^~\n",
        );
        assert_eq!(text, "a.c:10:5: error: no member\n    o->price;\na.c:8:9: warning: unused [-W]\n");
    }

    #[test]
    fn one_message_at_many_places_is_written_once() {
        let text = compact("tsc", "a.ts(1,1): error TS1: no\na.ts(2,1): error TS1: no\nb.ts(3,1): error TS1: no\n");
        assert_eq!(text, "a.ts(1,1): error TS1: no\n  the same: a.ts(2,1): error, b.ts(3,1): error\n");
    }

    #[test]
    fn notes_have_a_bound() {
        let notes: String = (0..50).map(|n| format!("a.h:{n}:1: note: candidate {n}\n")).collect();
        let text = compact("g++ a.cc", &format!("a.cc:1:1: error: no match\n{notes}"));
        assert!(
            text.contains("candidate 5") && !text.contains("candidate 6") && text.contains("44 more notes"),
            "{text}"
        );
    }

    #[test]
    fn an_indented_failure_after_a_warning_stays() {
        assert!(
            compact("make", "a.c:1:1: warning: x\n    upload failed: disk full\n").contains("upload failed: disk full")
        );
    }

    #[test]
    fn errors_of_the_linker_are_failures() {
        let text = compact(
            "make",
            "all good\n/usr/bin/ld: a.o: undefined reference to `x'\na.c:1:1: error: y\ncollect2: error: ld returned 1 exit status\n",
        );
        assert!(text.contains("undefined reference to `x'") && text.contains("ld returned 1"), "{text}");
    }
}
