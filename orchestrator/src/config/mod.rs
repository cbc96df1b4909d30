//! What the daemon was asked to be: flags, then `COVE_*` variables, then `cove.toml`, then defaults that work.
//!
//! A tree, one part per subsystem, each in its own file. Whatever is wrong is one line that names the file, variable or flag and
//! says what is allowed; the program then ends with `EXIT_USAGE`. Nothing here opens the data directory or makes anything.

mod docker;
mod exec;
mod flags;
mod local;
mod log;
mod server;
mod sessions;
mod settings;
mod workspaces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use shared_protocol::RuntimeName;

pub use docker::DockerSettings;
pub use exec::ExecConfig;
pub use flags::ServeFlags;
pub use local::LocalSettings;
pub use log::{LogConfig, LogFormat};
pub use server::{ApiKey, ServerConfig};
pub use sessions::{OnStop, SessionsConfig};
use settings::Settings;
pub use workspaces::WorkspacesConfig;

/// The exit status for what the user has to mend, as in `sysexits.h`.
pub const EXIT_USAGE: u8 = 64;

/// `cove.toml` is read up to here; nobody's is larger.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Members of one pool.
pub const MAX_POOL_SIZE: u64 = 1000;

/// What this build has, the default first.
const RUNTIMES: [&str; 2] = ["local", "docker"];

/// One line: where, what, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    fn new(origin: String, key: &str, message: String) -> Self {
        // A variable or a flag names itself; in a file, the key is needed too.
        let place = if origin.ends_with(".toml") || origin.contains('/') { format!("{origin}: {key}") } else { origin };
        Self(one_line(&format!("{place} {message}")))
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
    /// Everything the daemon keeps, and its lock.
    pub data_dir: PathBuf,
    /// Of a create that names none.
    pub runtime: RuntimeName,
    pub server: ServerConfig,
    pub sessions: SessionsConfig,
    pub exec: ExecConfig,
    pub log: LogConfig,
    pub local: LocalSettings,
    pub docker: DockerSettings,
    pub workspaces: WorkspacesConfig,
    /// Logical names and what they stand for, as each runtime reads it.
    pub images: BTreeMap<String, String>,
    /// Images, and how many sandboxes of each shall wait on the default runtime.
    pub pool: BTreeMap<String, u64>,
    /// A private daemon ends with the program that started it.
    pub until_stdin_closes: bool,
}

impl Config {
    pub fn load(flags: &ServeFlags) -> Result<Self, ConfigError> {
        // What is not UTF-8 cannot be a setting of ours, and is not read.
        let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::resolve(flags, variables.collect())
    }

    fn resolve(flags: &ServeFlags, variables: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let mut settings = Settings::default();
        if let Some((path, table)) = file(flags, &variable)? {
            settings.add_file(&path, table)?;
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
            None => default_data_dir(&variable)?,
        };
        let config = Self {
            // A daemon that changes its directory must still find it, and so must those who read `daemon.json`.
            data_dir: std::path::absolute(&data_dir)
                .map_err(|e| ConfigError::plain(&format!("the data directory {}: {e}", data_dir.display())))?,
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
            images: settings.section("images")?,
            pool: settings.numbers("pool", 0..=MAX_POOL_SIZE)?,
            until_stdin_closes: flags.until_stdin_closes,
        };
        settings.finish()?;
        Ok(config)
    }
}

/// `$XDG_DATA_HOME/cove`, or `~/.local/share/cove`.
fn default_data_dir(variable: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
    let base = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    base.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local/share")))
        .map(|base| base.join("cove"))
        .ok_or_else(|| ConfigError::plain("HOME is not set: give --data-dir or COVE_DATA_DIR"))
}

/// The file that was named, which must be there, or the first of the usual places.
fn file(
    flags: &ServeFlags,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<(String, toml::Table)>, ConfigError> {
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

fn parse(path: &Path, text: &str) -> Result<(String, toml::Table), ConfigError> {
    let shown = path.display().to_string();
    match text.parse::<toml::Table>() {
        Ok(table) => Ok((shown, table)),
        Err(error) => {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
            Err(ConfigError::plain(&format!("{shown}:{line}: {}", error.message())))
        }
    }
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
