//! Where something is copied from or to: `SESSION:PATH`, a local path, or `-`. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use shared_protocol::SessionId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Session {
        id: SessionId,
        path: Vec<u8>,
    },
    Local(PathBuf),
    /// Standard input or output.
    Stream,
}

impl Place {
    /// As scp has it: a colon before any slash makes it remote, so a local name with a colon is written `./a:b`.
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Self::Stream;
        }
        let colon = bytes.iter().position(|byte| *byte == b':');
        let remote = colon.and_then(|at| {
            // An id has no slash in it.
            let id = SessionId::new(std::str::from_utf8(&bytes[..at]).ok()?).ok()?;
            Some((id, &bytes[at + 1..]))
        });
        match remote {
            // Nothing behind the colon is the workspace itself.
            Some((id, b"")) => Self::Session { id, path: b".".to_vec() },
            Some((id, path)) => Self::Session { id, path: path.to_vec() },
            None => Self::Local(PathBuf::from(text)),
        }
    }
}

/// What is at the destination now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    Nothing,
    Directory,
    Other,
}

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    File,
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misplaced {
    /// A directory onto a file.
    DirectoryOntoFile,
    /// A file into a directory that is not there.
    NoDirectory,
    /// A file without a name into a directory.
    NoName,
}

/// The path that the copy gets, as `cp -r` would have it: into a directory that is there under the source's name, else as
/// the destination itself. `source/.` means its content.
pub fn target(source: &[u8], what: What, destination: &[u8], there: There) -> Result<Vec<u8>, Misplaced> {
    match (what, there) {
        (What::Directory, There::Other) => Err(Misplaced::DirectoryOntoFile),
        (What::File, There::Nothing) if destination.ends_with(b"/") => Err(Misplaced::NoDirectory),
        (_, There::Nothing | There::Other) => Ok(destination.to_vec()),
        (_, There::Directory) => match (name(source), what) {
            (Some(name), _) => Ok(below(destination, name)),
            (None, What::Directory) => Ok(destination.to_vec()),
            (None, What::File) => Err(Misplaced::NoName),
        },
    }
}

/// The last name of a path; none for `.`, `..`, `/` and what ends in `/.`.
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
        assert_eq!(to("a/f", What::File, "d", There::Directory).unwrap(), "d/f");
        assert_eq!(to("a/f", What::File, "d/", There::Directory).unwrap(), "d/f");
        assert_eq!(to("a/f", What::File, "g", There::Other).unwrap(), "g");
        assert_eq!(to("a/f", What::File, "g", There::Nothing).unwrap(), "g");
        assert_eq!(to("a/f", What::File, "g/", There::Nothing), Err(Misplaced::NoDirectory));
        assert_eq!(to("a/d/", What::Directory, "e", There::Directory).unwrap(), "e/d");
        assert_eq!(to("a/d", What::Directory, "e", There::Nothing).unwrap(), "e");
        assert_eq!(to("a/d/.", What::Directory, "e", There::Directory).unwrap(), "e");
        assert_eq!(to(".", What::Directory, "e", There::Directory).unwrap(), "e");
        assert_eq!(to("..", What::Directory, "e", There::Directory).unwrap(), "e");
        assert_eq!(to("/", What::Directory, "/", There::Directory).unwrap(), "/");
        assert_eq!(to("d", What::Directory, "f", There::Other), Err(Misplaced::DirectoryOntoFile));
    }
}
