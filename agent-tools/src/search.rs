//! The `grep` tool: lines that match a pattern, by file.
//!
//! Promises: the work for a file is linear in its size, and the pattern has a bound; the report has a bound and says when and where it was
//! cut, and how to narrow the search. Binary files are skipped and counted. Files in UTF-16 are searched as text; in other files that are not
//! UTF-8, the bytes that are none are shown as `<0xE9>`.

mod pattern;
mod scan;

use crate::output::{Output, counted};
use crate::shown::Escaped;
use crate::text::{NotText, Text};
use grep_regex::RegexMatcher;
pub use pattern::{MAX_PATTERN_BYTES, PatternError};
use std::borrow::Cow;

/// Matches of a report, if the caller does not say.
pub const DEFAULT_MAX_MATCHES: u64 = 200;
/// Matches of a file, if the caller does not say.
pub const DEFAULT_MAX_PER_FILE: u64 = 50;
/// More lines of context count as this many.
pub const MAX_CONTEXT: usize = 20;
/// Larger limits count as this one.
pub const MAX_MATCHES: u64 = 10_000;
/// With `multiline`, each match may read to the end of its file, so larger files are skipped,
pub const MAX_MULTILINE_BYTES: usize = 2 << 20;
/// and larger limits for a file count as this one.
pub const MAX_MULTILINE_PER_FILE: u64 = 100;
/// Bytes of a report.
pub const MAX_BYTES: usize = 64 << 10;

/// What a report shows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SearchMode {
    /// The lines that match.
    #[default]
    Lines,
    /// The paths of the files that match.
    FilesOnly,
    /// The paths, with the number of matches in each.
    Counts,
}

/// What to search for.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    pub pattern: String,
    /// The pattern is a text, not a regular expression.
    pub fixed_string: bool,
    pub ignore_case: bool,
    /// Ignores the case if the pattern has no upper-case letter.
    pub smart_case: bool,
    /// The match must not continue a word.
    pub whole_word: bool,
    /// A match may span several lines.
    pub multiline: bool,
    /// Lines to show before and after each match.
    pub before: usize,
    pub after: usize,
    pub mode: SearchMode,
    /// The search is full with this many matches; with `FilesOnly` and `Counts`, with this many files.
    pub max_matches: u64,
    /// More matches of a file are not shown.
    pub max_per_file: u64,
}

impl SearchOptions {
    /// A search for a regular expression, with the usual bounds.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            fixed_string: false,
            ignore_case: false,
            smart_case: false,
            whole_word: false,
            multiline: false,
            before: 0,
            after: 0,
            mode: SearchMode::Lines,
            max_matches: DEFAULT_MAX_MATCHES,
            max_per_file: DEFAULT_MAX_PER_FILE,
        }
    }
}

/// A search, which files are given to one by one.
#[derive(Debug)]
pub struct Search {
    options: SearchOptions,
    matcher: RegexMatcher,
    out: Output,
    matches: u64,
    files: u64,
    searched_files: u64,
    skipped_binary: u64,
    skipped_large: u64,
    /// Whether a file has more matches than are shown.
    has_more_in_files: bool,
}

/// What a search found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SearchReport {
    pub text: String,
    /// Lines that match; with `multiline`, matches. Not more than were looked for.
    pub matches: u64,
    /// Files with a match.
    pub files: u64,
    pub searched_files: u64,
    pub skipped_binary: u64,
    /// Files that are too large for `multiline`.
    pub skipped_large: u64,
    /// Whether there may be matches that are not in the text.
    pub is_cut: bool,
}

impl Search {
    pub fn new(mut options: SearchOptions) -> Result<Self, PatternError> {
        let matcher = pattern::compile(&options)?;
        options.before = options.before.min(MAX_CONTEXT);
        options.after = options.after.min(MAX_CONTEXT);
        let max_per_file = if options.multiline { MAX_MULTILINE_PER_FILE } else { MAX_MATCHES };
        options.max_matches = options.max_matches.clamp(1, MAX_MATCHES);
        options.max_per_file = options.max_per_file.clamp(1, max_per_file);
        Ok(Self {
            options,
            matcher,
            out: Output::new(usize::MAX, MAX_BYTES),
            matches: 0,
            files: 0,
            searched_files: 0,
            skipped_binary: 0,
            skipped_large: 0,
            has_more_in_files: false,
        })
    }

