//! The ring of an output log: its bytes, which stream they came from, and the positions of its followers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use shared_protocol::runner::Stream;

/// The most bytes that one exec keeps for clients that come back.
pub const RING_BYTES: usize = 4 << 20;

/// The most bytes that all execs keep together. Beyond it, a growing log keeps at most `CROWDED_RING_BYTES`.
pub const ALL_RINGS_BYTES: usize = 16 << 20;

pub const CROWDED_RING_BYTES: usize = 64 << 10;

/// The cost of a change of stream, which counts against the ring's limit, so that a program that alternates streams byte by
/// byte cannot fill the runner's memory.
pub(super) const SEGMENT_COST: usize = std::mem::size_of::<Segment>();

/// A range of bytes of one stream, identified by its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub stream: Stream,
    pub end: u64,
}

/// Output of about the same time has one mark, so that much of it comes in few pieces.
const TIME_STEP_MS: u64 = 10;

/// A log has this many marks of time, and one for each `BYTES_PER_TIME` bytes that it keeps. If it needs more, it forgets every
/// second one: the bytes after it count as printed at the time of the mark before it.
pub(super) const MIN_TIMES: usize = 32;
pub(super) const BYTES_PER_TIME: usize = 256;

/// A range of bytes that were read at about the same time, identified by its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeMark {
    pub end: u64,
    /// The time of its first byte: Unix time in milliseconds.
    pub at_ms: u64,
}

/// The position of one follower.
#[derive(Debug)]
pub(super) struct Cursor {
    pub offset: Cell<u64>,
    /// Whether the follower is too slow, so that nobody waits for it.
    pub lagging: Cell<bool>,
}

/// The number of bytes that all logs of a runner keep together.
#[derive(Clone, Default)]
pub struct Budget(Rc<Cell<usize>>);

impl Budget {
    pub fn kept(&self) -> usize {
        self.0.get()
    }

    pub(super) fn add(&self, count: usize) {
        self.0.set(self.0.get() + count);
    }

    pub(super) fn sub(&self, count: usize) {
        self.0.set(self.0.get() - count);
    }

    /// The most bytes that one log may keep now.
    pub(super) fn limit(&self) -> usize {
        if self.kept() > ALL_RINGS_BYTES { CROWDED_RING_BYTES } else { RING_BYTES }
    }
}

#[derive(Default)]
pub(super) struct Ring {
    pub bytes: VecDeque<u8>,
    pub segments: VecDeque<Segment>,
    pub times: VecDeque<TimeMark>,
    /// The offset after the last byte.
    pub end: u64,
    pub followers: Vec<Rc<Cursor>>,
}

impl Ring {
    /// The offset of the first byte.
    pub fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// The used part of the limit.
    pub fn cost(&self) -> usize {
        self.bytes.len() + self.segments.len() * SEGMENT_COST + self.times.len() * std::mem::size_of::<TimeMark>()
    }

    /// Notes that the bytes up to the end were read at this time.
    pub fn note_time(&mut self, at_ms: u64) {
        let end = self.end;
        match self.times.back_mut() {
            Some(last) if last.at_ms.abs_diff(at_ms) < TIME_STEP_MS => last.end = end,
            _ => {
                if self.times.len() >= MIN_TIMES + self.bytes.len() / BYTES_PER_TIME {
                    self.thin_times();
                }
                self.times.push_back(TimeMark { end, at_ms });
            }
        }
    }

    /// Joins every two neighbouring marks.
    fn thin_times(&mut self) {
        let marks = std::mem::take(&mut self.times);
        let mut pairs = marks.into_iter();
        while let Some(first) = pairs.next() {
            let end = pairs.next().map_or(first.end, |second| second.end);
            self.times.push_back(TimeMark { end, ..first });
        }
    }

    /// The length of the bytes from `skip` on if they end after `length` bytes, but not within a character: its rest, which was
    /// read later, is at most three bytes.
    pub fn whole_character(&self, skip: usize, length: usize) -> usize {
        let is_rest = |at: &usize| self.bytes.get(skip + *at).is_some_and(|byte| (0x80..0xc0).contains(byte));
        (length..length + 3).find(|at| !is_rest(at)).unwrap_or(length + 3)
    }

    /// The mark of the byte at this offset.
    pub fn time_at(&self, offset: u64) -> Option<TimeMark> {
        self.times.get(self.times.partition_point(|mark| mark.end <= offset)).copied()
    }

    /// Reserves memory. The capacity doubles up to the limit and not beyond it, as a collection would do by itself.
    pub fn make_room(&mut self, count: usize) {
        let needed = self.bytes.len() + count;
        if needed > self.bytes.capacity() {
            let wanted = (self.bytes.capacity() * 2).clamp(needed, RING_BYTES.max(needed));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    /// Drops the oldest bytes.
    pub fn drop_front(&mut self, count: usize, budget: &Budget) {
        let count = count.min(self.bytes.len());
        self.bytes.drain(..count);
        budget.sub(count);
        let start = self.start();
        while self.segments.front().is_some_and(|s| s.end <= start) {
            self.segments.pop_front();
        }
        while self.times.front().is_some_and(|mark| mark.end <= start) {
            self.times.pop_front();
        }
    }
}
