//! Tests of reading and writing files, complete and cut.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use crate::files::Job;
use crate::files::fixture::Fixture;
use crate::files::protocol::tests::sent;

fn read_job(path: &str, range: Option<Range>) -> Job {
    Job::Read { path: path.as_bytes().to_vec(), range }
}

fn write_job(path: &str, mode: Option<u32>) -> Job {
    Job::Write { path: path.as_bytes().to_vec(), mode }
}

fn head(outcome: HelperResult) -> Head {
    match outcome {
        HelperResult::Done(head) => head,
        HelperResult::Failed(error) => panic!("{error}"),
    }
}

#[test]
fn a_file_of_any_size_comes_out_as_it_is() {
    let fixture = Fixture::new();
    for size in [0, 1, MAX_FRAME - 1, MAX_FRAME, MAX_FRAME + 1, 3 * MAX_FRAME + 17] {
        let content: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
        fixture.file("f", &content);
        let (outcome, data) = fixture.run(&read_job("f", None));
        let head = head(outcome);
        // A file exactly as long as a frame does not show its end, but its size is known.
        assert_eq!((head.status, head.length), (200, Some(size as u64)));
        assert_eq!(data.unwrap(), content);
    }
}

#[test]
fn files_of_proc_that_say_they_are_empty_are_read_to_their_end() {
    let host = Fixture::new();
    let roots = Roots::new(std::path::Path::new("/"), &host.workspace());
    let mut said = Vec::new();
    read(&roots, b"/proc/self/status", None, &mut ReplyWriter::new(&mut said)).unwrap();
    let (outcome, data) = crate::files::protocol::tests::heard(&said);
    let data = data.unwrap();
    assert!(data.starts_with(b"Name:"));
    assert_eq!(head(outcome).length, Some(data.len() as u64));
}

#[test]
fn what_is_not_a_regular_file_is_named_and_not_opened() {
    let fixture = Fixture::new();
    nix::unistd::mkfifo(&fixture.workspace().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.workspace().join("socket")).unwrap();
    fixture.link("fifo", "link");
    assert!(fixture.refusal(&read_job("fifo", None)).contains("it is a FIFO"));
    assert!(fixture.refusal(&read_job("link", None)).contains("it is a FIFO"));
    assert!(fixture.refusal(&read_job("socket", None)).contains("it is a socket"));
    assert!(fixture.refusal(&read_job(".", None)).contains("it is a directory"));
    assert!(fixture.refusal(&write_job("fifo", None)).contains("it is a FIFO"));
    assert!(fixture.refusal(&write_job("/ws", None)).contains("it is a directory"));
    assert!(fixture.refusal(&write_job("new/", None)).contains("slash"));
}

#[test]
fn a_part_of_a_file_is_announced_as_that_part() {
    let fixture = Fixture::new();
    fixture.file("f", b"0123456789");
    for (range, expected, announced) in [
        (Range::Between(2, 4), &b"234"[..], "bytes 2-4/10"),
        (Range::Between(8, 99), b"89", "bytes 8-9/10"),
        (Range::From(7), b"789", "bytes 7-9/10"),
        (Range::Last(3), b"789", "bytes 7-9/10"),
        (Range::Last(99), b"0123456789", "bytes 0-9/10"),
    ] {
        let (outcome, data) = fixture.run(&read_job("f", Some(range)));
        let head = head(outcome);
        assert_eq!((head.status, head.range.as_deref()), (206, Some(announced)));
        assert_eq!((data.unwrap().as_slice(), head.length), (expected, Some(expected.len() as u64)));
    }
    for range in [Range::From(10), Range::Between(10, 20), Range::Last(0)] {
        assert!(fixture.refusal(&read_job("f", Some(range))).contains("10 bytes"));
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_cut_and_not_filled_up() {
    let fixture = Fixture::new();
    fixture.file("f", b"0123456789");
    let mut file = File::open(fixture.workspace().join("f")).unwrap();
    let mut said = Vec::new();
    let error = send_exactly(&mut file, 20, b"f", &mut ReplyWriter::new(&mut said)).unwrap_err();
    assert!(error.message.contains("shorter"));
}

#[test]
fn a_written_file_replaces_the_old_one_and_keeps_its_mode() {
    let fixture = Fixture::new();
    let mode = |name: &str| std::fs::metadata(fixture.workspace().join(name)).unwrap().permissions().mode() & 0o7777;
    let (outcome, data) = fixture.run_with(&write_job("new/deep/f", None), &sent(b"hello", 2, true));
    assert_eq!((head(outcome).status, data.unwrap().as_slice()), (201, &b"{\"bytes\":5}"[..]));
    assert_eq!((fixture.content("new/deep/f").as_slice(), mode("new/deep/f")), (&b"hello"[..], 0o644));
    std::fs::set_permissions(fixture.workspace().join("new/deep/f"), PermissionsExt::from_mode(0o4750)).unwrap();
    fixture.run_with(&write_job("new/deep/f", None), &sent(b"", 1, true));
    assert_eq!((fixture.content("new/deep/f").as_slice(), mode("new/deep/f")), (&b""[..], 0o750), "setuid is dropped");
    fixture.run_with(&write_job("new/deep/f", Some(0o600)), &sent(b"x", 1, true));
    assert_eq!(mode("new/deep/f"), 0o600);
}

#[test]
fn writing_through_a_link_replaces_what_it_leads_to() {
    let fixture = Fixture::new();
    fixture.file("real", b"old");
    fixture.link("real", "link");
    fixture.link("made", "dangling");
    fixture.run_with(&write_job("link", None), &sent(b"new", 3, true));
    fixture.run_with(&write_job("dangling", None), &sent(b"new", 3, true));
    assert_eq!((fixture.content("real"), fixture.content("made")), (b"new".to_vec(), b"new".to_vec()));
    assert!(fixture.workspace().join("link").is_symlink());
}

#[test]
fn a_request_that_was_cut_changes_nothing_and_leaves_nothing() {
    let fixture = Fixture::new();
    fixture.file("f", b"old");
    let whole = sent(b"new content", 4, true);
    for cut in 0..whole.len() {
        let (outcome, _) = fixture.run_with(&write_job("f", None), &whole[..cut]);
        assert!(matches!(outcome, HelperResult::Failed(_)), "cut after {cut}");
        assert_eq!(fixture.content("f"), b"old");
        assert_eq!(fixture.names(), ["f"], "cut after {cut}");
    }
}

proptest! {
    #[test]
    fn a_range_within_a_file_is_never_empty_and_never_beyond_it(a: u64, b: u64, size: u64, form in 0..3) {
        let range = match form { 0 => Range::From(a), 1 => Range::Between(a.min(b), a.max(b)), _ => Range::Last(a) };
        if let Some((start, length)) = range.within(size) {
            prop_assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= size));
        }
    }
}
