//! `cove image commit`: makes an image from what a session has changed of its root. Every call blocks.
//!
//! ```text
//!  a snapshot of the disk ─▶ a process packs ─▶ a process unpacks, and makes the digest ─▶ layers/HEX ─▶ last layer ─▶ name
//!                            (its root is the     (its root is the new directory)
//!                             snapshot)
//! ```
//!
//! This process copies bytes from one to the other, and opens nothing of the session's. Only the last step makes an image. If a step
//! fails, what it made is removed; a layer that is complete stays until `prune` if somebody else adds to the store at the time.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oci_registry::{Digest, RuntimeConfig};

use super::error::{ImageError, at};
use super::layers::{self, Budget, Keeping, MAX_LAYERS};
use super::pack::{PackTask, SUBCOMMAND};
use super::unpack::{Report, Task};
use super::{is_name, unpacker};
use crate::failpoint;
use crate::image_store::{ImageSettings, ImageStore, LayerInfo, StoreLock, StoredImage};
use crate::runtime::{LayerSource, RootChanges};

/// How much is copied at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// The longest time to pack and unpack one layer.
const LAYER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The most that is read of what went wrong.
const MAX_MESSAGE_BYTES: u64 = 4096;

const PACKING: &str = "packing the session's changes";

/// How far a commit is: what is packed of all layers so far, in bytes.
pub type Tell<'a> = &'a mut dyn FnMut(u64);

/// What a commit is asked for.
pub struct CommitSpec {
    pub name: String,
    /// What the image is made from, for people: the session and its image.
    pub origin: String,
    /// When it is made, as RFC 3339.
    pub created: String,
    /// The size of the image.
    pub max_bytes: u64,
}

/// Refuses a name that no image can be committed under.
pub fn check_name(images_dir: &Path, name: &str) -> Result<(), ImageError> {
    if !is_name(name) {
        return Err(ImageError::Name(name.to_owned()));
    }
    if super::rootfs(images_dir, name).is_some()
        || ImageStore::new(images_dir).find(name).is_some_and(|i| i.name == name)
    {
        return Err(ImageError::Exists(name.to_owned()));
    }
    Ok(())
}

/// Makes the image. The layers that it is over must stay meanwhile: somebody uses them.
pub fn commit(
    images_dir: &Path,
    spec: &CommitSpec,
    changes: RootChanges,
    tell: Tell<'_>,
) -> Result<StoredImage, ImageError> {
    let store = ImageStore::new(images_dir);
    store.make().map_err(at("making the store of images"))?;
    let busy = |what: &str| ImageError::Busy(format!("{what}; try again when that is over"));
    let lock = store.try_lock_to_add().map_err(at("locking the store of images"))?;
    let lock = lock.ok_or_else(|| busy("somebody removes images"))?;
    // One commit under a name at a time, and none over an image that is there.
    let name_lock = store.try_lock_layer(Digest::of(spec.name.as_bytes()).hex());
    let name_lock = name_lock.map_err(at("locking the image's name"))?;
    let _name_lock = name_lock.ok_or_else(|| busy("an image of this name is being committed"))?;
    check_name(images_dir, &spec.name)?;
    if Keeping::here(&store)? == Keeping::InOne {
        return Err(ImageError::Archive(
            "a commit needs images that share layers, and this host cannot put layers together: overlayfs does not work on the \
             file system of the data directory"
                .into(),
        ));
    }
    let mut added = Vec::new();
    let made = make(&store, spec, changes, &lock, &mut added, tell);
    drop(lock);
    if made.is_err() {
        sweep(&store, &added);
    }
    made
}

fn make(
    store: &ImageStore,
    spec: &CommitSpec,
    changes: RootChanges,
    lock: &StoreLock,
    added: &mut Vec<String>,
    tell: Tell<'_>,
) -> Result<StoredImage, ImageError> {
    let mut names = changes.layers;
    let count = names.len() + changes.added.len() + 1;
    if count > MAX_LAYERS {
        return Err(ImageError::Archive(format!(
            "the image would have {count} layers, and at most {MAX_LAYERS} are taken: import its root file system as one"
        )));
    }
    let mut budget = Budget(spec.max_bytes);
    names.iter().for_each(|name| budget.spend(store.layer_info(name)));
    let mut before = 0;
    for source in changes.added {
        let mut total = before;
        let name = add_layer(store, source, &mut budget, added, &mut |bytes| {
            total = before + bytes;
            tell(total);
        })?;
        before = total;
        names.push(name);
    }
    let digests = names.iter().map(|name| format!("sha256:{name}").parse::<Digest>());
    let digests: Vec<Digest> =
        digests.collect::<Result<_, _>>().map_err(|_| ImageError::Archive("a layer has no digest".into()))?;
    let last = layers::name_of_chain("last", &digests);
    if !store.has_layer(&last) {
        added.push(last);
    }
    names.push(layers::add_last(store, &digests)?);
    failpoint::at("image.commit.complete").map_err(at("storing the image's name"))?;
    let image = StoredImage {
        name: spec.name.clone(),
        digest: None,
        layers: names,
        created: Some(spec.created.clone()),
        stored: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        config: inherited(&changes.settings),
        committed_from: Some(spec.origin.clone()),
        user: changes.settings.user,
    };
    store.add_image(&image, lock).map_err(at("storing the image's name"))?;
    Ok(image)
}

