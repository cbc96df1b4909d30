//! Which layers are mounted in sandboxes. A layer in use is not removed, whatever happens to its image.
//!
//! A use counts as long as the sandbox's own directory exists, so a crash leaves none that would count forever.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ImageStore, USES, read_json, write_json};

#[derive(Debug, Serialize, Deserialize)]
struct Use {
    sandbox: PathBuf,
    layers: Vec<String>,
}

impl ImageStore {
    /// Notes that a sandbox, by its directory, uses these layers. It refuses if one of them is no longer there.
    pub fn begin_use(&self, sandbox: &Path, layers: &[String]) -> io::Result<()> {
        // Whoever removes layers holds the lock alone, from the look at the uses to the end: a layer that is here now stays.
        let _lock = self.wait_to_add()?;
        write_json(&self.use_of(sandbox), &Use { sandbox: sandbox.to_owned(), layers: layers.to_vec() })?;
        match layers.iter().find(|layer| !self.has_layer(layer)) {
            None => Ok(()),
            Some(layer) => Err(io::Error::new(io::ErrorKind::NotFound, format!("layer {layer} was removed meanwhile"))),
        }
    }

    pub fn end_use(&self, sandbox: &Path) {
        let _ = std::fs::remove_file(self.use_of(sandbox));
    }

    fn use_of(&self, sandbox: &Path) -> PathBuf {
        let name = oci_registry::Digest::of(sandbox.as_os_str().as_encoded_bytes());
        self.root.join(USES).join(format!("{}.json", name.hex()))
    }

    /// All layers that sandboxes use. Uses of sandboxes that are gone are removed.
    pub(super) fn used_layers(&self) -> io::Result<BTreeSet<String>> {
        let mut used = BTreeSet::new();
        for entry in std::fs::read_dir(self.root.join(USES))? {
            let path = entry?.path();
            match read_json::<Use>(&path) {
                Some(found) if found.sandbox.exists() => used.extend(found.layers),
                _ => drop(std::fs::remove_file(&path)),
            }
        }
        Ok(used)
    }
}
