//! Archives that try to write where they should not, and what becomes of modes and links.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use tar::Builder;

use super::*;

fn entry(kind: EntryType, path: &[u8], link: &str, data: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_mtime(1_000_000);
    header.set_size(data.len() as u64);
    // By hand: the crate itself refuses the paths that matter here.
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.extend_from_slice(&[0; 1024]);
    bytes
}

/// A place to unpack into, with a file beside it that must stay as it is.
struct Ground {
    all: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        std::fs::write(all.path().join("outside"), "untouched").unwrap();
        std::fs::create_dir(all.path().join("inside")).unwrap();
        Self { all }
    }

    fn inside(&self) -> std::path::PathBuf {
        self.all.path().join("inside")
    }

    fn unpack(&self, entries: &[Vec<u8>]) -> io::Result<()> {
        unpack(archive(entries).as_slice(), &self.inside())
    }

    fn assert_outside_untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.all.path().join("outside")).unwrap(), "untouched");
        let mut names: Vec<_> = std::fs::read_dir(self.all.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["inside", "outside"]);
    }
}

#[test]
fn files_directories_and_links_come_with_their_modes_and_times() {
    let ground = Ground::new();
    ground
        .unpack(&[
            entry(EntryType::Directory, b"d/", "", b""),
            entry(EntryType::Regular, b"d/f\xff", "", b"content"),
            entry(EntryType::Regular, b"deep/er/g", "", b""),
            entry(EntryType::Symlink, b"d/l", "/etc/passwd", b""),
        ])
        .unwrap();
    let file = ground.inside().join("d").join(std::ffi::OsStr::from_bytes(b"f\xff"));
    assert_eq!(std::fs::read(&file).unwrap(), b"content");
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o755, "set-uid is dropped");
    let time = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(time.as_secs(), 1_000_000);
    let directory = std::fs::metadata(ground.inside().join("d")).unwrap().modified().unwrap();
    assert_eq!(directory.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_000_000);
    assert_eq!(std::fs::read_link(ground.inside().join("d/l")).unwrap(), Path::new("/etc/passwd"));
    assert!(ground.inside().join("deep/er/g").exists());
}

#[test]
fn nothing_is_made_outside_the_destination() {
    for (name, entries) in [
        ("absolute", vec![entry(EntryType::Regular, b"/tmp/cove-escaped", "", b"x")]),
        ("parent", vec![entry(EntryType::Regular, b"../outside", "", b"x")]),
        ("inner parent", vec![entry(EntryType::Regular, b"a/../../outside", "", b"x")]),
        (
            "through a link of the archive",
            vec![entry(EntryType::Symlink, b"l", "..", b""), entry(EntryType::Regular, b"l/outside", "", b"x")],
        ),
        (
            "through a directory that is a link",
            vec![entry(EntryType::Symlink, b"l", "..", b""), entry(EntryType::Directory, b"l/new/", "", b"")],
        ),
        ("hard link", vec![entry(EntryType::Link, b"h", "../outside", b"")]),
        ("device", vec![entry(EntryType::Char, b"null", "", b"")]),
        ("fifo", vec![entry(EntryType::Fifo, b"fifo", "", b"")]),
        ("no name", vec![entry(EntryType::Regular, b"./", "", b"x")]),
    ] {
        let ground = Ground::new();
        let error = ground.unpack(&entries).expect_err(name);
        assert!(error.to_string().contains("refused"), "{name}: {error}");
        ground.assert_outside_untouched();
    }
}

#[test]
fn a_link_that_was_there_before_is_replaced_and_not_written_through() {
    let ground = Ground::new();
    symlink("../outside", ground.inside().join("f")).unwrap();
    symlink("..", ground.inside().join("d")).unwrap();
    ground
        .unpack(&[
            entry(EntryType::Regular, b"f", "", b"new"),
            entry(EntryType::Directory, b"d/", "", b""),
            entry(EntryType::Regular, b"d/outside", "", b"new"),
        ])
        .unwrap();
    ground.assert_outside_untouched();
    assert_eq!(std::fs::read(ground.inside().join("f")).unwrap(), b"new");
    assert_eq!(std::fs::read(ground.inside().join("d/outside")).unwrap(), b"new");
}

#[test]
fn a_link_in_the_way_of_a_postponed_mode_is_not_followed() {
    let ground = Ground::new();
    let before = std::fs::metadata(ground.all.path()).unwrap().permissions().mode();
    ground
        .unpack(&[entry(EntryType::Directory, b"d/", "", b""), entry(EntryType::Directory, b"d/e/", "", b"")])
        .unwrap();
    let unpacking = Unpacking {
        top: open(&ground.inside(), OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap(),
        postponed: Vec::new(),
    };
    std::fs::remove_dir(ground.inside().join("d/e")).unwrap();
    symlink("../..", ground.inside().join("d/e")).unwrap();
    unpacking.finish(&Postponed { path: b"d/e".to_vec(), mode: Mode::empty(), mtime: TimeSpec::new(0, 0) });
    assert_eq!(std::fs::metadata(ground.all.path()).unwrap().permissions().mode(), before);
}

#[test]
fn long_names_are_read_and_endless_ones_refused() {
    let long = "n".repeat(200) + "/" + &"m".repeat(150);
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_mode(0o600);
    header.set_size(2);
    builder.append_data(&mut header, &long, &b"ok"[..]).unwrap();
    let ground = Ground::new();
    unpack(builder.into_inner().unwrap().as_slice(), &ground.inside()).unwrap();
    assert_eq!(std::fs::read(ground.inside().join(&long)).unwrap(), b"ok");

    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    let stream = header.as_bytes().chain(io::repeat(b'a'));
    assert!(unpack(stream, &ground.inside()).unwrap_err().to_string().contains("longer than"));
}

#[test]
fn a_stream_that_stops_within_a_file_leaves_no_half_of_it() {
    let ground = Ground::new();
    let bytes = entry(EntryType::Regular, b"f", "", &[b'x'; 5000]);
    unpack(&bytes[..3000], &ground.inside()).unwrap_err();
    assert!(!ground.inside().join("f").exists());
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

    let ground = Ground::new();
    unpack(stream.as_slice(), &ground.inside()).unwrap();
    let copy = ground.inside().join("a dir/deeper");
    assert_eq!(std::fs::read(copy.join("n".repeat(120))).unwrap(), vec![7; 70_000]);
    assert_eq!(std::fs::metadata(copy.join("empty")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_link(copy.join("link")).unwrap(), Path::new("nowhere"));
}
