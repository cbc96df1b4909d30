//! What is stored of an image, and what of it a sandbox gets. Pure.

use std::collections::BTreeMap;

use oci_registry::{Digest, RuntimeConfig};
use serde::{Deserialize, Serialize};

/// The most variables of an image, and their total size, that a sandbox gets.
const MAX_VARIABLES: usize = 256;
const MAX_VARIABLE_BYTES: usize = 64 << 10;
const MAX_DIRECTORY_BYTES: usize = 4096;

/// Variables that an image cannot set: those of the runner.
const RESERVED_PREFIX: &str = "COVE_";

/// An image in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// The whole reference, or the name that an import gave.
    pub name: String,
    /// The digest of the manifest, for an image of a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The names of the layers, the lowest first. The last one is Cove's own, with what a sandbox needs and the image lacks.
    pub layers: Vec<String>,
    /// When the image was made, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When it was stored, in seconds since 1970.
    #[serde(default)]
    pub stored: u64,
    #[serde(default)]
    pub config: RuntimeConfig,
    /// What it was made from, for people, if it was made from a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_from: Option<String>,
    /// The user that its configuration names, if that is not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ImageUser>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerInfo {
    pub bytes: u64,
    pub files: u64,
}

/// The user that an image names, as ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUser {
    pub uid: u32,
    pub gid: u32,
}

impl ImageUser {
    /// The ids of sandboxes end before this one: the last of a block may be the runner's.
    pub const IDS: u32 = 65_535;
}

/// What an image says about the programs in a sandbox, as far as it is followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSettings {
    pub variables: BTreeMap<String, String>,
    /// The directory to start in, if the image names one.
    pub directory: Option<String>,
    /// The user of commands, if the image names one that is not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ImageUser>,
}

impl StoredImage {
    /// Whether the layers are names of layers, so that no record leads elsewhere.
    pub fn is_valid(&self) -> bool {
        are_layers(&self.layers)
    }

    /// The name as people write it.
    pub fn short_name(&self) -> String {
        // An import gives plain names, and a pull whole references.
        let reference = self.name.contains('/').then(|| self.name.parse::<oci_registry::Reference>().ok()).flatten();
        reference.map_or_else(|| self.name.clone(), |reference| reference.short())
    }

    pub fn settings(&self) -> ImageSettings {
        let mut variables = BTreeMap::new();
        let mut bytes = 0;
        for variable in self.config.env.iter().flatten() {
            let Some((name, value)) = variable.split_once('=') else { continue };
            bytes += variable.len();
            if variables.len() >= MAX_VARIABLES || bytes > MAX_VARIABLE_BYTES {
                break;
            }
            if is_variable(name) && !value.contains('\0') {
                variables.insert(name.to_owned(), value.to_owned());
            }
        }
        let directory = self.config.working_dir.clone().filter(|path| {
            let is_plain = path.len() <= MAX_DIRECTORY_BYTES && !path.contains('\0');
            // `/` is what an image without WORKDIR has, whether it says so or not.
            path.starts_with('/') && !path.trim_end_matches('/').is_empty() && is_plain
        });
        ImageSettings { variables, directory, user: self.user }
    }
}

/// Whether these are names of layers.
pub fn are_layers(names: &[String]) -> bool {
    let is_name = |name: &String| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    !names.is_empty() && names.iter().all(is_name)
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(RESERVED_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(env: &[&str], working_dir: Option<&str>) -> StoredImage {
        let env = Some(env.iter().map(|text| (*text).to_owned()).collect());
        let config = RuntimeConfig { env, working_dir: working_dir.map(str::to_owned), ..RuntimeConfig::default() };
        StoredImage {
            name: "x".into(),
            digest: None,
            layers: vec!["0".repeat(64)],
            created: None,
            stored: 0,
            config,
            committed_from: None,
            user: None,
        }
    }

    #[test]
    fn the_variables_of_an_image_are_followed_as_far_as_they_are_variables() {
        let given =
            ["PATH=/opt/bin:/bin", "EMPTY=", "A=b=c", "no", "1X=y", "a b=c", "COVE_RUNNER_UID=0", "NUL=\0", "=x"];
        let settings = image(&given, None).settings();
        let expected = [("A", "b=c"), ("EMPTY", ""), ("PATH", "/opt/bin:/bin")];
        assert_eq!(settings.variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let many: Vec<String> = (0..2 * MAX_VARIABLES).map(|n| format!("V{n}=x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(image(&many, None).settings().variables.len(), MAX_VARIABLES);
    }

    #[test]
    fn a_directory_is_absolute_and_not_the_root() {
        let of = |path: &str| image(&[], Some(path)).settings().directory;
        assert_eq!(of("/app"), Some("/app".into()));
        for none in ["", "/", "//", "app", "/a\0b"] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_record_that_leads_elsewhere_is_not_valid() {
        assert!(image(&[], None).is_valid());
        for bad in ["", "..", "../../../etc", &format!("../{}", "0".repeat(61))] {
            assert!(!StoredImage { layers: vec![bad.to_owned()], ..image(&[], None) }.is_valid(), "{bad:?}");
        }
        assert!(!StoredImage { layers: Vec::new(), ..image(&[], None) }.is_valid());
    }
}
