//! The output of one exec: a ring of bytes with absolute offsets, written by its pumps and read by any number of followers.
//!
//! The ring is bounded, so a byte that nobody has read can be lost in the end. Who decides:
//!
//! - a follower that reads holds the writer back when it is a whole ring behind, as any pipe would: it gets every byte;
//! - a follower that takes nothing for `FOLLOWER_PATIENCE` no longer counts until it has caught up: the command goes on, and
//!   that follower is told by a gap how many bytes it missed;
//! - with no follower nothing waits, and a client that comes back gets what the ring still has.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::runner::Stream;
use tokio::sync::Notify;

/// Bytes one exec keeps for those who come back.
pub const RING_BYTES: usize = 4 << 20;

/// Bytes that all execs keep together. Past it a log that grows keeps no more than `CROWDED_RING_BYTES` of its own.
pub const ALL_RINGS_BYTES: usize = 16 << 20;

pub const CROWDED_RING_BYTES: usize = 64 << 10;

/// How long a follower that takes nothing may hold a command back.
pub const FOLLOWER_PATIENCE: Duration = Duration::from_secs(1);

/// What a change of stream costs of the ring, so that a program that alternates byte by byte cannot grow us.
const SEGMENT_COST: usize = std::mem::size_of::<Segment>();

#[derive(Debug, Clone, Copy)]
struct Segment {
    stream: Stream,
    end: u64,
}

#[derive(Debug)]
struct Cursor {
    offset: Cell<u64>,
    lagging: Cell<bool>,
}

/// What all logs of a runner keep together, counted as they grow and shrink.
#[derive(Clone, Default)]
pub struct Budget(Rc<Cell<usize>>);

impl Budget {
    pub fn kept(&self) -> usize {
        self.0.get()
    }

    fn limit(&self) -> usize {
        if self.kept() > ALL_RINGS_BYTES { CROWDED_RING_BYTES } else { RING_BYTES }
    }
}

#[derive(Default)]
struct Ring {
    bytes: VecDeque<u8>,
    segments: VecDeque<Segment>,
    end: u64,
    followers: Vec<Rc<Cursor>>,
}

impl Ring {
    fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    fn cost(&self) -> usize {
        self.bytes.len() + self.segments.len() * SEGMENT_COST
    }

