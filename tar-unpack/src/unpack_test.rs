//! Streams made by the `tar` crate, honest and hostile.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;

/// A directory with a destination in it, `to`, and whatever a test puts beside it.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(fixture.path("to")).unwrap();
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a file, with the directories that lead to it.
    fn file(&self, name: &str, content: &[u8]) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), content).unwrap();
    }

    fn content(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The names in the outer directory, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn destination(&self) -> OwnedFd {
        File::open(self.path("to")).unwrap().into()
    }

    fn unpack(&self, stream: &mut dyn Read) -> Result<Summary, Failure> {
        unpack(stream, self.destination(), Options { directory_mode: 0o755 }, &mut || Ok(()))
    }

    /// The bytes of a stream that must be unpacked.
    fn unpacked(&self, mut stream: &[u8]) -> u64 {
        self.unpack(&mut stream).unwrap().bytes
    }

    /// The message for a stream that must fail.
    fn refusal(&self, mut stream: &[u8]) -> String {
        self.unpack(&mut stream).unwrap_err().to_string()
    }
}

/// An entry with any path at all, which the crate's own setters would refuse.
fn add(builder: &mut Builder<Vec<u8>>, kind: EntryType, path: &[u8], link: &[u8], mode: u32, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_mode(mode);
    header.set_mtime(1_000_000_000);
    header.set_size(data.len() as u64);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

/// The kind, path, link and data of an entry.
type Given<'a> = (EntryType, &'a str, &'a str, &'a [u8]);

fn stream(entries: &[Given<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, path, link, data) in entries {
        add(&mut builder, *kind, path.as_bytes(), link.as_bytes(), 0o6755, data);
    }
    builder.into_inner().unwrap()
}

const FILE: EntryType = EntryType::Regular;
const DIR: EntryType = EntryType::Directory;
const SYMLINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

#[test]
fn files_directories_and_links_are_made_with_their_times_and_without_setuid() {
    let fixture = Fixture::new();
    let entries: [Given<'_>; 7] = [
        (DIR, "./", "", b""),
        (DIR, "d/", "", b""),
        (FILE, "d/f", "", b"hello"),
        (FILE, "./x//y/z", "", b""),
        (SYMLINK, "l", "../../anywhere", b""),
        (HARD, "h", "d/f", b""),
        (HARD, "h", "./h", b""),
    ];
    assert_eq!(fixture.unpacked(&stream(&entries)), 5);
    let meta = |name: &str| std::fs::symlink_metadata(fixture.path("to").join(name)).unwrap();
    assert_eq!(fixture.content("to/d/f"), b"hello");
    assert_eq!(meta("d/f").permissions().mode() & 0o7777, 0o755);
    for name in ["d/f", "d", "l", "h"] {
        assert_eq!(meta(name).mtime(), 1_000_000_000, "{name}");
    }
    assert_eq!(meta("h").ino(), meta("d/f").ino());
    assert_eq!(std::fs::read_link(fixture.path("to/l")).unwrap().to_str(), Some("../../anywhere"));
    // Once more over itself: files are replaced, directories kept.
    assert_eq!(fixture.unpacked(&stream(&entries)), 5);
}

#[test]
fn a_directory_that_may_not_be_written_to_is_closed_after_it_was_filled() {
    let fixture = Fixture::new();
    let mut builder = Builder::new(Vec::new());
    add(&mut builder, DIR, b"d/", b"", 0o555, b"");
    add(&mut builder, FILE, b"d/f", b"", 0o444, b"x");
    assert_eq!(fixture.unpacked(&builder.into_inner().unwrap()), 1);
    let mode = std::fs::metadata(fixture.path("to/d")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o555);
}

