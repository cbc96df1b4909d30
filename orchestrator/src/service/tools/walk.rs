//! Walks the tree below a directory of a sandbox, level by level, and leaves out what git ignores.
//!
//! ```text
//! directories of a level ──gather──▶ entries ──.gitignore files──gather──▶ rules ──▶ entries that are not ignored
//!           ▲                                                                              │
//!           └──────────────────────────── their directories ──────────────────────────────┘
//! ```
//!
//! A level costs two calls, however many directories it has, and a directory that git ignores is never listed. Links are not followed.
//! The walk is bounded in entries, in bytes, in depth and in time; what it returns says whether it saw everything.

use std::time::Duration;

use agent_tools::entry::{Entry, EntryKind};
use agent_tools::ignore_rules::{self, IgnoreRules};
use shared_protocol::ErrorBody;
use shared_protocol::runner::{FileKind, FileView, GatherItem};
use tokio::time::Instant;

use super::{Following, On, Tools};
use crate::service::CallError;
use crate::service::files::{GatherCall, Gathered, ListedName, Place};

/// The most entries that one walk holds, and the most bytes of their paths.
const MAX_ENTRIES: usize = 200_000;
const MAX_PATH_BYTES: usize = 32 << 20;
/// The most levels below the first directory.
const MAX_LEVELS: usize = 100;
/// The longest time of one walk. A host that is slow shows less, and says so.
pub const MAX_WALK_TIME: Duration = Duration::from_secs(20);
/// The name of the files that say what git ignores.
const IGNORE_FILE: &[u8] = b".gitignore";
/// The directory in which relative paths begin.
const WORKSPACE: &[u8] = b"/workspace";

/// What to walk.
pub struct WalkSpec {
    /// The first directory, as it was asked for.
    pub root: Vec<u8>,
    pub include_ignored: bool,
    /// How many levels to enter. `None`: as many as there may be.
    pub max_levels: Option<usize>,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Walked {
    /// Sorted by the bytes of their paths, which are relative to the first directory.
    pub entries: Vec<Entry>,
    /// How many entries of git's rules were left out, without what is below them.
    pub ignored: u64,
    /// How many directories could not be read.
    pub unreadable: u64,
    /// Why something was not seen, if so.
    pub cut: Option<&'static str>,
}

impl Tools {
    /// Walks a tree. The inner error is that of the first directory.
    pub(super) async fn walk(
        &self,
        on: On<'_>,
        spec: &WalkSpec,
        following: &Following,
    ) -> Result<Result<Walked, ErrorBody>, CallError> {
        let mut walk = Walk { rules: Rules::of(self, on, spec).await?, walked: Walked::default(), path_bytes: 0 };
        let deadline = Instant::now() + MAX_WALK_TIME;
        let mut level: Vec<Vec<u8>> = vec![Vec::new()];
        for depth in 0.. {
            if level.is_empty() || spec.max_levels.is_some_and(|most| depth >= most) {
                break;
            }
            if depth > MAX_LEVELS {
                walk.walked.cut = Some("some directories are too deep");
                break;
            }
            following.tell(|| format!("{} entries in {depth} levels", walk.walked.entries.len()));
            let mut deeper = Vec::new();
            let mut directories = level.into_iter().peekable();
            while directories.peek().is_some() && walk.walked.cut.is_none() {
                let listed = match self.list_some(on, spec, &mut directories).await? {
                    Listed { failed: Some(error), .. } if depth == 0 => return Ok(Err(error)),
                    listed => listed,
                };
                walk.walked.unreadable += listed.unreadable;
                if listed.is_cut {
                    walk.walked.cut = Some("a directory has too many entries");
                }
                walk.rules.read(self, on, spec, &listed.directories).await?;
                for (directory, entries) in listed.directories {
                    walk.take(&directory, entries, &mut deeper);
                }
                if Instant::now() > deadline {
                    walk.walked.cut = Some("it takes too long");
                }
            }
            level = deeper;
            if walk.walked.cut.is_some() {
                break;
            }
        }
        walk.walked.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Ok(walk.walked))
    }

