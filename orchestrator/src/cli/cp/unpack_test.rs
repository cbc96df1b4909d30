//! What `cove cp` packs, it can unpack; and a hostile stream fails with the name of its entry.

use std::os::unix::fs::{PermissionsExt, symlink};

use tar::{EntryType, Header};

use super::*;

#[test]
fn a_hostile_entry_is_refused_by_name_and_nothing_is_made() {
    let outer = tempfile::tempdir().unwrap();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(0);
    // By hand: the crate itself refuses this path.
    header.as_old_mut().name[..10].copy_from_slice(b"../outside");
    header.set_cksum();
    let stream = [&header.as_bytes()[..], &[0; 1024]].concat();
    let error = unpack(stream.as_slice(), &outer.path().join("to")).unwrap_err();
    assert!(error.to_string().contains("\"../outside\" is refused"), "{error}");
    assert!(!outer.path().join("outside").exists());
}

#[test]
fn what_is_packed_here_is_unpacked_the_same() {
    let source = tempfile::tempdir().unwrap();
    let below = source.path().join("a dir/deeper");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(below.join("empty"), "").unwrap();
    std::fs::write(below.join("n".repeat(120)), vec![7; 70_000]).unwrap();
    std::fs::set_permissions(below.join("empty"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("nowhere", below.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.path().join("socket")).unwrap();
    let mut stream = Vec::new();
    let packed = super::super::pack::pack(source.path(), &mut stream).unwrap();
    assert_eq!(packed.skipped, [source.path().join("socket")]);

    let destination = tempfile::tempdir().unwrap();
    unpack(stream.as_slice(), destination.path()).unwrap();
    let copy = destination.path().join("a dir/deeper");
    assert_eq!(std::fs::read(copy.join("n".repeat(120))).unwrap(), vec![7; 70_000]);
    assert_eq!(std::fs::metadata(copy.join("empty")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_link(copy.join("link")).unwrap(), Path::new("nowhere"));
}
