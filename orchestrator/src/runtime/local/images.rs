//! The images of this runtime: the host's own system, root file systems below `images/NAME/rootfs`, where `cove image import` puts
//! them, and images in layers, in the store. Every call reads the disk and blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shared_protocol::api::ImageView;
use shared_protocol::{RuntimeName, SessionId};

use super::failed;
use super::plan::ImageTree;
use crate::image_store::{ImageSettings, ImageStore, ImageUser, StoredImage, are_layers};
use crate::runtime::RuntimeError;

/// Image names that work without configuration. On this runtime each of them is the host's own system until an image of that name is
/// imported.
pub const BUILT_IN_IMAGES: [&str; 4] = ["base", "python", "node", HOST_IMAGE];

pub const HOST_IMAGE: &str = "host";

/// The images that a session can be made from.
#[derive(Debug, Clone)]
pub struct Images {
    dir: PathBuf,
    store: ImageStore,
    /// The image for each configured name: `host`, or an image that was imported or pulled.
    configured: BTreeMap<String, String>,
    default: String,
}

/// What a sandbox is made from, unless that is the host's own system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    pub tree: ImageTree,
    pub settings: ImageSettings,
    stored: Stored,
}

/// How an image is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stored {
    /// As these layers in the store.
    InLayers(Vec<String>),
    /// As a root file system that was imported under this name.
    Imported(String),
}

/// What something was made from and depends on, whatever its name means later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeptImage {
    Layers {
        layers: Vec<String>,
        settings: ImageSettings,
    },
    /// The root file system that was imported under this name.
    Imported {
        imported: String,
    },
    /// The host's own system.
    Host {
        host: Present,
    },
}

/// A field that is there or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Present {
    Yes,
}

impl KeptImage {
    /// What to keep of a root. `None` is the host's own system.
    pub fn of(root: Option<&ImageRoot>) -> Self {
        match root {
            None => Self::Host { host: Present::Yes },
            Some(ImageRoot { stored: Stored::Imported(name), .. }) => Self::Imported { imported: name.clone() },
            Some(ImageRoot { stored: Stored::InLayers(layers), settings, .. }) => {
                Self::Layers { layers: layers.clone(), settings: settings.clone() }
            }
        }
    }

    /// The user that it names.
    pub fn user(&self) -> Option<ImageUser> {
        match self {
            Self::Layers { settings, .. } => settings.user,
            Self::Imported { .. } | Self::Host { .. } => None,
        }
    }

    fn layers(&self) -> &[String] {
        match self {
            Self::Layers { layers, .. } => layers,
            Self::Imported { .. } | Self::Host { .. } => &[],
        }
    }
}

impl ImageRoot {
    /// The layers in the store that it has, the lowest first.
    pub fn layers(&self) -> &[String] {
        match &self.stored {
            Stored::InLayers(layers) => layers,
            Stored::Imported(_) => &[],
        }
    }

    fn imported(images_dir: &Path, name: &str) -> Option<Self> {
        let tree = ImageTree::Directory(rootfs(images_dir, name)?);
        Some(Self { tree, settings: ImageSettings::default(), stored: Stored::Imported(name.to_owned()) })
    }

    fn of(image: StoredImage, store: &ImageStore) -> Self {
        let settings = image.settings();
        Self::of_layers(image.layers, settings, store)
    }

    fn of_layers(layers: Vec<String>, settings: ImageSettings, store: &ImageStore) -> Self {
        let tree = match layers.as_slice() {
            [only] => ImageTree::Directory(store.layer(only)),
            layers => ImageTree::Layers { dir: store.layers_dir(), names: layers.iter().rev().cloned().collect() },
        };
        Self { tree, settings, stored: Stored::InLayers(layers) }
    }
}

impl Images {
    pub fn new(dir: PathBuf, configured: BTreeMap<String, String>, default: String) -> Self {
        Self { store: ImageStore::new(&dir), dir, configured, default }
    }

    /// The files of an image name. `None` means the host's own.
    pub fn resolve(&self, name: &str) -> Result<Option<ImageRoot>, RuntimeError> {
        if let Some(source) = self.configured.get(name) {
            return match source.as_str() {
                HOST_IMAGE => Ok(None),
                source => self.find(source).map(Some).ok_or_else(|| {
                    RuntimeError::InvalidImage(format!(
                        "image {name:?} stands for {source:?} by the setting images.{name}, and there is no image \
                         {source:?} here. {}",
                        remedy(source)
                    ))
                }),
            };
        }
        match self.find(name) {
            Some(found) => Ok(Some(found)),
            None if BUILT_IN_IMAGES.contains(&name) => Ok(None),
            None => {
                let known: Vec<String> = self.sources().into_keys().filter(|name| !self.is_missing(name)).collect();
                Err(RuntimeError::InvalidImage(format!(
                    "there is no image {name:?}; there are {}. {}",
                    known.join(", "),
                    remedy(name)
                )))
            }
        }
    }

