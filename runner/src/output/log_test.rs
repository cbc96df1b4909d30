//! Tests of what followers get from a log, in any order of events, and of what the log keeps.

use super::super::ring::{ALL_RINGS_BYTES, BYTES_PER_TIME, MIN_TIMES, RING_BYTES};
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
    log.append_at(Stream::Merged, b"a\xe2\x82", 10);
    assert_eq!(
        follower.next(100, false),
        Some(Chunk::Bytes { stream: Stream::Merged, offset: 0, at_ms: 10, bytes: b"a".to_vec() })
    );
    assert_eq!(follower.next(100, false), None);
    log.append_at(Stream::Merged, b"\xac later", 1000);
    let both = |follower: &mut Follower| [follower.next(100, false), follower.next(100, false)];
    let expected = [(1, 10, "€"), (4, 1000, " later")].map(|(offset, at_ms, text)| {
        Some(Chunk::Bytes { stream: Stream::Merged, offset, at_ms, bytes: text.as_bytes().to_vec() })
    });
    assert_eq!(both(&mut follower), expected);
    assert_eq!(both(&mut log.follow(1)), expected, "a reader that comes later gets the same times");
}

proptest! {
    #[test]
    fn every_byte_has_the_time_at_which_it_was_read_or_the_time_before_it(
        writes in proptest::collection::vec((1usize..2000, 0u64..40), 1..400),
        max in 1usize..3000,
    ) {
        let log = Rc::new(OutputLog::new(Budget::default()));
        let (mut times, mut now) = (Vec::new(), 1000);
        for (length, pause) in writes {
            now += pause;
            log.append_at(Stream::Merged, &vec![b'x'; length], now);
            times.resize(times.len() + length, now);
            let ring = log.ring.borrow();
            prop_assert!(ring.times.len() <= MIN_TIMES + ring.bytes.len() / BYTES_PER_TIME + 1);
        }
        let (mut follower, mut last) = (log.follow(0), 0);
        while let Some(Chunk::Bytes { offset, at_ms, .. }) = follower.next(max, true) {
            prop_assert!(at_ms >= last && at_ms <= times[usize::try_from(offset).unwrap()], "times go on");
            last = at_ms;
        }
        prop_assert_eq!(follower.offset(), log.end());
    }
}

#[test]
fn output_that_comes_slowly_keeps_its_times_within_bounds() {
    let log = Rc::new(OutputLog::new(Budget::default()));
    for line in 0..100_000u64 {
        log.append_at(Stream::Merged, b"a line\n", line * 1000);
    }
    let marks = log.ring.borrow().times.len();
    assert!(marks <= MIN_TIMES + log.kept() / BYTES_PER_TIME + 1, "{marks}");
    let Some(Chunk::Bytes { at_ms, .. }) = log.follow(log.end() - 7).next(100, true) else { panic!("the last line") };
    // The latest marks are the finest.
    assert!(99_999_000 - at_ms <= 200_000, "{at_ms}");
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
