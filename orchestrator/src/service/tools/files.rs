//! `read`, `write`, `edit`, `diff`, `delete`: single files.

use agent_tools::difference::{self, DiffOptions};
use agent_tools::edit::{self, Edit};
use agent_tools::kind::{self, FileKind as ContentKind};
use agent_tools::shown::Escaped;
use agent_tools::text::Text;
use agent_tools::view::{self, ViewOptions};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde_json::json;
use shared_protocol::ErrorCode;
use shared_protocol::runner::{FileKind, FileView};

use super::arguments::{DeleteArguments, DiffArguments, EditArguments, ReadArguments, WriteArguments};
use super::reply::{ToolContent, ToolReply};
use super::{On, Tools};
use crate::runner_client::RunnerError;
use crate::service::files::{ByteRange, Depth, FileSource, LastLink, Parents, Place, SandboxPath};
use crate::service::{CallError, InvalidRequest};

/// The largest text that a tool reads. Of a longer one, `read` shows a part of this size.
const MAX_TEXT_BYTES: u64 = 10 << 20;
/// The largest image that `read` returns: models take about five megabytes.
const MAX_IMAGE_BYTES: u64 = 5 << 20;

/// A file as a tool reads it.
struct Content {
    bytes: Bytes,
    view: FileView,
    is_whole: bool,
}