    /// Grows by doubling up to the bound, and not to twice the bound as a collection does by itself.
    fn make_room(&mut self, count: usize) {
        let needed = self.bytes.len() + count;
        if needed > self.bytes.capacity() {
            let wanted = (self.bytes.capacity() * 2).clamp(needed, RING_BYTES.max(needed));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    fn drop_front(&mut self, count: usize, budget: &Budget) {
        let count = count.min(self.bytes.len());
        self.bytes.drain(..count);
        budget.0.set(budget.kept() - count);
        let start = self.start();
        while self.segments.front().is_some_and(|s| s.end <= start) {
            self.segments.pop_front();
        }
    }
}

pub struct OutputLog {
    ring: RefCell<Ring>,
    budget: Budget,
    /// Followers wait here for bytes; whoever ends the exec wakes it too.
    grown: Notify,
    /// Pumps wait here for followers.
    taken: Notify,
}

/// A piece of one stream, or a hole.
#[derive(Debug, PartialEq, Eq)]
pub enum Chunk {
    Bytes { stream: Stream, offset: u64, bytes: Vec<u8> },
    Gap { offset: u64, bytes: u64 },
}

impl OutputLog {
    pub fn new(budget: Budget) -> Self {
        Self { ring: RefCell::default(), budget, grown: Notify::new(), taken: Notify::new() }
    }

    pub fn append(&self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        {
            let mut ring = self.ring.borrow_mut();
            // Room is made first, so that the ring never needs more memory than its bound.
            let limit = self.budget.limit();
            let excess = (ring.cost() + SEGMENT_COST + bytes.len()).saturating_sub(limit);
            ring.drop_front(excess, &self.budget);
            let kept = &bytes[bytes.len().saturating_sub(limit)..];
            ring.make_room(kept.len());
            ring.bytes.extend(kept);
            self.budget.0.set(self.budget.kept() + kept.len());
            ring.end += bytes.len() as u64;
            let end = ring.end;
            match ring.segments.back_mut() {
                Some(last) if last.stream == stream => last.end = end,
                _ => ring.segments.push_back(Segment { stream, end }),
            }
        }
        self.grown.notify_waiters();
    }

    /// All bytes ever appended.
    pub fn end(&self) -> u64 {
        self.ring.borrow().end
    }

    /// The first byte that is still kept.
    pub fn start(&self) -> u64 {
        self.ring.borrow().start()
    }

    pub fn kept(&self) -> usize {
        self.ring.borrow().bytes.len()
    }

    /// Gives the memory back; what was kept reads as a gap from now on.
    pub fn forget(&self) {
        let mut ring = self.ring.borrow_mut();
        self.budget.0.set(self.budget.kept() - ring.bytes.len());
        ring.bytes = VecDeque::new();
        ring.segments = VecDeque::new();
    }

    /// Resolves at the next `append` or `wake`. Create it before looking at the state it waits for.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.grown.notified()
    }

    pub fn wake(&self) {
        self.grown.notify_waiters();
    }

    /// Whether appending `count` bytes now overwrites some that an attentive follower has yet to read.
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

    /// Waits until `count` bytes can be appended without taking them from a follower that reads.
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

    /// Starts to follow from an absolute offset. One beyond the end waits for that byte.
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

pub struct Follower {
    log: Rc<OutputLog>,
    cursor: Rc<Cursor>,
}

impl Follower {
    /// Where the next piece begins.
    pub fn offset(&self) -> u64 {
        self.cursor.offset.get()
    }

    /// Takes no more for now: nobody has to wait for it.
    pub fn let_go(&self) {
        if !self.cursor.lagging.replace(true) {
            self.log.taken.notify_waiters();
        }
    }

    /// Goes on `bytes` further down.
    pub fn skip(&mut self, bytes: u64) -> Chunk {
        let offset = self.offset();
        self.cursor.offset.set(offset + bytes);
        self.log.taken.notify_waiters();
        Chunk::Gap { offset, bytes }
    }

    /// The next piece, of at most `max` bytes. With `flush` unset, the first bytes of a character whose rest has not come
    /// yet are kept back, so that text stays text.
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
        let wanted = available.min(max);
        let mut bytes = Vec::with_capacity(wanted);
        let (front, back) = ring.bytes.as_slices();
        if skip < front.len() {
            bytes.extend_from_slice(&front[skip..front.len().min(skip + wanted)]);
        }
        let missing = wanted - bytes.len();
        let back_skip = (skip + bytes.len()).saturating_sub(front.len());
        bytes.extend_from_slice(&back[back_skip..back_skip + missing]);

        // A character may be cut by `max`, whose rest is there already, or at the very end, whose rest may come. One that is
        // cut by another stream's bytes stays cut.
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
        Some(Chunk::Bytes { stream, offset, bytes })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.log.ring.borrow_mut().followers.retain(|f| !Rc::ptr_eq(f, &self.cursor));
        self.log.taken.notify_waiters();
    }
}

/// The length of `bytes` without a character that is cut off at its end. Bytes that are no UTF-8 are not held back: of
/// a character at most three can be missing.
fn complete_characters(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            // The inside of a character: its first byte is further back.
            0x80..=0xbf => continue,
            _ => break,
        };
        return if length > back + 1 { bytes.len() - back - 1 } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(follower: &mut Follower, max: usize) -> (Vec<u8>, u64) {
        let (mut bytes, mut missed) = (Vec::new(), 0);
        while let Some(chunk) = follower.next(max, true) {
            match chunk {
                Chunk::Bytes { bytes: more, .. } => bytes.extend(more),
                Chunk::Gap { bytes, .. } => missed += bytes,
            }
        }
        (bytes, missed)
    }

