//! The runs of lines that two texts have in common, in bounded time.
//!
//! Small texts are compared exactly. In large ones, lines that occur once in each text are fixed points, and only what is between two of them is
//! compared exactly, as long as the work allows; what is left counts as changed. So a few changes in a huge file are found, and two
//! huge files without common lines cost no more than reading them.

use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::HashMap;

/// If more lines than these differ at the first sight, they count as changed.
const MAX_COMPARED_LINES: usize = 500_000;
/// The exact comparison of `n` lines takes up to `n²` steps; all comparisons together take no more than this.
const MAX_STEPS: usize = 64_000_000;

/// A run of equal lines: where it starts in both texts, and how long it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Block {
    pub(super) old: usize,
    pub(super) new: usize,
    pub(super) len: usize,
}

/// The blocks in order, without overlap.
pub(super) fn common(old: &[&str], new: &[&str]) -> Vec<Block> {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let mut blocks = vec![Block { old: 0, new: 0, len: start }];
    let (old_mid, new_mid) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
    if old_mid.len() + new_mid.len() <= MAX_COMPARED_LINES {
        let mut numbers = HashMap::new();
        let mut number = |line| {
            let next = numbers.len();
            *numbers.entry(line).or_insert(next)
        };
        let old_mid: Vec<usize> = old_mid.iter().map(|line| number(*line)).collect();
        let new_mid: Vec<usize> = new_mid.iter().map(|line| number(*line)).collect();
        compare(&old_mid, &new_mid, start, &mut blocks);
    }
    blocks.push(Block { old: old.len() - end, new: new.len() - end, len: end });
    merged(blocks)
}

/// Adds the blocks of two texts whose lines are given as numbers: equal lines have equal numbers. Both start at line `start`.
fn compare(old: &[usize], new: &[usize], start: usize, blocks: &mut Vec<Block>) {
    let mut steps_left = MAX_STEPS;
    if exact(old, new, start, start, &mut steps_left, blocks) {
        return;
    }
    let (mut old_at, mut new_at) = (0, 0);
    for (old_fixed, new_fixed) in fixed_points(old, new) {
        let (old_gap, new_gap) = (&old[old_at..old_fixed], &new[new_at..new_fixed]);
        exact(old_gap, new_gap, start + old_at, start + new_at, &mut steps_left, blocks);
        blocks.push(Block { old: start + old_fixed, new: start + new_fixed, len: 1 });
        (old_at, new_at) = (old_fixed + 1, new_fixed + 1);
    }
    exact(&old[old_at..], &new[new_at..], start + old_at, start + new_at, &mut steps_left, blocks);
}

/// Adds the blocks of two pieces, if there are enough steps left for an exact comparison.
fn exact(
    old: &[usize],
    new: &[usize],
    old_at: usize,
    new_at: usize,
    steps_left: &mut usize,
    blocks: &mut Vec<Block>,
) -> bool {
    if old.is_empty() || new.is_empty() {
        return true;
    }
    let Some(left) = (old.len() + new.len()).checked_pow(2).and_then(|steps| steps_left.checked_sub(steps)) else {
        return false;
    };
    *steps_left = left;
    for op in capture_diff_slices(Algorithm::Myers, old, new) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            blocks.push(Block { old: old_at + old_index, new: new_at + new_index, len });
        }
    }
    true
}

/// Pairs of lines that occur once in each text, as many as are in the same order in both.
fn fixed_points(old: &[usize], new: &[usize]) -> Vec<(usize, usize)> {
    /// How often a line occurs in each text, and where it did last.
    #[derive(Default)]
    struct Places {
        old: (usize, usize),
        new: (usize, usize),
    }
    let mut places: HashMap<usize, Places> = HashMap::new();
    for (at, line) in old.iter().enumerate() {
        let place = places.entry(*line).or_default();
        place.old = (place.old.0 + 1, at);
    }
    for (at, line) in new.iter().enumerate() {
        if let Some(place) = places.get_mut(line) {
            place.new = (place.new.0 + 1, at);
        }
    }
    let pairs: Vec<(usize, usize)> = old
        .iter()
        .filter_map(|line| places.get(line))
        .filter(|place| place.old.0 == 1 && place.new.0 == 1)
        .map(|place| (place.old.1, place.new.1))
        .collect();
    longest_rise(&pairs)
}

/// The longest choice of pairs whose second numbers rise; the first ones rise already.
fn longest_rise(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length, the pair with the smallest end; and for each pair, the one before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; pairs.len()];
    for (at, pair) in pairs.iter().enumerate() {
        let len = ends.partition_point(|end| pairs[*end].1 < pair.1);
        before[at] = len.checked_sub(1).map(|shorter| ends[shorter]);
        if len == ends.len() {
            ends.push(at);
        } else {
            ends[len] = at;
        }
    }
    let mut rise = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(at) = next {
        rise.push(pairs[at]);
        next = before[at];
    }
    rise.reverse();
    rise
}

/// Joins blocks that touch, and drops empty ones.
fn merged(blocks: Vec<Block>) -> Vec<Block> {
    let mut merged: Vec<Block> = Vec::new();
    for block in blocks.into_iter().filter(|block| block.len > 0) {
        match merged.last_mut() {
            Some(last) if last.old + last.len == block.old && last.new + last.len == block.new => last.len += block.len,
            _ => merged.push(block),
        }
    }
    merged
}
