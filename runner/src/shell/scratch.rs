//! A shell's scratch directory: the files that bash sources, the FIFOs that it writes to, and the file for its state.
//!
//! All processes of a session have the same user, so whatever bash can open by a path, a program of an earlier command can
//! open too if it knows the path. Therefore every file that belongs to one command has a random name, which is only in what
//! the runner sends to that bash, and the directory cannot be listed or watched. Each file is removed when its command is
//! over.
//!
//! If the runner is root, the directory belongs to root: commands can read the scripts and write to the FIFOs, but cannot
//! change, remove or add anything. If the runner is not root, a command can list and damage the directory; then the shell is
//! replaced, together with its directory.
//!
//! State files are the only ones that bash fills. They can have a file system of their own, so that a large state cannot take
//! the room of the next command.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::script::{self, file};
use crate::sys::identity::Identity;
use crate::sys::pipe;

/// The places for scratch directories if the configuration names none: in memory if possible.
const CANDIDATES: [&str; 3] = ["/run", "/dev/shm", "/tmp"];

/// The longest path of a root. The longest line has a file below it and a state file, and must fit into one read of bash.
const MAX_ROOT_BYTES: usize = 300;

/// The length of the random part of a directory's name.
const DIR_NAME_BYTES: usize = 12;

/// The longest path of a shell's directory.
#[cfg(test)]
pub(super) const MAX_DIR_BYTES: usize = MAX_ROOT_BYTES + 1 + DIR_NAME_BYTES;

/// The length of a file's random name.
#[cfg(test)]
pub(super) const NAME_BYTES: usize = 32;

/// The mode of a directory that commands can pass through and not list.
const PASSABLE: u32 = 0o711;

/// The parent of all scratch directories of this runner. Dropping it removes the directories.
#[derive(Debug)]
pub struct ScratchRoot {
    path: PathBuf,
    /// The parent of the directories for states. `None`: they are among the other files.
    states: Option<PathBuf>,
}

impl ScratchRoot {
    /// Makes the roots below `wanted`, or in the first place that can be written to, and below `states`.
    pub fn new(wanted: Option<&Path>, states: Option<&Path>) -> io::Result<Self> {
        let name = format!("cove-{}", &crate::sys::random_hex()[..DIR_NAME_BYTES]);
        let candidates: Vec<&Path> = match wanted {
            Some(dir) => vec![dir],
            None => CANDIDATES.iter().map(Path::new).collect(),
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for base in candidates {
            match make_root(&base.join(&name)) {
                Ok(path) => {
                    // The root removes what was made so far if the states have no place.
                    let mut root = Self { path, states: None };
                    root.states = states.map(|base| make_root(&base.join(&name))).transpose()?;
                    return Ok(root);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.path).chain(&self.states)
    }
}

impl Drop for ScratchRoot {
    fn drop(&mut self) {
        self.roots().for_each(|path| remove_tree(path));
    }
}

/// Makes a root. Its path is written into bash source without quotes, and into lines of a bounded length.
fn make_root(path: &Path) -> io::Result<PathBuf> {
    let refuse = |why: &str| {
        let base = path.parent().unwrap_or(path).display();
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{base} {why}")))
    };
    if path.as_os_str().len() > MAX_ROOT_BYTES {
        return refuse("is too long a path");
    }
    if !path.to_str().is_some_and(|p| p.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))) {
        return refuse("has other characters than A-Z a-z 0-9 / . _ -");
    }
    std::fs::DirBuilder::new().mode(PASSABLE).create(path)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(PASSABLE))?;
    Ok(path.to_owned())
}

fn remove_tree(path: &Path) {
    let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(0o700));
    let _ = std::fs::remove_dir_all(path);
}

pub struct Scratch {
    dir: PathBuf,
    /// The directory for states. `None`: they are among the other files.
    states: Option<PathBuf>,
    /// The mode of files that commands write to: commands have the same group as the file, or the same user.
    writable: u32,
}

