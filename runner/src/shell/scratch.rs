//! A shell's scratch directory: the files that bash sources and the FIFOs it writes to.
//!
//! Where the runner is root, all of it belongs to root: commands can read the scripts and write to the FIFOs, and can neither
//! change, remove nor add anything. Where it is not, a command can damage it; then the shell is replaced, and its
//! directory with it.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::script::{self, file};
use crate::sys::identity::Identity;
use crate::sys::pipe;

/// Where scratch directories go when nothing else was asked for: memory first.
const CANDIDATES: [&str; 3] = ["/run", "/dev/shm", "/tmp"];

/// So that the longest line, with the path in it twice, stays below what bash reads at once.
const MAX_ROOT_BYTES: usize = 300;

/// The root of all scratch directories of this runner; removed with it.
#[derive(Debug)]
pub struct ScratchRoot {
    path: PathBuf,
}

impl ScratchRoot {
    pub fn new(wanted: Option<&Path>) -> io::Result<Self> {
        let name = format!("cove-{}", &crate::sys::random_hex()[..12]);
        let candidates: Vec<&Path> = match wanted {
            Some(dir) => vec![dir],
            None => CANDIDATES.iter().map(Path::new).collect(),
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for base in candidates {
            let path = base.join(&name);
            // Its path goes into bash source unquoted, and into lines of a bounded length.
            if path.as_os_str().len() > MAX_ROOT_BYTES {
                last = io::Error::new(io::ErrorKind::InvalidInput, format!("{} is too long a path", base.display()));
                continue;
            }
            if !path.to_str().is_some_and(|p| p.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))) {
                last = io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{} has other characters than A-Z a-z 0-9 / . _ -", base.display()),
                );
                continue;
            }
            match std::fs::DirBuilder::new().mode(0o711).create(&path) {
                Ok(()) => {
                    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o711))?;
                    return Ok(Self { path });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Drop for ScratchRoot {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions(&self.path, PermissionsExt::from_mode(0o711));
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub struct Scratch {
    dir: PathBuf,
    /// Of what commands write to: they share the group, or the user.
    writable: u32,
}

impl Scratch {
    /// Makes a directory for one incarnation of a shell.
    pub fn new(root: &ScratchRoot, identity: Identity) -> io::Result<Self> {
        let dir = root.path.join(&crate::sys::random_hex()[..12]);
        if std::fs::DirBuilder::new().mode(0o700).create(&dir).is_err() {
            // A command of a runner that is not root may have taken the root away, or its permissions.
            std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&root.path)?;
            std::fs::set_permissions(&root.path, PermissionsExt::from_mode(0o711))?;
            std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
        }
        let scratch = Self { dir, writable: if identity.switch { 0o620 } else { 0o600 } };
        if identity.switch {
            // With the set-group-id bit what is made inside belongs to the group of commands, without a call for each.
            std::os::unix::fs::chown(&scratch.dir, None, Some(identity.gid))?;
            std::fs::set_permissions(&scratch.dir, PermissionsExt::from_mode(0o2711))?;
        }
        scratch.write(file::TAIL, script::tail_file(&scratch.dir).as_bytes())?;
        scratch.write(file::STATUS, script::STATUS.as_bytes())?;
        for name in file::STATES.iter().chain([&file::BEGUN]) {
            scratch.create(name, scratch.writable, b"")?;
        }
        Ok(scratch)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes what commands may read.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.create(name, 0o644, bytes)
    }

    fn create(&self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
        options.open(self.path(name))?.write_all(bytes)
    }

    /// Whether the command of that name had begun. A file that was taken away says nothing: then it may have, and must not
    /// be run a second time.
    pub fn has_begun(&self, variable: &str) -> bool {
        std::fs::read(self.path(file::BEGUN)).map_or(true, |name| name == variable.as_bytes())
    }

    /// A new file, so that what an earlier command still reads stays as it was.
    pub fn write_anew(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let _ = std::fs::remove_file(self.path(name));
        self.write(name, bytes)
    }

    pub fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.path(name));
    }

    /// A new FIFO for one command: its reading end, and a writing end that keeps it from ending before the command has
    /// opened it and closed it again.
    pub fn output_fifo(&self, name: &str) -> io::Result<(OwnedFd, OwnedFd)> {
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        pipe::make_fifo(&path, self.writable)?;
        let reader = pipe::open_fifo_reader(&path)?;
        let keeper = std::fs::OpenOptions::new().write(true).open(&path)?;
        Ok((reader, keeper.into()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions(&self.dir, PermissionsExt::from_mode(0o700));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