#[test]
fn an_entry_that_would_leave_the_destination_is_refused_by_name() {
    let fixture = Fixture::new();
    fixture.file("outside-of-to", b"old");
    let hostile: [(&[Given<'_>], &str); 11] = [
        (&[(FILE, "/etc/x", "", b"")], "absolute"),
        (&[(FILE, "../outside-of-to", "", b"new")], "`..`"),
        (&[(FILE, "a/../../outside-of-to", "", b"new")], "`..`"),
        (&[(SYMLINK, "s", "..", b""), (FILE, "s/outside-of-to", "", b"new")], "links are not followed"),
        (&[(SYMLINK, "s", "/", b""), (DIR, "s/made", "", b"")], "links are not followed"),
        (&[(SYMLINK, "s", "..", b""), (HARD, "h", "s/outside-of-to", b"")], "links are not followed"),
        (&[(HARD, "h", "../outside-of-to", b"")], "`..`"),
        (&[(HARD, "h", "/etc/passwd", b"")], "absolute"),
        (&[(EntryType::Char, "c", "", b"")], "a device"),
        (&[(EntryType::Fifo, "p", "", b"")], "a FIFO"),
        (&[(HARD, "h", "nothing", b"")], "not there"),
    ];
    for (entries, why) in hostile {
        let message = fixture.refusal(&stream(entries));
        assert!(message.contains(why), "{message}");
        assert!(message.contains(&format!("{:?}", entries[entries.len() - 1].1)), "it names the entry: {message}");
        assert_eq!(message.ends_with("which stay: 1"), entries.len() == 2, "{message}");
    }
    assert_eq!(fixture.content("outside-of-to"), b"old");
    assert_eq!(fixture.names(), ["outside-of-to", "to"]);
}

#[test]
fn a_link_in_the_place_of_a_file_or_directory_is_replaced_and_not_written_through() {
    let fixture = Fixture::new();
    fixture.file("victim", b"old");
    fixture.file("kept/f", b"old");
    symlink("../victim", fixture.path("to/file")).unwrap();
    symlink("../kept", fixture.path("to/dir")).unwrap();
    let entries: [Given<'_>; 3] = [(FILE, "file", "", b"new"), (DIR, "dir", "", b""), (FILE, "dir/f", "", b"new")];
    fixture.unpacked(&stream(&entries));
    assert_eq!((fixture.content("victim"), fixture.content("kept/f")), (b"old".to_vec(), b"old".to_vec()));
    assert_eq!((fixture.content("to/file"), fixture.content("to/dir/f")), (b"new".to_vec(), b"new".to_vec()));
    assert!(fixture.refusal(&stream(&[(FILE, "dir", "", b"")])).contains("Is a directory"));
}

#[test]
fn long_names_of_both_kinds_are_understood() {
    let fixture = Fixture::new();
    let long = format!("{}/{}", "n".repeat(120), "m".repeat(200));
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, &long, &b"g"[..]).unwrap();
    builder.append_pax_extensions([("path", "p/\u{e9}"), ("mtime", "5.25")].map(|(k, v)| (k, v.as_bytes()))).unwrap();
    add(&mut builder, FILE, b"placeholder", b"", 0o644, b"p");
    assert_eq!(fixture.unpacked(&builder.into_inner().unwrap()), 2);
    assert_eq!(fixture.content(&format!("to/{long}")), b"g");
    let meta = std::fs::metadata(fixture.path("to/p/\u{e9}")).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (5, 250_000_000));
}

#[test]
fn a_stream_that_stops_early_is_an_error_wherever_it_stops() {
    let fixture = Fixture::new();
    let whole = stream(&[(FILE, "a", "", &[1; 700]), (FILE, "b", "", b"2")]);
    let marker = whole.len() - 1024;
    for cut in (0..marker).step_by(97).chain([512, 1536, marker - 1, marker]) {
        let message = fixture.refusal(&whole[..cut]);
        assert!(message.contains("stops before its end") || message.contains("not a tar stream"), "{cut}: {message}");
        assert_eq!(fixture.path("to/a").exists(), cut >= 512 + 700, "a file that was cut does not stay: {cut}");
        let _ = std::fs::remove_file(fixture.path("to/a"));
    }
    assert_eq!(fixture.unpacked(&whole[..marker + 512]), 701, "one block of zeros is an end");
}

#[test]
fn a_link_in_the_place_of_a_postponed_directory_is_not_followed() {
    let fixture = Fixture::new();
    let mode = || std::fs::metadata(fixture.0.path()).unwrap().permissions().mode();
    let before = mode();
    symlink("..", fixture.path("to/d")).unwrap();
    let unpacking = Unpacking::new(fixture.destination(), Options { directory_mode: 0o755 });
    for path in ["d", "d/to"] {
        let directory = Postponed { path: path.into(), mode: 0, mtime: TimeSpec::new(0, 0) };
        unpacking.finish_directory(&directory).unwrap();
    }
    assert_eq!(mode(), before);
    assert_ne!(std::fs::metadata(fixture.path("to")).unwrap().permissions().mode() & 0o777, 0);
}

#[test]
fn a_step_that_fails_ends_the_work() {
    let fixture = Fixture::new();
    let stream = stream(&[(DIR, "d/", "", b"")]);
    let failing = &mut || Err(io::Error::other("nobody waits for it"));
    let options = Options { directory_mode: 0o755 };
    let failure = unpack(&mut stream.as_slice(), fixture.destination(), options, failing).unwrap_err();
    assert!(failure.to_string().contains("nobody waits for it"), "{failure}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Entries of every kind with paths and links over a few names: whatever they do to each other, nothing changes
    /// outside of the destination.
    #[test]
    fn no_stream_makes_anything_outside_the_destination(
        entries in proptest::collection::vec((0usize..4, "(\\./|/)?([a-c]|\\.\\.)(/([a-c]|\\.\\.)){0,3}/?", "(/|\\.\\./)?[a-c](/(\\.\\.|[a-c])){0,3}"), 1..12),
    ) {
        let fixture = Fixture::new();
        for name in ["a", "b/a", "c/a/b"] {
            fixture.file(name, b"old");
        }
        let kinds = [FILE, DIR, SYMLINK, HARD];
        let mut builder = Builder::new(Vec::new());
        for (kind, path, link) in &entries {
            let data: &[u8] = if *kind == 0 { b"new" } else { b"" };
            add(&mut builder, kinds[*kind], path.as_bytes(), link.as_bytes(), 0o644, data);
        }
        let _ = fixture.unpack(&mut builder.into_inner().unwrap().as_slice());
        prop_assert_eq!(fixture.names(), ["a", "b", "c", "to"]);
        for name in ["a", "b/a", "c/a/b"] {
            prop_assert_eq!(fixture.content(name), b"old");
        }
    }
}
