//! What the fuzzer of this crate asserts; see `fuzz/`. The test replays its inputs.

use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::reader::{BLOCK, checksum};
use crate::{Options, unpack};

/// Whatever a stream says, nothing changes outside the destination, and no more is unpacked than the stream holds. Each
/// input is used twice: as it is, and with correct sums, since a random change to a header makes its sum wrong.
pub fn tar(bytes: &[u8]) {
    unpack_beside_a_canary(bytes);
    unpack_beside_a_canary(&with_correct_sums(bytes));
}

fn unpack_beside_a_canary(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
    for folder in [&inside, &outside] {
        DirBuilder::new().create(folder).expect("our own directory");
    }
    std::fs::write(outside.join("canary"), "alive").expect("our own directory");
    // A sandbox can have made these before somebody unpacks there.
    symlink(&outside, inside.join("a")).expect("our own directory");
    symlink("../outside/canary", inside.join("b")).expect("our own directory");

    let destination = File::open(&inside).expect("our own directory").into();
    let mut stream = bytes;
    let unpacked = unpack(&mut stream, destination, Options { directory_mode: 0o755 }, &mut || Ok(()));
    match unpacked {
        Ok(summary) => {
            let blocks = (bytes.len() / BLOCK) as u64;
            assert!(summary.entries <= blocks && summary.bytes <= bytes.len() as u64, "{summary:?}");
        }
        Err(failure) => assert!(!failure.error.to_string().is_empty()),
    }
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("our own directory").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(
        (names(place.path()), names(&outside)),
        (vec!["inside".into(), "outside".into()], vec!["canary".into()])
    );
    assert_eq!(std::fs::read(outside.join("canary")).ok().as_deref(), Some(&b"alive"[..]));
    make_removable(&inside);
}

/// Corrects the sum of the first block and of every block that is marked as a header.
fn with_correct_sums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (number, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        if number == 0 || block[257..].starts_with(b"ustar") {
            let sum = format!("{:06o}\0 ", checksum(block));
            block[148..156].copy_from_slice(sum.as_bytes());
        }
    }
    bytes
}

/// An entry can make a directory that its owner may not open.
fn make_removable(folder: &Path) {
    let _ = std::fs::set_permissions(folder, Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("tar", tar);
    }
}
