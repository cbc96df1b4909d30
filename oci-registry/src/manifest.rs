//! The documents of an image: index, manifest and configuration, as Docker and OCI write them. Pure.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::RegistryError;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// How a layer is compressed, by its media type.
const LAYERS: [(&str, Compression); 8] = [
    ("application/vnd.oci.image.layer.v1.tar", Compression::None),
    ("application/vnd.oci.image.layer.v1.tar+gzip", Compression::Gzip),
    ("application/vnd.oci.image.layer.v1.tar+zstd", Compression::Zstd),
    ("application/vnd.docker.image.rootfs.diff.tar", Compression::None),
    ("application/vnd.docker.image.rootfs.diff.tar.gzip", Compression::Gzip),
    ("application/vnd.docker.image.rootfs.diff.tar.zstd", Compression::Zstd),
    ("application/vnd.oci.image.layer.nondistributable.v1.tar", Compression::None),
    ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", Compression::Gzip),
];

/// The most manifests of an index that an error names.
const MAX_NAMED: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

/// The media types that a manifest is asked for with.
pub fn accepted() -> String {
    [MANIFESTS, INDEXES].concat().join(", ")
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this program.
    pub fn own() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    fn shown(&self) -> String {
        let variant = self.variant.as_ref().map(|variant| format!("/{variant}")).unwrap_or_default();
        format!("{}/{}{variant}", self.os, self.architecture)
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImageConfig {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default)]
    pub config: Option<RuntimeConfig>,
    pub rootfs: RootFs,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RootFs {
    pub diff_ids: Vec<Digest>,
}

/// What the image says about programs that run in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RuntimeConfig {
    #[serde(default)]
    pub env: Option<Vec<String>>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    #[serde(default)]
    pub cmd: Option<Vec<String>>,
}

/// What a document says of itself. Old ones do not.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<serde_json::Value>,
    #[serde(default)]
    layers: Option<serde_json::Value>,
    #[serde(default)]
    schema_version: Option<u64>,
}

/// Whether a document is an index of manifests rather than a manifest. `said` is the media type that came with it.
pub fn is_index(bytes: &[u8], said: Option<&str>, what: &str) -> Result<bool, RegistryError> {
    let kind: Kind = parse(bytes, what)?;
    let own = kind.media_type.as_deref();
    // The document's own word counts first: it is part of what the digest covers.
    for media_type in [own, said].into_iter().flatten() {
        if INDEXES.contains(&media_type) {
            return Ok(true);
        }
        if MANIFESTS.contains(&media_type) {
            return Ok(false);
        }
    }
    match (kind.manifests, kind.layers) {
        (Some(_), None) => Ok(true),
        (None, Some(_)) if kind.schema_version == Some(2) => Ok(false),
        _ => {
            let media_type = own.or(said).unwrap_or("none").chars().take(128).collect();
            Err(RegistryError::MediaType { what: what.to_owned(), media_type })
        }
    }
}

/// The manifest of an index that is for a platform.
pub fn choose_platform(index: &[u8], wanted: &Platform, what: &str) -> Result<Descriptor, RegistryError> {
    let index: Index = parse(index, what)?;
    let fits = |descriptor: &&Descriptor| match &descriptor.platform {
        Some(platform) => platform.os == wanted.os && platform.architecture == wanted.architecture,
        // An index of one image need not say for what it is.
        None => index.manifests.len() == 1,
    };
    if let Some(found) = index.manifests.iter().find(fits) {
        return Ok(found.clone());
    }
    let offered: Vec<String> = index
        .manifests
        .iter()
        .filter_map(|descriptor| descriptor.platform.as_ref())
        .take(MAX_NAMED)
        .map(Platform::shown)
        .collect();
    let offered = if offered.is_empty() { "no platform".to_owned() } else { offered.join(", ") };
    Err(RegistryError::NoPlatform { wanted: wanted.shown(), offered })
}

pub fn layer_compression(layer: &Descriptor) -> Result<Compression, RegistryError> {
    let known = LAYERS.iter().find(|(media_type, _)| *media_type == layer.media_type);
    known.map(|(_, compression)| *compression).ok_or_else(|| RegistryError::MediaType {
        what: format!("layer {}", layer.digest.short()),
        media_type: layer.media_type.chars().take(128).collect(),
    })
}

impl Manifest {
    pub fn parse(bytes: &[u8], what: &str) -> Result<Self, RegistryError> {
        parse(bytes, what)
    }
}

impl ImageConfig {
    pub fn parse(bytes: &[u8]) -> Result<Self, RegistryError> {
        parse(bytes, "the image's configuration")
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &str) -> Result<T, RegistryError> {
    let cause =
        |error: serde_json::Error| RegistryError::NotUnderstood { what: what.to_owned(), cause: error.to_string() };
    serde_json::from_slice(bytes).map_err(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn descriptor(media_type: &str) -> Descriptor {
        Descriptor { media_type: media_type.into(), digest: Digest::of(b""), size: 0, platform: None }
    }

    fn bytes(value: serde_json::Value) -> Vec<u8> {
        serde_json::to_vec(&value).unwrap()
    }

    #[test]
    fn an_index_is_told_from_a_manifest_by_its_own_word_first() {
        let kind = |value, said| is_index(&bytes(value), said, "it").map_err(|error| error.to_string());
        assert_eq!(kind(json!({ "mediaType": INDEXES[0] }), Some(MANIFESTS[0])), Ok(true));
        assert_eq!(kind(json!({ "schemaVersion": 2, "layers": [] }), Some(MANIFESTS[1])), Ok(false));
        assert_eq!(kind(json!({ "schemaVersion": 2, "layers": [] }), Some("text/plain")), Ok(false));
        assert_eq!(kind(json!({ "manifests": [] }), None), Ok(true));
        let old = kind(
            json!({ "schemaVersion": 1, "fsLayers": [] }),
            Some("application/vnd.docker.distribution.manifest.v1+json"),
        );
        assert!(old.unwrap_err().contains("manifest.v1+json"));
        assert!(is_index(b"<html>", None, "it").unwrap_err().to_string().contains("not understood"));
    }

    #[test]
    fn the_manifest_for_this_machine_is_chosen_and_the_others_are_named() {
        let digest = Digest::of(b"");
        let of = |os: &str, architecture: &str, size: u64| json!({ "digest": digest, "size": size, "platform": { "os": os, "architecture": architecture } });
        let index = bytes(
            json!({ "manifests": [of("unknown", "unknown", 1), of("linux", "arm64", 2), of("linux", "amd64", 3)] }),
        );
        let wanted =
            |architecture: &str| Platform { os: "linux".into(), architecture: architecture.into(), variant: None };
        assert_eq!(choose_platform(&index, &wanted("amd64"), "it").unwrap().size, 3);
        let refused = choose_platform(&index, &wanted("riscv64"), "it").unwrap_err().to_string();
        assert!(refused.contains("linux/riscv64") && refused.contains("linux/arm64, linux/amd64"), "{refused}");
    }

    #[test]
    fn a_layers_media_type_says_how_it_is_compressed() {
        let of = |media_type: &str| layer_compression(&descriptor(media_type)).ok();
        assert_eq!(of("application/vnd.oci.image.layer.v1.tar+zstd"), Some(Compression::Zstd));
        assert_eq!(of("application/vnd.docker.image.rootfs.diff.tar.gzip"), Some(Compression::Gzip));
        assert_eq!(of("application/vnd.oci.image.layer.v1.tar"), Some(Compression::None));
        let encrypted = layer_compression(&descriptor("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"));
        assert!(encrypted.unwrap_err().to_string().contains("encrypted"));
    }
}
