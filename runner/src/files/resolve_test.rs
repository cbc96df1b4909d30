//! Tests with paths that try to leave the root, and a model of where valid paths lead.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use shared_protocol::runner::MAX_PATH_BYTES;

use super::*;
use crate::files::fixture::Fixture;
use crate::files::inode::open_regular;

fn inode(fixture: &Fixture, path: &[u8]) -> Result<u64, String> {
    let resolved = resolve(&fixture.roots, path, FinalLink::Follow, MissingDirs::Fail).map_err(|e| e.message)?;
    Ok(resolved.inode(path).map_err(|e| e.message)?.stat.st_ino)
}

fn inode_of(path: &Path) -> u64 {
    nix::sys::stat::lstat(path).unwrap().st_ino
}

#[test]
fn relative_paths_begin_in_the_workspace_and_absolute_ones_at_the_root() {
    let fixture = Fixture::new();
    fixture.file("a/b", b"");
    for path in ["a/b", "./a//./b", "/ws/a/b", "//ws/a/../a/b", "/../../ws/a/b", "a/../a/b"] {
        assert_eq!(inode(&fixture, path.as_bytes()), Ok(inode_of(&fixture.workspace().join("a/b"))), "{path}");
    }
    for path in [".", "a/..", "/ws", "/ws/", "/ws/."] {
        assert_eq!(inode(&fixture, path.as_bytes()), Ok(inode_of(&fixture.workspace())), "{path}");
    }
    assert_eq!(inode(&fixture, b"/.."), Ok(inode_of(&fixture.root())));
}

#[test]
fn a_relative_path_that_leaves_the_workspace_is_told_to_be_absolute() {
    let fixture = Fixture::new();
    fixture.file("a/b", b"");
    for path in ["..", "../ws/a", "a/../..", "a/../../ws"] {
        assert!(inode(&fixture, path.as_bytes()).unwrap_err().contains("use an absolute path"), "{path}");
    }
}

#[test]
fn links_lead_within_the_root_and_never_out_of_it() {
    let fixture = Fixture::new();
    fixture.file("a/b", b"");
    fixture.link("/ws/a", "absolute");
    fixture.link("a", "relative");
    fixture.link("../../../../../ws/a", "climbing");
    fixture.link(fixture.outside().join("secret"), "out");
    fixture.link("../../outside/secret", "out-by-dots");
    for path in ["absolute/b", "relative/b", "climbing/b"] {
        assert_eq!(inode(&fixture, path.as_bytes()), Ok(inode_of(&fixture.workspace().join("a/b"))), "{path}");
    }
    // Inside the root, these paths lead to nothing.
    assert!(inode(&fixture, b"out").unwrap_err().contains("no such file"));
    assert!(inode(&fixture, b"out-by-dots").unwrap_err().contains("no such file"));
}

#[test]
fn a_loop_of_links_ends_and_so_does_a_long_chain() {
    let fixture = Fixture::new();
    fixture.link("one", "two");
    fixture.link("two", "one");
    assert!(inode(&fixture, b"one").unwrap_err().contains("too many symbolic links"));
    fixture.file("l0", b"");
    for n in 1..=MAX_LINKS + 1 {
        fixture.link(format!("l{}", n - 1), &format!("l{n}"));
    }
    assert!(inode(&fixture, format!("l{MAX_LINKS}").as_bytes()).is_ok());
    assert!(inode(&fixture, format!("l{}", MAX_LINKS + 1).as_bytes()).is_err());
}

#[test]
fn the_links_of_proc_are_read_and_not_jumped_through() {
    // This descriptor leads to a directory outside the root; `/proc/self/fd` would lead there if the kernel followed it.
    let fixture = Fixture::new();
    let outside = std::fs::File::open(fixture.outside()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&outside);
    let host = Roots::new(Path::new("/"), Path::new("/"));
    let path = format!("/proc/self/fd/{number}/secret");
    assert!(std::fs::read(&path).is_ok(), "the control: the kernel does jump");
    assert!(
        resolve(&host, path.as_bytes(), FinalLink::Follow, MissingDirs::Fail).is_ok(),
        "by its text, within the whole system"
    );
    std::fs::remove_dir_all(fixture.outside()).unwrap();
    std::fs::create_dir(fixture.outside()).unwrap();
    assert!(std::fs::metadata(format!("/proc/self/fd/{number}/.")).is_ok(), "the control: to the deleted directory");
    let path = format!("/proc/self/fd/{number}/.");
    let resolved = resolve(&host, path.as_bytes(), FinalLink::Follow, MissingDirs::Fail).unwrap();
    assert!(resolved.inode.is_none(), "its text, which ends in `(deleted)`, names nothing");
}

