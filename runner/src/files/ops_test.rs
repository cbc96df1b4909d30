//! The small operations, against a real filesystem.

use super::*;
use crate::files::Job;
use crate::files::channel::Outcome;
use crate::files::ground::Ground;
use crate::files::tree::MAX_LEVELS;

fn path(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn delete_job(text: &str, recursive: bool) -> Job {
    Job::Delete { path: path(text), recursive }
}

fn done(ground: &Ground, job: &Job) {
    let (outcome, data) = ground.run(job);
    assert!(matches!(outcome, Outcome::Done(_)) && data.is_some(), "{job:?}: {outcome:?}");
}

#[test]
fn a_stat_tells_the_kind_and_a_links_text() {
    let ground = Ground::new();
    ground.file("f", b"12345");
    ground.link("f", "l");
    let of = |name: &[u8], last| stat(&ground.places, name, last).unwrap();
    assert_eq!((of(b"f", Last::Follow).kind, of(b"f", Last::Follow).size), (FileKind::File, 5));
    assert_eq!(of(b"l", Last::Follow).kind, FileKind::File);
    assert_eq!(of(b"l", Last::Keep).symlink_target.as_deref(), Some("f"));
    assert_eq!(of(b"l", Last::Keep).path, "l");
    assert_eq!(of(b".", Last::Follow).kind, FileKind::Directory);
    assert_eq!(stat(&ground.places, b"nothing", Last::Follow).unwrap_err().error_code, ErrorCode::FileNotFound);
}

#[test]
fn a_directory_is_made_once_and_with_parents_as_often_as_asked() {
    let ground = Ground::new();
    assert_eq!(mkdir(&ground.places, b"a", false, Some(0o700)).unwrap().mode, 0o700);
    assert_eq!(mkdir(&ground.places, b"a", false, None).unwrap_err().error_code, ErrorCode::Conflict);
    assert_eq!(mkdir(&ground.places, b"x/y", false, None).unwrap_err().error_code, ErrorCode::FileNotFound);
    for _ in 0..2 {
        assert_eq!(mkdir(&ground.places, b"x/y/z/", true, None).unwrap().kind, FileKind::Directory);
    }
    ground.file("f", b"");
    assert_eq!(mkdir(&ground.places, b"f", true, None).unwrap_err().error_code, ErrorCode::Conflict);
}

#[test]
fn a_move_keeps_what_is_there_unless_told_to_overwrite() {
    let ground = Ground::new();
    ground.file("a", b"new");
    ground.file("b", b"old");
    let error = rename(&ground.places, b"a", b"b", false).unwrap_err();
    assert_eq!(error.error_code, ErrorCode::Conflict);
    assert_eq!(ground.content("b"), b"old");
    assert_eq!(rename(&ground.places, b"a", b"b", true).unwrap().path, "b");
    assert_eq!(ground.content("b"), b"new");
    assert_eq!(rename(&ground.places, b"gone", b"c", true).unwrap_err().error_code, ErrorCode::FileNotFound);
    rename(&ground.places, b"b", b"/elsewhere", false).unwrap();
    assert_eq!(std::fs::read(ground.root().join("elsewhere")).unwrap(), b"new");
}

#[test]
fn a_move_takes_a_link_itself_and_a_directory_not_into_itself() {
    let ground = Ground::new();
    ground.file("d/f", b"");
    ground.link("d", "l");
    assert_eq!(rename(&ground.places, b"l", b"m", false).unwrap().kind, FileKind::Symlink);
    assert!(ground.refusal(&Job::Move { from: path("d"), to: path("d/e"), overwrite: false }).contains("into itself"));
    assert!(
        ground.refusal(&Job::Move { from: path("m/"), to: path("n"), overwrite: false }).contains("not a directory")
    );
    assert!(
        ground.refusal(&Job::Move { from: path("d/f"), to: path("n/"), overwrite: false }).contains("not a directory")
    );
}

#[test]
fn a_directory_with_content_is_removed_only_with_its_content() {
    let ground = Ground::new();
    ground.file("d/e/f", b"");
    ground.link(ground.outside(), "d/out");
    assert!(ground.refusal(&delete_job("d", false)).contains("recursive=1"));
    done(&ground, &delete_job("d", true));
    assert_eq!(ground.names(), Vec::<String>::new());
    assert!(ground.outside().join("secret").exists(), "links are removed and not followed");
    assert!(ground.refusal(&delete_job("d", true)).contains("no such file"));
}

#[test]
fn a_tree_deeper_than_any_path_and_wider_than_a_batch_is_removed() {
    let ground = Ground::new();
    ground.deep(MAX_LEVELS * 3 + 7);
    for n in 0..1500 {
        ground.file(&format!("d/file{n}"), b"");
    }
    done(&ground, &delete_job("d", true));
    assert_eq!(ground.names(), Vec::<String>::new());
}

#[test]
fn the_root_the_workspace_and_what_leads_to_it_cannot_be_moved_or_removed() {
    let ground = Ground::new();
    ground.link("/ws", "self");
    let mut deep = Ground::new();
    std::fs::create_dir(deep.workspace().join("inner")).unwrap();
    deep.places = Places::new(&deep.root(), &deep.workspace().join("inner"));
    for text in ["/", ".", "/ws", "/ws/", "/self/..", "/ws/self/../ws"] {
        let message = ground.refusal(&delete_job(text, true));
        assert!(message.contains("cannot be removed") || message.contains("no such file"), "{text}: {message}");
        assert!(ground.workspace().exists(), "{text}");
    }
    assert!(
        ground.refusal(&Job::Move { from: path("/ws"), to: path("/x"), overwrite: true }).contains("cannot be moved")
    );
    assert!(deep.refusal(&delete_job("/ws", true)).contains("cannot be removed"), "what leads to the workspace");
    // The link to the workspace is not the workspace.
    done(&ground, &delete_job("self", false));
}