    /// Whether more files would not change the report, so that the caller can stop.
    pub fn is_full(&self) -> bool {
        let counted = if self.options.mode == SearchMode::Lines { self.matches } else { self.files };
        self.out.is_full() || counted >= self.options.max_matches
    }

    /// Searches a file, unless the search is full.
    pub fn file(&mut self, path: &[u8], bytes: &[u8]) {
        if self.is_full() {
            return;
        }
        let is_utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
        let decoded = if is_utf16 { Text::decode(bytes).map(Some) } else { Ok(None) };
        let bytes = match &decoded {
            Ok(Some(text)) => Cow::Borrowed(text.as_str().as_bytes()),
            Ok(None) if crate::kind::is_binary(bytes) => return self.skipped_binary += 1,
            Err(NotText::Binary | NotText::BrokenUtf16) => return self.skipped_binary += 1,
            Ok(None) => Cow::Borrowed(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)),
        };
        if self.options.multiline && bytes.len() > MAX_MULTILINE_BYTES {
            return self.skipped_large += 1;
        }
        self.searched_files += 1;
        match self.options.mode {
            SearchMode::Lines => self.add_lines(path, &bytes),
            SearchMode::FilesOnly => {
                if scan::is_match(&self.matcher, &bytes) {
                    self.add_file(&Escaped(path).to_string(), 1);
                }
            }
            SearchMode::Counts => {
                let limit = if self.options.multiline { self.options.max_per_file } else { u64::MAX };
                let (count, has_more) = scan::count(&self.matcher, &bytes, self.options.multiline, limit);
                self.has_more_in_files |= has_more;
                if count > 0 {
                    let least = if has_more { "at least " } else { "" };
                    self.add_file(&format!("{}: {least}{count}", Escaped(path)), count);
                }
            }
        }
    }

    fn add_file(&mut self, line: &str, matches: u64) {
        if self.out.line(line) {
            self.files += 1;
            self.matches += matches;
        }
    }

    fn add_lines(&mut self, path: &[u8], bytes: &[u8]) {
        let limit = self.options.max_per_file.min(self.options.max_matches - self.matches);
        let mut scan = scan::Scan::new(&self.matcher, bytes, &self.options, limit);
        let mut is_first = true;
        while let Some(lines) = scan.next_match() {
            if is_first {
                let gap = if self.out.is_empty() { "" } else { "\n" };
                if !self.out.line(&format!("{gap}{}", Escaped(path))) {
                    return;
                }
                self.files += 1;
                is_first = false;
            }
            self.matches += 1;
            if !lines.lines().all(|line| self.out.line(line)) {
                return;
            }
        }
        if let Some(rest) = scan.rest() {
            let _ = rest.lines().all(|line| self.out.line(line));
        }
        if scan.has_more() && !self.is_full() {
            self.has_more_in_files = true;
            self.out.line(&format!("  [more matches in this file; the first {limit} are shown]"));
        }
    }

    /// The report.
    pub fn finish(self) -> SearchReport {
        let is_full = self.is_full();
        let Self { mut out, matches, files, searched_files, skipped_binary, skipped_large, .. } = self;
        if matches == 0 && !is_full {
            let skipped = [(skipped_binary, "binary file"), (skipped_large, "large file")];
            let skipped = skipped.iter().filter(|(count, _)| *count > 0).map(|(count, noun)| counted(*count, noun));
            let skipped = skipped.collect::<Vec<_>>().join(" and ");
            let skipped = if skipped.is_empty() { skipped } else { format!(" ({skipped} skipped)") };
            out.note(&format!("no match in {}{skipped}", counted(searched_files, "file")));
        } else if is_full {
            out.note(&format!(
                "[stopped after {} in {}; there may be more. Narrow the pattern, the path or the file type]",
                counted(matches, "match"),
                counted(files, "file")
            ));
        }
        SearchReport {
            text: out.into_text(),
            matches,
            files,
            searched_files,
            skipped_binary,
            skipped_large,
            is_cut: is_full || skipped_large > 0 || self.has_more_in_files,
        }
    }
}

#[cfg(test)]
#[path = "search_test.rs"]
mod tests;
