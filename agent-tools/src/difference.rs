//! The `diff` tool: a unified diff of two texts.
//!
//! Promises: a diff that is not cut turns the old lines into the new ones when it is applied; a note says how many lines are cut. Line endings
//! are no part of the lines, and a difference in them is said in words. The work has a bound by the number of lines, not by a clock, so
//! the result is the same on every machine; two large texts with little in common are shown as one replacement.

mod blocks;

use crate::output::{Output, count, counted};
use crate::shown::{Escaped, push_formatted, push_line};
use crate::text::{LineEnding, Text};
use blocks::Block;
use std::borrow::Cow;
use std::ops::Range;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// Lines of a diff, if the caller does not say.
pub const DEFAULT_MAX_LINES: usize = 400;
/// Bytes of a diff, if the caller does not say.
pub const DEFAULT_MAX_BYTES: usize = 32 << 10;
/// A longer line is cut.
pub const MAX_LINE_CHARS: usize = 1000;
/// The two lines with the path and the notes have room beyond the bound: escaped names take up to ten bytes for a character.
pub const MAX_EXTRA_BYTES: usize = 2 * 10 * crate::shown::MAX_NAME_CHARS + 512;

/// How a diff is shown.
#[derive(Clone, Copy, Debug)]
pub struct DiffOptions<'a> {
    /// The path of both files, for the first two lines.
    pub path: &'a [u8],
    pub max_lines: usize,
    pub max_bytes: usize,
}

impl<'a> DiffOptions<'a> {
    /// The usual bounds.
    pub fn new(path: &'a [u8]) -> Self {
        Self { path, max_lines: DEFAULT_MAX_LINES, max_bytes: DEFAULT_MAX_BYTES }
    }
}

/// How two texts differ.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The unified diff, or a sentence if there is none to show.
    pub text: String,
    pub added_lines: u64,
    pub removed_lines: u64,
    /// Lines of the diff that are not shown.
    pub left_out_lines: u64,
}

impl Difference {
    fn sentence(text: String) -> Self {
        Self { text: text + "\n", added_lines: 0, removed_lines: 0, left_out_lines: 0 }
    }
}

/// Compares two files. Of files that are no text, only whether they differ is said.
pub fn of_files(old: &[u8], new: &[u8], options: &DiffOptions<'_>) -> Difference {
    match (Text::decode(old), Text::decode(new)) {
        _ if old == new => Difference::sentence(format!("{} is unchanged", Escaped(options.path))),
        (Ok(old), Ok(new)) => of_texts(&old, &new, options),
        _ => Difference::sentence(format!("binary files differ: {}", Escaped(options.path))),
    }
}

/// Compares two texts.
pub fn of_texts(old: &Text, new: &Text, options: &DiffOptions<'_>) -> Difference {
    let note = format_note(old, new);
    // Where one text has both endings, they are part of the lines, so that the lines that change can be seen.
    let is_mixed = [old, new].iter().any(|text| text.line_ending() == LineEnding::Mixed);
    let (old, new) = if is_mixed { (old.as_str().into(), new.as_str().into()) } else { (old.with_lf(), new.with_lf()) };
    if old == new {
        let path = Escaped(options.path);
        return Difference::sentence(match note {
            Some(note) => format!("{path}: the lines are equal; {note}"),
            None => format!("{path} is unchanged"),
        });
    }
    let mut difference = of_lines(&old, &new, options);
    if let Some(note) = note {
        push_formatted(&mut difference.text, format_args!("[{note}]\n"));
    }
    difference
}

/// What differs in the form of two texts.
fn format_note(old: &Text, new: &Text) -> Option<String> {
    let mut notes = Vec::new();
    let endings = [old.line_ending(), new.line_ending()];
    if endings[0] != endings[1] && !endings.contains(&LineEnding::None) {
        notes.push(format!("the line endings change from {} to {}", endings[0].name(), endings[1].name()));
    }
    if old.encoding() != new.encoding() {
        notes.push(format!("the encoding changes from {} to {}", old.encoding().name(), new.encoding().name()));
    }
    (!notes.is_empty()).then(|| notes.join(" and "))
}

