//! The `ls` tool: entries as a tree, with sizes and counts.
//!
//! Promises: what is near the root is shown first, so a large tree is cut at its depths; a directory that is not opened says what is below
//! it; a note says what was left out. The order of the entries does not matter, and directories that were not given are made from
//! the paths below them.

use crate::entry::{Entry, EntryKind};
use crate::output::{Output, count, counted};
use crate::shown::{Escaped, push_formatted};
use crate::size;
use std::collections::{HashMap, VecDeque};

/// Levels of a tree, if the caller does not say.
pub const DEFAULT_DEPTH: usize = 2;
/// Lines of a tree, if the caller does not say.
pub const DEFAULT_MAX_LINES: usize = 500;
/// Bytes of a tree.
pub const MAX_BYTES: usize = 64 << 10;
/// Entries beyond this number are only counted.
pub const MAX_NODES: usize = 200_000;
/// Deeper levels are not indented further.
const MAX_INDENT: usize = 32;

/// How a tree is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TreeOptions {
    /// 1 shows what is directly in the root; 0 counts as 1.
    pub depth: usize,
    pub max_lines: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { depth: DEFAULT_DEPTH, max_lines: DEFAULT_MAX_LINES }
    }
}

/// A tree as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tree {
    pub text: String,
    /// Everything that is not a directory.
    pub files: u64,
    pub directories: u64,
    /// Whether something above the depth is not shown.
    pub is_cut: bool,
}

struct Node<'a> {
    name: &'a [u8],
    /// `None` for a directory that is known only from the paths below it.
    entry: Option<&'a Entry>,
    is_directory: bool,
    parent: usize,
    depth: usize,
    children: Vec<usize>,
    /// What is below it, at any depth.
    files: u64,
    directories: u64,
}

/// Shows entries as a tree.
pub fn render(entries: &[Entry], options: &TreeOptions) -> Tree {
    let (mut nodes, uncounted) = nodes(entries);
    // A node comes after its parent, so this adds up from the leaves to the root.
    for at in (1..nodes.len()).rev() {
        let Node { files, directories, is_directory, parent, .. } = nodes[at];
        let parent = &mut nodes[parent];
        parent.files += files + u64::from(!is_directory);
        parent.directories += directories + u64::from(is_directory);
    }
    for at in 0..nodes.len() {
        let mut children = std::mem::take(&mut nodes[at].children);
        children.sort_by_key(|child| (!nodes[*child].is_directory, nodes[*child].name));
        nodes[at].children = children;
    }
    let is_open = opened(&nodes, options);
    let (files, directories) = (nodes[0].files, nodes[0].directories);
    let mut out = Output::new(options.max_lines.max(1), MAX_BYTES);
    // Deep trees must not use the stack, so what is still to be shown waits here, the next one last.
    let mut waiting: Vec<usize> = nodes[0].children.iter().rev().copied().collect();
    let mut shown = 0;
    while let Some(at) = waiting.pop() {
        if !out.line(&line(&nodes[at], is_open[at])) {
            break;
        }
        shown += 1;
        if is_open[at] {
            waiting.extend(nodes[at].children.iter().rev());
        }
    }
    let is_closed =
        |at: &usize| nodes[*at].depth < options.depth.max(1) && !is_open[*at] && !nodes[*at].children.is_empty();
    let closed = count((1..nodes.len()).filter(is_closed).count());
    let is_cut = out.is_full() || closed > 0 || uncounted > 0;
    if nodes.len() == 1 {
        out.note("[the directory is empty]");
    } else if is_cut {
        let mut note = format!("[{shown} of {} shown", counted(files + directories, "entry"));
        if closed > 0 && !out.is_full() {
            push_formatted(&mut note, format_args!("; {} not opened for lack of room", counted(closed, "directory")));
        }
        if uncounted > 0 {
            push_formatted(&mut note, format_args!("; {} more are neither shown nor counted", uncounted));
        }
        out.note(&(note + "; list a directory below to see more]"));
    }
    Tree { text: out.into_text(), files, directories, is_cut }
}

