//! Finds the matches of one file and shows them with the lines around them.
//!
//! Each byte is searched once, counted once for the line numbers, and shown at most once. With `multiline`, each match may read to the end of
//! the file, which is why the number of matches has a bound there.

use super::SearchOptions;
use crate::shown::{push_bytes, push_formatted};
use grep_matcher::{Match, Matcher};
use grep_regex::RegexMatcher;
use std::ops::Range;

/// A longer line is cut to the part around its match.
const MAX_LINE_BYTES: usize = 400;
/// What is shown before the match in a longer line.
const LEAD_BYTES: usize = 120;
/// Only the first lines of a longer match are shown.
const MAX_MATCH_LINES: usize = 40;

/// Whether a file has a match.
pub(super) fn is_match(matcher: &RegexMatcher, bytes: &[u8]) -> bool {
    find_at(matcher, bytes, 0).is_some()
}

/// How many lines match, or how many matches there are; and whether there are more than the limit.
pub(super) fn count(matcher: &RegexMatcher, bytes: &[u8], is_multiline: bool, limit: u64) -> (u64, bool) {
    let (mut count, mut at) = (0, 0);
    while let Some(found) = find_at(matcher, bytes, at) {
        if count == limit {
            return (count, true);
        }
        count += 1;
        at = after(bytes, &found, is_multiline);
    }
    (count, false)
}

/// The next match. Nothing matches behind the end of the last line.
fn find_at(matcher: &RegexMatcher, bytes: &[u8], at: usize) -> Option<Match> {
    if at >= bytes.len() {
        return None;
    }
    // The matcher has no errors.
    let found = matcher.find_at(bytes, at).ok().flatten()?;
    let is_behind_end = found.start() == bytes.len() && bytes.ends_with(b"\n");
    (!is_behind_end).then_some(found)
}

/// Where the search goes on: in the next line, so that each line matches once.
fn after(bytes: &[u8], found: &Match, is_multiline: bool) -> usize {
    let end = if is_multiline { last_byte(found) } else { found.start() };
    line_end(bytes, end)
}

/// The last byte of a match, or where an empty one stands.
fn last_byte(found: &Match) -> usize {
    found.end().saturating_sub(1).max(found.start())
}

/// Where the line of an offset ends, behind its line feed.
fn line_end(bytes: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |feed| at + feed + 1)
}

/// Where the line of an offset starts.
fn line_start(bytes: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |feed| feed + 1)
}

/// The matches of a file, one after the other.
pub(super) struct Scan<'a> {
    matcher: &'a RegexMatcher,
    bytes: &'a [u8],
    options: &'a SearchOptions,
    left: u64,
    /// Where the search goes on.
    at: usize,
    /// What is before this is shown, or is no context of anything.
    shown_to: usize,
    has_shown: bool,
    /// Lines after the last match that are still to be shown.
    after_left: usize,
    /// The line number at an offset, which only grows.
    line: (usize, u64),
    has_more: bool,
}

impl<'a> Scan<'a> {
    /// At most `limit` matches are shown.
    pub(super) fn new(matcher: &'a RegexMatcher, bytes: &'a [u8], options: &'a SearchOptions, limit: u64) -> Self {
        Self {
            matcher,
            bytes,
            options,
            left: limit,
            at: 0,
            shown_to: 0,
            has_shown: false,
            after_left: 0,
            line: (0, 1),
            has_more: false,
        }
    }

    /// The lines of the next match, with the context before it and what is left of the context of the last one.
    pub(super) fn next_match(&mut self) -> Option<String> {
        let found = find_at(self.matcher, self.bytes, self.at)?;
        if self.left == 0 {
            self.has_more = true;
            return None;
        }
        self.left -= 1;
        self.at = after(self.bytes, &found, self.options.multiline);
        let start = line_start(self.bytes, found.start());
        let mut out = String::new();
        self.push_after(&mut out, start);
        let mut context = start;
        for _ in 0..self.options.before {
            if context > self.shown_to {
                context = line_start(self.bytes, context - 1);
            }
        }
        if self.has_shown && context > self.shown_to && self.options.before + self.options.after > 0 {
            out.push_str("--\n");
        }
        self.push_lines(&mut out, context..start, '-', None);
        self.push_match(&mut out, start, &found);
        self.shown_to = self.at;
        self.has_shown = true;
        self.after_left = self.options.after;
        out.pop();
        Some(out)
    }

    /// What is left of the context of the last match.
    pub(super) fn rest(&mut self) -> Option<String> {
        let mut out = String::new();
        self.push_after(&mut out, self.bytes.len());
        out.pop()?;
        Some(out)
    }

    /// Whether there are more matches than were asked for.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    fn push_after(&mut self, out: &mut String, limit: usize) {
        let mut end = self.shown_to;
        while self.after_left > 0 && end < limit {
            end = line_end(self.bytes, end);
            self.after_left -= 1;
        }
        self.push_lines(out, self.shown_to..end, '-', None);
        self.shown_to = end;
    }

    fn push_match(&mut self, out: &mut String, start: usize, found: &Match) {
        let mut end = start;
        let mut lines = 0;
        while end < self.at && lines < MAX_MATCH_LINES {
            end = line_end(self.bytes, end);
            lines += 1;
        }
        self.push_lines(out, start..end, ':', Some(found.start()));
        if end < self.at {
            out.push_str("  [the match goes on]\n");
        }
    }

    /// Adds whole lines with their numbers. The part around `focus` is shown of the line that it is in.
    fn push_lines(&mut self, out: &mut String, range: Range<usize>, sign: char, focus: Option<usize>) {
        let (from, number) = self.line;
        let mut number =
            number + crate::output::count(memchr::memchr_iter(b'\n', &self.bytes[from..range.start]).count());
        let mut at = range.start;
        while at < range.end {
            let end = line_end(self.bytes, at);
            push_formatted(out, format_args!("  {number}{sign} "));
            push_part(out, &self.bytes[at..end], focus.map_or(0, |focus| focus.saturating_sub(at)));
            out.push('\n');
            number += u64::from(self.bytes[..end].ends_with(b"\n"));
            at = end;
        }
        self.line = (range.start.max(range.end), number);
    }
}

/// Adds a line, or the part of it around an offset.
fn push_part(out: &mut String, line: &[u8], focus: usize) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= MAX_LINE_BYTES {
        return push_bytes(out, line);
    }
    let focus = focus.min(line.len());
    let start = char_start(line, focus.saturating_sub(LEAD_BYTES).min(line.len() - MAX_LINE_BYTES));
    let end = char_start(line, start + MAX_LINE_BYTES);
    if start > 0 {
        push_formatted(out, format_args!("[{start} bytes] …"));
    }
    push_bytes(out, &line[start..end]);
    if end < line.len() {
        push_formatted(out, format_args!("… [{} bytes]", line.len() - end));
    }
}

/// The start of the character at an offset, if it is UTF-8.
fn char_start(line: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(at)).unwrap_or(at)
}
