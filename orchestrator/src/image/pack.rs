//! The process that reads what a session has changed, and writes it as the archive of a layer. Its root is the directory that it
//! reads, so no link in it leads outside; nobody writes to it meanwhile.
//!
//! The archive goes to its standard output, and what went wrong to its standard error. What overlayfs has for a name that was removed
//! becomes the entry that images have for it. The same files give the same archive.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use tar::{Builder, EntryType, Header};

use super::entries::{ATTRIBUTE_RECORD, OPAQUE, OPAQUE_ATTRIBUTE, WHITEOUT, is_kept_attribute};
use crate::runtime::{OwnerMap, TreeSource};

/// The hidden subcommand that makes `cove` pack a layer.
pub const SUBCOMMAND: &str = "__pack-layer";

/// Attributes by which overlayfs says that the rest of a file or directory is in a lower layer. Sessions are mounted without them.
const REFERENCES: [&str; 2] = ["trusted.overlay.redirect", "trusted.overlay.metacopy"];

/// The most bytes of the names of a file's attributes, and of one attribute, as Linux has them.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;
/// The most files with several names. Each is remembered.
const MAX_LINKED_FILES: usize = 1_000_000;

const BUFFER_BYTES: usize = 256 << 10;

/// What the process is started for. Its standard input is the directory that becomes its root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PackTask {
    pub trees: Vec<TreeSource>,
    pub owners: OwnerMap,
}

