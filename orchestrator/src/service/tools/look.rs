//! `ls`, `grep`, `find`: whole trees.
//!
//! A walk takes memory of the daemon, so only a few run at a time; the others wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_tools::entry::{Entry, EntryKind};
use agent_tools::find::{Find, FindOptions, Sort};
use agent_tools::globs::Globs;
use agent_tools::search::{Search, SearchMode, SearchOptions};
use agent_tools::shown::Escaped;
use agent_tools::size;
use agent_tools::tree::{self, TreeOptions};
use agent_tools::types;
use serde_json::json;
use shared_protocol::runner::{FileKind, GatherItem};
use tokio::time::Instant;

use super::arguments::{FindArguments, FindKind, FindOrder, GrepArguments, GrepMode, LsArguments};
use super::files::{in_thread, path_of, shown};
use super::reply::ToolReply;
use super::walk::{WalkSpec, Walked, joined};
use super::{Following, On, Tools};
use crate::service::CallError;
use crate::service::files::{GatherCall, Gathered, Place, SandboxPath};

/// The most walks and searches at a time, of all sessions.
pub const MAX_AT_ONCE: usize = 8;
/// What a search reads of one file, and of all files. The rest is not searched, and the answer says so.
const MAX_FILE_BYTES: u64 = 8 << 20;
const MAX_SEARCH_BYTES: u64 = 1 << 30;
/// How much one call of a search asks the runner for.
const MAX_CALL_BYTES: u64 = 32 << 20;
/// The longest time of a search after its walk.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(30);
/// A larger file is searched on a thread for such work.
const SMALL_BYTES: usize = 128 << 10;
/// The most results of `find`, if the call does not say.
const DEFAULT_FOUND: usize = 500;

impl Tools {
    pub(super) async fn ls(
        &self,
        on: On<'_>,
        arguments: LsArguments,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let (path, spec) = match spec_of(arguments.path.as_deref(), arguments.include_ignored) {
            Ok(spec) => spec,
            Err(reply) => return Ok(*reply),
        };
        let _place = self.place_for_walk().await;
        let walked = match self.walk(on, &spec, &following).await? {
            Ok(walked) => walked,
            Err(error) => return Ok(ToolReply::failure(error.message)),
        };
        let usual = TreeOptions::default();
        let options = TreeOptions { depth: arguments.depth.unwrap_or(usual.depth), ..usual };
        let notes = notes(&walked);
        let (is_cut, entries) = (walked.cut.is_some(), walked.entries.len());
        let tree = in_thread(move || tree::render(&walked.entries, &options)).await?;
        let text = format!("{}\n{}{notes}", shown(&path), tree.text);
        let structured = json!({ "path": shown(&path), "entries": entries, "is_cut": is_cut || tree.is_cut });
        Ok(ToolReply::text(text, structured))
    }

    pub(super) async fn find(
        &self,
        on: On<'_>,
        arguments: FindArguments,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let (_, mut spec) = match spec_of(arguments.path.as_deref(), arguments.include_ignored) {
            Ok(spec) => spec,
            Err(reply) => return Ok(*reply),
        };
        spec.max_levels = arguments.depth;
        let root = shown_root(&spec);
        let mut find = match find_of(&arguments, root.clone()) {
            Ok(find) => find,
            Err(why) => return Ok(ToolReply::failure(why)),
        };
        let _place = self.place_for_walk().await;
        let walked = match self.walk(on, &spec, &following).await? {
            Ok(walked) => walked,
            Err(error) => return Ok(ToolReply::failure(error.message)),
        };
        let (notes, is_cut) = (notes(&walked), walked.cut.is_some());
        walked.entries.into_iter().for_each(|entry| find.push(entry));
        let report = find.finish();
        let paths: Vec<String> =
            report.entries.iter().map(|entry| Escaped(&joined(&root, &entry.path)).to_string()).collect();
        let is_cut = is_cut || report.shown < report.total;
        Ok(ToolReply::text(format!("{}{notes}", report.text), json!({ "paths": paths, "is_cut": is_cut })))
    }

