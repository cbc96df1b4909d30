//! The `edit` tool: exact replacements in a file, all or none.
//!
//! Promises: each edit applies to the result of the one before it, and an error leaves nothing changed; encoding, byte order mark and line
//! endings stay as they are. A text to replace that is given with LF matches the lines of a CRLF file, and the replacement gets the file's
//! endings. Refuses to guess: a text that is missing or that occurs more than once is an error, which says where and how the file differs.

mod nearest;

use crate::difference::{self, DiffOptions};
use crate::output::count;
use crate::text::{LineEnding, NotText, Text, Unencodable};
use memchr::memmem;
use std::borrow::Cow;

/// A larger file is refused, before and after the edits.
pub const MAX_BYTES: usize = 10 << 20;
/// More edits in one call are refused.
pub const MAX_EDITS: usize = 100;
/// How many places of an ambiguous text are said.
const MAX_PLACES: usize = 5;

/// A replacement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Edit {
    /// The text to replace, exactly as it is in the file.
    pub old: String,
    pub new: String,
    /// Replaces every occurrence. Without it, there must be exactly one.
    pub replace_all: bool,
}

/// The file after all edits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Edited {
    pub bytes: Vec<u8>,
    /// How many occurrences were replaced, by all edits together.
    pub replacements: u64,
    /// The first line that differs from the original.
    pub first_line: u64,
    /// What changed, as a unified diff with a bound.
    pub diff: String,
}

/// Why nothing was changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EditError {
    #[error("there are no edits")]
    NoEdits,
    #[error("there are {count} edits, and at most {MAX_EDITS} are allowed in one call; split them")]
    TooManyEdits { count: usize },
    #[error("cannot edit: {0}")]
    NotText(#[from] NotText),
    #[error(
        "the file has {bytes} bytes, and only files up to {MAX_BYTES} bytes can be edited; use a program in the sandbox, such as sed"
    )]
    TooLarge { bytes: usize },
    #[error("the edits together leave the file as it is")]
    Unchanged,
    #[error(transparent)]
    Unencodable(#[from] Unencodable),
    #[error("{}{reason}", which(*number, *of))]
    Refused { number: usize, of: usize, reason: Refusal },
}

/// Why an edit was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("the text to replace is empty; give the lines before or after the place, and repeat them in the new text")]
    EmptyOld,
    #[error("the old and the new text are the same")]
    SameText,
    #[error(
        "the old and the new text differ only in line endings, and an edit keeps the line endings of the file; use a program such as sed or unix2dos"
    )]
    SameLines,
    #[error("the text to replace occurs {count} times, {}; add lines around it to say which one, or set replace_all", at_lines(lines, *count))]
    Ambiguous { count: u64, lines: Vec<u64> },
    #[error("the text to replace is not in the file. {explanation}")]
    NotFound { explanation: String },
    #[error("the result would have more than {MAX_BYTES} bytes")]
    ResultTooLarge,
}

fn which(number: usize, of: usize) -> String {
    if of == 1 { String::new() } else { format!("edit {number} of {of} (none was applied): ") }
}

fn at_lines(lines: &[u64], count: u64) -> String {
    let list = lines.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let more = if crate::output::count(lines.len()) < count { " and more" } else { "" };
    format!("at lines {list}{more}")
}

/// Applies edits in order, all or none. The path of `options` is shown in the diff.
pub fn apply(original: &[u8], edits: &[Edit], options: &DiffOptions<'_>) -> Result<Edited, EditError> {
    if edits.is_empty() {
        return Err(EditError::NoEdits);
    }
    if edits.len() > MAX_EDITS {
        return Err(EditError::TooManyEdits { count: edits.len() });
    }
    if original.len() > MAX_BYTES {
        return Err(EditError::TooLarge { bytes: original.len() });
    }
    let text = Text::decode(original)?;
    // Where all lines end alike, the edits work on lines with LF, and the endings are put back at the end.
    let ending = text.line_ending();
    let mut current = if ending == LineEnding::Mixed { Cow::Borrowed(text.as_str()) } else { text.with_lf() };
    let mut replacements = 0;
    for (at, edit) in edits.iter().enumerate() {
        let refused = |reason| EditError::Refused { number: at + 1, of: edits.len(), reason };
        let (next, count) = replaced(&current, edit, ending).map_err(refused)?;
        if next.len() > MAX_BYTES {
            return Err(refused(Refusal::ResultTooLarge));
        }
        replacements += count;
        current = Cow::Owned(next);
    }
    let result = match ending {
        LineEnding::Crlf => current.replace('\n', "\r\n"),
        LineEnding::Cr => current.replace('\n', "\r"),
        LineEnding::None | LineEnding::Lf | LineEnding::Mixed => current.into_owned(),
    };
    if result == text.as_str() {
        return Err(EditError::Unchanged);
    }
    let bytes = text.encode(&result)?;
    if bytes.len() > MAX_BYTES {
        return Err(EditError::Refused { number: edits.len(), of: edits.len(), reason: Refusal::ResultTooLarge });
    }
    let first_line = 1 + count(common_newlines(text.as_str(), &result, ending));
    let diff = difference::of_files(original, &bytes, options).text;
    Ok(Edited { bytes, replacements, first_line, diff })
}