    /// Lists as many of the directories as fit into one call.
    async fn list_some(
        &self,
        on: On<'_>,
        spec: &WalkSpec,
        directories: &mut std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>,
    ) -> Result<Listed, CallError> {
        let (mut call, mut asked) = (GatherCall::default(), Vec::new());
        while let Some(directory) = directories.peek() {
            let item = GatherItem::List { path: joined(&spec.root, directory) };
            if call.add(item).is_err() {
                // A path that fits into no call is too long for the kernel, too.
                if asked.is_empty() {
                    directories.next();
                    continue;
                }
                break;
            }
            asked.extend(directories.next());
        }
        let mut listed = Listed::default();
        let mut answer = self.parts.files.gather(on.caller, &Place::Session(on.id.clone()), call).await?;
        for directory in asked {
            match answer.next().await? {
                Some(Gathered::Listing { entries, is_cut }) => {
                    listed.is_cut |= is_cut;
                    listed.directories.push((directory, entries));
                }
                Some(Gathered::Failed(error)) => {
                    listed.unreadable += 1;
                    listed.failed = Some(error);
                }
                Some(Gathered::File { .. }) | None => break,
            }
        }
        Ok(listed)
    }
}

#[derive(Default)]
struct Listed {
    directories: Vec<(Vec<u8>, Vec<ListedName>)>,
    unreadable: u64,
    /// The last error.
    failed: Option<ErrorBody>,
    is_cut: bool,
}

struct Walk {
    rules: Rules,
    walked: Walked,
    path_bytes: usize,
}

impl Walk {
    /// Takes the entries of a directory, and adds the directories among them to the next level.
    fn take(&mut self, directory: &[u8], entries: Vec<ListedName>, deeper: &mut Vec<Vec<u8>>) {
        for ListedName { name, view } in entries {
            let path = if directory.is_empty() { name } else { joined(directory, &name) };
            let is_directory = view.kind == FileKind::Directory;
            if self.rules.is_ignored(&path, is_directory) {
                // Git's own directory is not worth a word.
                self.walked.ignored += u64::from(!path.ends_with(b".git"));
                continue;
            }
            self.path_bytes += path.len();
            if self.walked.entries.len() >= MAX_ENTRIES || self.path_bytes > MAX_PATH_BYTES {
                self.walked.cut = Some("there are too many files");
                return;
            }
            if is_directory {
                deeper.push(path.clone());
            }
            self.walked.entries.push(entry(path, &view));
        }
    }
}

fn entry(path: Vec<u8>, view: &FileView) -> Entry {
    let kind = match view.kind {
        FileKind::File => EntryKind::File,
        FileKind::Directory => EntryKind::Directory,
        FileKind::Symlink => EntryKind::Symlink,
        FileKind::Fifo | FileKind::Socket | FileKind::BlockDevice | FileKind::CharDevice => EntryKind::Other,
    };
    let link_target = view.symlink_target.as_ref().map(|target| target.clone().into_bytes());
    Entry { path, kind, size: view.size, modified: view.mtime_ms / 1000, link_target }
}

/// What git ignores in a walk. Paths of the rules are relative to the workspace if the walk is in it, because files of git above its
/// first directory count too.
struct Rules {
    /// `None` if nothing is ignored.
    rules: Option<IgnoreRules>,
    /// The first directory, relative to where the rules begin.
    prefix: Vec<u8>,
}

impl Rules {
    /// The rules of the directories above the first one.
    async fn of(tools: &Tools, on: On<'_>, spec: &WalkSpec) -> Result<Self, CallError> {
        if spec.include_ignored {
            return Ok(Self { rules: None, prefix: Vec::new() });
        }
        let Some(prefix) = below_workspace(&spec.root) else {
            return Ok(Self { rules: Some(IgnoreRules::new()), prefix: Vec::new() });
        };
        let above = ancestors(&prefix);
        let paths = above.iter().map(|directory| joined(&joined(WORKSPACE, directory), IGNORE_FILE));
        let contents = read_all(tools, on, paths.collect()).await?;
        let mut rules = IgnoreRules::new();
        for (directory, content) in above.iter().zip(contents) {
            rules.add(directory, &content.unwrap_or_default());
        }
        // Whoever names an ignored directory wants to see what is in it.
        if !prefix.is_empty() && rules.is_ignored(&prefix, /* is_dir */ true) {
            rules = IgnoreRules::new();
            return Ok(Self { rules: Some(rules), prefix: Vec::new() });
        }
        Ok(Self { rules: Some(rules), prefix })
    }

