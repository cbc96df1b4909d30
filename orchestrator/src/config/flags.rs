//! The flags of `cove serve`.

use std::path::PathBuf;

use super::ServeMode;
use super::settings::Settings;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeFlags {
    /// Configuration file [default: ~/.config/cove/cove.toml, then /etc/cove/cove.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port to listen on; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Unix socket to listen on besides the address
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    /// Directory for everything that the daemon stores [default: ~/.local/share/cove]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Runtime that makes sandboxes: local or docker [default: local]
    #[arg(long, value_name = "NAME")]
    pub runtime: Option<String>,
    /// File with the API key that clients need [default: a key is made and stored in the data directory]
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Limit of the number of sessions at a time [default: 1024]
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<String>,
    /// Format of the log on standard error: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Serve one program: print the address and the key as one line of JSON, stop when standard input ends, and end all sessions
    #[arg(long, conflicts_with_all = ["listen", "socket", "api_key_file", "until_stdin_closes"])]
    pub embedded: bool,
    /// Stop when standard input ends: for a command that starts a private daemon.
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

impl ServeFlags {
    pub(super) fn mode(&self) -> ServeMode {
        match (self.embedded, self.until_stdin_closes) {
            (true, _) => ServeMode::Embedded,
            (false, true) => ServeMode::Command,
            (false, false) => ServeMode::Service,
        }
    }

    pub(super) fn add_to(&self, settings: &mut Settings) {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        settings.add_flag("server.listen", "--listen", self.listen.clone());
        settings.add_flag("server.socket", "--socket", self.socket.clone());
        settings.add_flag("data_dir", "--data-dir", path(&self.data_dir));
        settings.add_flag("runtime", "--runtime", self.runtime.clone());
        settings.add_flag("server.api_key_file", "--api-key-file", path(&self.api_key_file));
        settings.add_flag("sessions.max_sessions", "--max-sessions", self.max_sessions.clone());
        settings.add_flag("log.format", "--log-format", self.log_format.clone());
    }
}