    /// The files of an image that was kept. A record of an older daemon says nothing of images without layers: then the name counts.
    pub fn reopen(&self, kept: Option<&KeptImage>, name: &str) -> Result<Option<ImageRoot>, RuntimeError> {
        match kept {
            Some(KeptImage::Layers { layers, settings }) if are_layers(layers) => {
                Ok(Some(ImageRoot::of_layers(layers.clone(), settings.clone(), &self.store)))
            }
            Some(KeptImage::Imported { imported }) => {
                ImageRoot::imported(&self.dir, imported).map(Some).ok_or_else(|| {
                    RuntimeError::InvalidImage(format!(
                        "the image {imported:?} that it was made from is no longer here"
                    ))
                })
            }
            Some(KeptImage::Host { .. }) => Ok(None),
            Some(KeptImage::Layers { .. }) | None => self.resolve(name),
        }
    }

    /// Notes that a snapshot, by its directory, needs an image.
    pub fn keep_for(&self, kept: Option<&KeptImage>, place: &Path) -> Result<(), RuntimeError> {
        let Some(kept) = kept.filter(|kept| !kept.layers().is_empty()) else { return Ok(()) };
        self.store.begin_use(place, kept.layers()).map_err(|error| failed("noting the use of the image", error))
    }

    /// The image of this name that was imported or pulled.
    fn find(&self, name: &str) -> Option<ImageRoot> {
        let imported = ImageRoot::imported(&self.dir, name);
        imported.or_else(|| Some(ImageRoot::of(self.store.find(name)?, &self.store)))
    }

    /// Notes that a sandbox, by its directory, uses an image.
    pub fn begin_use(&self, image: &ImageRoot, sandbox: &Path) -> Result<(), RuntimeError> {
        if image.layers().is_empty() {
            return Ok(());
        }
        self.store.begin_use(sandbox, image.layers()).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => RuntimeError::InvalidImage(format!("the image is no longer here: {error}")),
            _ => failed("noting the use of the image", error),
        })
    }

    pub fn end_use(&self, sandbox: &Path) {
        self.store.end_use(sandbox);
    }

    /// Whether a name is configured to stand for an image that is not here.
    fn is_missing(&self, name: &str) -> bool {
        let source = self.configured.get(name).filter(|source| *source != HOST_IMAGE);
        source.is_some_and(|source| self.find(source).is_none())
    }

    /// The names that promise an image and show the host's own system, because no image of that name is here.
    fn standing_for_host(&self) -> Vec<&'static str> {
        let is_host =
            |name: &&str| *name != HOST_IMAGE && !self.configured.contains_key(*name) && self.find(name).is_none();
        BUILT_IN_IMAGES.into_iter().filter(is_host).collect()
    }

    /// Says once which images are the host's own system.
    pub fn tell_of_host(&self) {
        let images = self.standing_for_host();
        if !images.is_empty() {
            tracing::info!(
                images = images.join(", "),
                remedy = "make them with scripts/images, and import them with cove image import",
                "images are not imported and show the host's own system"
            );
        }
    }

    /// Warns about configured images that no session can be made from now. An operator may import them while the daemon runs,
    /// so this does not end the start.
    pub fn warn_of_missing(&self) {
        for (name, source) in self.configured.iter().filter(|(name, _)| self.is_missing(name)) {
            tracing::warn!(
                setting = format!("images.{name}"),
                image = %source,
                remedy = remedy(source),
                "configured image is not here"
            );
        }
        if let Err(cause) = self.resolve(&self.default) {
            tracing::warn!(setting = "sessions.default_image", %cause, "default image does not exist");
        }
    }

    /// Every image name, with its image, also if that is missing.
    fn sources(&self) -> BTreeMap<String, String> {
        let mut sources: BTreeMap<String, String> =
            BUILT_IN_IMAGES.into_iter().map(|name| (name.to_owned(), HOST_IMAGE.to_owned())).collect();
        sources.extend(self.store.images().into_iter().map(|image| (image.short_name(), image.name)));
        sources.extend(names(&self.dir).into_iter().map(|name| (name.clone(), name)));
        sources.extend(self.configured.clone());
        sources
    }

    pub fn views(&self, runtime: &RuntimeName) -> Vec<ImageView> {
        let view = |(name, source): (String, String)| ImageView {
            default: name == self.default,
            name,
            runtime: runtime.clone(),
            source,
        };
        self.sources().into_iter().filter(|(name, _)| !self.is_missing(name)).map(view).collect()
    }
}

/// What to run to get an image.
fn remedy(name: &str) -> String {
    match is_name(name) {
        true => format!("Import it with: cove image import {name} TAR|DIR, or pull it with: cove image pull {name}"),
        false => format!("Pull it with: cove image pull {name}"),
    }
}

