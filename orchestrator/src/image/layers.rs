//! Makes layers of the store from archives of layers, and the last layer of each image, which is Cove's own. Every call blocks.
//!
//! A root daemon stores each layer once and shares it: overlayfs puts layers together. The daemon of an ordinary user cannot mount
//! such an overlay everywhere, nor can root on every file system; there all layers of an image are unpacked into one.

use std::fs::File;

use oci_registry::{Digest, Hasher};

use super::complete;
use super::entries::UnpackLimits;
use super::error::{ImageError, at};
use super::unpack::Task;
use super::unpacker;
use crate::failpoint;
use crate::image_store::{ImageStore, ImageUser, LayerInfo};

/// The most layers of an image, as engines have it.
pub const MAX_LAYERS: usize = 127;
/// The most entries of one layer. Each may take an inode.
pub const MAX_ENTRIES: u64 = 2_000_000;
/// The longest name of a user and a group.
const MAX_USER_BYTES: usize = 256;
/// What unpacking leaves free on the disk.
const DISK_RESERVE_BYTES: u64 = 256 << 20;

/// How the layers of an image are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    Shared,
    InOne,
}

impl Keeping {
    /// How this host can keep layers. A process tries it out, with empty ones.
    pub fn here(store: &ImageStore) -> Result<Self, ImageError> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(Self::InOne);
        }
        let step = "trying out an overlay";
        let staging = store.stage().map_err(at(step))?;
        let make = |name: &str| staging.make(name).map_err(at(step));
        let (place, upper, work) = (make("place")?, make("upper")?, make("work")?);
        let task = Task::TryLayers { layers: vec![make("one")?, make("two")?], upper, work };
        match unpacker::run(&place, &task, None) {
            Ok(_) => Ok(Self::Shared),
            Err(why) => {
                tracing::warn!(%why, "images do not share layers on this file system");
                Ok(Self::InOne)
            }
        }
    }
}

/// How many bytes may still be unpacked for an image.
#[derive(Debug, Clone, Copy)]
pub struct Budget(pub u64);

impl Budget {
    pub fn limits(self, store: &ImageStore) -> Result<UnpackLimits, ImageError> {
        let free = store.free_bytes().map_err(at("looking how much room the disk has"))?;
        Ok(UnpackLimits { bytes: self.0.min(free.saturating_sub(DISK_RESERVE_BYTES)), entries: MAX_ENTRIES })
    }

    pub fn spend(&mut self, info: LayerInfo) {
        self.0 = self.0.saturating_sub(info.bytes);
    }
}

/// Unpacks a layer into the store. `archive` has passed whatever check its source allows; here its content is checked against
/// `diff_id`.
pub fn add(store: &ImageStore, diff_id: &Digest, archive: File, budget: &mut Budget) -> Result<(), ImageError> {
    let staging = store.stage().map_err(at("making a directory for a layer"))?;
    let tree = staging.make("tree").map_err(at("making a directory for a layer"))?;
    failpoint::at("image.unpack.staged").map_err(at("making a directory for a layer"))?;
    let info = unpack(store, &tree, diff_id, archive, *budget, Task::Layer)?;
    budget.spend(info);
    failpoint::at("image.layer.unpacked").map_err(at("unpacking a layer"))?;
    store.add_layer(&tree, diff_id.hex(), &info).map_err(at(format!("storing layer {}", diff_id.short())))
}

fn unpack(
    store: &ImageStore,
    tree: &std::path::Path,
    diff_id: &Digest,
    archive: File,
    budget: Budget,
    task: fn(UnpackLimits) -> Task,
) -> Result<LayerInfo, ImageError> {
    let failed = |why: String| ImageError::Archive(format!("layer {}: {why}", diff_id.short()));
    let report = unpacker::run(tree, &task(budget.limits(store)?), Some(archive)).map_err(failed)?;
    match report.diff_id {
        Some(found) if found == *diff_id => Ok(LayerInfo { bytes: report.summary.bytes, files: report.summary.files }),
        found => {
            let found = found.map_or_else(|| "unknown".to_owned(), |found| found.to_string());
            Err(failed(format!("its content has the digest {found}, and the image says {diff_id}")))
        }
    }
}

