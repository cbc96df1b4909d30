//! Streams made by the `tar` crate, honest and hostile.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::files::Job;
use crate::files::channel::tests::sent;
use crate::files::ground::Ground;

fn job() -> Job {
    Job::Unpack { path: b"to".to_vec() }
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

/// Kind, path, link and data.
type Given<'a> = (EntryType, &'a str, &'a str, &'a [u8]);

fn stream(entries: &[Given<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, path, link, data) in entries {
        add(&mut builder, *kind, path.as_bytes(), link.as_bytes(), 0o6755, data);
    }
    builder.into_inner().unwrap()
}

fn unpacked(ground: &Ground, bytes: &[u8]) -> u64 {
    let (outcome, data) = ground.run_with(&job(), &sent(bytes, 777, true));
    let data = data.unwrap_or_else(|| panic!("{outcome:?}"));
    serde_json::from_slice::<WroteView>(&data).unwrap().bytes
}

const FILE: EntryType = EntryType::Regular;
const DIR: EntryType = EntryType::Directory;
const SYMLINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

#[test]
fn files_directories_and_links_are_made_with_their_times_and_without_setuid() {
    let ground = Ground::new();
    let entries: [Given<'_>; 7] = [
        (DIR, "./", "", b""),
        (DIR, "d/", "", b""),
        (FILE, "d/f", "", b"hello"),
        (FILE, "./x//y/z", "", b""),
        (SYMLINK, "l", "../../anywhere", b""),
        (HARD, "h", "d/f", b""),
        (HARD, "h", "./h", b""),
    ];
    assert_eq!(unpacked(&ground, &stream(&entries)), 5);
    let meta = |name: &str| std::fs::symlink_metadata(ground.workspace().join("to").join(name)).unwrap();
    assert_eq!(ground.content("to/d/f"), b"hello");
    assert_eq!(meta("d/f").permissions().mode() & 0o7777, 0o755);
    for name in ["d/f", "d", "l", "h"] {
        assert_eq!(meta(name).mtime(), 1_000_000_000, "{name}");
    }
    assert_eq!(meta("h").ino(), meta("d/f").ino());
    assert_eq!(std::fs::read_link(ground.workspace().join("to/l")).unwrap().to_str(), Some("../../anywhere"));
    // Once more over itself: files are replaced, directories kept.
    assert_eq!(unpacked(&ground, &stream(&entries)), 5);
}

#[test]
fn a_directory_that_may_not_be_written_to_is_closed_after_it_was_filled() {
    let ground = Ground::new();
    let mut builder = Builder::new(Vec::new());
    add(&mut builder, DIR, b"d/", b"", 0o555, b"");
    add(&mut builder, FILE, b"d/f", b"", 0o444, b"x");
    assert_eq!(unpacked(&ground, &builder.into_inner().unwrap()), 1);
    let mode = std::fs::metadata(ground.workspace().join("to/d")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o555);
}

#[test]
fn an_entry_that_would_leave_the_destination_is_refused_by_name() {
    let ground = Ground::new();
    ground.file("outside-of-to", b"old");
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
        let message = ground.refusal_with(&job(), &stream(entries));
        assert!(message.contains(why), "{message}");
        assert!(message.contains(&format!("{:?}", entries[entries.len() - 1].1)), "it names the entry: {message}");
        assert_eq!(message.ends_with("which stay: 1"), entries.len() == 2, "{message}");
    }
    assert_eq!(ground.content("outside-of-to"), b"old");
    assert_eq!(ground.names(), ["outside-of-to", "to"]);
}

#[test]
fn a_link_in_the_place_of_a_file_or_directory_is_replaced_and_not_written_through() {
    let ground = Ground::new();
    ground.file("victim", b"old");
    ground.file("kept/f", b"old");
    std::fs::create_dir(ground.workspace().join("to")).unwrap();
    ground.link("../victim", "to/file");
    ground.link("../kept", "to/dir");
    let entries: [Given<'_>; 3] = [(FILE, "file", "", b"new"), (DIR, "dir", "", b""), (FILE, "dir/f", "", b"new")];
    unpacked(&ground, &stream(&entries));
    assert_eq!((ground.content("victim"), ground.content("kept/f")), (b"old".to_vec(), b"old".to_vec()));
    assert_eq!((ground.content("to/file"), ground.content("to/dir/f")), (b"new".to_vec(), b"new".to_vec()));
    assert!(ground.refusal_with(&job(), &stream(&[(FILE, "dir", "", b"")])).contains("is a directory"));
}

#[test]
fn long_names_of_both_kinds_are_understood() {
    let ground = Ground::new();
    let long = format!("{}/{}", "n".repeat(120), "m".repeat(200));
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    builder.append_data(&mut header, &long, &b"g"[..]).unwrap();
    builder.append_pax_extensions([("path", "p/\u{e9}"), ("mtime", "5.25")].map(|(k, v)| (k, v.as_bytes()))).unwrap();
    add(&mut builder, FILE, b"placeholder", b"", 0o644, b"p");
    assert_eq!(unpacked(&ground, &builder.into_inner().unwrap()), 2);
    assert_eq!(ground.content(&format!("to/{long}")), b"g");
    let meta = std::fs::metadata(ground.workspace().join("to/p/\u{e9}")).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (5, 250_000_000));
}

#[test]
fn a_stream_that_stops_early_is_an_error_wherever_it_stops() {
    let ground = Ground::new();
    let whole = stream(&[(FILE, "a", "", &[1; 700]), (FILE, "b", "", b"2")]);
    let marker = whole.len() - 1024;
    for cut in (0..marker).step_by(97).chain([512, 1536, marker - 1, marker]) {
        let message = ground.refusal_with(&job(), &whole[..cut]);
        assert!(message.contains("stops before its end") || message.contains("not a tar stream"), "{cut}: {message}");
        assert_eq!(
            ground.workspace().join("to/a").exists(),
            cut >= 512 + 700,
            "a file that was cut does not stay: {cut}"
        );
        let _ = std::fs::remove_file(ground.workspace().join("to/a"));
    }
    assert_eq!(unpacked(&ground, &whole[..marker + 512]), 701, "one block of zeros is an end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Entries of every kind with paths and links over a few names: whatever they do to each other, nothing changes
    /// outside of the destination.
    #[test]
    fn no_stream_makes_anything_outside_the_destination(
        entries in proptest::collection::vec((0usize..4, "(\\./|/)?([a-c]|\\.\\.)(/([a-c]|\\.\\.)){0,3}/?", "(/|\\.\\./)?[a-c](/(\\.\\.|[a-c])){0,3}"), 1..12),
    ) {
        let ground = Ground::new();
        for name in ["a", "b/a", "c/a/b"] {
            ground.file(name, b"old");
        }
        let kinds = [FILE, DIR, SYMLINK, HARD];
        let mut builder = Builder::new(Vec::new());
        for (kind, path, link) in &entries {
            let data: &[u8] = if *kind == 0 { b"new" } else { b"" };
            add(&mut builder, kinds[*kind], path.as_bytes(), link.as_bytes(), 0o644, data);
        }
        let _ = ground.run_with(&job(), &sent(&builder.into_inner().unwrap(), 1000, true));
        prop_assert_eq!(ground.names(), ["a", "b", "c", "to"]);
        for name in ["a", "b/a", "c/a/b"] {
            prop_assert_eq!(ground.content(name), b"old");
        }
        prop_assert_eq!(std::fs::read_dir(ground.root()).unwrap().count(), 1);
        prop_assert_eq!(std::fs::read_dir(ground.outside()).unwrap().count(), 1);
    }
}
