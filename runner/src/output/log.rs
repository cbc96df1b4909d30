//! The output log of one exec: a ring of bytes with absolute offsets, written by pumps and read by any number of followers.
//!
//! The ring is bounded, so bytes can be overwritten before somebody reads them:
//!
//! - if a follower that reads is a whole ring behind, the writer waits for it, as with a pipe: the follower gets every byte;
//! - if a follower takes nothing for `FOLLOWER_PATIENCE`, nobody waits for it until it has caught up: the command keeps
//!   running, and a gap tells the follower how many bytes it missed;
//! - without followers nothing waits, and a client that comes back gets what is still in the ring.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shared_protocol::runner::Stream;
use tokio::sync::Notify;

use super::ring::{Budget, CROWDED_RING_BYTES, Cursor, Ring, SEGMENT_COST, Segment};

/// How long a command waits for a follower that takes nothing.
pub const FOLLOWER_PATIENCE: Duration = Duration::from_secs(1);

/// The output of one exec.
pub struct OutputLog {
    ring: RefCell<Ring>,
    budget: Budget,
    /// Wakes followers when there are more bytes or the exec has ended.
    grown: Notify,
    /// Wakes pumps when a follower has taken some bytes, or no longer counts.
    taken: Notify,
}

/// A piece of one stream, or a gap.
#[derive(Debug, PartialEq, Eq)]
pub enum Chunk {
    Bytes {
        stream: Stream,
        offset: u64,
        /// When the first byte was read: Unix time in milliseconds.
        at_ms: u64,
        bytes: Vec<u8>,
    },
    Gap {
        offset: u64,
        bytes: u64,
    },
}

impl OutputLog {
    pub fn new(budget: Budget) -> Self {
        Self { ring: RefCell::default(), budget, grown: Notify::new(), taken: Notify::new() }
    }

    /// Appends bytes that were read just now.
    pub fn append(&self, stream: Stream, bytes: &[u8]) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.append_at(stream, bytes, u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    }

    fn append_at(&self, stream: Stream, bytes: &[u8], at_ms: u64) {
        if bytes.is_empty() {
            return;
        }
        {
            let mut ring = self.ring.borrow_mut();
            // Old bytes are dropped first, so that the ring never needs more memory than its limit.
            let limit = self.budget.limit();
            let excess = (ring.cost() + SEGMENT_COST + bytes.len()).saturating_sub(limit);
            ring.drop_front(excess, &self.budget);
            let kept = &bytes[bytes.len().saturating_sub(limit)..];
            ring.make_room(kept.len());
            ring.bytes.extend(kept);
            self.budget.add(kept.len());
            ring.end += bytes.len() as u64;
            let end = ring.end;
            match ring.segments.back_mut() {
                Some(last) if last.stream == stream => last.end = end,
                _ => ring.segments.push_back(Segment { stream, end }),
            }
            ring.note_time(at_ms);
        }
        self.grown.notify_waiters();
    }

    /// The number of all bytes that were ever appended.
    pub fn end(&self) -> u64 {
        self.ring.borrow().end
    }

    /// The offset of the first kept byte.
    pub fn start(&self) -> u64 {
        self.ring.borrow().start()
    }

    pub fn kept(&self) -> usize {
        self.ring.borrow().bytes.len()
    }

    /// Frees the memory. The dropped bytes read as a gap from now on.
    pub fn forget(&self) {
        let mut ring = self.ring.borrow_mut();
        self.budget.sub(ring.bytes.len());
        ring.bytes = VecDeque::new();
        ring.segments = VecDeque::new();
        ring.times = VecDeque::new();
    }

