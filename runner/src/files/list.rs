//! Lists a directory, or everything below it.
//!
//! Entries are sorted bytewise. If there are too many, the first ones are listed: the number of kept entries and bytes is
//! bounded, however large the tree is. Links are not followed. A directory that cannot be read or is too deep is listed
//! without its content, and `truncated` says so.

use std::collections::BTreeMap;
use std::io::Write;

use nix::errno::Errno;
use shared_protocol::ErrorBody;
use shared_protocol::runner::{FileKind, FileView};

use super::error::At;
use super::inode;
use super::protocol::{Content, DataWriter, ReplyWriter};
use super::resolve::{FinalLink, MissingDirs, Roots, resolve};
use super::tree::{self, Descend, Entry, Visitor};
use crate::text::json_length;

/// The most entries in one listing.
pub const MAX_LISTED: usize = 10_000;
/// The most bytes of paths in one listing, as JSON, since paths can be very long. With the other fields of all entries, a
/// listing stays below the longest answer that the daemon takes.
const MAX_LISTED_BYTES: usize = 8 << 20;

/// Lists the directory at `path`.
pub fn list(roots: &Roots, path: &[u8], recursive: bool, reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let top = resolve(roots, path, FinalLink::Follow, MissingDirs::Fail)?.inode(path)?.open_directory(path)?;
    let kept = Kept::new(MAX_LISTED, MAX_LISTED_BYTES);
    let mut listing = Listing { kept, unseen: false, recursive, asked: path, reply };
    tree::walk(top, path, &mut listing)?;
    let truncated = listing.unseen || listing.kept.cutoff.is_some();
    let entries = listing.kept.entries;
    send(entries.into_values(), truncated, reply).at(path)
}

/// Writes a `ListView`, entry by entry.
fn send(entries: impl Iterator<Item = FileView>, truncated: bool, reply: &mut ReplyWriter<'_>) -> std::io::Result<()> {
    reply.head(200, Content::Json, None)?;
    let mut body = DataWriter::new(reply);
    body.write_all(b"{\"entries\":[")?;
    for (index, entry) in entries.enumerate() {
        if index > 0 {
            body.write_all(b",")?;
        }
        serde_json::to_writer(&mut body, &entry)?;
    }
    write!(body, "],\"truncated\":{truncated}}}")?;
    body.flush()?;
    reply.end()
}

struct Listing<'a, 'b> {
    kept: Kept,
    /// Whether a directory could not be entered.
    unseen: bool,
    recursive: bool,
    asked: &'a [u8],
    reply: &'a mut ReplyWriter<'b>,
}

impl Visitor for Listing<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Descend, ErrorBody> {
        self.reply.report_progress().at(self.asked)?;
        let text = match inode::kind(entry.stat) {
            // If the entry vanished or changed since, it is listed as it was found.
            FileKind::Symlink => inode::link_text(entry.dir, entry.name).ok(),
            _ => None,
        };
        self.kept.add(entry.path, inode::view(entry.path, entry.stat, text.as_deref()));
        // Everything below a directory sorts after the directory's path with a slash.
        let worthwhile = self.recursive && self.kept.wants(&[entry.path, b"/"].concat());
        Ok(if worthwhile { Descend::Enter } else { Descend::Skip })
    }

    fn not_entered(&mut self, _path: &[u8], _why: Errno) -> Result<(), ErrorBody> {
        self.unseen = true;
        Ok(())
    }
}

/// Keeps the first entries in bytewise order.
struct Kept {
    entries: BTreeMap<Vec<u8>, FileView>,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    /// The first path that did not fit: no path from there on is kept.
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
        // If a directory changes while it is read, a name can come twice.
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
    let text = [Some(&view.path), view.path_base64.as_ref(), view.symlink_target.as_ref()];
    path.len() + text.into_iter().flatten().map(|text| json_length(text)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::fixture::Fixture;
    use crate::files::protocol::tests::heard;

    fn listed(fixture: &Fixture, path: &[u8], recursive: bool) -> (Vec<FileView>, bool) {
        let mut said = Vec::new();
        list(&fixture.roots, path, recursive, &mut ReplyWriter::new(&mut said)).unwrap();
        let view: shared_protocol::runner::ListView = serde_json::from_slice(&heard(&said).1.unwrap()).unwrap();
        (view.entries, view.truncated)
    }

    #[test]
    fn a_tree_is_listed_in_the_order_of_its_bytes_and_links_are_not_entered() {
        let fixture = Fixture::new();
        for file in ["a/b", "a.txt", "a-", "z"] {
            fixture.file(file, b"x");
        }
        fixture.link("/", "loop");
        let (entries, truncated) = listed(&fixture, b".", true);
        let paths: Vec<&str> = entries.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["a", "a-", "a.txt", "a/b", "loop", "z"]);
        assert_eq!(entries[4].symlink_target.as_deref(), Some("/"));
        assert!(!truncated);
        assert_eq!(listed(&fixture, b"a", false).0.len(), 1);
    }

    #[test]
    fn a_name_that_is_not_utf8_comes_with_its_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let fixture = Fixture::new();
        std::fs::write(fixture.workspace().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), b"").unwrap();
        let (entries, _) = listed(&fixture, b".", false);
        assert_eq!(entries[0].path, "caf\u{fffd}");
        assert_eq!(entries[0].path_base64.as_deref(), Some("Y2Fm6Q=="));
    }

    #[test]
    fn a_tree_that_is_too_deep_is_listed_as_far_as_it_goes() {
        let fixture = Fixture::new();
        fixture.deep(tree::MAX_LEVELS + 40);
        let (entries, truncated) = listed(&fixture, b".", true);
        assert_eq!(entries.len(), tree::MAX_LEVELS);
        assert!(truncated);
    }

    fn a_view(path: &[u8]) -> FileView {
        inode::view(path, &nix::sys::stat::stat("/").unwrap(), None)
    }

    #[test]
    fn the_longest_listing_fits_into_an_answer_whatever_the_names_are() {
        for byte in [b'a', 1, b'"', 0xff] {
            let mut kept = Kept::new(MAX_LISTED, MAX_LISTED_BYTES);
            for number in 0..MAX_LISTED {
                let name = [format!("{number:05}").as_bytes(), &[byte; 250]].concat();
                kept.add(&name, FileView { symlink_target: Some("\u{1}".repeat(1000)), ..a_view(&name) });
            }
            let bytes = serde_json::to_vec(&kept.entries.into_values().collect::<Vec<_>>()).unwrap().len();
            assert!(bytes < 12 << 20, "{byte}: {bytes}");
        }
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
