//! Paths that try to leave, and a model of where honest ones lead.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::files::ground::Ground;
use crate::files::node::open_regular;

fn inode(ground: &Ground, path: &[u8]) -> Result<u64, String> {
    let place = resolve(&ground.places, path, Last::Follow, Missing::Fail).map_err(|e| e.message)?;
    Ok(place.node(path).map_err(|e| e.message)?.stat.st_ino)
}

fn inode_of(path: &Path) -> u64 {
    nix::sys::stat::lstat(path).unwrap().st_ino
}

#[test]
fn relative_paths_begin_in_the_workspace_and_absolute_ones_at_the_root() {
    let ground = Ground::new();
    ground.file("a/b", b"");
    for path in ["a/b", "./a//./b", "/ws/a/b", "//ws/a/../a/b", "/../../ws/a/b", "a/../a/b"] {
        assert_eq!(inode(&ground, path.as_bytes()), Ok(inode_of(&ground.workspace().join("a/b"))), "{path}");
    }
    for path in [".", "a/..", "/ws", "/ws/", "/ws/."] {
        assert_eq!(inode(&ground, path.as_bytes()), Ok(inode_of(&ground.workspace())), "{path}");
    }
    assert_eq!(inode(&ground, b"/.."), Ok(inode_of(&ground.root())));
}

#[test]
fn a_relative_path_that_leaves_the_workspace_is_told_to_be_absolute() {
    let ground = Ground::new();
    ground.file("a/b", b"");
    for path in ["..", "../ws/a", "a/../..", "a/../../ws"] {
        assert!(inode(&ground, path.as_bytes()).unwrap_err().contains("use an absolute path"), "{path}");
    }
}

#[test]
fn links_lead_within_the_root_and_never_out_of_it() {
    let ground = Ground::new();
    ground.file("a/b", b"");
    ground.link("/ws/a", "absolute");
    ground.link("a", "relative");
    ground.link("../../../../../ws/a", "climbing");
    ground.link(ground.outside().join("secret"), "out");
    ground.link("../../outside/secret", "out-by-dots");
    for path in ["absolute/b", "relative/b", "climbing/b"] {
        assert_eq!(inode(&ground, path.as_bytes()), Ok(inode_of(&ground.workspace().join("a/b"))), "{path}");
    }
    // Taken within the root, these lead to nothing.
    assert!(inode(&ground, b"out").unwrap_err().contains("no such file"));
    assert!(inode(&ground, b"out-by-dots").unwrap_err().contains("no such file"));
}

#[test]
fn a_loop_of_links_ends_and_so_does_a_long_chain() {
    let ground = Ground::new();
    ground.link("one", "two");
    ground.link("two", "one");
    assert!(inode(&ground, b"one").unwrap_err().contains("too many symbolic links"));
    ground.file("l0", b"");
    for n in 1..=MAX_LINKS + 1 {
        ground.link(format!("l{}", n - 1), &format!("l{n}"));
    }
    assert!(inode(&ground, format!("l{MAX_LINKS}").as_bytes()).is_ok());
    assert!(inode(&ground, format!("l{}", MAX_LINKS + 1).as_bytes()).is_err());
}

#[test]
fn the_links_of_proc_are_read_and_not_jumped_through() {
    // A descriptor to a place outside of the root, which `/proc/self/fd` would lead to if the kernel followed it.
    let ground = Ground::new();
    let outside = std::fs::File::open(ground.outside()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&outside);
    let host = Places::new(Path::new("/"), Path::new("/"));
    let path = format!("/proc/self/fd/{number}/secret");
    assert!(std::fs::read(&path).is_ok(), "the control: the kernel does jump");
    assert!(
        resolve(&host, path.as_bytes(), Last::Follow, Missing::Fail).is_ok(),
        "by its text, within the whole system"
    );
    std::fs::remove_dir_all(ground.outside()).unwrap();
    std::fs::create_dir(ground.outside()).unwrap();
    assert!(std::fs::metadata(format!("/proc/self/fd/{number}/.")).is_ok(), "the control: to the deleted directory");
    let path = format!("/proc/self/fd/{number}/.");
    let place = resolve(&host, path.as_bytes(), Last::Follow, Missing::Fail).unwrap();
    assert!(place.node.is_none(), "its text, which ends in `(deleted)`, names nothing");
}

