//! The daemon's configuration: flags win over `COVE_*` variables, those over `cove.toml`, and that over defaults that work.
//!
//! Each section has a file of its own. An error is one line that names the file, variable or flag and says what is allowed; the
//! program then ends with `EXIT_USAGE`. Nothing here opens the data directory or makes anything.

mod audit;
mod data_dir;
mod docker;
mod exec;
mod flags;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod images;
mod local;
mod log;
mod network;
mod origin;
mod preview;
mod server;
mod sessions;
mod settings;
mod snapshots;
mod suggestion;
mod workspaces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use shared_protocol::RuntimeName;

pub use audit::AuditConfig;
pub use data_dir::{DAEMON_FILE, DaemonFile, KEY_FILE, LINK_KEY_FILE, LOCK_FILE, default_data_dir};
pub use docker::{DockerSettings, Pull};
pub use exec::ExecConfig;
pub use flags::ServeFlags;
pub use images::{ImagePull, ImagesConfig};
pub use local::{DiskSetting, LocalSettings, Protection};
pub use log::{LogConfig, LogFormat};
pub use network::NetworkConfig;
use origin::Origin;
pub use preview::{PreviewConfig, Scheme};
pub use server::{ApiKey, ServerConfig};
pub use sessions::{OnStop, SessionsConfig, host_memory_mb};
use settings::Settings;
pub use snapshots::SnapshotsConfig;
pub use workspaces::{WorkspaceStorage, WorkspacesConfig};

/// The exit status for an error that the user has to correct, as in `sysexits.h`.
pub const EXIT_USAGE: u8 = 64;

/// The largest `cove.toml` that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The largest pool.
pub const MAX_POOL_SIZE: u64 = 1000;

/// The runtimes of this build, the default first.
const RUNTIMES: [&str; 2] = ["local", "docker"];

/// A mistake in the configuration, as one line: where it is, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn new(origin: Origin, key: &str, message: String) -> Self {
        Self(one_line(&format!("{} {message}", origin.place(key))))
    }

    fn plain(message: &str) -> Self {
        Self(one_line(message))
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of everything that the daemon stores.
    pub data_dir: PathBuf,
    /// The runtime of a session whose request names none.
    pub runtime: RuntimeName,
    pub server: ServerConfig,
    pub sessions: SessionsConfig,
    pub exec: ExecConfig,
    pub log: LogConfig,
    pub local: LocalSettings,
    pub docker: DockerSettings,
    pub workspaces: WorkspacesConfig,
    pub snapshots: SnapshotsConfig,
    pub audit: AuditConfig,
    pub network: NetworkConfig,
    pub preview: PreviewConfig,
    pub images: ImagesConfig,
    /// How many sandboxes of each image wait in a pool of the default runtime.
    pub pool: BTreeMap<String, u64>,
    pub mode: ServeMode,
}

/// Who the daemon runs for. A daemon for one program is private: it ends when its standard input does, ends its sessions with it,
/// fills no pools and opens no socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServeMode {
    /// For everybody who has a key.
    #[default]
    Service,
    /// For one command of `cove`.
    Command,
    /// For one program that uses a client library.
    Embedded,
}

impl ServeMode {
    pub fn is_private(self) -> bool {
        self != Self::Service
    }
}

impl Config {
    pub fn load(flags: &ServeFlags) -> Result<Self, ConfigError> {
        // A variable that is not UTF-8 cannot be a setting of the daemon.
        let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::resolve(flags, variables.collect())
    }

    fn resolve(flags: &ServeFlags, variables: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        Self::of(file(flags, &variable)?, flags, variables)
    }