    proptest! {
        #[test]
        fn a_follower_reads_every_byte_once_in_order(
            writes in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..40),
            max in 1usize..40,
        ) {
            let log = Rc::new(OutputLog::new(Budget::default()));
            let mut follower = log.follow(0);
            let mut expected = Vec::new();
            let mut got = Vec::new();
            for (i, (err, bytes)) in writes.iter().enumerate() {
                log.append(if *err { Stream::Stderr } else { Stream::Stdout }, bytes);
                expected.extend_from_slice(bytes);
                if i % 3 == 0 {
                    while let Some(Chunk::Bytes { offset, bytes, .. }) = follower.next(max.max(4), false) {
                        prop_assert_eq!(offset, got.len() as u64);
                        got.extend(bytes);
                    }
                }
            }
            got.extend(read_all(&mut follower, max).0);
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn what_was_overwritten_is_a_gap_and_the_count_is_exact() {
        let log = Rc::new(OutputLog::new(Budget::default()));
        let block = vec![b'x'; 1 << 20];
        for _ in 0..7 {
            log.append(Stream::Merged, &block);
        }
        let (bytes, missed) = read_all(&mut log.follow(0), 1 << 16);
        assert_eq!(bytes.len() as u64 + missed, 7 << 20);
        assert!(missed > 0 && bytes.len() > RING_BYTES / 2);
        assert!(log.kept() <= RING_BYTES);
    }

    #[test]
    fn many_logs_together_keep_no_more_than_their_share() {
        let budget = Budget::default();
        let logs: Vec<_> = (0..50).map(|_| OutputLog::new(budget.clone())).collect();
        for log in &logs {
            for _ in 0..64 {
                log.append(Stream::Merged, &[0; 64 << 10]);
            }
        }
        assert!(budget.kept() <= ALL_RINGS_BYTES + RING_BYTES + logs.len() * CROWDED_RING_BYTES, "{}", budget.kept());
        assert_eq!(budget.kept(), logs.iter().map(OutputLog::kept).sum::<usize>());
        drop(logs);
        assert_eq!(budget.kept(), 0);
    }

    #[test]
    fn alternating_streams_cannot_grow_the_log() {
        let log = OutputLog::new(Budget::default());
        for i in 0..3_000_000u32 {
            log.append(if i % 2 == 0 { Stream::Stdout } else { Stream::Stderr }, b"x");
        }
        assert!(log.ring.borrow().cost() <= RING_BYTES);
        assert_eq!(log.end(), 3_000_000);
    }

    #[test]
    fn a_character_cut_by_the_pipe_is_whole_in_the_frame() {
        let log = Rc::new(OutputLog::new(Budget::default()));
        let mut follower = log.follow(0);
        log.append(Stream::Merged, b"a\xe2\x82");
        assert_eq!(
            follower.next(100, false),
            Some(Chunk::Bytes { stream: Stream::Merged, offset: 0, bytes: b"a".to_vec() })
        );
        assert_eq!(follower.next(100, false), None);
        log.append(Stream::Merged, b"\xac");
        assert_eq!(
            follower.next(100, false),
            Some(Chunk::Bytes { stream: Stream::Merged, offset: 1, bytes: "€".as_bytes().to_vec() })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_that_reads_holds_the_writer_and_one_that_sleeps_does_not() {
        let log = Rc::new(OutputLog::new(Budget::default()));
        let mut follower = log.follow(0);
        log.append(Stream::Merged, &vec![0; RING_BYTES - 100]);
        assert!(log.is_held(1000));
        let before = tokio::time::Instant::now();
        log.wait_for_room(1000).await;
        assert_eq!(before.elapsed(), FOLLOWER_PATIENCE, "the sleeper was waited for once");
        log.append(Stream::Merged, &[0; 1000]);
        assert!(!log.is_held(1000), "and not again");
        let (_, missed) = read_all(&mut follower, 1 << 20);
        assert!(missed > 0);
        log.append(Stream::Merged, &vec![0; RING_BYTES - 100]);
        assert!(log.is_held(1000), "it counts again once it has caught up");
    }
}
