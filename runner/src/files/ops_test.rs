//! Tests of the small operations on a real filesystem.

use super::*;
use crate::files::Job;
use crate::files::fixture::Fixture;
use crate::files::protocol::HelperResult;
use crate::files::tree::MAX_LEVELS;

fn path(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn delete_job(text: &str, recursive: bool) -> Job {
    Job::Delete { path: path(text), recursive }
}

fn done(fixture: &Fixture, job: &Job) {
    let (outcome, data) = fixture.run(job);
    assert!(matches!(outcome, HelperResult::Done(_)) && data.is_some(), "{job:?}: {outcome:?}");
}

#[test]
fn a_stat_tells_the_kind_and_a_links_text() {
    let fixture = Fixture::new();
    fixture.file("f", b"12345");
    fixture.link("f", "l");
    let of = |name: &[u8], last| stat(&fixture.roots, name, last).unwrap();
    assert_eq!((of(b"f", FinalLink::Follow).kind, of(b"f", FinalLink::Follow).size), (FileKind::File, 5));
    assert_eq!(of(b"l", FinalLink::Follow).kind, FileKind::File);
    assert_eq!(of(b"l", FinalLink::Keep).symlink_target.as_deref(), Some("f"));
    assert_eq!(of(b"l", FinalLink::Keep).path, "l");
    assert_eq!(of(b".", FinalLink::Follow).kind, FileKind::Directory);
    assert_eq!(stat(&fixture.roots, b"nothing", FinalLink::Follow).unwrap_err().error_code, ErrorCode::FileNotFound);
}

#[test]
fn a_directory_is_made_once_and_with_parents_as_often_as_asked() {
    let fixture = Fixture::new();
    assert_eq!(mkdir(&fixture.roots, b"a", false, Some(0o700)).unwrap().mode, 0o700);
    assert_eq!(mkdir(&fixture.roots, b"a", false, None).unwrap_err().error_code, ErrorCode::Conflict);
    assert_eq!(mkdir(&fixture.roots, b"x/y", false, None).unwrap_err().error_code, ErrorCode::FileNotFound);
    for _ in 0..2 {
        assert_eq!(mkdir(&fixture.roots, b"x/y/z/", true, None).unwrap().kind, FileKind::Directory);
    }
    fixture.file("f", b"");
    assert_eq!(mkdir(&fixture.roots, b"f", true, None).unwrap_err().error_code, ErrorCode::Conflict);
}

#[test]
fn a_move_keeps_what_is_there_unless_told_to_overwrite() {
    let fixture = Fixture::new();
    fixture.file("a", b"new");
    fixture.file("b", b"old");
    let error = rename(&fixture.roots, b"a", b"b", false).unwrap_err();
    assert_eq!(error.error_code, ErrorCode::Conflict);
    assert_eq!(fixture.content("b"), b"old");
    assert_eq!(rename(&fixture.roots, b"a", b"b", true).unwrap().path, "b");
    assert_eq!(fixture.content("b"), b"new");
    assert_eq!(rename(&fixture.roots, b"gone", b"c", true).unwrap_err().error_code, ErrorCode::FileNotFound);
    rename(&fixture.roots, b"b", b"/elsewhere", false).unwrap();
    assert_eq!(std::fs::read(fixture.root().join("elsewhere")).unwrap(), b"new");
}

#[test]
fn a_move_takes_a_link_itself_and_a_directory_not_into_itself() {
    let fixture = Fixture::new();
    fixture.file("d/f", b"");
    fixture.link("d", "l");
    assert_eq!(rename(&fixture.roots, b"l", b"m", false).unwrap().kind, FileKind::Symlink);
    assert!(fixture.refusal(&Job::Move { from: path("d"), to: path("d/e"), overwrite: false }).contains("into itself"));
    assert!(
        fixture.refusal(&Job::Move { from: path("m/"), to: path("n"), overwrite: false }).contains("not a directory")
    );
    assert!(
        fixture.refusal(&Job::Move { from: path("d/f"), to: path("n/"), overwrite: false }).contains("not a directory")
    );
}

#[test]
fn a_directory_with_content_is_removed_only_with_its_content() {
    let fixture = Fixture::new();
    fixture.file("d/e/f", b"");
    fixture.link(fixture.outside(), "d/out");
    assert!(fixture.refusal(&delete_job("d", false)).contains("recursive=1"));
    done(&fixture, &delete_job("d", true));
    assert_eq!(fixture.names(), Vec::<String>::new());
    assert!(fixture.outside().join("secret").exists(), "links are removed and not followed");
    assert!(fixture.refusal(&delete_job("d", true)).contains("no such file"));
}

#[test]
fn a_tree_deeper_than_any_path_and_wider_than_a_batch_is_removed() {
    let fixture = Fixture::new();
    fixture.deep(MAX_LEVELS * 3 + 7);
    for n in 0..1500 {
        fixture.file(&format!("d/file{n}"), b"");
    }
    done(&fixture, &delete_job("d", true));
    assert_eq!(fixture.names(), Vec::<String>::new());
}

#[test]
fn the_root_the_workspace_and_what_leads_to_it_cannot_be_moved_or_removed() {
    let fixture = Fixture::new();
    fixture.link("/ws", "self");
    let mut deep = Fixture::new();
    std::fs::create_dir(deep.workspace().join("inner")).unwrap();
    deep.roots = Roots::new(&deep.root(), &deep.workspace().join("inner"));
    for text in ["/", ".", "/ws", "/ws/", "/self/..", "/ws/self/../ws"] {
        let message = fixture.refusal(&delete_job(text, true));
        assert!(message.contains("cannot be removed") || message.contains("no such file"), "{text}: {message}");
        assert!(fixture.workspace().exists(), "{text}");
    }
    assert!(
        fixture.refusal(&Job::Move { from: path("/ws"), to: path("/x"), overwrite: true }).contains("cannot be moved")
    );
    assert!(deep.refusal(&delete_job("/ws", true)).contains("cannot be removed"), "what leads to the workspace");
    // A link to the workspace is not the workspace.
    done(&fixture, &delete_job("self", false));
}
