//! `[docker]`: sandboxes in containers of Docker or Podman.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::ConfigError;
use super::settings::Settings;

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// Names that are not networks of their own: the host's network, no network, and the engine's choice.
const REFUSED_NETWORKS: [&str; 3] = ["host", "none", "default"];

/// Which images may be pulled from a registry if the engine does not have them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pull {
    #[default]
    Configured,
    Any,
    Never,
}

impl std::str::FromStr for Pull {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "configured" => Ok(Self::Configured),
            "any" => Ok(Self::Any),
            "never" => Ok(Self::Never),
            _ => Err(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerSettings {
    /// Whether any setting of this section is given. Only then does the daemon look for an engine.
    pub is_configured: bool,
    pub socket: PathBuf,
    pub oci_runtime: Option<String>,
    /// The engine's image for each image name.
    pub images: BTreeMap<String, String>,
    /// The engine's network for sessions with the network `full`. `None`: the daemon carries it.
    pub network: Option<String>,
    pub pull: Pull,
    pub root_quota: bool,
}

impl DockerSettings {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let is_configured = settings.has_section("docker");
        let socket = settings.text("docker.socket")?.unwrap_or_else(|| DEFAULT_SOCKET.to_owned());
        let network = settings.text("docker.network")?;
        let complain = |settings: &Settings, key: &str, message: String| {
            Err(ConfigError::new(settings.origin_of(key).unwrap_or_default(), key, message))
        };
        let path = PathBuf::from(socket.strip_prefix("unix://").unwrap_or(&socket));
        if !path.is_absolute() {
            return complain(
                settings,
                "docker.socket",
                format!("must be the absolute path of a socket, not {socket:?}"),
            );
        }
        if let Some(network) =
            network.as_ref().filter(|name| REFUSED_NETWORKS.contains(&name.as_str()) || !is_word(name))
        {
            return complain(settings, "docker.network", format!("must name a network of the engine, not {network:?}"));
        }
        let oci_runtime = settings.text("docker.oci_runtime")?;
        if let Some(name) = oci_runtime.as_ref().filter(|name| !is_word(name)) {
            return complain(settings, "docker.oci_runtime", format!("must be a name such as runsc, not {name:?}"));
        }
        Ok(Self {
            is_configured,
            socket: path,
            oci_runtime,
            images: settings.pairs("docker.images")?,
            network,
            pull: settings.parsed("docker.pull", "configured, any or never")?.unwrap_or_default(),
            root_quota: settings.flag("docker.root_quota")?.unwrap_or(true),
        })
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}