    /// Adds the rules of directories that have some.
    async fn read(
        &mut self,
        tools: &Tools,
        on: On<'_>,
        spec: &WalkSpec,
        directories: &[(Vec<u8>, Vec<ListedName>)],
    ) -> Result<(), CallError> {
        if self.rules.is_none() {
            return Ok(());
        }
        let has_rules = |entries: &[ListedName]| entries.iter().any(|entry| entry.name == IGNORE_FILE);
        let having: Vec<&[u8]> = directories
            .iter()
            .filter(|(_, entries)| has_rules(entries))
            .map(|(directory, _)| directory.as_slice())
            .take(ignore_rules::MAX_FILES)
            .collect();
        if having.is_empty() {
            return Ok(());
        }
        let paths = having.iter().map(|directory| joined(&joined(&spec.root, directory), IGNORE_FILE));
        let contents = read_all(tools, on, paths.collect()).await?;
        for (directory, content) in having.iter().zip(contents) {
            let directory = joined(&self.prefix, directory);
            if let (Some(rules), Some(content)) = (&mut self.rules, content) {
                rules.add(&directory, &content);
            }
        }
        Ok(())
    }

    fn is_ignored(&self, path: &[u8], is_directory: bool) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.is_ignored(&joined(&self.prefix, path), is_directory))
    }
}

/// The beginnings of files, `None` for those that cannot be read.
async fn read_all(tools: &Tools, on: On<'_>, paths: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, CallError> {
    let (mut call, mut count) = (GatherCall::default(), 0);
    for path in paths {
        if call.add(GatherItem::Read { path, length: ignore_rules::MAX_FILE_BYTES as u64 }).is_err() {
            break;
        }
        count += 1;
    }
    let mut contents = Vec::with_capacity(count);
    if count > 0 {
        let mut answer = tools.parts.files.gather(on.caller, &Place::Session(on.id.clone()), call).await?;
        while let Some(item) = answer.next().await? {
            contents.push(match item {
                Gathered::File { content, .. } => Some(content),
                Gathered::Listing { .. } | Gathered::Failed(_) => None,
            });
        }
    }
    Ok(contents)
}

/// A path below another one.
pub fn joined(parent: &[u8], child: &[u8]) -> Vec<u8> {
    match (parent, child) {
        (b"", child) => child.to_vec(),
        (parent, b"") => parent.to_vec(),
        (parent, child) if parent.ends_with(b"/") => [parent, child].concat(),
        (parent, child) => [parent, b"/", child].concat(),
    }
}

/// Where a path is below the workspace. `None` if it is outside, or leads there by `..`.
fn below_workspace(path: &[u8]) -> Option<Vec<u8>> {
    let inside = match path.strip_prefix(WORKSPACE) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
        _ if path.starts_with(b"/") => return None,
        _ => path,
    };
    let parts: Vec<&[u8]> =
        inside.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    (!parts.iter().any(|part| *part == b"..")).then(|| parts.join(&b'/'))
}

/// The directories above a path, from the workspace down, without the path itself.
fn ancestors(path: &[u8]) -> Vec<Vec<u8>> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
    let mut above: Vec<Vec<u8>> = slashes.filter_map(|index| path.get(..index)).map(<[u8]>::to_vec).collect();
    if !path.is_empty() {
        above.insert(0, Vec::new());
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_with_one_slash() {
        assert_eq!(joined(b"", b"a"), b"a");
        assert_eq!(joined(b"a", b""), b"a");
        assert_eq!(joined(b"/", b"a"), b"/a");
        assert_eq!(joined(b"a/b", b"c"), b"a/b/c");
    }

    #[test]
    fn a_path_is_in_the_workspace_if_it_leads_nowhere_else() {
        let below = |path: &str| below_workspace(path.as_bytes()).map(|path| String::from_utf8(path).unwrap());
        for (path, expected) in [
            (".", Some("")),
            ("/workspace", Some("")),
            ("/workspace/", Some("")),
            ("/workspace/./a//b/", Some("a/b")),
            ("a/b", Some("a/b")),
            ("/workspaces", None),
            ("/etc", None),
            ("/workspace/../etc", None),
        ] {
            assert_eq!(below(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn the_directories_above_a_path_begin_with_the_workspace() {
        let above = |path: &str| -> Vec<String> {
            ancestors(path.as_bytes()).into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(above("a/b/c"), ["", "a", "a/b"]);
        assert_eq!(above("a"), [""]);
        assert_eq!(above(""), [] as [String; 0]);
    }
}