/// All nodes, the root first, and the number of entries that are too many.
fn nodes(entries: &[Entry]) -> (Vec<Node<'_>>, u64) {
    let node = |name, parent, depth| Node {
        name,
        entry: None,
        is_directory: true,
        parent,
        depth,
        children: Vec::new(),
        files: 0,
        directories: 0,
    };
    let mut nodes = vec![node(&b""[..], 0, 0)];
    let mut places: HashMap<(usize, &[u8]), usize> = HashMap::new();
    let mut uncounted = 0;
    'entries: for entry in entries {
        let mut at = 0;
        for name in entry.names() {
            at = match places.get(&(at, name)) {
                Some(place) => *place,
                None if nodes.len() > MAX_NODES => {
                    uncounted += 1;
                    continue 'entries;
                }
                None => {
                    let place = nodes.len();
                    nodes.push(node(name, at, nodes[at].depth + 1));
                    // What has something below it is a directory, whatever was said about it.
                    nodes[at].is_directory = true;
                    nodes[at].children.push(place);
                    places.insert((at, name), place);
                    place
                }
            };
        }
        if at > 0 {
            nodes[at].entry = Some(entry);
            nodes[at].is_directory = entry.kind == EntryKind::Directory || !nodes[at].children.is_empty();
        }
    }
    (nodes, uncounted)
}

