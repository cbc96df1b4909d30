//! `[images]`: names for images of the `local` runtime, and where images are pulled from.

use std::collections::BTreeMap;
use std::time::Duration;

use shared_protocol::SessionId;

use super::ConfigError;
use super::settings::Settings;

/// The registry that keys without the role admin may pull from by default: that of a name without a host.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_MAX_UNPACKED_MB: u64 = 20 << 10;
const DEFAULT_TIMEOUT_SECONDS: u64 = 30;
/// The largest limit in MiB: one pebibyte.
const MAX_MIB: u64 = 1 << 30;
const MAX_TIMEOUT_SECONDS: u64 = 3600;

/// Settings of this section that are not names of images.
const OWN_KEYS: [&str; 6] = ["pull", "registries", "mirrors", "insecure", "max_unpacked_mb", "timeout_seconds"];

/// Whether a create pulls an image that is not here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ImagePull {
    #[default]
    Missing,
    Never,
}

impl std::str::FromStr for ImagePull {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "missing" => Ok(Self::Missing),
            "never" => Ok(Self::Never),
            _ => Err(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagesConfig {
    /// The image for each image name: `host`, or one that was imported or pulled.
    pub names: BTreeMap<String, String>,
    pub pull: ImagePull,
    /// The registries that keys without the role admin may pull from.
    pub registries: Vec<String>,
    /// A registry to ask first instead of another one.
    pub mirrors: BTreeMap<String, String>,
    /// Registries without TLS.
    pub insecure: Vec<String>,
    /// The largest image, without compression.
    pub max_unpacked_mb: u64,
    /// The longest silence of a registry.
    pub timeout: Duration,
}

impl ImagesConfig {
    /// Whether an image is here is not asked: that may change while the daemon runs.
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let pull = settings.parsed("images.pull", "missing or never")?.unwrap_or_default();
        let registries = settings.texts("images.registries")?;
        let registries = if registries.is_empty() { vec![DEFAULT_REGISTRY.to_owned()] } else { registries };
        let mirrors = settings.pairs("images.mirrors")?;
        let insecure = settings.texts("images.insecure")?;
        for (key, host) in registries
            .iter()
            .map(|host| ("images.registries", host))
            .chain(mirrors.iter().flat_map(|(from, to)| [("images.mirrors", from), ("images.mirrors", to)]))
            .chain(insecure.iter().map(|host| ("images.insecure", host)))
        {
            if !is_host(host) {
                let message = format!("must name registries as HOST or HOST:PORT, not {host:?}");
                return Err(ConfigError::new(settings.origin_of(key).unwrap_or_default(), key, message));
            }
        }
        let max_unpacked_mb = settings.whole("images.max_unpacked_mb", DEFAULT_MAX_UNPACKED_MB, 1..=MAX_MIB)?;
        let seconds = settings.whole("images.timeout_seconds", DEFAULT_TIMEOUT_SECONDS, 1..=MAX_TIMEOUT_SECONDS)?;
        let names = settings.section("images", &OWN_KEYS)?;
        if let Some((name, source)) = names.iter().find(|(_, source)| !is_image(source)) {
            let key = format!("images.{name}");
            let message = format!("must be host or the name of an image that was imported or pulled, not {source:?}");
            return Err(ConfigError::new(settings.origin_of(&key).unwrap_or_default(), &key, message));
        }
        let timeout = Duration::from_secs(seconds);
        Ok(Self { names, pull, registries, mirrors, insecure, max_unpacked_mb, timeout })
    }
}

/// Whether this can be the name of an image, here or at a registry. The registry client knows better what a name is there.
fn is_image(name: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "._:@-".contains(c));
    SessionId::new(name).is_ok()
        || (name.len() <= 512 && name.contains([':', '/', '@']) && name.split('/').all(is_part))
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".:-[]".contains(c))
}