    /// Resolves at the next `append` or `wake`. Create it before you read the state that you wait for.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.grown.notified()
    }

    pub fn wake(&self) {
        self.grown.notify_waiters();
    }

    /// Whether appending `count` bytes would overwrite bytes that a reading follower has not read yet.
    pub fn is_held(&self, count: usize) -> bool {
        self.holders(count).next().is_some()
    }

    fn holders(&self, count: usize) -> impl Iterator<Item = Rc<Cursor>> {
        let ring = self.ring.borrow();
        let excess = (ring.cost() + count + SEGMENT_COST).saturating_sub(self.budget.limit());
        let new_start = ring.start() + excess as u64;
        let held: Vec<_> = ring
            .followers
            .iter()
            .filter(|f| excess > 0 && !f.lagging.get() && f.offset.get() < new_start)
            .cloned()
            .collect();
        held.into_iter()
    }

    /// Waits until `count` bytes can be appended without overwriting unread bytes of a reading follower.
    pub async fn wait_for_room(&self, count: usize) {
        while self.is_held(count) {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            if tokio::time::timeout(FOLLOWER_PATIENCE, taken).await.is_err() {
                for holder in self.holders(count) {
                    holder.lagging.set(true);
                }
            }
        }
    }

    /// Starts to follow from an absolute offset, which may be beyond the end.
    pub fn follow(self: &Rc<Self>, from: u64) -> Follower {
        let cursor = Rc::new(Cursor { offset: Cell::new(from), lagging: Cell::new(false) });
        self.ring.borrow_mut().followers.push(cursor.clone());
        Follower { log: self.clone(), cursor }
    }
}

impl Drop for OutputLog {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A reader of a log with its own position.
pub struct Follower {
    log: Rc<OutputLog>,
    cursor: Rc<Cursor>,
}

impl Follower {
    /// The offset of the next piece.
    pub fn offset(&self) -> u64 {
        self.cursor.offset.get()
    }

    /// Tells the pumps not to wait for this follower.
    pub fn let_go(&self) {
        if !self.cursor.lagging.replace(true) {
            self.log.taken.notify_waiters();
        }
    }

    /// Skips `bytes`, and returns the gap.
    pub fn skip(&mut self, bytes: u64) -> Chunk {
        let offset = self.offset();
        self.cursor.offset.set(offset + bytes);
        self.log.taken.notify_waiters();
        Chunk::Gap { offset, bytes }
    }

    /// The next piece, of at most `max` bytes. Without `flush`, an incomplete character at the end is held back until its
    /// remaining bytes come, so that text stays valid.
    pub fn next(&mut self, max: usize, flush: bool) -> Option<Chunk> {
        let ring = self.log.ring.borrow();
        let offset = self.cursor.offset.get();
        let start = ring.start();
        if offset < start {
            self.cursor.offset.set(start);
            return Some(Chunk::Gap { offset, bytes: start - offset });
        }
        if offset >= ring.end {
            return None;
        }
        let segment = ring.segments.iter().find(|s| s.end > offset)?;
        let available = usize::try_from(segment.end - offset).unwrap_or(usize::MAX);
        let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
        let time = ring.time_at(offset)?;
        let until = usize::try_from(time.end - offset).unwrap_or(usize::MAX);
        let wanted = available.min(max).min(ring.whole_character(skip, until));
        let mut bytes = Vec::with_capacity(wanted);
        let (front, back) = ring.bytes.as_slices();
        if skip < front.len() {
            bytes.extend_from_slice(&front[skip..front.len().min(skip + wanted)]);
        }
        let missing = wanted - bytes.len();
        let back_skip = (skip + bytes.len()).saturating_sub(front.len());
        bytes.extend_from_slice(&back[back_skip..back_skip + missing]);

        // `max` may cut a character whose rest is already there, or the end may cut one whose rest may still come. A
        // character that is cut by another stream's bytes stays cut.
        let whole = complete_characters(&bytes);
        let cut_by_max = wanted < available && whole > 0;
        let cut_by_the_pipe = wanted == available && segment.end == ring.end && !flush;
        if cut_by_max || cut_by_the_pipe {
            bytes.truncate(whole);
        }
        if bytes.is_empty() {
            return None;
        }
        let stream = segment.stream;
        let read_to = offset + bytes.len() as u64;
        let caught_up = ring.end - read_to < (CROWDED_RING_BYTES / 2) as u64;
        drop(ring);
        self.cursor.offset.set(read_to);
        if caught_up {
            self.cursor.lagging.set(false);
        }
        self.log.taken.notify_waiters();
        Some(Chunk::Bytes { stream, offset, at_ms: time.at_ms, bytes })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.log.ring.borrow_mut().followers.retain(|f| !Rc::ptr_eq(f, &self.cursor));
        self.log.taken.notify_waiters();
    }
}

/// The length of `bytes` without an incomplete character at the end. Bytes that are not UTF-8 count as complete: at most
/// three bytes of a character can be missing.
fn complete_characters(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            // This is a continuation byte: the character's first byte is further back.
            0x80..=0xbf => continue,
            _ => break,
        };
        return if length > back + 1 { bytes.len() - back - 1 } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
#[path = "log_test.rs"]
mod tests;