/// What an image says about programs, from the image that the session had.
fn inherited(settings: &ImageSettings) -> RuntimeConfig {
    let env: Vec<String> = settings.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    RuntimeConfig {
        env: (!env.is_empty()).then_some(env),
        working_dir: settings.directory.clone(),
        user: settings.user.map(|user| format!("{}:{}", user.uid, user.gid)),
        ..RuntimeConfig::default()
    }
}

/// Packs directories into a layer of the store, unless it is there, and returns its name.
fn add_layer(
    store: &ImageStore,
    source: LayerSource,
    budget: &mut Budget,
    added: &mut Vec<String>,
    tell: Tell<'_>,
) -> Result<String, ImageError> {
    let step = "making a directory for a layer";
    let staging = store.stage().map_err(at(step))?;
    let tree = staging.make("tree").map_err(at(step))?;
    failpoint::at("image.commit.staged").map_err(at(step))?;
    let report = repack(source, &tree, Task::Layer(budget.limits(store)?), tell)?;
    let diff_id = report.diff_id.ok_or_else(|| ImageError::Archive("the layer has no digest".into()))?;
    let info = LayerInfo { bytes: report.summary.bytes, files: report.summary.files };
    budget.spend(info);
    failpoint::at("image.commit.packed").map_err(at(PACKING))?;
    let name = diff_id.hex().to_owned();
    if !store.has_layer(&name) {
        added.push(name.clone());
        store.add_layer(&tree, &name, &info).map_err(at(format!("storing layer {}", diff_id.short())))?;
    }
    Ok(name)
}

/// Has one process pack directories and another one unpack them into `tree`.
fn repack(source: LayerSource, tree: &Path, task: Task, tell: Tell<'_>) -> Result<Report, ImageError> {
    let wanted = PackTask { trees: source.trees, owners: source.owners };
    let mut packer = Command::new("/proc/self/exe");
    packer.arg(SUBCOMMAND).arg(serde_json::to_string(&wanted).map_err(|e| at(PACKING)(e.into()))?).env_clear();
    packer.stdin(Stdio::from(source.directory)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut packer = Ended(packer.spawn().map_err(at("starting the process that packs"))?);
    let mut unpacker =
        Ended(unpacker::start(tree, &task, Stdio::piped()).map_err(at("starting the process that unpacks"))?);
    failpoint::pass("image.commit.started");
    let copied = copy(&mut packer.0, &mut unpacker.0, tell);
    if copied.is_err() {
        // It may wait for a pipe that nobody reads.
        let _ = packer.0.kill();
    }
    let mut said = String::new();
    if let Some(stderr) = packer.0.stderr.take() {
        let _ = stderr.take(MAX_MESSAGE_BYTES).read_to_string(&mut said);
    }
    let packed = packer.0.wait().map_err(at("waiting for the process that packs"))?;
    let unpacked = unpacker::finish_child(&mut unpacker.0);
    // What the first one in the row says is why the others ended.
    match (packed.success(), copied, unpacked) {
        (true, Ok(()), unpacked) => unpacked.map_err(ImageError::Archive),
        (_, Err(error), Ok(_)) => Err(error),
        (false, Ok(()), _) if said.trim().is_empty() => {
            Err(ImageError::Archive(format!("{PACKING}: it ended with {packed}")))
        }
        (false, Ok(()), _) => Err(ImageError::Archive(format!("{PACKING}: {}", said.trim()))),
        // The process that unpacks refused what it got, and so the pipe to it broke.
        (_, Err(_), Err(why)) => Err(ImageError::Archive(why)),
    }
}

/// Copies what one process writes to the other one. At its end, the other one reads the end of the archive.
fn copy(from: &mut Child, to: &mut Child, tell: Tell<'_>) -> Result<(), ImageError> {
    let missing = || at(PACKING)(io::ErrorKind::BrokenPipe.into());
    let (mut from, mut to) = (from.stdout.take().ok_or_else(missing)?, to.stdin.take().ok_or_else(missing)?);
    let until = Instant::now() + LAYER_TIMEOUT;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(at(PACKING)(error)),
        };
        to.write_all(&chunk[..count]).map_err(at("unpacking the layer"))?;
        failpoint::pass("image.commit.copying");
        total += u64::try_from(count).unwrap_or(0);
        tell(total);
        if Instant::now() > until {
            let minutes = LAYER_TIMEOUT.as_secs() / 60;
            return Err(ImageError::Busy(format!("a layer was not packed within {minutes} minutes")));
        }
    }
}

/// A process that does not outlive whoever started it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Removes layers that were added for nothing, unless somebody adds or removes right now.
fn sweep(store: &ImageStore, added: &[String]) {
    let Ok(Some(lock)) = store.try_lock_to_remove() else { return };
    if let Err(error) = store.remove_layers(|layer| added.iter().any(|name| name == layer), &lock) {
        tracing::warn!(%error, "layers of a failed commit are left; `cove image prune` removes them");
    }
}