    pub(super) async fn grep(
        &self,
        on: On<'_>,
        arguments: GrepArguments,
        following: Following,
    ) -> Result<ToolReply, CallError> {
        let (path, spec) = match spec_of(arguments.path.as_deref(), arguments.include_ignored) {
            Ok(spec) => spec,
            Err(reply) => return Ok(*reply),
        };
        let search = search_of(&arguments).and_then(|search| Ok((search, wanted_of(&arguments)?)));
        let (search, wanted) = match search {
            Ok(search) => search,
            Err(why) => return Ok(ToolReply::failure(why)),
        };
        let _place = self.place_for_walk().await;
        let walked = match self.stat(on, &path).await? {
            None => return Ok(ToolReply::failure(format!("{}: there is no such file or directory", shown(&path)))),
            Some(view) if view.kind == FileKind::Directory => match self.walk(on, &spec, &following).await? {
                Ok(walked) => walked,
                Err(error) => return Ok(ToolReply::failure(error.message)),
            },
            // A file that is named is searched, whatever the glob and the type say.
            Some(view) => {
                let entry =
                    Entry { path: Vec::new(), kind: EntryKind::File, size: view.size, modified: 0, link_target: None };
                return self.search(on, &spec, search, vec![entry], String::new(), &following).await;
            }
        };
        let notes = notes(&walked);
        let is_wanted =
            |entry: &Entry| entry.kind == EntryKind::File && wanted.iter().all(|globs| globs.matches(&entry.path));
        let files = walked.entries.into_iter().filter(is_wanted).collect();
        self.search(on, &spec, search, files, notes, &following).await
    }

    /// Searches these files, one after the other.
    async fn search(
        &self,
        on: On<'_>,
        spec: &WalkSpec,
        mut search: Search,
        files: Vec<Entry>,
        mut notes: String,
        following: &Following,
    ) -> Result<ToolReply, CallError> {
        let (deadline, root) = (Instant::now() + MAX_SEARCH_TIME, shown_root(spec));
        let (mut read_bytes, mut partly, mut unreadable) = (0u64, 0u64, 0u64);
        let mut files = files.into_iter().peekable();
        let mut stopped = None;
        while files.peek().is_some() && !search.is_full() && stopped.is_none() {
            let (mut call, mut asked, mut call_bytes) = (GatherCall::default(), Vec::new(), 0);
            while let Some(file) = files.peek() {
                let item = GatherItem::Read { path: joined(&spec.root, &file.path), length: MAX_FILE_BYTES };
                if (call_bytes >= MAX_CALL_BYTES || call.add(item).is_err()) && !asked.is_empty() {
                    break;
                }
                call_bytes += file.size.min(MAX_FILE_BYTES);
                asked.extend(files.next());
            }
            following.tell(|| format!("searched {} MiB", read_bytes >> 20));
            let mut answer = self.parts.files.gather(on.caller, &Place::Session(on.id.clone()), call).await?;
            for file in asked {
                match answer.next().await? {
                    Some(Gathered::File { content, is_cut }) => {
                        read_bytes += content.len() as u64;
                        partly += u64::from(is_cut);
                        let path = joined(&root, &file.path);
                        search = searched(search, path, content).await?;
                    }
                    Some(Gathered::Failed(_)) => unreadable += 1,
                    Some(Gathered::Listing { .. }) | None => break,
                }
                if search.is_full() {
                    break;
                }
                if read_bytes > MAX_SEARCH_BYTES || Instant::now() > deadline {
                    stopped = Some("the files are too many; search in a directory below, or narrow glob or type");
                    break;
                }
            }
        }
        if let Some(why) = stopped {
            notes.push_str(&format!("\n[not everything was searched: {why}]"));
        }
        if partly > 0 {
            notes.push_str(&format!(
                "\n[only the first {} of {partly} large files were searched]",
                size::shown(MAX_FILE_BYTES)
            ));
        }
        if unreadable > 0 {
            notes.push_str(&format!("\n[{} could not be read]", counted(unreadable, "file", "files")));
        }
        let report = search.finish();
        let structured = json!({
            "matches": report.matches, "files": report.files, "is_cut": report.is_cut || stopped.is_some() || partly > 0,
        });
        Ok(ToolReply::text(format!("{}{notes}", report.text.trim_end()), structured))
    }

    /// Waits for one of the places for walks. They are never closed, so the wait cannot fail.
    async fn place_for_walk(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.walks.acquire().await.ok()
    }
}

async fn searched(mut search: Search, path: Vec<u8>, content: Vec<u8>) -> Result<Search, CallError> {
    if content.len() <= SMALL_BYTES {
        search.file(&path, &content);
        return Ok(search);
    }
    in_thread(move || {
        search.file(&path, &content);
        search
    })
    .await
}

/// The directory of a call, and the walk of it.
fn spec_of(path: Option<&str>, include_ignored: Option<bool>) -> Result<(SandboxPath, WalkSpec), Box<ToolReply>> {
    let path = path.map_or_else(|| Ok(SandboxPath::workspace()), path_of);
    let path = path.map_err(|error| Box::new(ToolReply::failure(error.to_string())))?;
    let spec = WalkSpec {
        root: path.as_bytes().to_vec(),
        include_ignored: include_ignored.unwrap_or(false),
        max_levels: None,
    };
    Ok((path, spec))
}

