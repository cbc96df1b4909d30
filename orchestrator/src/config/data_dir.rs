//! The location of the data directory, and the files in it with which commands find a running daemon.
//!
//! The daemon writes these files (`server::data_dir`) and commands read them (`client::find`).

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The file with the API key, if the daemon made the key itself.
pub const KEY_FILE: &str = "api-key";
/// The file with the key that links to ports are signed with.
pub const LINK_KEY_FILE: &str = "link-key";
/// The file with a [`DaemonFile`]. It exists while a daemon listens.
pub const DAEMON_FILE: &str = "daemon.json";
/// The file that the daemon locks while it runs.
pub const LOCK_FILE: &str = "lock";

/// The content of `daemon.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct DaemonFile {
    pub url: String,
    pub pid: u32,
}

/// The default: `$XDG_DATA_HOME/cove`, or `~/.local/share/cove`. `None` if neither variable is an absolute path.
pub fn default_data_dir(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    base.map(|base| base.join("cove"))
}
