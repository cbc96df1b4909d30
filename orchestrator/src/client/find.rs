//! Finds the daemon to talk to, and its key: what the caller names, or else what a running daemon wrote to its data directory.
//!
//! It reads `daemon.json` and `api-key` and writes nothing. A `daemon.json` of a process that has ended is ignored.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::{Endpoint, InvalidUrl};
use crate::config::{self, DAEMON_FILE, DaemonFile, KEY_FILE, LOCK_FILE};

/// The most bytes that are read of a file; each file is far smaller.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The API key. It is a secret and is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// What the caller named.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    pub url: Option<String>,
    pub api_key: Option<ApiKey>,
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub endpoint: Endpoint,
    pub key: ApiKey,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No address was named, and no daemon runs on this data directory.
    #[error("no daemon runs on the data directory {}; start one with `cove serve`, or name one with --url", data_dir.display())]
    NoDaemon { data_dir: PathBuf },
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    #[error("no API key: give one with --api-key or COVE_API_KEY (cannot read {}: {source})", path.display())]
    NoKey { path: PathBuf, source: io::Error },
    #[error("cannot understand {}: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("neither HOME nor XDG_DATA_HOME is set: name the data directory with --data-dir")]
    NoHome,
}

/// The data directory of a caller that names none.
pub fn default_data_dir() -> Result<PathBuf, FindError> {
    config::default_data_dir(|name| std::env::var_os(name)).ok_or(FindError::NoHome)
}

pub fn find(hints: &Hints) -> Result<Found, FindError> {
    let data_dir = || hints.data_dir.clone().map_or_else(default_data_dir, Ok);
    let endpoint = match &hints.url {
        Some(url) => Endpoint::parse(url)?,
        None => running(&data_dir()?)?,
    };
    let key = match &hints.api_key {
        Some(key) => key.clone(),
        None => read_key(&data_dir()?)?,
    };
    Ok(Found { endpoint, key })
}

/// The key that a daemon of this data directory made.
pub fn read_key(data_dir: &Path) -> Result<ApiKey, FindError> {
    let path = data_dir.join(KEY_FILE);
    match read_small(&path) {
        Ok(text) => Ok(ApiKey::new(text.trim())),
        Err(source) => Err(FindError::NoKey { path, source }),
    }
}

fn running(data_dir: &Path) -> Result<Endpoint, FindError> {
    let path = data_dir.join(DAEMON_FILE);
    let damaged = |why: String| FindError::Damaged { path: path.clone(), why };
    let none = || FindError::NoDaemon { data_dir: data_dir.to_owned() };
    let text = match read_small(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
        Err(error) => return Err(damaged(error.to_string())),
    };
    let daemon: DaemonFile = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
    // A daemon that was killed could not remove this file, but the kernel has released its lock. If the lock cannot be
    // checked, the pid decides; EPERM means that the process runs as another user.
    let is_alive = match is_locked(data_dir) {
        Some(locked) => locked,
        None => {
            i32::try_from(daemon.pid).is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
        }
    };
    if !is_alive {
        return Err(none());
    }
    Ok(Endpoint::parse(&daemon.url)?)
}

/// Whether somebody holds the data directory's lock.
fn is_locked(data_dir: &Path) -> Option<bool> {
    let file = std::fs::File::open(data_dir.join(LOCK_FILE)).ok()?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Some(false),
        Err((_, Errno::EWOULDBLOCK)) => Some(true),
        Err(_) => None,
    }
}

fn read_small(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(daemon: Option<&str>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        if let Some(text) = daemon {
            std::fs::write(dir.path().join(DAEMON_FILE), text).unwrap();
            std::fs::write(dir.path().join(KEY_FILE), "sesame\n").unwrap();
        }
        dir
    }

    fn look(dir: &tempfile::TempDir) -> Result<Found, FindError> {
        find(&Hints { data_dir: Some(dir.path().to_owned()), ..Hints::default() })
    }

    #[test]
    fn a_running_daemon_is_found_by_what_it_left() {
        let dir = directory(Some(&format!(r#"{{"url":"http://127.0.0.1:81","pid":{},"new":1}}"#, std::process::id())));
        let found = look(&dir).unwrap();
        assert_eq!(found.endpoint.authority().rsplit(':').next(), Some("81"));
        assert_eq!(found.key, ApiKey::new("sesame"));
    }

    #[test]
    fn a_daemon_that_was_killed_is_none() {
        // This number is above the largest possible pid.
        let dir = directory(Some(r#"{"url":"http://127.0.0.1:81","pid":2147483647}"#));
        assert!(matches!(look(&dir), Err(FindError::NoDaemon { .. })));
        assert!(matches!(look(&directory(None)), Err(FindError::NoDaemon { .. })));
    }

    #[test]
    fn what_the_caller_names_comes_first() {
        let dir = directory(Some("not json"));
        let hints = Hints {
            url: Some("http://box:9".into()),
            api_key: Some(ApiKey::new("k")),
            data_dir: Some(dir.path().to_owned()),
        };
        let found = find(&hints).unwrap();
        assert_eq!((found.endpoint.to_string().as_str(), found.key), ("http://box:9", ApiKey::new("k")));
        assert!(matches!(look(&dir), Err(FindError::Damaged { .. })));
    }
}