    fn of(file: Option<File>, flags: &ServeFlags, variables: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let mut settings = Settings::default();
        if let Some(File { path, table, lines }) = file {
            settings.add_file(&path, table, &lines);
        }
        settings.add_variables(variables.clone().into_iter());
        flags.add_to(&mut settings);

        let runtime: Option<RuntimeName> = settings.parsed("runtime", "the name of a runtime, such as local")?;
        if let Some(unknown) = runtime.as_ref().filter(|name| !RUNTIMES.contains(&name.as_str())) {
            let origin = settings.origin_of("runtime").unwrap_or_default();
            let message = format!("must be one of {}, not {:?}", RUNTIMES.join(", "), unknown.as_str());
            return Err(ConfigError::new(origin, "runtime", message));
        }
        let data_dir = match settings.text("data_dir")? {
            Some(path) => PathBuf::from(path),
            None => default_data_dir(|name| variable(name).map(Into::into)).ok_or_else(|| {
                ConfigError::plain("HOME is not set to an absolute path: give --data-dir or COVE_DATA_DIR")
            })?,
        };
        // The path is absolute, so that it stays valid if the working directory changes.
        let data_dir = std::path::absolute(&data_dir).map_err(|e| {
            let origin = settings.origin_of("data_dir").unwrap_or_default();
            ConfigError::new(origin, "data_dir", format!("cannot be used: {e}"))
        })?;
        let config = Self {
            audit: AuditConfig::read(&mut settings, &data_dir)?,
            data_dir,
            runtime: match runtime {
                Some(name) => name,
                None => RuntimeName::new("local").map_err(|e| ConfigError::plain(&e.to_string()))?,
            },
            server: ServerConfig::read(&mut settings)?,
            sessions: SessionsConfig::read(&mut settings)?,
            exec: ExecConfig::read(&mut settings)?,
            log: LogConfig::read(&mut settings)?,
            local: LocalSettings::read(&mut settings)?,
            docker: DockerSettings::read(&mut settings)?,
            workspaces: WorkspacesConfig::read(&mut settings)?,
            snapshots: SnapshotsConfig::read(&mut settings)?,
            network: NetworkConfig::read(&mut settings)?,
            preview: PreviewConfig::read(&mut settings)?,
            images: ImagesConfig::read(&mut settings)?,
            pool: settings.numbers("pool", 0..=MAX_POOL_SIZE)?,
            mode: flags.mode(),
        };
        settings.finish()?;
        Ok(config)
    }
}

/// A configuration file that was read.
struct File {
    path: String,
    table: toml::Table,
    /// The line of each key, as `section.name`.
    lines: BTreeMap<String, usize>,
}

/// Reads the file that was named, which must exist, or the first one in the usual places.
fn file(flags: &ServeFlags, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<File>, ConfigError> {
    let named = flags.config.clone().or_else(|| variable("COVE_CONFIG").map(PathBuf::from));
    if let Some(path) = named {
        let text = read(&path).map_err(|e| ConfigError::plain(&format!("{}: {e}", path.display())))?;
        return parse(&path, &text).map(Some);
    }
    let home = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")));
    let usual = home.map(|home| home.join("cove/cove.toml")).into_iter().chain([PathBuf::from("/etc/cove/cove.toml")]);
    for path in usual {
        match read(&path) {
            Ok(text) => return parse(&path, &text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ConfigError::plain(&format!("{}: {error}", path.display()))),
        }
    }
    Ok(None)
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<File, ConfigError> {
    let path = path.display().to_string();
    match text.parse::<toml::Table>() {
        Ok(table) => Ok(File { path, table, lines: lines_of_keys(text) }),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_at(text, span.start));
            Err(ConfigError::plain(&format!("{path}:{line}: {}", error.message())))
        }
    }
}

/// The line of each key in a file, as `section.name`.
fn lines_of_keys(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let Ok(table) = toml::de::DeTable::parse(text) else { return lines };
    for (section, value) in table.get_ref() {
        lines.insert(section.get_ref().to_string(), line_at(text, section.span().start));
        for (name, _) in value.get_ref().as_table().into_iter().flatten() {
            lines.insert(format!("{}.{}", section.get_ref(), name.get_ref()), line_at(text, name.span().start));
        }
    }
    lines
}

/// The number of the line that the byte at `offset` is in.
fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