/// The whole program of a process that was started to pack a layer; `None` for any other process. It must be called before any
/// thread is made.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    // What is packed for a process that is gone is of no use.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let task: PackTask = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
    let done = enter().map_err(|e| format!("entering the directory: {e}")).and_then(|()| {
        let output = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        pack(&task, Path::new("/"), output)
    });
    match done {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(why) => {
            let _ = writeln!(io::stderr(), "{why}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Makes the directory on standard input the root of this process.
fn enter() -> nix::Result<()> {
    nix::unistd::fchdir(io::stdin().as_fd())?;
    nix::unistd::chroot(".")?;
    nix::unistd::chdir("/")
}

/// Writes all trees below `root` as one archive.
fn pack(task: &PackTask, root: &Path, output: impl Write) -> Result<(), String> {
    let mut packer = Packer { archive: Builder::new(output), owners: task.owners, linked: HashMap::new() };
    for tree in &task.trees {
        let from = root.join(&tree.from);
        // A session that changed nothing of a directory has no layer over it.
        let Ok(status) = std::fs::symlink_metadata(&from) else { continue };
        let skipped = |names: &[String]| names.iter().map(|name| from.join(name)).collect();
        let walk = Walk { device: status.dev(), left_out: skipped(&tree.left_out), emptied: skipped(&tree.emptied) };
        let at = |e: Failed| format!("reading {:?} of the session: {}", e.path.display(), e.error);
        if !tree.to.is_empty() {
            packer.directories_to(Path::new(&tree.to), &status).map_err(at)?;
        }
        packer.inside(&walk, &from, Path::new(&tree.to)).map_err(at)?;
    }
    let written = packer.archive.into_inner().and_then(|mut output| output.flush());
    written.map_err(|e| format!("writing the layer: {e}"))
}

struct Packer<W: Write> {
    archive: Builder<W>,
    owners: OwnerMap,
    /// The first name of each file that has several.
    linked: HashMap<(u64, u64), PathBuf>,
}

/// One tree on its way into the archive.
struct Walk {
    device: u64,
    left_out: Vec<PathBuf>,
    emptied: Vec<PathBuf>,
}

struct Failed {
    path: PathBuf,
    error: io::Error,
}

impl<W: Write> Packer<W> {
    /// Adds the directories on the way to a tree, and the tree's own, which has the status.
    fn directories_to(&mut self, to: &Path, status: &Metadata) -> Result<(), Failed> {
        let mut header = self.header(status);
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        let added = self.archive.append_data(&mut header, to, io::empty());
        added.map_err(|error| Failed { path: to.to_owned(), error })
    }

    /// Adds what is in a directory, sorted, and what is below.
    fn inside(&mut self, walk: &Walk, from: &Path, to: &Path) -> Result<(), Failed> {
        // A stack instead of recursion: a tree may be deeper than any stack of calls.
        let mut waiting: Vec<(PathBuf, PathBuf)> = self.listed(walk, from, to)?;
        while let Some((from, to)) = waiting.pop() {
            let failed = |error| Failed { path: to.clone(), error };
            let is_directory = self.entry(walk, &from, &to).map_err(failed)?;
            if is_directory && !walk.emptied.contains(&from) {
                waiting.extend(self.listed(walk, &from, &to)?);
            }
        }
        Ok(())
    }

    /// The names in a directory, the last one first.
    fn listed(&self, walk: &Walk, from: &Path, to: &Path) -> Result<Vec<(PathBuf, PathBuf)>, Failed> {
        let list = || -> io::Result<Vec<OsString>> {
            let mut names: Vec<OsString> =
                std::fs::read_dir(from)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
            names.sort_by(|a, b| b.cmp(a));
            Ok(names)
        };
        let names = list().map_err(|error| Failed { path: to.to_owned(), error })?;
        let paths = names.into_iter().map(|name| (from.join(&name), to.join(&name)));
        Ok(paths.filter(|(from, _)| !walk.left_out.contains(from)).collect())
    }

    /// Adds one file, directory or link. Whether it is a directory whose content belongs to the layer.
    fn entry(&mut self, walk: &Walk, from: &Path, to: &Path) -> io::Result<bool> {
        let status = std::fs::symlink_metadata(from)?;
        let kind = status.file_type();
        // A name that would mean something else in a layer cannot be in one.
        let is_whiteout_name = to.file_name().is_some_and(|name| name.as_bytes().starts_with(WHITEOUT));
        if is_whiteout_name {
            return Ok(false);
        }
        if kind.is_char_device() && status.rdev() == 0 {
            self.marker(to.parent().unwrap_or(Path::new("")), &[WHITEOUT, name_of(to)].concat())?;
            return Ok(false);
        }
        let mut header = self.header(&status);
        if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            self.archive.append_link(&mut header, to, std::fs::read_link(from)?)?;
        } else if kind.is_dir() {
            let attributes = attributes(from)?;
            self.attributes(&attributes)?;
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            self.archive.append_data(&mut header, to, io::empty())?;
            if attributes.iter().any(|(name, value)| name == OPAQUE_ATTRIBUTE && value == b"y") {
                self.marker(to, OPAQUE)?;
            }
            // What is mounted there belongs to something else.
            return Ok(status.dev() == walk.device);
        } else if kind.is_file() {
            self.file(from, to, &status, header)?;
        }
        // A sandbox has its own devices, and nobody listens at a socket or a FIFO of an image.
        Ok(false)
    }

    fn file(&mut self, from: &Path, to: &Path, status: &Metadata, mut header: Header) -> io::Result<()> {
        if status.nlink() > 1 {
            let key = (status.dev(), status.ino());
            if let Some(first) = self.linked.get(&key) {
                header.set_entry_type(EntryType::Link);
                header.set_size(0);
                let first = first.clone();
                return self.archive.append_link(&mut header, to, first);
            }
            if self.linked.len() >= MAX_LINKED_FILES {
                return Err(io::Error::other(format!("more than {MAX_LINKED_FILES} files have several names")));
            }
            self.linked.insert(key, to.to_owned());
        }
        self.attributes(&attributes(from)?)?;
        let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(from)?;
        header.set_entry_type(EntryType::Regular);
        header.set_size(status.len());
        // A file of the host may get shorter or longer meanwhile. Its entry has the length that was announced.
        let exact = file.take(status.len()).chain(io::repeat(0)).take(status.len());
        self.archive.append_data(&mut header, to, exact)
    }

    /// Adds an empty file whose name says what is removed of lower layers.
    fn marker(&mut self, directory: &Path, name: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0);
        header.set_size(0);
        let path = directory.join(OsString::from_vec(name.to_vec()));
        self.archive.append_data(&mut header, path, io::empty())
    }

    fn attributes(&mut self, attributes: &[(String, Vec<u8>)]) -> io::Result<()> {
        if let Some((name, _)) = attributes.iter().find(|(name, _)| REFERENCES.contains(&name.as_str())) {
            return Err(io::Error::other(format!("a part of it is in a lower layer ({name})")));
        }
        let kept = attributes.iter().filter(|(name, _)| is_kept_attribute(name));
        let records: Vec<(String, &[u8])> =
            kept.map(|(name, value)| (format!("{ATTRIBUTE_RECORD}{name}"), value.as_slice())).collect();
        if records.is_empty() {
            return Ok(());
        }
        self.archive.append_pax_extensions(records.iter().map(|(name, value)| (name.as_str(), *value)))
    }

    fn header(&self, status: &Metadata) -> Header {
        let mut header = Header::new_gnu();
        header.set_mode(status.mode() & 0o7777);
        header.set_uid(self.owners.of(status.uid()).into());
        header.set_gid(self.owners.of(status.gid()).into());
        header.set_mtime(u64::try_from(status.mtime()).unwrap_or(0));
        header
    }
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", |name| name.as_bytes())
}

/// The attributes of a file or directory. A file system without attributes has none.
fn attributes(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Err(rustix::io::Errno::NOTSUP) => 0,
        length => length?,
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // Every attribute that matters here has a name in ASCII.
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
        let length = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(length);
        found.push((name.to_owned(), value));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[path = "pack_test.rs"]
mod tests;