/// The path of a file or FIFO with a random name. Dropping it removes the file.
#[derive(Debug)]
pub struct ScratchFile(PathBuf);

impl ScratchFile {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A FIFO for the output of one command.
pub struct OutputFifo {
    pub name: ScratchFile,
    pub reader: OwnedFd,
    /// Keeps the FIFO from ending before the command has opened and closed it.
    pub writer: OwnedFd,
}

/// The file for the state after one command, with the descriptor through which the runner reads it.
#[derive(Debug)]
pub struct StateFile {
    pub name: ScratchFile,
    pub file: File,
}

impl Scratch {
    /// Makes the scratch directory of one bash.
    pub fn new(root: &ScratchRoot, identity: Identity) -> io::Result<Self> {
        let name = &crate::sys::random_hex()[..DIR_NAME_BYTES];
        let scratch = Self {
            dir: root.path.join(name),
            states: root.states.as_ref().map(|states| states.join(name)),
            writable: if identity.switch { 0o620 } else { 0o600 },
        };
        for (root, dir) in root.roots().zip(scratch.dirs()) {
            make_dir(root, dir, identity)?;
        }
        write_new(&scratch.dir.join(file::TAIL), script::TAIL.as_bytes())?;
        write_new(&scratch.dir.join(file::STATUS), script::STATUS.as_bytes())?;
        Ok(scratch)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.dir).chain(&self.states)
    }

    /// Writes a file with a random name that bash can read.
    pub fn write(&self, bytes: &[u8]) -> io::Result<ScratchFile> {
        // If there is no room for all of it, dropping the name removes what was written.
        let name = ScratchFile(unused_in(&self.dir));
        write_new(name.path(), bytes)?;
        Ok(name)
    }

    /// Makes a file without a name, and returns a descriptor that bash can read it from. `text` gets the descriptor's number.
    pub fn unnamed(&self, text: impl FnOnce(RawFd) -> Vec<u8>) -> io::Result<OwnedFd> {
        let name = self.write(b"")?;
        let reader = File::open(name.path())?;
        std::fs::OpenOptions::new().write(true).open(name.path())?.write_all(&text(reader.as_raw_fd()))?;
        Ok(reader.into())
    }

    pub fn state_file(&self) -> io::Result<StateFile> {
        let path = unused_in(self.states.as_ref().unwrap_or(&self.dir));
        let file = new_file(self.writable).read(true).open(&path)?;
        Ok(StateFile { name: ScratchFile(path), file })
    }

    pub fn output_fifo(&self) -> io::Result<OutputFifo> {
        let path = unused_in(&self.dir);
        pipe::make_fifo(&path, self.writable)?;
        let name = ScratchFile(path);
        let reader = pipe::open_fifo_reader(name.path())?;
        let writer = std::fs::OpenOptions::new().write(true).open(name.path())?.into();
        Ok(OutputFifo { name, reader, writer })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.dirs().for_each(|dir| remove_tree(dir));
    }
}

/// A path that nobody can guess, and that no file has.
fn unused_in(dir: &Path) -> PathBuf {
    dir.join(crate::sys::random_hex())
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    new_file(0o644).open(path)?.write_all(bytes)
}

fn new_file(mode: u32) -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options
}

fn make_dir(root: &Path, dir: &Path, identity: Identity) -> io::Result<()> {
    if std::fs::DirBuilder::new().mode(0o700).create(dir).is_err() {
        // If the runner is not root, a command may have removed the root or changed its permissions.
        std::fs::DirBuilder::new().recursive(true).mode(PASSABLE).create(root)?;
        std::fs::set_permissions(root, PermissionsExt::from_mode(PASSABLE))?;
        std::fs::DirBuilder::new().mode(0o700).create(dir)?;
    }
    if identity.switch {
        // With the set-group-id bit, new files inside belong to the group of commands without a call for each.
        std::os::unix::fs::chown(dir, None, Some(identity.gid))?;
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o2000 | PASSABLE))?;
    }
    Ok(())
}
