//! Replays the inputs in `fuzz/corpus`. What a fuzz target does with an input is a plain function beside the code that it
//! tests; the target and an ordinary test call the same function, so the inputs are checked on every stable toolchain.
//!
//! With `COVE_FUZZ_SECONDS` set, a replay goes on for that long with changed inputs. Nothing guides it, so it finds less than
//! `scripts/fuzz`; but it needs no nightly toolchain.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The fewest inputs of a target. Fewer mean that the folder is not the one that was meant.
const FEWEST_INPUTS: usize = 5;
const SECONDS_VARIABLE: &str = "COVE_FUZZ_SECONDS";
/// The longest changed input.
const MAX_BYTES: usize = 8 << 10;
/// The most changes to one input.
const MAX_CHANGES: usize = 6;

/// Calls `run` with every input of a target. The name of each is printed first: a failed test shows the last one.
pub fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    assert!(paths.len() >= FEWEST_INPUTS, "{} has only {} inputs", folder.display(), paths.len());
    let mut inputs = Vec::new();
    for path in paths {
        println!("{}", path.display());
        let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        run(&input);
        inputs.push(input);
    }
    if let Some(seconds) = std::env::var(SECONDS_VARIABLE).ok().and_then(|text| text.parse().ok()) {
        run_changed(target, &inputs, Duration::from_secs(seconds), run);
    }
}

fn run_changed(target: &str, inputs: &[Vec<u8>], time: Duration, run: impl Fn(&[u8])) {
    let (start, mut random, mut count) = (Instant::now(), Random(0x9e37_79b9_7f4a_7c15), 0_u64);
    while start.elapsed() < time {
        let input = changed(inputs, &mut random);
        let shown = Shown(&input);
        run(&input);
        std::mem::forget(shown);
        count += 1;
    }
    println!("{target}: {count} changed inputs");
}

/// Prints the input if the target panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        println!("the input: {:?}", self.0.escape_ascii().to_string());
    }
}

/// An input with some bytes replaced, removed, doubled, or taken from another input.
fn changed(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TELLING: [u8; 16] = *b"\0\n /.%:\"{}=-\xff\x7f9a";
    let mut bytes = inputs[random.below(inputs.len())].clone();
    for _ in 0..=random.below(MAX_CHANGES) {
        let at = random.below(bytes.len() + 1);
        let end = at + random.below(bytes.len() - at + 1);
        match random.below(6) {
            0 => bytes.insert(at, TELLING[random.below(TELLING.len())]),
            1 if at < bytes.len() => bytes[at] = TELLING[random.below(TELLING.len())],
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 => drop(bytes.drain(at..end)),
            4 => bytes.extend_from_within(at..end),
            _ => {
                let other = &inputs[random.below(inputs.len())];
                let from = random.below(other.len() + 1);
                bytes.splice(at..end, other[from..].iter().copied());
            }
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

/// A small generator of numbers (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % limit.max(1)
    }
}