/// Makes the last layer of an image from the layers below it, unless it is there, and returns its name.
pub fn add_last(store: &ImageStore, layers: &[Digest]) -> Result<String, ImageError> {
    let name = name_of_chain("last", layers);
    if store.has_layer(&name) {
        return Ok(name);
    }
    let step = "adding what a sandbox needs";
    let staging = store.stage().map_err(at(step))?;
    let [place, upper, work] = ["place", "tree", "work"].map(|name| staging.make(name));
    let (place, upper, work) = (place.map_err(at(step))?, upper.map_err(at(step))?, work.map_err(at(step))?);
    let lower = layers.iter().rev().map(|layer| store.layer(layer.hex())).collect();
    let task = Task::CompleteLayers { layers: lower, upper: upper.clone(), work };
    unpacker::run(&place, &task, None).map_err(ImageError::Archive)?;
    store.add_layer(&upper, &name, &LayerInfo::default()).map_err(at(step))?;
    Ok(name)
}

/// Finds the user that an image names in its files. `names` are its layers, the lowest first.
pub fn find_user(store: &ImageStore, names: &[String], user: Option<&str>) -> Result<Option<ImageUser>, ImageError> {
    let Some(user) = user.filter(|user| !user.is_empty() && user.len() <= MAX_USER_BYTES) else { return Ok(None) };
    let step = "looking for the image's user";
    let staging = store.stage().map_err(at(step))?;
    let make = |name: &str| staging.make(name).map_err(at(step));
    let (place, upper, work) = (make("place")?, make("upper")?, make("work")?);
    let layers = names.iter().rev().map(|name| store.layer(name)).collect();
    let task = Task::FindUser { layers, upper, work, user: user.to_owned() };
    Ok(unpacker::run(&place, &task, None).map_err(ImageError::Archive)?.user)
}

/// Makes one layer of all the layers of an image, unless it is there, and returns its name. `archive` opens a layer.
pub fn add_flat(
    store: &ImageStore,
    layers: &[Digest],
    archive: impl Fn(usize) -> Result<File, ImageError>,
    mut budget: Budget,
) -> Result<String, ImageError> {
    let name = name_of_chain("flat", layers);
    if store.has_layer(&name) {
        return Ok(name);
    }
    let step = "making a directory for the image";
    let staging = store.stage().map_err(at(step))?;
    let tree = staging.make("tree").map_err(at(step))?;
    let mut whole = LayerInfo::default();
    for (n, diff_id) in layers.iter().enumerate() {
        let info = unpack(store, &tree, diff_id, archive(n)?, budget, Task::Flatten)?;
        budget.spend(info);
        whole = LayerInfo { bytes: whole.bytes + info.bytes, files: whole.files + info.files };
    }
    unpacker::run(&tree, &Task::Complete, None).map_err(ImageError::Archive)?;
    store.add_layer(&tree, &name, &whole).map_err(at("storing the image"))?;
    Ok(name)
}

/// The name of a layer that Cove makes from layers.
pub fn name_of_chain(kind: &str, layers: &[Digest]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(format!("cove {kind} {}\n", complete::VERSION).as_bytes());
    for layer in layers {
        hasher.update(format!("{layer}\n").as_bytes());
    }
    hasher.finish().hex().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_from_other_layers_or_in_another_order_has_another_name() {
        let [a, b] = [b"a", b"b"].map(|bytes| Digest::of(bytes));
        let names = [
            name_of_chain("last", &[a.clone(), b.clone()]),
            name_of_chain("last", &[b.clone(), a.clone()]),
            name_of_chain("last", std::slice::from_ref(&a)),
            name_of_chain("flat", &[a, b]),
        ];
        assert!(names.iter().enumerate().all(|(n, name)| name.len() == 64 && !names[..n].contains(name)), "{names:?}");
    }
}
