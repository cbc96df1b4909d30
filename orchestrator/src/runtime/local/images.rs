//! The images of this runtime: the host's own system, and root file systems below `images/NAME/rootfs`, where `cove image
//! import` puts them. Every call reads the disk and blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use shared_protocol::api::ImageView;
use shared_protocol::{RuntimeName, SessionId};

use crate::runtime::RuntimeError;

/// Image names that work without configuration. On this runtime each of them is the host's own system.
const BUILT_IN_IMAGES: [&str; 4] = ["base", "python", "node", HOST_IMAGE];

const HOST_IMAGE: &str = "host";

/// The images that a session can be made from.
#[derive(Debug, Clone)]
pub struct Images {
    pub dir: PathBuf,
    /// The image for each configured name: `host`, or an imported image.
    pub configured: BTreeMap<String, String>,
    pub default: String,
}

impl Images {
    /// The root file system of an image name. `None` means the host's own.
    pub fn resolve(&self, name: &str) -> Result<Option<PathBuf>, RuntimeError> {
        let source = match self.configured.get(name) {
            Some(source) => source.as_str(),
            None if rootfs(&self.dir, name).is_some() => name,
            None if BUILT_IN_IMAGES.contains(&name) => HOST_IMAGE,
            None => {
                let known: Vec<String> = self.sources().into_keys().filter(|name| !self.is_missing(name)).collect();
                return Err(RuntimeError::InvalidImage(format!(
                    "there is no image {name:?}; there are {}. Import one with: cove image import NAME TAR|DIR",
                    known.join(", ")
                )));
            }
        };
        if source == HOST_IMAGE {
            return Ok(None);
        }
        rootfs(&self.dir, source).map(Some).ok_or_else(|| {
            RuntimeError::InvalidImage(format!(
                "image {name:?} stands for {source:?} by the setting images.{name}, and there is no imported image \
                 {source:?}. Import it with: cove image import {source} TAR|DIR"
            ))
        })
    }

    /// Whether a name is configured to stand for an image that is not imported.
    fn is_missing(&self, name: &str) -> bool {
        let source = self.configured.get(name).filter(|source| *source != HOST_IMAGE);
        source.is_some_and(|source| rootfs(&self.dir, source).is_none())
    }

    /// Warns about configured images that no session can be made from now. An operator may import them while the daemon runs,
    /// so this does not end the start.
    pub fn warn_of_missing(&self) {
        for (name, source) in self.configured.iter().filter(|(name, _)| self.is_missing(name)) {
            tracing::warn!(
                setting = format!("images.{name}"),
                image = %source,
                remedy = format!("cove image import {source} TAR|DIR"),
                "configured image is not imported"
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
        Images {
            dir: dir.to_owned(),
            configured: configured.map(|(name, source)| (name.to_owned(), source.to_owned())).into(),
            default: "base".into(),
        }
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
        assert_eq!(images.resolve("python").unwrap(), Some(folder.path().join("nosuch/rootfs")));
        assert_eq!(images.resolve("old").unwrap(), None);
    }
}
