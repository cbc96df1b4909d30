//! The names in a directory, or in everything below it.
//!
//! Sorted bytewise, and where there are too many, the first ones: what is kept is bounded in number and in bytes however
//! large the tree is. It follows no links. A directory that may not be read is listed and its content is not, which
//! `truncated` says; so is one that is too deep.

use std::collections::BTreeMap;
use std::io::Write;

use nix::errno::Errno;
use shared_protocol::ErrorBody;
use shared_protocol::runner::{FileKind, FileView};

use super::channel::{Answer, Content, DataWriter};
use super::error::At;
use super::node;
use super::resolve::{Last, Missing, Places, resolve};
use super::tree::{self, Entry, Next, Visitor};

/// Entries in one listing.
pub const MAX_LISTED: usize = 10_000;
/// Bytes of paths in one listing: ten thousand paths can be ten thousand times as long as they should be.
const MAX_LISTED_BYTES: usize = 8 << 20;

pub fn list(places: &Places, path: &[u8], recursive: bool, answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let top = resolve(places, path, Last::Follow, Missing::Fail)?.node(path)?.open_directory(path)?;
    let kept = Kept::new(MAX_LISTED, MAX_LISTED_BYTES);
    let mut listing = Listing { kept, unseen: false, recursive, asked: path, answer };
    tree::walk(top, path, &mut listing)?;
    let truncated = listing.unseen || listing.kept.cutoff.is_some();
    let entries = listing.kept.entries;
    send(entries.into_values(), truncated, answer).at(path)
}

/// Writes a `ListView` entry by entry.
fn send(entries: impl Iterator<Item = FileView>, truncated: bool, answer: &mut Answer<'_>) -> std::io::Result<()> {
    answer.head(200, Content::Json, None)?;
    let mut body = DataWriter::new(answer);
    body.write_all(b"{\"entries\":[")?;
    for (index, entry) in entries.enumerate() {
        if index > 0 {
            body.write_all(b",")?;
        }
        serde_json::to_writer(&mut body, &entry)?;
    }
    write!(body, "],\"truncated\":{truncated}}}")?;
    body.flush()?;
    answer.end()
}

struct Listing<'a, 'b> {
    kept: Kept,
    /// There was a directory that could not be entered.
    unseen: bool,
    recursive: bool,
    asked: &'a [u8],
    answer: &'a mut Answer<'b>,
}

impl Visitor for Listing<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, ErrorBody> {
        self.answer.tick().at(self.asked)?;
        let text = match node::kind(entry.stat) {
            // One that vanished or changed since is listed as what it was.
            FileKind::Symlink => node::link_text(entry.dir, entry.name).ok(),
            _ => None,
        };
        self.kept.add(entry.path, node::view(entry.path, entry.stat, text.as_deref()));
        // Everything below sorts after the directory and a slash.
        let worthwhile = self.recursive && self.kept.wants(&[entry.path, b"/"].concat());
        Ok(if worthwhile { Next::Enter } else { Next::Pass })
    }

    fn not_entered(&mut self, _path: &[u8], _why: Errno) -> Result<(), ErrorBody> {
        self.unseen = true;
        Ok(())
    }
}

/// The first entries in bytewise order of all that were added.
struct Kept {
    entries: BTreeMap<Vec<u8>, FileView>,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    /// The first path that there was no room for: nothing from there on is kept.
    cutoff: Option<Vec<u8>>,
}

impl Kept {
    fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { entries: BTreeMap::new(), bytes: 0, max_entries, max_bytes, cutoff: None }
    }

    fn wants(&self, path: &[u8]) -> bool {
        self.cutoff.as_ref().is_none_or(|cutoff| path < cutoff.as_slice())
    }

    fn add(&mut self, path: &[u8], view: FileView) {
        if !self.wants(path) {
            return;
        }
        self.bytes += cost(path, &view);
        // A name can be seen twice where a directory is changed while it is read.
        if let Some(replaced) = self.entries.insert(path.to_vec(), view) {
            self.bytes -= cost(path, &replaced);
        }
        while self.entries.len() > self.max_entries || self.bytes > self.max_bytes {
            let Some((path, view)) = self.entries.pop_last() else { break };
            self.bytes -= cost(&path, &view);
            self.cutoff = Some(path);
        }
    }
}

