//! Files out and in, whole and cut.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use crate::files::Job;
use crate::files::channel::tests::sent;
use crate::files::ground::Ground;

fn read_job(path: &str, range: Option<Range>) -> Job {
    Job::Read { path: path.as_bytes().to_vec(), range }
}

fn write_job(path: &str, mode: Option<u32>) -> Job {
    Job::Write { path: path.as_bytes().to_vec(), mode }
}

fn head(outcome: Outcome) -> Head {
    match outcome {
        Outcome::Done(head) => head,
        Outcome::Failed(error) => panic!("{error}"),
    }
}

#[test]
fn a_file_of_any_size_comes_out_as_it_is() {
    let ground = Ground::new();
    for size in [0, 1, MAX_FRAME - 1, MAX_FRAME, MAX_FRAME + 1, 3 * MAX_FRAME + 17] {
        let content: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
        ground.file("f", &content);
        let (outcome, data) = ground.run(&read_job("f", None));
        let head = head(outcome);
        // One exactly as long as a frame is not seen to be at its end, but its size is known.
        assert_eq!((head.status, head.length), (200, Some(size as u64)));
        assert_eq!(data.unwrap(), content);
    }
}

#[test]
fn files_of_proc_that_say_they_are_empty_are_read_to_their_end() {
    let host = Ground::new();
    let places = Places::new(std::path::Path::new("/"), &host.workspace());
    let mut said = Vec::new();
    read(&places, b"/proc/self/status", None, &mut Answer::new(&mut said)).unwrap();
    let (outcome, data) = crate::files::channel::tests::heard(&said);
    let data = data.unwrap();
    assert!(data.starts_with(b"Name:"));
    assert_eq!(head(outcome).length, Some(data.len() as u64));
}

#[test]
fn what_is_not_a_regular_file_is_named_and_not_opened() {
    let ground = Ground::new();
    nix::unistd::mkfifo(&ground.workspace().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(ground.workspace().join("socket")).unwrap();
    ground.link("fifo", "link");
    assert!(ground.refusal(&read_job("fifo", None)).contains("it is a FIFO"));
    assert!(ground.refusal(&read_job("link", None)).contains("it is a FIFO"));
    assert!(ground.refusal(&read_job("socket", None)).contains("it is a socket"));
    assert!(ground.refusal(&read_job(".", None)).contains("it is a directory"));
    assert!(ground.refusal(&write_job("fifo", None)).contains("it is a FIFO"));
    assert!(ground.refusal(&write_job("/ws", None)).contains("it is a directory"));
    assert!(ground.refusal(&write_job("new/", None)).contains("slash"));
}

#[test]
fn a_part_of_a_file_is_announced_as_that_part() {
    let ground = Ground::new();
    ground.file("f", b"0123456789");
    for (range, expected, announced) in [
        (Range::Between(2, 4), &b"234"[..], "bytes 2-4/10"),
        (Range::Between(8, 99), b"89", "bytes 8-9/10"),
        (Range::From(7), b"789", "bytes 7-9/10"),
        (Range::Last(3), b"789", "bytes 7-9/10"),
        (Range::Last(99), b"0123456789", "bytes 0-9/10"),
    ] {
        let (outcome, data) = ground.run(&read_job("f", Some(range)));
        let head = head(outcome);
        assert_eq!((head.status, head.range.as_deref()), (206, Some(announced)));
        assert_eq!((data.unwrap().as_slice(), head.length), (expected, Some(expected.len() as u64)));
    }
    for range in [Range::From(10), Range::Between(10, 20), Range::Last(0)] {
        assert!(ground.refusal(&read_job("f", Some(range))).contains("10 bytes"));
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_cut_and_not_filled_up() {
    let ground = Ground::new();
    ground.file("f", b"0123456789");
    let mut file = File::open(ground.workspace().join("f")).unwrap();
    let mut said = Vec::new();
    let error = send_exactly(&mut file, 20, b"f", &mut Answer::new(&mut said)).unwrap_err();
    assert!(error.message.contains("shorter"));
}

#[test]
fn a_written_file_replaces_the_old_one_and_keeps_its_mode() {
    let ground = Ground::new();
    let mode = |name: &str| std::fs::metadata(ground.workspace().join(name)).unwrap().permissions().mode() & 0o7777;
    let (outcome, data) = ground.run_with(&write_job("new/deep/f", None), &sent(b"hello", 2, true));
    assert_eq!((head(outcome).status, data.unwrap().as_slice()), (201, &b"{\"bytes\":5}"[..]));
    assert_eq!((ground.content("new/deep/f").as_slice(), mode("new/deep/f")), (&b"hello"[..], 0o644));
    std::fs::set_permissions(ground.workspace().join("new/deep/f"), PermissionsExt::from_mode(0o4750)).unwrap();
    ground.run_with(&write_job("new/deep/f", None), &sent(b"", 1, true));
    assert_eq!((ground.content("new/deep/f").as_slice(), mode("new/deep/f")), (&b""[..], 0o750), "setuid is dropped");
    ground.run_with(&write_job("new/deep/f", Some(0o600)), &sent(b"x", 1, true));
    assert_eq!(mode("new/deep/f"), 0o600);
}

#[test]
fn writing_through_a_link_replaces_what_it_leads_to() {
    let ground = Ground::new();
    ground.file("real", b"old");
    ground.link("real", "link");
    ground.link("made", "dangling");
    ground.run_with(&write_job("link", None), &sent(b"new", 3, true));
    ground.run_with(&write_job("dangling", None), &sent(b"new", 3, true));
    assert_eq!((ground.content("real"), ground.content("made")), (b"new".to_vec(), b"new".to_vec()));
    assert!(ground.workspace().join("link").is_symlink());
}

#[test]
fn a_request_that_was_cut_changes_nothing_and_leaves_nothing() {
    let ground = Ground::new();
    ground.file("f", b"old");
    let whole = sent(b"new content", 4, true);
    for cut in 0..whole.len() {
        let (outcome, _) = ground.run_with(&write_job("f", None), &whole[..cut]);
        assert!(matches!(outcome, Outcome::Failed(_)), "cut after {cut}");
        assert_eq!(ground.content("f"), b"old");
        assert_eq!(ground.names(), ["f"], "cut after {cut}");
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