/// What stands before the paths in an answer, so that other tools take them as they are. Paths of the workspace need nothing.
fn shown_root(spec: &WalkSpec) -> Vec<u8> {
    let root = spec.root.strip_prefix(b"./").unwrap_or(&spec.root);
    let end = root.iter().rposition(|byte| *byte != b'/').map_or(root.len().min(1), |last| last + 1);
    match root.get(..end).unwrap_or_default() {
        b"." => Vec::new(),
        root => root.to_vec(),
    }
}

/// What a walk did not see, as lines for the end of an answer.
fn notes(walked: &Walked) -> String {
    let mut notes = String::new();
    if walked.ignored > 0 {
        let entries = counted(walked.ignored, "entry", "entries");
        notes.push_str(&format!("\n[{entries} ignored by git left out; include_ignored shows them]"));
    }
    if walked.unreadable > 0 {
        notes.push_str(&format!("\n[{} could not be read]", counted(walked.unreadable, "directory", "directories")));
    }
    if let Some(why) = walked.cut {
        notes.push_str(&format!("\n[not everything was seen: {why}; look at a directory below]"));
    }
    notes
}

fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn find_of(arguments: &FindArguments, root: Vec<u8>) -> Result<Find, String> {
    let bytes = |text: &Option<String>| text.as_deref().map(size::parse).transpose().map_err(|error| error.to_string());
    let kinds = arguments.kind.map(|kind| match kind {
        FindKind::File => EntryKind::File,
        FindKind::Directory => EntryKind::Directory,
        FindKind::Symlink => EntryKind::Symlink,
    });
    let options = FindOptions {
        root,
        globs: arguments.pattern.iter().cloned().collect(),
        kinds: kinds.into_iter().collect(),
        min_size: bytes(&arguments.min_size)?,
        max_size: bytes(&arguments.max_size)?,
        modified_within: arguments.modified_within_seconds,
        limit: arguments.limit.unwrap_or(DEFAULT_FOUND),
        sort: match arguments.sort.unwrap_or_default() {
            FindOrder::Path => Sort::Path,
            FindOrder::Modified => Sort::Modified,
            FindOrder::Size => Sort::Size,
        },
        ..FindOptions::default()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Find::new(options, i64::try_from(now).unwrap_or(i64::MAX)).map_err(|error| error.to_string())
}

fn search_of(arguments: &GrepArguments) -> Result<Search, String> {
    let usual = SearchOptions::new(arguments.pattern.clone());
    let context = arguments.context.unwrap_or(0);
    let options = SearchOptions {
        fixed_string: arguments.fixed.unwrap_or(false),
        ignore_case: arguments.ignore_case.unwrap_or(false),
        whole_word: arguments.word.unwrap_or(false),
        multiline: arguments.multiline.unwrap_or(false),
        before: context,
        after: context,
        mode: match arguments.mode.unwrap_or_default() {
            GrepMode::Lines => SearchMode::Lines,
            GrepMode::Files => SearchMode::FilesOnly,
            GrepMode::Counts => SearchMode::Counts,
        },
        max_matches: arguments.limit.map_or(usual.max_matches, |limit| limit as u64),
        ..usual
    };
    Search::new(options).map_err(|error| error.to_string())
}

/// The globs of which a file must match every list.
fn wanted_of(arguments: &GrepArguments) -> Result<Vec<Globs>, String> {
    let mut wanted = Vec::new();
    if let Some(glob) = &arguments.glob {
        wanted.push(Globs::new(&[glob]).map_err(|error| error.to_string())?);
    }
    if let Some(name) = &arguments.file_type {
        let globs = types::globs(name).map_err(|error| error.to_string())?;
        wanted.push(Globs::new(globs).map_err(|error| error.to_string())?);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_answers_are_paths_that_other_tools_take() {
        let root = |path: &str| {
            let root = path.as_bytes().to_vec();
            let spec = WalkSpec { root, include_ignored: false, max_levels: None };
            String::from_utf8(joined(&shown_root(&spec), b"f")).unwrap()
        };
        for (path, shown) in [
            (".", "f"),
            ("./", "f"),
            ("./a", "a/f"),
            ("a", "a/f"),
            ("a/", "a/f"),
            ("/", "/f"),
            ("/a//", "/a/f"),
            ("/workspace", "/workspace/f"),
        ] {
            assert_eq!(root(path), shown, "{path}");
        }
    }
}