fn of_lines(old: &str, new: &str, options: &DiffOptions<'_>) -> Difference {
    // With its newline, a last line differs from one that lacks it.
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let changes = changes(&blocks::common(&old, &new), old.len(), new.len());

    let mut out = Output::new(options.max_lines, options.max_bytes);
    let (mut total, mut shown) = (0, 0);
    for hunk in hunks(&changes) {
        let hunk = Hunk::new(hunk, old.len());
        total += count(hunk.line_count());
        let fitting =
            hunk.lines(&old, &new).take_while(|(sign, line)| !out.is_full() && out.line(&shown_line(*sign, line)));
        shown += count(fitting.count());
    }
    let path = Escaped(options.path);
    let mut text = format!("--- a/{path}\n+++ b/{path}\n{}", out.into_text());
    if total > shown {
        push_formatted(&mut text, format_args!("[{} of the diff left out]\n", counted(total - shown, "more line")));
    }
    Difference {
        text,
        removed_lines: count(changes.iter().map(|(old, _)| old.len()).sum()),
        added_lines: count(changes.iter().map(|(_, new)| new.len()).sum()),
        left_out_lines: total - shown,
    }
}

type Change = (Range<usize>, Range<usize>);

/// What is between the blocks that two texts have in common.
fn changes(blocks: &[Block], old_len: usize, new_len: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    let (mut old, mut new) = (0, 0);
    for block in blocks.iter().chain([&Block { old: old_len, new: new_len, len: 0 }]) {
        if old < block.old || new < block.new {
            changes.push((old..block.old, new..block.new));
        }
        (old, new) = (block.old + block.len, block.new + block.len);
    }
    changes
}

/// Groups changes whose context would overlap or touch.
fn hunks(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    changes.chunk_by(|before, after| after.0.start - before.0.end <= 2 * CONTEXT)
}

/// Changes that are shown together, with the lines around them.
struct Hunk<'a> {
    changes: &'a [Change],
    old: Range<usize>,
    new: Range<usize>,
}

impl<'a> Hunk<'a> {
    fn new(changes: &'a [Change], old_len: usize) -> Self {
        let nothing = (0..0, 0..0);
        let (first, last) = (changes.first().unwrap_or(&nothing), changes.last().unwrap_or(&nothing));
        let before = first.0.start.min(CONTEXT);
        let after = (old_len - last.0.end).min(CONTEXT);
        Self {
            changes,
            old: first.0.start - before..last.0.end + after,
            new: first.1.start - before..last.1.end + after,
        }
    }

    /// Its head, the old lines, and the lines that are new.
    fn line_count(&self) -> usize {
        1 + self.old.len() + self.changes.iter().map(|(_, new)| new.len()).sum::<usize>()
    }

    /// Its head, and its lines with their signs.
    fn lines<'l>(&'l self, old: &'l [&'l str], new: &'l [&'l str]) -> impl Iterator<Item = (char, Cow<'l, str>)> {
        let head = ('@', Cow::Owned(format!("@ -{} +{} @@", place(&self.old), place(&self.new))));
        let starts = [self.old.start].into_iter().chain(self.changes.iter().map(|(old, _)| old.end));
        let changes = starts.zip(self.changes).flat_map(|(start, (removed, added))| {
            let context = old[start..removed.start].iter().map(|line| (' ', *line));
            let removed = old[removed.clone()].iter().map(|line| ('-', *line));
            context.chain(removed).chain(new[added.clone()].iter().map(|line| ('+', *line)))
        });
        let end = self.changes.last().map_or(self.old.end, |(old, _)| old.end);
        let after = old[end..self.old.end].iter().map(|line| (' ', *line));
        [head].into_iter().chain(changes.chain(after).map(|(sign, line)| (sign, Cow::Borrowed(line))))
    }
}

/// A range of lines as in the head of a hunk. An empty range has the number of the line before it.
fn place(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        len => format!("{},{len}", range.start + 1),
    }
}

fn shown_line(sign: char, line: &str) -> String {
    let mut out = String::from(sign);
    let body = line.strip_suffix('\n').unwrap_or(line);
    let left_out = push_line(&mut out, body, MAX_LINE_CHARS);
    if left_out > 0 {
        push_formatted(&mut out, format_args!(" … [{} left out]", counted(count(left_out), "character")));
    }
    if sign != '@' && !line.ends_with('\n') {
        out.push_str("\n\\ No newline at end of file");
    }
    out
}

#[cfg(test)]
#[path = "difference_test.rs"]
mod tests;