fn cost(path: &[u8], view: &FileView) -> usize {
    path.len() + view.path.len() + view.symlink_target.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::channel::tests::heard;
    use crate::files::ground::Ground;

    fn listed(ground: &Ground, path: &[u8], recursive: bool) -> (Vec<FileView>, bool) {
        let mut said = Vec::new();
        list(&ground.places, path, recursive, &mut Answer::new(&mut said)).unwrap();
        let view: shared_protocol::runner::ListView = serde_json::from_slice(&heard(&said).1.unwrap()).unwrap();
        (view.entries, view.truncated)
    }

    #[test]
    fn a_tree_is_listed_in_the_order_of_its_bytes_and_links_are_not_entered() {
        let ground = Ground::new();
        for file in ["a/b", "a.txt", "a-", "z"] {
            ground.file(file, b"x");
        }
        ground.link("/", "loop");
        let (entries, truncated) = listed(&ground, b".", true);
        let paths: Vec<&str> = entries.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["a", "a-", "a.txt", "a/b", "loop", "z"]);
        assert_eq!(entries[4].symlink_target.as_deref(), Some("/"));
        assert!(!truncated);
        assert_eq!(listed(&ground, b"a", false).0.len(), 1);
    }

    #[test]
    fn a_name_that_is_not_utf8_comes_with_its_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let ground = Ground::new();
        std::fs::write(ground.workspace().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), b"").unwrap();
        let (entries, _) = listed(&ground, b".", false);
        assert_eq!(entries[0].path, "caf\u{fffd}");
        assert_eq!(entries[0].path_base64.as_deref(), Some("Y2Fm6Q=="));
    }

    #[test]
    fn a_tree_that_is_too_deep_is_listed_as_far_as_it_goes() {
        let ground = Ground::new();
        ground.deep(tree::MAX_LEVELS + 40);
        let (entries, truncated) = listed(&ground, b".", true);
        assert_eq!(entries.len(), tree::MAX_LEVELS);
        assert!(truncated);
    }

    fn a_view(path: &[u8]) -> FileView {
        node::view(path, &nix::sys::stat::stat("/").unwrap(), None)
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_sorts_first_in_whatever_order_it_was_found(
            names in proptest::collection::hash_set("[a-c/.-]{1,6}", 0..60),
            max in 1usize..20,
        ) {
            let mut kept = Kept::new(max, usize::MAX);
            for name in &names {
                kept.add(name.as_bytes(), a_view(name.as_bytes()));
            }
            let mut sorted: Vec<_> = names.iter().map(|n| n.as_bytes().to_vec()).collect();
            sorted.sort();
            prop_assert_eq!(kept.cutoff.as_ref(), sorted.get(max));
            sorted.truncate(max);
            prop_assert_eq!(kept.entries.into_keys().collect::<Vec<_>>(), sorted);
        }

        #[test]
        fn the_bytes_that_are_kept_are_bounded(names in proptest::collection::vec("[a-z]{1,40}", 0..60)) {
            let mut kept = Kept::new(100, 300);
            let all: std::collections::BTreeSet<&[u8]> = names.iter().map(String::as_bytes).collect();
            for name in &names {
                kept.add(name.as_bytes(), a_view(name.as_bytes()));
                prop_assert!(kept.bytes <= 300);
            }
            prop_assert!(kept.entries.keys().map(Vec::as_slice).eq(all.into_iter().take(kept.entries.len())));
            prop_assert_eq!(kept.bytes, kept.entries.iter().map(|(p, v)| cost(p, v)).sum::<usize>());
        }
    }
}