#[test]
fn the_last_link_is_kept_where_asked_and_a_slash_insists_on_a_directory() {
    let fixture = Fixture::new();
    fixture.file("a/b", b"");
    fixture.link("a", "l");
    let keep = |path: &[u8]| resolve(&fixture.roots, path, FinalLink::Keep, MissingDirs::Fail);
    assert!(is_symlink(&keep(b"l").unwrap().inode.unwrap().stat));
    assert!(keep(b"l/").is_err());
    assert!(keep(b"l/b").unwrap().inode.is_some());
    assert!(inode(&fixture, b"l/").is_ok());
    assert!(inode(&fixture, b"a/b/").unwrap_err().contains("not a directory"));
    assert!(inode(&fixture, b"a/b/.").unwrap_err().contains("not a directory"));
    assert!(inode(&fixture, b"a/b/c").unwrap_err().contains("not a directory"));
}

#[test]
fn a_name_that_is_free_is_found_together_with_where_it_would_be() {
    let fixture = Fixture::new();
    fixture.link("/ws/new/deep/file", "dangling");
    let resolved = resolve(&fixture.roots, b"dangling", FinalLink::Follow, MissingDirs::Create).unwrap();
    assert_eq!(resolved.name.as_deref(), Some(&b"file"[..]));
    assert!(resolved.inode.is_none());
    assert_eq!(fstat(resolved.parent()).unwrap().st_ino, inode_of(&fixture.workspace().join("new/deep")));
}

#[test]
fn paths_that_are_too_long_or_too_deep_are_refused() {
    let fixture = Fixture::new();
    assert!(inode(&fixture, &vec![b'a'; MAX_PATH_BYTES + 1]).unwrap_err().contains("longer than"));
    assert!(inode(&fixture, &[b'a'; 300]).unwrap_err().contains("too long"));
    fixture.deep(MAX_DEPTH + 10);
    let path = vec!["d"; MAX_DEPTH + 5].join("/");
    assert!(inode(&fixture, path.as_bytes()).unwrap_err().contains("too deep"));
}

/// A thread swaps a directory with a link out of the root ten thousand times while a path through it is resolved.
#[test]
fn a_directory_that_is_swapped_for_a_link_meanwhile_never_leads_out() {
    let fixture = Fixture::new();
    fixture.file("d/secret", b"ours");
    fixture.link(fixture.outside(), "swap");
    let [name, link, aside] = ["d", "swap", "aside"].map(|n| fixture.workspace().join(n));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (from, to) in [(&name, &aside), (&link, &name), (&name, &link), (&aside, &name)] {
                    std::fs::rename(from, to).unwrap();
                }
            }
        });
        let (mut ours, mut nothing) = (0, 0);
        for _ in 0..10_000 {
            let Ok(resolved) = resolve(&fixture.roots, b"d/secret", FinalLink::Follow, MissingDirs::Fail) else {
                nothing += 1;
                continue;
            };
            let Some(inode) = &resolved.inode else {
                nothing += 1;
                continue;
            };
            let mut content = String::new();
            let mut file = open_regular(resolved.parent(), b"secret", &inode.stat).unwrap();
            std::io::Read::read_to_string(&mut file, &mut content).unwrap();
            assert_eq!(content, "ours");
            ours += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(ours > 0, "read {ours}, found nothing {nothing}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// With links everywhere, every result is below the root: its way up by `..` ends at the root, and it is never the
    /// directory outside, to which links point in every spelling.
    #[test]
    fn no_path_over_any_links_leads_out(
        links in proptest::collection::vec(("[a-d]", "(/|\\.\\./|[a-d]/|\\./){0,5}[a-d.]{1,2}"), 0..6),
        path in "/?((\\.\\.|[a-d]|\\.|outside|secret|ws)/){0,8}([a-d]|secret)?",
    ) {
        let fixture = Fixture::new();
        fixture.file("a/b/c/secret", b"ours");
        for (name, text) in &links {
            let _ = std::os::unix::fs::symlink(text, fixture.workspace().join(name));
            let _ = std::os::unix::fs::symlink(fixture.outside().join(text), fixture.workspace().join("a").join(name));
        }
        if let Ok(Resolved { inode: Some(inode), dirs, .. }) = resolve(&fixture.roots, path.as_bytes(), FinalLink::Follow, MissingDirs::Create) {
            let forbidden = [fixture.outside(), fixture.outside().join("secret"), fixture.root().join("..")].map(|p| inode_of(&p));
            prop_assert!(!forbidden.contains(&inode.stat.st_ino));
            for dir in &dirs {
                prop_assert!(!forbidden.contains(&fstat(dir).unwrap().st_ino));
            }
            prop_assert_eq!(fstat(&dirs[0]).unwrap().st_ino, inode_of(&fixture.root()));
        }
        prop_assert_eq!(std::fs::read_dir(fixture.outside()).unwrap().count(), 1, "nothing was made outside");
    }
}
