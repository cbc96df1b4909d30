//! Changes that wait to be sent together. Pure.
//!
//! They wait for `WINDOW` at most, so that the two events of a move find each other, and so that a file that is written a thousand times
//! is told once. A change is left out only if the same path has one that waits and says as much: a client that reads the file after it
//! has heard of it sees the later change too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use shared_protocol::runner::{ChangeKind, FileChange};

/// The longest time that a change waits.
pub const WINDOW: Duration = Duration::from_millis(50);
/// The most changes that wait. Then they are sent at once.
pub const MAX_WAITING: usize = 4096;

/// A path as bytes.
type Path = Vec<u8>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    kind: ChangeKind,
    path: Path,
    from: Option<Path>,
    is_dir: bool,
    /// The kernel's number of the move of which this is the first half.
    move_number: Option<u32>,
}

/// The changes that wait.
#[derive(Default)]
pub struct Batch {
    waiting: Vec<Change>,
    /// The last change of each path that waits.
    latest: HashMap<Path, ChangeKind>,
    since: Option<Instant>,
}

impl Batch {
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }

    /// When the changes have to be sent. `None` if none waits.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + WINDOW)
    }

    pub fn created(&mut self, path: Path, is_dir: bool, now: Instant) {
        self.add_unless_told(ChangeKind::Created, path, is_dir, now);
    }

    pub fn modified(&mut self, path: Path, is_dir: bool, now: Instant) {
        self.add_unless_told(ChangeKind::Modified, path, is_dir, now);
    }

    pub fn deleted(&mut self, path: Path, is_dir: bool, now: Instant) {
        self.add(Change { kind: ChangeKind::Deleted, path, from: None, is_dir, move_number: None }, now);
    }

    /// The first half of a move. It becomes a deletion, unless the second half comes in time.
    pub fn moved_away(&mut self, number: u32, path: Path, is_dir: bool, now: Instant) {
        self.add(Change { kind: ChangeKind::Deleted, path, from: None, is_dir, move_number: Some(number) }, now);
    }

    /// The second half of a move. Without a first half it is a creation. Returns whether there was one.
    pub fn moved_here(&mut self, number: u32, path: Path, is_dir: bool, now: Instant) -> bool {
        let Some(first) = self.waiting.iter().rposition(|change| change.move_number == Some(number)) else {
            self.created(path, is_dir, now);
            return false;
        };
        let from = self.waiting.remove(first).path;
        self.add(Change { kind: ChangeKind::Moved, path, from: Some(from), is_dir, move_number: None }, now);
        true
    }

    fn add_unless_told(&mut self, kind: ChangeKind, path: Path, is_dir: bool, now: Instant) {
        let is_told = matches!(self.latest.get(&path), Some(ChangeKind::Created | ChangeKind::Modified));
        if !is_told {
            self.add(Change { kind, path, from: None, is_dir, move_number: None }, now);
        }
    }

    fn add(&mut self, change: Change, now: Instant) {
        self.since.get_or_insert(now);
        self.latest.insert(change.path.clone(), change.kind);
        self.waiting.push(change);
    }

    /// Takes all changes out, in their order.
    pub fn take(&mut self) -> impl Iterator<Item = FileChange> {
        self.since = None;
        self.latest.clear();
        std::mem::take(&mut self.waiting).into_iter().map(view)
    }
}

fn view(change: Change) -> FileChange {
    let (path, path_base64) = shown(&change.path);
    let (from, from_base64) = change.from.as_deref().map(shown).unzip();
    FileChange { kind: change.kind, path, path_base64, from, from_base64: from_base64.flatten(), is_dir: change.is_dir }
}

fn shown(path: &[u8]) -> (String, Option<String>) {
    let exact = std::str::from_utf8(path).is_err().then(|| base64::engine::general_purpose::STANDARD.encode(path));
    (String::from_utf8_lossy(path).into_owned(), exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(batch: &mut Batch) -> Vec<String> {
        let one = |change: FileChange| match change.from {
            Some(from) => format!("{:?} {from} {}", change.kind, change.path),
            None => format!("{:?} {}", change.kind, change.path),
        };
        batch.take().map(one).collect()
    }

    fn path(text: &str) -> Path {
        text.as_bytes().to_vec()
    }

    #[test]
    fn a_file_that_is_written_often_is_told_once_in_a_window() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        batch.created(path("new"), false, now);
        for _ in 0..1000 {
            batch.modified(path("new"), false, now);
            batch.modified(path("old"), false, now);
        }
        assert_eq!(batch.due(), Some(now + WINDOW));
        assert_eq!(told(&mut batch), ["Created new", "Modified old"]);
        assert_eq!(batch.due(), None);
        batch.modified(path("new"), false, now);
        assert_eq!(told(&mut batch), ["Modified new"], "the next window tells it again");
    }

    #[test]
    fn a_change_after_a_deletion_or_a_move_is_told() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        batch.created(path("f"), false, now);
        batch.deleted(path("f"), false, now);
        batch.created(path("f"), false, now);
        batch.moved_away(1, path("f"), false, now);
        assert!(batch.moved_here(1, path("g"), false, now));
        batch.modified(path("g"), false, now);
        batch.created(path("f"), false, now);
        let expected = ["Created f", "Deleted f", "Created f", "Moved f g", "Modified g", "Created f"];
        assert_eq!(told(&mut batch), expected);
    }

    #[test]
    fn half_a_move_is_a_deletion_or_a_creation() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        batch.moved_away(1, path("out"), false, now);
        assert!(!batch.moved_here(2, path("in"), true, now));
        assert_eq!(told(&mut batch), ["Deleted out", "Created in"]);
        assert!(!batch.moved_here(1, path("late"), false, now));
        assert_eq!(told(&mut batch), ["Created late"]);
    }

    #[test]
    fn the_longest_line_fits() {
        use shared_protocol::runner::{MAX_PATH_BYTES, MAX_WATCH_LINE_BYTES, WatchFrame};
        for byte in [b'a', 1, b'"', 0xff] {
            let longest = vec![byte; MAX_PATH_BYTES + 1 + 255];
            let (mut batch, now) = (Batch::default(), Instant::now());
            batch.moved_away(1, longest.clone(), false, now);
            batch.moved_here(1, longest, false, now);
            let line = serde_json::to_vec(&WatchFrame::Change(batch.take().next().unwrap())).unwrap();
            assert!(line.len() < MAX_WATCH_LINE_BYTES, "{byte}: {}", line.len());
        }
    }
}
