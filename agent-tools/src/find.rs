//! The `find` tool: entries by name, kind, size, age and depth.
//!
//! Promises: `matches` depends on the entry and the options alone; the result has at most `limit` entries, the first ones in the order that
//! was asked for, however many were pushed; a note says how many matched.

use crate::entry::{Entry, EntryKind};
use crate::globs::{GlobError, Globs};
use crate::output::{Output, count, counted};
use crate::shown::{Escaped, push_formatted};
use crate::size;
use std::cmp::Reverse;

/// Entries of a result, if the caller does not say.
pub const DEFAULT_LIMIT: usize = 200;
/// A larger limit counts as this one.
pub const MAX_LIMIT: usize = 10_000;
/// Bytes of a result.
pub const MAX_BYTES: usize = 64 << 10;

/// The order of a result.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sort {
    #[default]
    Path,
    /// The newest first.
    Modified,
    /// The largest first.
    Size,
}

/// What to find. Conditions that are not set hold for every entry.
#[derive(Clone, Debug, Default)]
pub struct FindOptions {
    /// What stands before every path that is shown, as a directory. Conditions are about the path without it.
    pub root: Vec<u8>,
    /// One of them must match; see `globs`.
    pub globs: Vec<String>,
    /// None of them may match, neither the entry nor a directory above it.
    pub exclude: Vec<String>,
    /// The kinds of entries; all if it is empty.
    pub kinds: Vec<EntryKind>,
    /// In bytes. With a condition on the size, only files are found.
    pub min_size: Option<u64>,
    pub max_size: Option<u64>,
    /// Changed within this many seconds before now.
    pub modified_within: Option<u64>,
    /// Changed after this second since 1970.
    pub newer_than: Option<i64>,
    /// 1 is what is directly in the root.
    pub max_depth: Option<usize>,
    /// 0 counts as `DEFAULT_LIMIT`.
    pub limit: usize,
    pub sort: Sort,
}

/// The options are not valid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FindError {
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error("min_size {min} is larger than max_size {max}, so nothing can match")]
    Sizes { min: u64, max: u64 },
}

/// Collects entries that match.
#[derive(Debug)]
pub struct Find {
    options: FindOptions,
    globs: Globs,
    exclude: Globs,
    now: i64,
    limit: usize,
    found: Vec<Entry>,
    total: u64,
}

/// What was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FindReport {
    pub text: String,
    /// How many entries matched.
    pub total: u64,
    /// How many of them are in the text.
    pub shown: u64,
    /// Those, in the order of the text.
    pub entries: Vec<Entry>,
}

impl Find {
    /// `now` is in seconds since 1970; ages are relative to it.
    pub fn new(options: FindOptions, now: i64) -> Result<Self, FindError> {
        if let (Some(min), Some(max)) = (options.min_size, options.max_size)
            && min > max
        {
            return Err(FindError::Sizes { min, max });
        }
        let limit = if options.limit == 0 { DEFAULT_LIMIT } else { options.limit.min(MAX_LIMIT) };
        let (globs, exclude) = (Globs::new(&options.globs)?, Globs::new(&options.exclude)?);
        Ok(Self { options, globs, exclude, now, limit, found: Vec::new(), total: 0 })
    }

    /// Whether an entry is one of those that are looked for.
    pub fn matches(&self, entry: &Entry) -> bool {
        let options = &self.options;
        let has_size = options.min_size.is_some() || options.max_size.is_some();
        let age = self.now.saturating_sub(entry.modified);
        (options.kinds.is_empty() || options.kinds.contains(&entry.kind))
            && (!has_size || entry.kind == EntryKind::File)
            && options.min_size.is_none_or(|min| entry.size >= min)
            && options.max_size.is_none_or(|max| entry.size <= max)
            // A file from the future was changed just now by another clock.
            && options.modified_within.is_none_or(|within| u64::try_from(age).is_ok_and(|age| age <= within) || age < 0)
            && options.newer_than.is_none_or(|than| entry.modified > than)
            && options.max_depth.is_none_or(|depth| entry.names().count() <= depth)
            && (self.globs.is_empty() || self.globs.matches(&entry.path))
            && !self.exclude.matches_or_contains(&entry.path)
    }

    /// Whether a walk can leave out what is below a directory, because nothing there can match.
    pub fn prunes(&self, directory: &Entry) -> bool {
        self.options.max_depth.is_some_and(|depth| directory.names().count() >= depth)
            || self.exclude.matches_or_contains(&directory.path)
    }

    /// Adds an entry, if it matches.
    pub fn push(&mut self, entry: Entry) {
        if self.matches(&entry) {
            self.total += 1;
            self.found.push(entry);
            // Twice the limit, so that sorting costs little for each entry.
            if self.found.len() >= 2 * self.limit {
                self.keep_first();
            }
        }
    }

    fn keep_first(&mut self) {
        match self.options.sort {
            Sort::Path => self.found.sort_by(|a, b| a.path.cmp(&b.path)),
            Sort::Modified => {
                self.found.sort_by(|a, b| (Reverse(a.modified), &a.path).cmp(&(Reverse(b.modified), &b.path)))
            }
            Sort::Size => self.found.sort_by(|a, b| (Reverse(a.size), &a.path).cmp(&(Reverse(b.size), &b.path))),
        }
        self.found.truncate(self.limit);
    }

    /// The result: one line for each entry, and a note if it is not all.
    pub fn finish(mut self) -> FindReport {
        self.keep_first();
        let mut out = Output::new(self.limit, MAX_BYTES);
        let shown = count(self.found.iter().take_while(|entry| out.line(&self.line(entry))).count());
        if self.total == 0 {
            out.note("nothing matches");
        } else if shown < self.total {
            let note = format!(
                "[{shown} of {} shown; narrow the globs, raise the limit, or search in a directory below]",
                counted(self.total, "entry")
            );
            out.note(&note);
        }
        self.found.truncate(usize::try_from(shown).unwrap_or(usize::MAX));
        FindReport { text: out.into_text(), total: self.total, shown, entries: self.found }
    }

    /// An entry, with its size or age if the options ask about that.
    fn line(&self, entry: &Entry) -> String {
        let options = &self.options;
        let path = match options.root.as_slice() {
            b"" => entry.path.clone(),
            b"/" => [b"/", entry.path.as_slice()].concat(),
            root => [root, b"/", &entry.path].concat(),
        };
        let mut line = Escaped(&path).to_string();
        match (entry.kind, &entry.link_target) {
            (EntryKind::Directory, _) => line.push('/'),
            (EntryKind::Symlink, Some(target)) => push_formatted(&mut line, format_args!(" -> {}", Escaped(target))),
            _ => {}
        }
        if options.sort == Sort::Size || options.min_size.is_some() || options.max_size.is_some() {
            push_formatted(&mut line, format_args!("  {}", size::shown(entry.size)));
        }
        if options.sort == Sort::Modified || options.modified_within.is_some() || options.newer_than.is_some() {
            push_formatted(&mut line, format_args!("  {}", age(self.now.saturating_sub(entry.modified))));
        }
        line
    }
}

fn age(seconds: i64) -> String {
    match seconds {
        ..0 => "in the future".to_owned(),
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
#[path = "find_test.rs"]
mod tests;