/// The text after one edit, and the number of replacements.
fn replaced(text: &str, edit: &Edit, ending: LineEnding) -> Result<(String, u64), Refusal> {
    if edit.old.is_empty() {
        return Err(Refusal::EmptyOld);
    }
    if edit.old == edit.new {
        return Err(Refusal::SameText);
    }
    if ending == LineEnding::Mixed {
        return replaced_in_mixed(text, edit);
    }
    // Such a text has no CRLF, so one in the edit stands for the end of a line. A text of one line says nothing about endings.
    let old = edit.old.replace("\r\n", "\n");
    let new = if ending == LineEnding::None { edit.new.clone() } else { edit.new.replace("\r\n", "\n") };
    if old == new {
        return Err(Refusal::SameLines);
    }
    replaced_exactly(text, &old, &new, edit.replace_all)
}

/// In a file with both endings, a text of several lines matches with its own endings or, if they are LF, with CRLF instead.
fn replaced_in_mixed(text: &str, edit: &Edit) -> Result<(String, u64), Refusal> {
    let has_cr = edit.old.contains('\r');
    let with_crlf = edit.old.replace('\n', "\r\n");
    if !has_cr && edit.old.contains('\n') && memmem::find(text.as_bytes(), with_crlf.as_bytes()).is_some() {
        let new = edit.new.replace("\r\n", "\n").replace('\n', "\r\n");
        if memmem::find(text.as_bytes(), edit.old.as_bytes()).is_none() {
            return replaced_exactly(text, &with_crlf, &new, edit.replace_all);
        }
        if !edit.replace_all {
            let mut lines = lines_of(text, &edit.old);
            lines.extend(lines_of(text, &with_crlf));
            lines.sort_unstable();
            lines.truncate(MAX_PLACES);
            let forms = [edit.old.as_bytes(), with_crlf.as_bytes()];
            let found = forms.map(|form| memmem::find_iter(text.as_bytes(), form).count());
            return Err(Refusal::Ambiguous { count: count(found.iter().sum()), lines });
        }
        let (text, first) = replaced_exactly(text, &with_crlf, &new, edit.replace_all)?;
        return match replaced_exactly(&text, &edit.old, &edit.new, edit.replace_all) {
            Ok((text, second)) => Ok((text, first + second)),
            Err(_) => Ok((text, first)),
        };
    }
    // A replacement within a line gets the ending of that line.
    let ends_with_crlf = || {
        let end = memmem::find(text.as_bytes(), edit.old.as_bytes()).map_or(0, |start| start + edit.old.len());
        text[end..].find('\n').is_some_and(|at| text[..end + at].ends_with('\r'))
    };
    let new = match edit.new.contains('\n') && !edit.new.contains('\r') && !edit.old.contains('\n') && ends_with_crlf()
    {
        true => edit.new.replace('\n', "\r\n"),
        false => edit.new.clone(),
    };
    replaced_exactly(text, &edit.old, &new, edit.replace_all)
}

fn replaced_exactly(text: &str, old: &str, new: &str, replace_all: bool) -> Result<(String, u64), Refusal> {
    let found = memmem::find_iter(text.as_bytes(), old.as_bytes()).count();
    if found == 0 {
        return Err(Refusal::NotFound { explanation: nearest::explain(text, old) });
    }
    if !replace_all {
        let lines = lines_of(text, old);
        if lines.len() > 1 {
            let count = count(lines.len().max(found));
            return Err(Refusal::Ambiguous { count, lines: lines.into_iter().take(MAX_PLACES).collect() });
        }
    }
    let len = found.checked_mul(new.len()).and_then(|added| added.checked_add(text.len() - found * old.len()));
    if len.is_none_or(|len| len > MAX_BYTES) {
        return Err(Refusal::ResultTooLarge);
    }
    Ok((text.replace(old, new), count(found)))
}

/// The line numbers of occurrences, also of those that overlap; a bounded number of them.
fn lines_of(text: &str, old: &str) -> Vec<u64> {
    let finder = memmem::Finder::new(old);
    let (mut lines, mut line, mut counted_to, mut from) = (Vec::new(), 1, 0, 0);
    while let Some(at) = text.as_bytes().get(from..).and_then(|rest| finder.find(rest)) {
        let start = from + at;
        line += count(memchr::memchr_iter(b'\n', &text.as_bytes()[counted_to..start]).count());
        lines.push(line);
        (counted_to, from) = (start, start + 1);
        if lines.len() > MAX_PLACES {
            break;
        }
    }
    lines
}

/// How many line ends two texts have in common before their first difference.
fn common_newlines(old: &str, new: &str, ending: LineEnding) -> usize {
    let end = if ending == LineEnding::Cr { b'\r' } else { b'\n' };
    old.bytes().zip(new.bytes()).take_while(|(old, new)| old == new).filter(|(byte, _)| *byte == end).count()
}

#[cfg(test)]
#[path = "edit_test.rs"]
mod tests;