/// Which directories are opened: level by level, as long as all their entries have room.
fn opened(nodes: &[Node<'_>], options: &TreeOptions) -> Vec<bool> {
    let mut is_open = vec![false; nodes.len()];
    is_open[0] = true;
    let mut left = options.max_lines.max(1).saturating_sub(nodes[0].children.len());
    let mut waiting: VecDeque<usize> = nodes[0].children.iter().copied().collect();
    while let Some(at) = waiting.pop_front() {
        let node = &nodes[at];
        if node.is_directory && node.depth < options.depth.max(1) && node.children.len() <= left {
            left -= node.children.len();
            is_open[at] = true;
            waiting.extend(&node.children);
        }
    }
    is_open
}

fn line(node: &Node<'_>, is_open: bool) -> String {
    let mut line = "  ".repeat((node.depth - 1).min(MAX_INDENT));
    push_formatted(&mut line, format_args!("{}", Escaped(node.name)));
    if node.is_directory {
        line.push('/');
        if !is_open && node.files + node.directories > 0 {
            let parts = [(node.files, "file"), (node.directories, "directory")];
            let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, noun)| counted(*count, noun));
            push_formatted(&mut line, format_args!(" ({})", parts.collect::<Vec<_>>().join(", ")));
        }
        return line;
    }
    match node.entry.map(|entry| (entry.kind, entry)) {
        Some((EntryKind::File, entry)) => push_formatted(&mut line, format_args!("  {}", size::shown(entry.size))),
        Some((EntryKind::Symlink, Entry { link_target: Some(target), .. })) => {
            push_formatted(&mut line, format_args!(" -> {}", Escaped(target)));
        }
        Some((EntryKind::Symlink, _)) => line.push_str(" (symlink)"),
        Some((EntryKind::Other, _)) => line.push_str(" (special file)"),
        _ => {}
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(path: &[u8], kind: EntryKind) -> Entry {
        let link_target = (kind == EntryKind::Symlink).then(|| b"to".to_vec());
        Entry { path: path.to_vec(), kind, size: 2048, modified: 0, link_target }
    }

    fn files(paths: &[&str]) -> Vec<Entry> {
        paths.iter().map(|path| entry(path.as_bytes(), EntryKind::File)).collect()
    }

    fn tree(entries: &[Entry], depth: usize, max_lines: usize) -> Tree {
        render(entries, &TreeOptions { depth, max_lines })
    }

    #[test]
    fn directories_come_first_and_have_slashes() {
        let mut entries = files(&["b.txt", "src/main.rs"]);
        entries.push(entry(b"a", EntryKind::Symlink));
        entries.push(entry(b"pipe", EntryKind::Other));
        entries.push(entry(b"empty", EntryKind::Directory));
        let tree = tree(&entries, 2, 100);
        assert_eq!(tree.text, "empty/\nsrc/\n  main.rs  2.0 KiB\na -> to\nb.txt  2.0 KiB\npipe (special file)\n");
        assert_eq!((tree.files, tree.directories, tree.is_cut), (4, 2, false));
    }

    #[test]
    fn a_directory_at_the_depth_says_what_is_below_it() {
        let tree = tree(&files(&["src/a/b/1", "src/a/2", "src/3"]), 1, 100);
        assert_eq!(tree.text, "src/ (3 files, 2 directories)\n");
        assert!(!tree.is_cut, "the depth was asked for");
    }

    #[test]
    fn what_has_no_room_stays_closed_and_a_note_says_so() {
        let mut paths: Vec<String> = (0..50).map(|n| format!("many/{n:02}")).collect();
        paths.extend(["few/x".to_owned(), "few/y".to_owned()]);
        let tree = tree(&files(&paths.iter().map(String::as_str).collect::<Vec<_>>()), 3, 10);
        assert!(
            tree.text.starts_with(
                "few/\n  x  2.0 KiB\n  y  2.0 KiB\nmany/ (50 files)\n[4 of 54 entries shown; 1 directory not opened"
            ),
            "{}",
            tree.text
        );
        assert!(tree.is_cut);
    }

    #[test]
    fn a_root_with_too_many_entries_shows_the_first() {
        let paths: Vec<String> = (0..50).map(|n| format!("{n:02}")).collect();
        let tree = tree(&files(&paths.iter().map(String::as_str).collect::<Vec<_>>()), 1, 3);
        assert!(
            tree.text.starts_with("00  2.0 KiB\n01  2.0 KiB\n02  2.0 KiB\n[3 of 50 entries shown; list"),
            "{}",
            tree.text
        );
    }

    #[test]
    fn names_are_escaped_and_an_empty_root_says_so() {
        assert_eq!(tree(&[entry(b"a\n\xff", EntryKind::Directory)], 1, 9).text, "$'a\\n\\xff'/\n");
        assert_eq!(tree(&[], 1, 9).text, "[the directory is empty]\n");
    }

    #[test]
    fn a_very_deep_path_needs_no_stack() {
        let tree = tree(&files(&[&"d/".repeat(100_000)]), usize::MAX, 50);
        assert!(tree.is_cut && tree.text.len() < MAX_BYTES, "{}", tree.text.len());
    }

    proptest! {
        #[test]
        fn a_tree_is_bounded_and_counts_every_entry(
            paths in prop::collection::btree_set(prop::collection::vec(prop::sample::select(b"ab/\n\xff".to_vec()), 1..9), 0..40),
            depth in 0usize..5,
            max_lines in 0usize..12,
        ) {
            let entries: Vec<Entry> = paths.iter().map(|path| entry(path, EntryKind::File)).collect();
            let tree = tree(&entries, depth, max_lines);
            prop_assert!(tree.text.lines().count() <= max_lines.max(1) + 1);
            prop_assert!(tree.text.len() <= MAX_BYTES + 200);
            let all: std::collections::BTreeSet<Vec<&[u8]>> = entries
                .iter()
                .flat_map(|entry| {
                    let names: Vec<&[u8]> = entry.names().collect();
                    (1..=names.len()).map(move |len| names[..len].to_vec()).collect::<Vec<_>>()
                })
                .collect();
            prop_assert_eq!(tree.files + tree.directories, all.len() as u64);
        }
    }
}