/// The root file system of an image, if the image was imported.
pub fn rootfs(images_dir: &Path, name: &str) -> Option<PathBuf> {
    if !is_name(name) {
        return None;
    }
    let path = images_dir.join(name).join("rootfs");
    path.is_dir().then_some(path)
}

/// The names of the imported images, sorted.
pub fn names(images_dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(images_dir) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| rootfs(images_dir, name).is_some())
        .collect();
    names.sort();
    names
}

/// Whether this is a valid image name. The rule is the same as for other names that are part of URLs and directories.
pub fn is_name(name: &str) -> bool {
    SessionId::new(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(dir: &Path) -> Images {
        let configured = [("python", "nosuch"), ("mine", "debian"), ("old", "host")];
        let configured = configured.map(|(name, source)| (name.to_owned(), source.to_owned())).into();
        Images::new(dir.to_owned(), configured, "base".into())
    }

    #[test]
    fn an_image_in_layers_is_its_layers_from_the_top_and_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let images = Images::new(folder.path().to_owned(), BTreeMap::new(), "base".into());
        assert_eq!(images.resolve("python").unwrap(), None, "the host's own, as long as there is no such image");
        images.store.make().unwrap();
        let layers = ["1", "2"].map(|digit| digit.repeat(64));
        let config = oci_registry::RuntimeConfig { env: Some(vec!["A=b".into()]), ..Default::default() };
        let digest = Some(oci_registry::Digest::of(b""));
        let name = "docker.io/library/python:latest".to_owned();
        let image = StoredImage {
            name,
            digest,
            layers: layers.clone().into(),
            created: None,
            stored: 0,
            config,
            committed_from: None,
            user: None,
        };
        images.store.add_image(&image, &images.store.try_lock_to_add().unwrap().unwrap()).unwrap();
        let root = images.resolve("python").unwrap().unwrap();
        let names = layers.iter().rev().cloned().collect();
        assert_eq!(root.tree, ImageTree::Layers { dir: images.store.layers_dir(), names });
        assert_eq!(root.settings.variables, [("A".to_owned(), "b".to_owned())].into());
        assert!(images.views(&RuntimeName::local()).iter().any(|view| view.name == "python:latest"));
        let gone = images.begin_use(&root, folder.path()).unwrap_err();
        assert!(matches!(gone, RuntimeError::InvalidImage(_)), "{gone}");
    }

    #[test]
    fn what_was_made_from_an_image_keeps_it_whatever_its_name_means_later() {
        let folder = tempfile::tempdir().unwrap();
        let images = Images::new(folder.path().to_owned(), BTreeMap::new(), "base".into());
        let reread = |kept: KeptImage| {
            serde_json::from_str::<KeptImage>(&serde_json::to_string(&kept).unwrap()).expect("what was written")
        };
        let host = reread(KeptImage::of(images.resolve("base").unwrap().as_ref()));
        std::fs::create_dir_all(folder.path().join("base/rootfs")).unwrap();
        let imported = images.resolve("base").unwrap();
        assert!(imported.is_some(), "the name means the imported image now");
        assert_eq!(images.reopen(Some(&host), "base").unwrap(), None, "and the session still has the host's system");
        let kept = reread(KeptImage::of(imported.as_ref()));
        assert_eq!(images.reopen(Some(&kept), "other").unwrap(), imported);
        std::fs::remove_dir_all(folder.path().join("base")).unwrap();
        assert!(images.reopen(Some(&kept), "base").unwrap_err().to_string().contains("no longer here"));
        // What an older daemon wrote.
        let old = format!(r#"{{"layers":["{}"],"settings":{{"variables":{{}},"directory":null}}}}"#, "1".repeat(64));
        let old: KeptImage = serde_json::from_str(&old).unwrap();
        assert!(matches!(old, KeptImage::Layers { .. }), "{old:?}");
        assert_eq!(images.reopen(None, "base").unwrap(), None);
    }

    #[test]
    fn a_configured_image_that_is_not_imported_is_refused_with_the_remedy_and_not_offered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("debian/rootfs")).unwrap();
        let images = images(folder.path());
        let refused = images.resolve("python").unwrap_err().to_string();
        assert!(refused.contains("images.python") && refused.contains("cove image import nosuch "), "{refused}");
        let unknown = images.resolve("nowhere").unwrap_err().to_string();
        assert!(unknown.contains("base, debian, host, mine, node, old."), "{unknown}");
        let offered: Vec<String> = images.views(&RuntimeName::local()).into_iter().map(|view| view.name).collect();
        assert_eq!(offered, ["base", "debian", "host", "mine", "node", "old"]);
        // An import takes effect at once.
        std::fs::create_dir_all(folder.path().join("nosuch/rootfs")).unwrap();
        assert_eq!(images.resolve("python").unwrap(), ImageRoot::imported(folder.path(), "nosuch"));
        assert_eq!(images.resolve("old").unwrap(), None);
    }
}