impl Tools {
    pub(super) async fn read(&self, on: On<'_>, arguments: ReadArguments) -> Result<ToolReply, CallError> {
        let path = match path_of(&arguments.path) {
            Ok(path) => path,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let content = match self.content(on, &path).await? {
            Ok(content) => content,
            Err(reply) => return Ok(reply),
        };
        match kind::recognise(&content.bytes) {
            ContentKind::Image(image) => Ok(self.image(on, &path, &arguments.path, image, content)),
            ContentKind::Binary => {
                let bytes = content.view.size;
                let text = format!("{} is a binary file of {bytes} bytes; use bash to look into it", shown(&path));
                Ok(ToolReply::text(text, json!({ "path": arguments.path, "kind": "binary", "bytes": bytes })))
            }
            ContentKind::Text(_) => Ok(self.lines(on, &path, &arguments, &content)),
        }
    }

    fn lines(&self, on: On<'_>, path: &SandboxPath, arguments: &ReadArguments, content: &Content) -> ToolReply {
        let text = match Text::decode(&content.bytes) {
            Ok(text) => text,
            Err(error) => return ToolReply::failure(format!("{}: {error}", shown(path))),
        };
        let usual = ViewOptions::default();
        let options = ViewOptions {
            offset: arguments.offset.unwrap_or(usual.offset),
            limit: arguments.limit.unwrap_or(usual.limit),
            ..usual
        };
        let view = match view::read(&text, &options) {
            Ok(view) => view,
            Err(error) => return ToolReply::failure(format!("{}: {error}", shown(path))),
        };
        if content.is_whole {
            self.seen.put(on.id, path.as_bytes(), content.bytes.to_vec());
        }
        let mut said = view.text;
        if !content.is_whole {
            said.push_str(&format!(
                "\n[only the first {MAX_TEXT_BYTES} of {} bytes are read; use bash for the rest]",
                content.view.size
            ));
        }
        let mut structured = json!({
            "path": arguments.path, "kind": "text", "first_line": view.first_line, "last_line": view.last_line,
            "total_lines": view.total_lines, "bytes": content.view.size,
        });
        if let Some(next) = view.next_offset {
            structured["next_offset"] = json!(next);
        }
        ToolReply::text(said, structured)
    }

    fn image(&self, _on: On<'_>, path: &SandboxPath, asked: &str, image: kind::Image, content: Content) -> ToolReply {
        let bytes = content.view.size;
        let size = image.size.map(|(width, height)| format!(", {width}x{height} pixels")).unwrap_or_default();
        let structured = json!({ "path": asked, "kind": "image", "media_type": image.mime, "bytes": bytes });
        let text = format!("{}: {}{size}, {bytes} bytes", shown(path), image.mime);
        if bytes > MAX_IMAGE_BYTES || !content.is_whole {
            let text =
                format!("{text}. It is too large to be shown: make it smaller than {MAX_IMAGE_BYTES} bytes first");
            return ToolReply::text(text, structured);
        }
        let mut reply = ToolReply::text(text, structured);
        reply.content.push(ToolContent::Image { media_type: image.mime, data: content.bytes });
        reply
    }

    pub(super) async fn write(&self, on: On<'_>, arguments: WriteArguments) -> Result<ToolReply, CallError> {
        let path = match path_of(&arguments.path) {
            Ok(path) => path,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let is_new = self.stat(on, &path).await?.is_none();
        if let Some(parent) = parent(&path).filter(|_| is_new) {
            self.parts.files.make_directory(on.caller, &place(on), &parent, Parents::Make).await?;
        }
        let bytes = Bytes::from(arguments.content);
        let source = FileSource::full(bytes.clone());
        let wrote = self.parts.files.write(on.caller, &place(on), &path, /* mode */ None, source).await?;
        self.seen.put(on.id, path.as_bytes(), bytes.to_vec());
        let done = if is_new { "Created" } else { "Replaced" };
        let text = format!("{done} {} ({} bytes).", shown(&path), wrote.bytes);
        Ok(ToolReply::text(text, json!({ "path": arguments.path, "bytes": wrote.bytes, "is_new": is_new })))
    }

    pub(super) async fn edit(&self, on: On<'_>, arguments: EditArguments) -> Result<ToolReply, CallError> {
        let checked = path_of(&arguments.path).and_then(|path| Ok((path, arguments.list()?)));
        let (path, list) = match checked {
            Ok(checked) => checked,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let content = match self.content(on, &path).await? {
            Ok(content) => content,
            Err(reply) => return Ok(reply),
        };
        if !content.is_whole {
            let text = format!("{} has more than {MAX_TEXT_BYTES} bytes; edit it with bash", shown(&path));
            return Ok(ToolReply::failure(text));
        }
        let edits: Vec<Edit> = list
            .into_iter()
            .map(|one| Edit { old: one.old_string, new: one.new_string, replace_all: one.replace_all })
            .collect();
        // To find what is nearly the same takes a while in a large file.
        let (bytes, name) = (content.bytes.clone(), path.as_bytes().to_vec());
        let work = move || edit::apply(&bytes, &edits, &DiffOptions::new(&name));
        let edited = match in_thread(work).await? {
            Ok(edited) => edited,
            Err(error) => return Ok(ToolReply::failure(format!("{}: {error}", shown(&path)))),
        };
        // A program may have written it meanwhile. Between this look and the write, only a moment passes.
        if self.stat(on, &path).await?.is_none_or(|now| changed(&now, &content.view)) {
            return Ok(ToolReply::failure(format!("{} has changed meanwhile; read it again", shown(&path))));
        }
        let source = FileSource::full(edited.bytes.clone());
        self.parts.files.write(on.caller, &place(on), &path, /* mode */ None, source).await?;
        self.seen.put(on.id, path.as_bytes(), edited.bytes);
        let times =
            if edited.replacements == 1 { "1 place".to_owned() } else { format!("{} places", edited.replacements) };
        let text = format!("Edited {} in {times}.\n{}", shown(&path), edited.diff);
        let structured = json!({ "path": arguments.path, "replacements": edited.replacements, "diff": edited.diff });
        Ok(ToolReply::text(text, structured))
    }

    pub(super) async fn diff(&self, on: On<'_>, arguments: DiffArguments) -> Result<ToolReply, CallError> {
        let other = arguments.other.as_deref().map(path_of).transpose();
        let (path, other) = match path_of(&arguments.path).and_then(|path| Ok((path, other?))) {
            Ok(checked) => checked,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let new = match self.content(on, other.as_ref().unwrap_or(&path)).await? {
            Ok(content) => content,
            Err(reply) => return Ok(reply),
        };
        let old = match &other {
            Some(_) => match self.content(on, &path).await? {
                Ok(content) if content.is_whole => content.bytes.to_vec(),
                Ok(_) => return Ok(too_large(&path)),
                Err(reply) => return Ok(reply),
            },
            None => match self.seen.get(on.id, path.as_bytes()) {
                Some(seen) => seen,
                None => {
                    let text = format!(
                        "{} was not read or written by a tool before, so there is nothing to compare it with; give other, or use git diff",
                        shown(&path)
                    );
                    return Ok(ToolReply::failure(text));
                }
            },
        };
        if !new.is_whole {
            return Ok(too_large(other.as_ref().unwrap_or(&path)));
        }
        let (after, name) = (new.bytes.clone(), path.as_bytes().to_vec());
        let is_same = old == after;
        let found = in_thread(move || difference::of_files(&old, &after, &DiffOptions::new(&name))).await?;
        if other.is_none() {
            self.seen.put(on.id, path.as_bytes(), new.bytes.to_vec());
        }
        Ok(ToolReply::text(found.text.clone(), json!({ "is_same": is_same, "diff": found.text })))
    }

    pub(super) async fn delete(&self, on: On<'_>, arguments: DeleteArguments) -> Result<ToolReply, CallError> {
        let path = match path_of(&arguments.path) {
            Ok(path) => path,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let depth = if arguments.recursive == Some(true) { Depth::Recursive } else { Depth::Flat };
        self.parts.files.delete(on.caller, &place(on), &path, depth).await?;
        self.seen.forget(on.id, path.as_bytes());
        Ok(ToolReply::text(format!("Deleted {}.", shown(&path)), json!({ "path": arguments.path })))
    }

    /// Reads a file, up to the largest text. The inner error is an answer for the model.
    async fn content(&self, on: On<'_>, path: &SandboxPath) -> Result<Result<Content, ToolReply>, CallError> {
        let view = match self.stat(on, path).await? {
            Some(view) => view,
            None => return Ok(Err(ToolReply::failure(format!("{}: there is no such file", shown(path))))),
        };
        if view.kind != FileKind::File {
            let what = match view.kind {
                FileKind::Directory => "a directory; use ls",
                _ => "not a regular file",
            };
            return Ok(Err(ToolReply::failure(format!("{} is {what}", shown(path)))));
        }
        // A file of /proc claims to be empty, and has no parts.
        let range = (view.size > MAX_TEXT_BYTES).then_some(ByteRange::Between(0, MAX_TEXT_BYTES - 1));
        let mut content = self.parts.files.read(on.caller, &place(on), path, range).await?;
        let (mut bytes, mut is_whole) = (BytesMut::new(), range.is_none());
        while let Some(piece) = content.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() as u64 > MAX_TEXT_BYTES {
                bytes.truncate(usize::try_from(MAX_TEXT_BYTES).unwrap_or(usize::MAX));
                is_whole = false;
                break;
            }
        }
        Ok(Ok(Content { bytes: bytes.freeze(), view, is_whole }))
    }

    /// What is at a path, if anything. Links are followed.
    pub(super) async fn stat(&self, on: On<'_>, path: &SandboxPath) -> Result<Option<FileView>, CallError> {
        match self.parts.files.stat(on.caller, &place(on), path, LastLink::Follow).await {
            Ok(view) => Ok(Some(view)),
            Err(CallError::Runner(RunnerError::Refused(body))) if body.error_code == ErrorCode::FileNotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn place(on: On<'_>) -> Place {
    Place::Session(on.id.clone())
}

pub(super) fn path_of(path: &str) -> Result<SandboxPath, InvalidRequest> {
    SandboxPath::new("path", path)
}

pub(super) fn shown(path: &SandboxPath) -> String {
    if *path == SandboxPath::workspace() {
        return "/workspace".to_owned();
    }
    Escaped(path.as_bytes()).to_string()
}

fn too_large(path: &SandboxPath) -> ToolReply {
    ToolReply::failure(format!("{} has more than {MAX_TEXT_BYTES} bytes; compare it with bash", shown(path)))
}

fn changed(now: &FileView, before: &FileView) -> bool {
    (now.size, now.mtime_ms, now.kind) != (before.size, before.mtime_ms, before.kind)
}

/// The directory of a path, unless it is one that always exists.
fn parent(path: &SandboxPath) -> Option<SandboxPath> {
    let bytes = path.as_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0)?;
    SandboxPath::new("path", bytes.get(..slash)?).ok()
}

/// Runs work that takes a processor for a while on a thread for such work.
pub(super) async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CallError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| CallError::Session(crate::session::SessionError::Internal(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_path_is_what_is_before_its_last_slash() {
        let parent = |path: &str| {
            parent(&path_of(path).unwrap()).map(|path| String::from_utf8(path.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(parent("a/b/c").as_deref(), Some("a/b"));
        assert_eq!(parent("/a/b").as_deref(), Some("/a"));
        assert_eq!(parent("a"), None);
        assert_eq!(parent("/a"), None);
    }
}
