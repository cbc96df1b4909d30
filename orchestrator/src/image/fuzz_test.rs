//! What the fuzzer of image archives asserts; see `fuzz/`. The test replays its inputs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::entries::{Owners, UnpackLimits, Whiteouts, apply_whiteouts, unpack_entries};
use super::stream::ArchiveStream;

/// What an input may unpack to.
const LIMITS: UnpackLimits = UnpackLimits { bytes: 1 << 20, entries: 1000 };

/// Whatever an archive says, nothing changes outside the image's root. An import also runs with that root as its own; here the
/// unpacking has to hold without.
pub fn image(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (root, outside) = (place.path().join("root"), place.path().join("outside"));
    for folder in [&root, &outside] {
        std::fs::create_dir(folder).expect("our own directory");
    }
    std::fs::write(outside.join("canary"), "alive").expect("our own directory");
    // As a whole root file system, as a layer of its own, and over a layer that is there.
    for whiteouts in [Whiteouts::AreFiles, Whiteouts::ForOverlay, Whiteouts::AreDone] {
        let unpacked = ArchiveStream::new(bytes, LIMITS.bytes).map_err(|e| e.to_string()).and_then(|stream| {
            if whiteouts == Whiteouts::AreDone {
                apply_whiteouts(ArchiveStream::new(bytes, LIMITS.bytes).map_err(|e| e.to_string())?, &root)?;
            }
            unpack_entries(stream, &root, Owners::Ours, whiteouts, LIMITS)
        });
        if let Err(message) = unpacked {
            assert!(!message.is_empty());
        }
    }
    let count = |folder: &Path| std::fs::read_dir(folder).expect("our own directory").count();
    assert_eq!((count(place.path()), count(&outside)), (2, 1));
    assert_eq!(std::fs::read(outside.join("canary")).ok().as_deref(), Some(&b"alive"[..]));
    make_removable(&root);
}

/// An archive can contain a directory that its owner may not open.
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
        corpus::replay("image", image);
    }
}