#[test]
fn the_last_link_is_kept_where_asked_and_a_slash_insists_on_a_directory() {
    let ground = Ground::new();
    ground.file("a/b", b"");
    ground.link("a", "l");
    let keep = |path: &[u8]| resolve(&ground.places, path, Last::Keep, Missing::Fail);
    assert!(is_symlink(&keep(b"l").unwrap().node.unwrap().stat));
    assert!(keep(b"l/").is_err());
    assert!(keep(b"l/b").unwrap().node.is_some());
    assert!(inode(&ground, b"l/").is_ok());
    assert!(inode(&ground, b"a/b/").unwrap_err().contains("not a directory"));
    assert!(inode(&ground, b"a/b/.").unwrap_err().contains("not a directory"));
    assert!(inode(&ground, b"a/b/c").unwrap_err().contains("not a directory"));
}

#[test]
fn a_name_that_is_free_is_found_together_with_where_it_would_be() {
    let ground = Ground::new();
    ground.link("/ws/new/deep/file", "dangling");
    let place = resolve(&ground.places, b"dangling", Last::Follow, Missing::Make).unwrap();
    assert_eq!(place.name.as_deref(), Some(&b"file"[..]));
    assert!(place.node.is_none());
    assert_eq!(fstat(place.parent()).unwrap().st_ino, inode_of(&ground.workspace().join("new/deep")));
}

#[test]
fn paths_that_are_too_long_or_too_deep_are_refused() {
    let ground = Ground::new();
    assert!(inode(&ground, &vec![b'a'; MAX_PATH + 1]).unwrap_err().contains("longer than"));
    assert!(inode(&ground, &[b'a'; 300]).unwrap_err().contains("too long"));
    ground.deep(MAX_DEPTH + 10);
    let path = vec!["d"; MAX_DEPTH + 5].join("/");
    assert!(inode(&ground, path.as_bytes()).unwrap_err().contains("too deep"));
}

/// A process that swaps a directory with a link out of the root while it is walked through, ten thousand times over.
#[test]
fn a_directory_that_is_swapped_for_a_link_meanwhile_never_leads_out() {
    let ground = Ground::new();
    ground.file("d/secret", b"ours");
    ground.link(ground.outside(), "swap");
    let [name, link, aside] = ["d", "swap", "aside"].map(|n| ground.workspace().join(n));
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
            let Ok(place) = resolve(&ground.places, b"d/secret", Last::Follow, Missing::Fail) else {
                nothing += 1;
                continue;
            };
            let Some(node) = &place.node else {
                nothing += 1;
                continue;
            };
            let mut content = String::new();
            let mut file = open_regular(place.parent(), b"secret", &node.stat).unwrap();
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

    /// With links everywhere, whatever is found is below the root: its way up by `..` ends there, and the place outside,
    /// to which links point by every spelling, is never it.
    #[test]
    fn no_path_over_any_links_leads_out(
        links in proptest::collection::vec(("[a-d]", "(/|\\.\\./|[a-d]/|\\./){0,5}[a-d.]{1,2}"), 0..6),
        path in "/?((\\.\\.|[a-d]|\\.|outside|secret|ws)/){0,8}([a-d]|secret)?",
    ) {
        let ground = Ground::new();
        ground.file("a/b/c/secret", b"ours");
        for (name, text) in &links {
            let _ = std::os::unix::fs::symlink(text, ground.workspace().join(name));
            let _ = std::os::unix::fs::symlink(ground.outside().join(text), ground.workspace().join("a").join(name));
        }
        if let Ok(Place { node: Some(node), dirs, .. }) = resolve(&ground.places, path.as_bytes(), Last::Follow, Missing::Make) {
            let forbidden = [ground.outside(), ground.outside().join("secret"), ground.root().join("..")].map(|p| inode_of(&p));
            prop_assert!(!forbidden.contains(&node.stat.st_ino));
            for dir in &dirs {
                prop_assert!(!forbidden.contains(&fstat(dir).unwrap().st_ino));
            }
            prop_assert_eq!(fstat(&dirs[0]).unwrap().st_ino, inode_of(&ground.root()));
        }
        prop_assert_eq!(std::fs::read_dir(ground.outside()).unwrap().count(), 1, "nothing was made outside");
    }
}
