//! `[server]`: where the daemon listens, who may speak to it, and how long a slow client is waited for.

use std::net::SocketAddr;
use std::time::Duration;

use super::ConfigError;
use super::settings::Settings;

/// A secret: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

pub const MIN_KEY_BYTES: usize = 8;
pub const MAX_KEY_BYTES: usize = 1024;

impl ApiKey {
    /// What can be sent in a header, and is long enough not to be guessed at once.
    pub fn new(key: &str) -> Result<Self, String> {
        let key = key.trim();
        if !(MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&key.len()) || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!(
                "must have {MIN_KEY_BYTES} to {MAX_KEY_BYTES} printable ASCII characters and no spaces"
            ));
        }
        Ok(Self(key.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// `None`: one is made and kept in the data directory.
    pub api_key: Option<ApiKey>,
    /// Names, without port, under which the daemon is known besides its own address.
    pub allowed_hosts: Vec<String>,
    /// Web pages from elsewhere that may call it, as browsers send them: `https://host:port`.
    pub allowed_origins: Vec<String>,
    pub max_connections: usize,
    /// For a new connection to bring its first request whole.
    pub first_request_timeout: Duration,
    /// For a further request on a connection that is kept open.
    pub idle_timeout: Duration,
    /// For a client that sends a body, or reads an answer, to go on with it.
    pub stall_timeout: Duration,
    /// For requests in flight when the daemon is told to stop.
    pub drain_timeout: Duration,
}

const HOUR: u64 = 3600;

impl ServerConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let listen: Option<SocketAddr> =
            settings.parsed("server.listen", "an address and a port such as 127.0.0.1:8080")?;
        let listen = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)));
        let api_key = key(settings)?;
        if !listen.ip().is_loopback() && api_key.is_none() {
            let origin = settings.origin_of("server.listen").unwrap_or_default();
            let message = format!(
                "is a public address ({listen}), which needs a key of your own: set COVE_API_KEY, --api-key-file or \
                 server.api_key"
            );
            return Err(ConfigError::new(origin, "server.listen", message));
        }
        let mut seconds = |key: &str, default: u64, range| settings.whole(key, default, range).map(Duration::from_secs);
        let first_request_timeout = seconds("server.first_request_seconds", 15, 1..=HOUR)?;
        let idle_timeout = seconds("server.idle_seconds", 75, 1..=HOUR)?;
        let stall_timeout = seconds("server.stall_seconds", 120, 1..=HOUR)?;
        let drain_timeout = seconds("server.drain_seconds", 10, 0..=HOUR)?;
        let max_connections = settings.whole("server.max_connections", 8192, 1..=1_000_000)?;
        Ok(Self {
            listen,
            api_key,
            allowed_hosts: settings.texts("server.allowed_hosts")?,
            allowed_origins: settings.texts("server.allowed_origins")?,
            max_connections: usize::try_from(max_connections).unwrap_or(usize::MAX),
            first_request_timeout,
            idle_timeout,
            stall_timeout,
            drain_timeout,
        })
    }
}

/// From a file or as it is. A flag or a variable wins over the file of settings whichever of the two it names.
fn key(settings: &mut Settings) -> Result<Option<ApiKey>, ConfigError> {
    let (direct, file) = (settings.text("server.api_key")?, settings.text("server.api_key_file")?);
    let origin = |key: &str| settings.origin_of(key).unwrap_or_default();
    let direct_origin = origin("server.api_key");
    let file_origin = origin("server.api_key_file");
    // A flag names itself with dashes; only the file can be given as one.
    if let Some(path) = file.filter(|_| file_origin.starts_with("--") || direct.is_none()) {
        let text = std::fs::read_to_string(&path)
            .map_err(|e| ConfigError::new(file_origin.clone(), "server.api_key_file", format!("{path}: {e}")))?;
        let key = ApiKey::new(&text)
            .map_err(|e| ConfigError::new(file_origin, "server.api_key_file", format!("{path}: the key {e}")))?;
        return Ok(Some(key));
    }
    direct.map(|key| ApiKey::new(&key).map_err(|e| ConfigError::new(direct_origin, "server.api_key", e))).transpose()
}
