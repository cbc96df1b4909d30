//! The archive of a layer from directories as overlayfs leaves them.

use super::*;
use nix::sys::stat::{Mode, SFlag, mknod};
use std::os::unix::fs::PermissionsExt;

fn packed(root: &Path, trees: Vec<TreeSource>, owners: OwnerMap) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    pack(&PackTask { trees, owners }, root, &mut bytes).map(|()| bytes)
}

fn tree(from: &str, to: &str) -> TreeSource {
    TreeSource { from: from.into(), to: to.into(), left_out: Vec::new(), emptied: Vec::new() }
}

const SAME: OwnerMap = OwnerMap { root_was: None, others: 0 };

/// The entries of an archive: kind, name, and what it says.
fn entries(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let attributes: Vec<String> = match entry.pax_extensions().unwrap() {
            Some(records) => records.map(|record| record.unwrap().key().unwrap().to_owned()).collect(),
            None => Vec::new(),
        };
        let header = entry.header().clone();
        let link = entry.link_name().unwrap().map(|to| format!(" -> {}", to.display())).unwrap_or_default();
        let mut content = String::new();
        io::Read::read_to_string(&mut entry, &mut content).unwrap();
        let kind = match header.entry_type() {
            EntryType::Directory => 'd',
            EntryType::Symlink => 'l',
            EntryType::Link => 'h',
            _ => '-',
        };
        format!("{kind}{:o} {path}{link} {content}{}", header.mode().unwrap(), attributes.join(" ")).trim().to_owned()
    });
    entries.collect()
}

#[test]
fn files_links_and_attributes_are_in_the_archive_and_what_is_the_sandboxs_own_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let upper = folder.path().join("upper");
    for directory in ["etc", "tmp/x", "usr/bin"] {
        std::fs::create_dir_all(upper.join(directory)).unwrap();
    }
    std::fs::write(upper.join("usr/bin/tool"), "tool").unwrap();
    std::fs::set_permissions(upper.join("usr/bin/tool"), PermissionsExt::from_mode(0o4755)).unwrap();
    std::fs::hard_link(upper.join("usr/bin/tool"), upper.join("usr/bin/tool2")).unwrap();
    std::os::unix::fs::symlink("/etc/shadow", upper.join("etc/link")).unwrap();
    std::fs::write(upper.join("etc/hostname"), "own").unwrap();
    std::fs::write(upper.join("etc/.wh.trick"), "").unwrap();
    let has_attributes =
        rustix::fs::lsetxattr(upper.join("etc"), "user.note", b"x", rustix::fs::XattrFlags::empty()).is_ok();
    let source = TreeSource { left_out: vec!["etc/hostname".into()], emptied: vec!["tmp".into()], ..tree("upper", "") };
    let archive = packed(folder.path(), vec![source.clone()], SAME).unwrap();
    let note = if has_attributes { " SCHILY.xattr.user.note" } else { "" };
    let expected = [
        &format!("d755 etc{note}"),
        "l777 etc/link -> /etc/shadow",
        "d755 tmp",
        "d755 usr",
        "d755 usr/bin",
        "-4755 usr/bin/tool tool",
        "h4755 usr/bin/tool2 -> usr/bin/tool",
    ]
    .map(|line: &str| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let found: Vec<String> =
        entries(&archive).iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(found, expected);
    assert_eq!(packed(folder.path(), vec![source], SAME).unwrap(), archive, "the same files give the same archive");
}

#[test]
fn a_tree_has_its_place_and_one_that_is_not_there_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("u")).unwrap();
    std::fs::write(folder.path().join("u/f"), "x").unwrap();
    let archive = packed(folder.path(), vec![tree("nowhere", "opt"), tree("u", "var/lib/dpkg")], SAME).unwrap();
    assert_eq!(entries(&archive), ["d755 var/lib/dpkg", "-644 var/lib/dpkg/f x"]);
}

#[test]
fn what_overlayfs_removed_is_removed_by_the_layer() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: trusted attributes need root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let upper = folder.path().join("u");
    std::fs::create_dir_all(upper.join("new")).unwrap();
    mknod(&upper.join("gone"), SFlag::S_IFCHR, Mode::empty(), 0).unwrap();
    mknod(&upper.join("fifo"), SFlag::S_IFIFO, Mode::from_bits_truncate(0o644), 0).unwrap();
    let set = |name: &str| rustix::fs::lsetxattr(upper.join("new"), name, b"y", rustix::fs::XattrFlags::empty());
    if set(OPAQUE_ATTRIBUTE).is_err() {
        eprintln!("skipped: this file system has no attributes");
        return;
    }
    let archive = packed(folder.path(), vec![tree("u", "")], SAME).unwrap();
    assert_eq!(entries(&archive), ["-0 .wh.gone", "d755 new", "-0 new/.wh..wh..opq"]);
    // A directory that is partly in a lower layer is not a layer by itself.
    set(REFERENCES[0]).unwrap();
    let refused = packed(folder.path(), vec![tree("u", "")], SAME).unwrap_err();
    assert!(refused.contains("redirect") && refused.contains("\"new\""), "{refused}");
}

#[test]
fn owners_are_those_of_the_image() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: owners need root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("u")).unwrap();
    for (name, id) in [("a", 1000), ("b", 0), ("c", 33)] {
        std::fs::write(folder.path().join("u").join(name), "").unwrap();
        std::os::unix::fs::chown(folder.path().join("u").join(name), Some(id), Some(id)).unwrap();
    }
    let owners = OwnerMap { root_was: Some(1000), others: 0 };
    let archive = packed(folder.path(), vec![tree("u", "")], owners).unwrap();
    let mut archive = tar::Archive::new(archive.as_slice());
    let owners: Vec<(u64, u64)> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.header().uid().unwrap(), entry.header().gid().unwrap())
        })
        .collect();
    assert_eq!(owners, [(0, 0), (1000, 1000), (33, 33)]);
}
