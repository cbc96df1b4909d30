//! The second filter: runs of blank, equal and alike lines become one line and a count; long lines lose their middle; a timestamp is
//! shown once a minute.
//!
//! Promises: the first lines of a run and its last one stay; a line that tells of a failure goes only if an equal one (timestamp aside)
//! was shown before; every line that goes is counted. Two lines are alike if they differ in numbers only. Lines with a timestamp or a
//! level are a log: there, alike lines are counted also if others stand between them.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::section::Section;
use crate::stamp;
use crate::words::{Weight, weigh};

/// Alike lines of a log that are shown.
const LOG_LINES: u32 = 3;
/// Alike warnings that are shown.
const WARNING_LINES: u32 = 8;
/// Places in the table of lines that were seen. Lines that share a place forget each other, so more lines are shown, never fewer.
const SEEN_PLACES: usize = 2048;
const MAX_LINE_CHARS: usize = 1200;
const MAX_FAILURE_CHARS: usize = 4000;

pub(crate) struct Fold {
    /// Alike lines of a run that are shown.
    run_lines: u32,
    seen: Vec<(u64, u32)>,
    /// Hashes, without numbers, of lines that have no word of a failure: a log repeats them, and the search costs the most.
    plain: Vec<u64>,
    last_alike: u64,
    run: u32,
    skipped: u64,
    last_skipped: String,
    is_after_blank: bool,
    minute: String,
}

impl Fold {
    pub(crate) fn new(run_lines: u32) -> Self {
        Self {
            run_lines,
            seen: vec![(0, 0); SEEN_PLACES],
            plain: vec![0; SEEN_PLACES],
            last_alike: 0,
            run: 0,
            skipped: 0,
            last_skipped: String::new(),
            is_after_blank: true,
            minute: String::new(),
        }
    }

    pub(crate) fn line(&mut self, line: &str, out: &mut Section) {
        if line.trim_ascii().is_empty() {
            if self.skipped == 0 && !self.is_after_blank {
                self.is_after_blank = true;
                out.push("", false);
            }
            return;
        }
        let stamp = stamp::find(line);
        let body = stamp.map_or(line, |stamp| line.get(stamp.whole..).unwrap_or(line));
        let form = hash_without_numbers(body);
        let weight = self.weight(body, form);
        let alike = if weight == Weight::Failure { hash(body.as_bytes()) } else { form };
        let is_log = stamp.is_some() || has_level(body);
        if self.is_repeated(alike, is_log, weight) {
            self.skipped += 1;
            if !is_log {
                line.clone_into(&mut self.last_skipped);
            }
            return;
        }
        self.flush(out);
        self.is_after_blank = false;
        let is_important = weight != Weight::Plain;
        let minute = stamp.and_then(|stamp| line.get(..stamp.minute));
        let shown = match minute {
            Some(minute) if minute == self.minute && weight != Weight::Failure => body,
            _ => line,
        };
        if let Some(minute) = minute {
            minute.clone_into(&mut self.minute);
        }
        let limit = if weight == Weight::Failure { MAX_FAILURE_CHARS } else { MAX_LINE_CHARS };
        out.push(&clamp(shown, limit), is_important);
    }

    fn weight(&mut self, body: &str, form: u64) -> Weight {
        let Some(plain) = self.plain.get_mut(place_of(form)) else { return Weight::Plain };
        if *plain == form {
            return Weight::Plain;
        }
        let (weight, has_none) = weigh(body);
        if has_none {
            *plain = form;
        }
        weight
    }

    fn is_repeated(&mut self, alike: u64, is_log: bool, weight: Weight) -> bool {
        self.run = if alike == self.last_alike { self.run.saturating_add(1) } else { 0 };
        self.last_alike = alike;
        if !is_log && weight != Weight::Failure {
            return self.run >= self.run_lines.max(if weight == Weight::Warning { WARNING_LINES } else { 0 });
        }
        let Some(seen) = self.seen.get_mut(place_of(alike)) else { return false };
        *seen = if seen.0 == alike { (alike, seen.1.saturating_add(1)) } else { (alike, 0) };
        seen.1
            >= match weight {
                Weight::Failure => 1,
                Weight::Warning => WARNING_LINES,
                Weight::Plain => LOG_LINES,
            }
    }

    /// Shows the count of the lines that were left out. Another line may follow.
    pub(crate) fn flush(&mut self, out: &mut Section) {
        if self.skipped == 0 {
            return;
        }
        let last = std::mem::take(&mut self.last_skipped);
        let others = if last.is_empty() { self.skipped } else { self.skipped - 1 };
        if others > 0 {
            out.push(&format!("… {others} more like this"), false);
        }
        if !last.is_empty() {
            out.push(&clamp(&last, MAX_LINE_CHARS), false);
        }
        self.skipped = 0;
        self.is_after_blank = false;
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.seen.capacity() * size_of::<(u64, u32)>()
            + self.plain.capacity() * size_of::<u64>()
            + self.last_skipped.capacity()
            + self.minute.capacity()
    }
}

fn place_of(hash: u64) -> usize {
    usize::try_from(hash % SEEN_PLACES as u64).unwrap_or_default()
}

/// Takes characters from the middle of a line that is longer than `limit` characters.
pub(crate) fn clamp(line: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    if line.len() <= limit || line.chars().count() <= limit {
        return line.into();
    }
    let boundary = |nth: usize| line.char_indices().nth(nth).map_or(line.len(), |(at, _)| at);
    let (head, tail) = (boundary(limit * 2 / 3), boundary(line.chars().count() - limit / 4));
    let (start, end) = (line.get(..head).unwrap_or(line), line.get(tail..).unwrap_or_default());
    format!("{start} …[{} bytes left out]… {end}", tail - head).into()
}

fn has_level(line: &str) -> bool {
    let line = line.trim_start_matches(['[', '(', '<']);
    ["INFO", "DEBUG", "TRACE", "info", "debug", "trace", "{\"ts\"", "{\"time", "{\"level", "{\"@timestamp"].iter().any(
        |level| line.strip_prefix(level).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric())),
    )
}

fn hash(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes)
}

/// A hash that is the same for lines that differ in numbers only. Hexadecimal numbers count if they have a digit.
fn hash_without_numbers(line: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = line.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_digit() {
            add(b'0');
            while bytes.get(at).is_some_and(|byte| byte.is_ascii_hexdigit()) {
                at += 1;
            }
            continue;
        }
        // The width of a column follows the number in it.
        if byte != b' ' || at == 0 || bytes.get(at - 1) != Some(&b' ') {
            add(byte);
        }
        at += 1;
    }
    hash
}

#[cfg(test)]
#[path = "fold_test.rs"]
mod tests;
