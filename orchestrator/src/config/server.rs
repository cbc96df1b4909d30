//! `[server]`: where the daemon listens, who may use it, and how long it waits for slow clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ConfigError;
use super::settings::Settings;

/// The API key. It is a secret and is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

pub const MIN_KEY_BYTES: usize = 8;
pub const MAX_KEY_BYTES: usize = 1024;

impl ApiKey {
    /// Refuses a key that an HTTP header cannot carry, or that is easy to guess because it is short.
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
    /// The path of a Unix socket to listen on besides `listen`.
    pub socket: Option<PathBuf>,
    /// The group that may connect to the socket: a name or a number.
    pub socket_group: Option<String>,
    /// The first key. `None` means that the daemon makes one and stores it in the data directory.
    pub api_key: Option<ApiKey>,
    /// Further host names, without port, that clients may reach the daemon by.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the daemon, as browsers send them: `https://host:port`.
    pub allowed_origins: Vec<String>,
    pub max_connections: usize,
    /// The most connections from one address, or of one user over the socket.
    pub max_connections_per_client: usize,
    /// The most requests in flight of one key.
    pub max_requests_per_key: usize,
    /// The longest wait for the first complete request of a new connection.
    pub first_request_timeout: Duration,
    /// The longest wait for the next request on an open connection.
    pub idle_timeout: Duration,
    /// The longest wait for a client that stopped sending a body or reading an answer.
    pub stall_timeout: Duration,
    /// The longest wait for requests in flight when the daemon stops.
    pub drain_timeout: Duration,
}

const HOUR: u64 = 3600;
const MAX_CONNECTIONS: u64 = 1_000_000;

/// The path of a socket, as `unix:PATH` or as an absolute path.
struct SocketPath(PathBuf);

impl std::str::FromStr for SocketPath {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        // Some programs write an address of two more slashes.
        let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
        if path.is_absolute() { Ok(Self(path)) } else { Err(()) }
    }
}

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
        let mut count = |key: &str, default: u64| -> Result<usize, ConfigError> {
            Ok(usize::try_from(settings.whole(key, default, 1..=MAX_CONNECTIONS)?).unwrap_or(usize::MAX))
        };
        let max_connections = count("server.max_connections", 8192)?;
        // Half of the connections: one client can never have all of them.
        let max_connections_per_client = count("server.max_connections_per_client", 4096)?;
        let max_requests_per_key = count("server.max_requests_per_key", 4096)?;
        let socket: Option<SocketPath> = settings.parsed("server.socket", "unix: and an absolute path")?;
        Ok(Self {
            listen,
            socket: socket.map(|socket| socket.0),
            socket_group: settings.text("server.socket_group")?,
            api_key,
            allowed_hosts: settings.texts("server.allowed_hosts")?,
            allowed_origins: settings.texts("server.allowed_origins")?,
            max_connections,
            max_connections_per_client,
            max_requests_per_key,
            first_request_timeout,
            idle_timeout,
            stall_timeout,
            drain_timeout,
        })
    }
}

/// Reads a key file. What is longer than a key is cut and refused: the path may lead to a device that has no end.
fn read_key(path: &str) -> std::io::Result<String> {
    use std::io::Read as _;
    const MAX_FILE_BYTES: u64 = 4 * MAX_KEY_BYTES as u64;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads the key, or the content of the key file. A flag wins over everything else, whichever of the two it sets.
fn key(settings: &mut Settings) -> Result<Option<ApiKey>, ConfigError> {
    let (direct, file) = (settings.text("server.api_key")?, settings.text("server.api_key_file")?);
    let origin = |key: &str| settings.origin_of(key).unwrap_or_default();
    let direct_origin = origin("server.api_key");
    let file_origin = origin("server.api_key_file");
    // Only the key file can be given by a flag.
    if let Some(path) = file.filter(|_| file_origin.is_flag() || direct.is_none()) {
        let text = read_key(&path)
            .map_err(|e| ConfigError::new(file_origin.clone(), "server.api_key_file", format!("{path}: {e}")))?;
        let key = ApiKey::new(&text)
            .map_err(|e| ConfigError::new(file_origin, "server.api_key_file", format!("{path}: the key {e}")))?;
        return Ok(Some(key));
    }
    direct.map(|key| ApiKey::new(&key).map_err(|e| ConfigError::new(direct_origin, "server.api_key", e))).transpose()
}
