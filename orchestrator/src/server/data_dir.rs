//! The data directory, which only one daemon at a time uses. It holds the API key, and `daemon.json`, with which commands
//! find the daemon.
//!
//! Every file that is written here is readable only by its owner, and is either complete or absent.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::config::{ApiKey, DAEMON_FILE, DaemonFile, KEY_FILE, LINK_KEY_FILE, LOCK_FILE};
use crate::service::ports::LinkKey;

/// The data directory, locked until this is dropped. If the daemon is killed, the kernel releases the lock.
pub struct DataDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl DataDir {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot make the data directory {shown}"))?;
        let lock_path = path.join(LOCK_FILE);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .with_context(|| format!("cannot write in the data directory {shown}"))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                bail!("the data directory {shown} is in use by another cove, pid {}", pid.trim());
            }
            Err((_, error)) => return Err(error).with_context(|| format!("cannot lock {}", lock_path.display())),
        };
        lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).context("cannot write the lock file")?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the key, or makes one. A key file that others can read is made private.
    pub fn key(&self) -> anyhow::Result<ApiKey> {
        let path = self.path.join(KEY_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                std::fs::set_permissions(&path, Permissions::from_mode(0o600))
                    .with_context(|| format!("cannot make {} private", path.display()))?;
                ApiKey::new(&text).map_err(|why| {
                    anyhow::anyhow!("the key in {} {why}; remove the file to have a new one made", path.display())
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut random = [0; 32];
                getrandom::fill(&mut random).context("cannot get random bytes for a key")?;
                let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
                self.replace(KEY_FILE, format!("{text}\n").as_bytes())?;
                ApiKey::new(&text).map_err(anyhow::Error::msg)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read the key in {}", path.display())),
        }
    }

    /// Reads the key that links to ports are signed with, or makes one. Links are good as long as it stays.
    pub fn link_key(&self) -> anyhow::Result<LinkKey> {
        let path = self.path.join(LINK_KEY_FILE);
        match std::fs::read(&path) {
            Ok(bytes) => {
                std::fs::set_permissions(&path, Permissions::from_mode(0o600))
                    .with_context(|| format!("cannot make {} private", path.display()))?;
                let key = bytes.try_into().map_err(|_| {
                    anyhow::anyhow!("{} is not a key; remove the file to have a new one made", path.display())
                })?;
                Ok(LinkKey::new(key))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut random = [0; 32];
                getrandom::fill(&mut random).context("cannot get random bytes for a key")?;
                self.replace(LINK_KEY_FILE, &random)?;
                Ok(LinkKey::new(random))
            }
            Err(error) => Err(error).with_context(|| format!("cannot read the key in {}", path.display())),
        }
    }

    /// Writes `daemon.json`, which says where this daemon listens. `withdraw` removes it at a clean stop.
    pub fn announce(&self, url: &str) -> anyhow::Result<()> {
        let text = serde_json::to_vec(&DaemonFile { url: url.to_owned(), pid: std::process::id() })?;
        self.replace(DAEMON_FILE, &text)
    }

    pub fn withdraw(&self) {
        let _ = std::fs::remove_file(self.path.join(DAEMON_FILE));
    }

    /// Replaces a file atomically: a reader sees either the old or the new content. Only the owner can read it.
    fn replace(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let (temporary, path) = (self.path.join(format!(".{name}.new")), self.path.join(name));
        let write = || {
            match std::fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_second_daemon_is_told_which_process_uses_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDir::open(folder.path()).unwrap();
        let refused = DataDir::open(folder.path()).err().unwrap().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        DataDir::open(folder.path()).unwrap();
    }

    #[test]
    fn the_key_is_made_once_kept_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&folder.path().join("new/data")).unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        let key = dir.key().unwrap();
        let path = dir.path().join(KEY_FILE);
        assert_eq!(mode(&path), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(dir.key().unwrap(), key);
        assert_eq!(mode(&path), 0o600);
        std::fs::write(&path, "x").unwrap();
        assert!(dir.key().unwrap_err().to_string().contains("remove the file"));
    }

    #[test]
    fn the_key_of_links_is_made_once_kept_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let dir = DataDir::open(folder.path()).unwrap();
        dir.link_key().unwrap();
        let path = dir.path().join(LINK_KEY_FILE);
        let (made, shown) = (std::fs::read(&path).unwrap(), mode(&path));
        assert_eq!((made.len(), shown), (32, 0o600));
        dir.link_key().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), made);
        std::fs::write(&path, "short").unwrap();
        assert!(dir.link_key().unwrap_err().to_string().contains("remove the file"));
    }

    #[test]
    fn daemon_json_is_there_while_the_daemon_listens() {
        let folder = tempfile::tempdir().unwrap();
        let dir = DataDir::open(folder.path()).unwrap();
        dir.announce("http://127.0.0.1:1").unwrap();
        let path = dir.path().join(DAEMON_FILE);
        assert_eq!(mode(&path), 0o600);
        let note: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(note["url"], "http://127.0.0.1:1");
        dir.withdraw();
        assert!(!path.exists());
    }
}
