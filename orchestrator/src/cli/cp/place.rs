//! The source and the destination of a copy: `SESSION:PATH`, a local path, or `-`. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use shared_protocol::SessionId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Session {
        /// As somebody has typed it: it may be a name.
        id: SessionId,
        path: Vec<u8>,
    },
    Local(PathBuf),
    /// Standard input or output.
    Stream,
}

impl Place {
    /// Parses a place as scp does: a colon before any slash makes it a path in a session. A local name with a colon is `./a:b`.
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Self::Stream;
        }
        let colon = bytes.iter().position(|byte| *byte == b':');
        let remote = colon.and_then(|at| {
            // An id contains no slash.
            let id = SessionId::new(std::str::from_utf8(&bytes[..at]).ok()?).ok()?;
            Some((id, &bytes[at + 1..]))
        });
        match remote {
            // Nothing after the colon means the workspace itself.
            Some((id, b"")) => Self::Session { id, path: b".".to_vec() },
            Some((id, path)) => Self::Session { id, path: path.to_vec() },
            None => Self::Local(PathBuf::from(text)),
        }
    }
}

impl Place {
    /// A place in a workspace, as one in a session that has the workspace. A path begins at the workspace, with and without a slash.
    pub fn in_workspace(&self, session: &SessionId) -> Self {
        match self {
            Self::Session { path, .. } => {
                let below = path.iter().position(|byte| *byte != b'/').map_or(&b"."[..], |at| &path[at..]);
                Self::Session { id: session.clone(), path: below.to_vec() }
            }
            other => other.clone(),
        }
    }
}

/// What is at the destination now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Nothing,
    Directory,
    Other,
}

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    File,
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// A directory cannot replace a file.
    DirectoryOntoFile,
    /// The destination names a directory that does not exist.
    NoDirectory,
    /// The source has no name that it could get in the destination directory.
    NoName,
}

/// The path of the copy, as `cp -r` would choose it: in an existing directory under the source's name, else the destination
/// itself. `source/.` means the content of `source`.
pub fn target(source: &[u8], what: SourceKind, destination: &[u8], there: Existing) -> Result<Vec<u8>, TargetError> {
    match (what, there) {
        (SourceKind::Directory, Existing::Other) => Err(TargetError::DirectoryOntoFile),
        (SourceKind::File, Existing::Nothing) if destination.ends_with(b"/") => Err(TargetError::NoDirectory),
        (_, Existing::Nothing | Existing::Other) => Ok(destination.to_vec()),
        (_, Existing::Directory) => match (name(source), what) {
            (Some(name), _) => Ok(below(destination, name)),
            (None, SourceKind::Directory) => Ok(destination.to_vec()),
            (None, SourceKind::File) => Err(TargetError::NoName),
        },
    }
}

/// The last name in a path; `None` for `.`, `..`, `/` and paths that end in `/.`.
fn name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let name = path[..end].rsplit(|byte| *byte == b'/').next()?;
    (name != b"." && name != b".." && !name.is_empty()).then_some(name)
}

fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

pub fn local_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(id: &str, path: &str) -> Place {
        Place::Session { id: SessionId::new(id).unwrap(), path: path.into() }
    }

    #[test]
    fn a_colon_before_any_slash_makes_it_remote() {
        let parse = |text: &str| Place::parse(OsStr::new(text));
        assert_eq!(parse("7183cb80-d6c:/etc/passwd"), remote("7183cb80-d6c", "/etc/passwd"));
        assert_eq!(parse("7183cb80-d6c:a:b"), remote("7183cb80-d6c", "a:b"));
        assert_eq!(parse("7183cb80-d6c:"), remote("7183cb80-d6c", "."));
        for local in ["file", "./a:b", "/tmp/a:b", "dir/a:b", ":a", "no id:x", "-x:y", "..:x"] {
            assert_eq!(parse(local), Place::Local(local.into()), "{local}");
        }
        assert_eq!(parse("-"), Place::Stream);
        assert_eq!(parse("./-"), Place::Local("./-".into()));
    }

    #[test]
    fn a_path_in_a_workspace_begins_there() {
        let session = SessionId::new("7183cb80-d6c").unwrap();
        let of = |text: &str| Place::parse(OsStr::new(text)).in_workspace(&session);
        assert_eq!(of("data:src/a"), remote("7183cb80-d6c", "src/a"));
        assert_eq!(of("data:/src/"), remote("7183cb80-d6c", "src/"));
        assert_eq!((of("data:"), of("data:/")), (remote("7183cb80-d6c", "."), remote("7183cb80-d6c", ".")));
        assert_eq!(of("./here"), Place::Local("./here".into()));
    }

    #[test]
    fn a_path_need_not_be_text() {
        let place = Place::parse(OsStr::from_bytes(b"s:\xff"));
        assert_eq!(place, Place::Session { id: SessionId::new("s").unwrap(), path: vec![0xff] });
        assert_eq!(Place::parse(OsStr::from_bytes(b"\xff:x")), Place::Local(OsStr::from_bytes(b"\xff:x").into()));
    }

    #[test]
    fn copies_land_where_cp_would_put_them() {
        let to = |source: &str, what, destination: &str, there| {
            target(source.as_bytes(), what, destination.as_bytes(), there).map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(to("a/f", SourceKind::File, "d", Existing::Directory).unwrap(), "d/f");
        assert_eq!(to("a/f", SourceKind::File, "d/", Existing::Directory).unwrap(), "d/f");
        assert_eq!(to("a/f", SourceKind::File, "g", Existing::Other).unwrap(), "g");
        assert_eq!(to("a/f", SourceKind::File, "g", Existing::Nothing).unwrap(), "g");
        assert_eq!(to("a/f", SourceKind::File, "g/", Existing::Nothing), Err(TargetError::NoDirectory));
        assert_eq!(to("a/d/", SourceKind::Directory, "e", Existing::Directory).unwrap(), "e/d");
        assert_eq!(to("a/d", SourceKind::Directory, "e", Existing::Nothing).unwrap(), "e");
        assert_eq!(to("a/d/.", SourceKind::Directory, "e", Existing::Directory).unwrap(), "e");
        assert_eq!(to(".", SourceKind::Directory, "e", Existing::Directory).unwrap(), "e");
        assert_eq!(to("..", SourceKind::Directory, "e", Existing::Directory).unwrap(), "e");
        assert_eq!(to("/", SourceKind::Directory, "/", Existing::Directory).unwrap(), "/");
        assert_eq!(to("d", SourceKind::Directory, "f", Existing::Other), Err(TargetError::DirectoryOntoFile));
    }
}
