//! Pulls an image of a registry into the store: manifest, configuration, the layers that are missing, and Cove's own last layer.
//!
//! ```text
//!  manifest ─▶ configuration ─▶ each missing layer: lock ─▶ download (continues) ─▶ unpack ─▶ layers/HEX ─▶ last layer ─▶ name
//!  (digest)      (digest)          three at a time          verified as it comes    by a process, its content verified
//! ```
//!
//! Only the last step makes an image. If a step fails, complete layers stay if trying again can help, and are removed if not; half a
//! download stays for the next pull, unless its bytes were wrong.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{StreamExt as _, TryStreamExt as _};
use oci_registry::{
    Client, Descriptor, Digest, ImageConfig, Manifest, Platform, Reference, download, layer_compression,
};
use tokio::sync::{Mutex, watch};

use super::error::{ImageError, at};
use super::layers::{self, Budget, Keeping, MAX_LAYERS};
use crate::failpoint;
use crate::image_store::{ImageStore, LayerLock, StoreLock, StoredImage};

/// How many layers are downloaded at a time.
const LAYERS_AT_ONCE: usize = 3;
const MAX_CONFIG_BYTES: u64 = 4 << 20;
/// How often a lock of another process is tried again. The kernel cannot tell a task that waits.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for somebody who removes images.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// What a pull does right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullPhase {
    #[default]
    Resolving,
    /// Another pull has a layer that this one needs.
    Waiting,
    Downloading,
    Finishing,
    /// The changes of a session become a layer.
    Packing,
}

impl PullPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolving => "resolving",
            Self::Waiting => "waiting",
            Self::Downloading => "downloading",
            Self::Finishing => "finishing",
            Self::Packing => "packing",
        }
    }
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullStatus {
    pub phase: PullPhase,
    pub layers: usize,
    pub layers_done: usize,
    /// Bytes of compressed layers, without those that were here before.
    pub bytes: u64,
    pub total_bytes: u64,
}

/// What a pull may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullLimits {
    /// The size of an image without compression.
    pub unpacked_bytes: u64,
}

/// Pulls an image. `status` always has how far it is.
pub async fn pull(
    store: &ImageStore,
    client: &Client,
    reference: &Reference,
    limits: PullLimits,
    status: &watch::Sender<PullStatus>,
) -> Result<StoredImage, ImageError> {
    blocking({
        let store = store.clone();
        move || store.make().map_err(at("making the store of images"))
    })
    .await?;
    let lock = lock_to_add(store).await?;
    let work = Work {
        store: store.clone(),
        client,
        reference,
        status,
        missing_before: Mutex::default(),
        blobs: Mutex::default(),
    };
    let pulled = work.pull(limits, &lock).await;
    drop(lock);
    if let Err(error) = &pulled
        && !error.is_temporary()
    {
        work.sweep().await;
    }
    pulled
}

struct Work<'a> {
    store: ImageStore,
    client: &'a Client,
    reference: &'a Reference,
    status: &'a watch::Sender<PullStatus>,
    /// The layers that were not in the store when this pull began.
    missing_before: Mutex<Vec<String>>,
    /// The downloads that this pull has begun or continued.
    blobs: Mutex<Vec<String>>,
}

/// A layer as manifest and configuration describe it together.
#[derive(Clone)]
struct Layer {
    blob: Descriptor,
    diff_id: Digest,
}

impl Work<'_> {
    async fn pull(&self, limits: PullLimits, lock: &StoreLock) -> Result<StoredImage, ImageError> {
        let (digest, manifest) = self.client.manifest(self.reference, &Platform::own()).await?;
        let config = self.client.document(self.reference, &manifest.config, MAX_CONFIG_BYTES).await?;
        let config = ImageConfig::parse(&config)?;
        let all = described(&manifest, &config)?;
        failpoint::at("image.pull.described").map_err(at("reading the manifest"))?;
        let diff_ids: Vec<Digest> = all.iter().map(|layer| layer.diff_id.clone()).collect();
        let store = self.store.clone();
        let keeping = blocking(move || Keeping::here(&store)).await?;
        let names = match keeping {
            Keeping::Shared => self.pull_shared(&all, &diff_ids, Budget(limits.unpacked_bytes)).await?,
            Keeping::InOne => self.pull_in_one(&all, &diff_ids, Budget(limits.unpacked_bytes)).await?,
        };
        let config_of_image = config.config.unwrap_or_default();
        let user = match keeping {
            Keeping::Shared => {
                let (store, names, user) = (self.store.clone(), names.clone(), config_of_image.user.clone());
                blocking(move || layers::find_user(&store, &names, user.as_deref())).await?
            }
            // There, commands have one user.
            Keeping::InOne => None,
        };
        let stored = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let image = StoredImage {
            name: self.reference.to_string(),
            digest: Some(digest),
            layers: names,
            created: config.created,
            stored,
            config: config_of_image,
            committed_from: None,
            user,
        };
        self.store.add_image(&image, lock).map_err(at("storing the image's name"))?;
        Ok(image)
    }

    async fn pull_shared(&self, all: &[Layer], diff_ids: &[Digest], budget: Budget) -> Result<Vec<String>, ImageError> {
        let last = layers::name_of_chain("last", diff_ids);
        let mut names: Vec<String> = diff_ids.iter().map(|diff_id| diff_id.hex().to_owned()).collect();
        names.push(last.clone());
        let (missing, known): (Vec<Layer>, Vec<Layer>) =
            all.iter().cloned().partition(|layer| !self.store.has_layer(layer.diff_id.hex()));
        let missing = without_repetitions(missing);
        let mut budget = budget;
        known.iter().for_each(|layer| budget.spend(self.store.layer_info(layer.diff_id.hex())));
        *self.missing_before.lock().await =
            missing.iter().map(|layer| layer.diff_id.hex().to_owned()).chain([last]).collect();
        let counter = self.begin(&missing)?;
        // One layer at a time is unpacked, so the budget is exact; the others download meanwhile.
        let budget = Arc::new(Mutex::new(budget));
        let pulls: Vec<BoxFuture<'_, _>> =
            missing.iter().map(|layer| self.pull_layer(layer, &counter, budget.clone()).boxed()).collect();
        let pulled = futures_util::stream::iter(pulls).buffer_unordered(LAYERS_AT_ONCE).try_collect::<Vec<()>>().await;
        // If one has failed, the others are cut off, except for what is being unpacked: that has the budget until it is done.
        drop(budget.lock().await);
        pulled?;
        self.set(|status| status.phase = PullPhase::Finishing);
        let (store, diff_ids) = (self.store.clone(), diff_ids.to_vec());
        blocking(move || layers::add_last(&store, &diff_ids)).await?;
        Ok(names)
    }

    async fn pull_layer(&self, layer: &Layer, counter: &Counter, budget: Arc<Mutex<Budget>>) -> Result<(), ImageError> {
        let name = layer.diff_id.hex();
        let _lock = self.lock_layer(name).await?;
        // Whoever had the lock may have made the layer meanwhile.
        if !self.store.has_layer(name) {
            let path = self.download(layer, counter).await?;
            failpoint::at("image.pull.downloaded").map_err(at("downloading a layer"))?;
            let mut budget = budget.lock_owned().await;
            let (store, diff_id) = (self.store.clone(), layer.diff_id.clone());
            blocking(move || {
                let archive = File::open(&path).map_err(at("opening the layer"))?;
                let added = layers::add(&store, &diff_id, archive, &mut budget);
                // Unpacked or not, the blob has served: its bytes were right.
                let _ = std::fs::remove_file(&path);
                added
            })
            .await?;
        }
        self.set(|status| status.layers_done += 1);
        Ok(())
    }

    async fn pull_in_one(&self, all: &[Layer], diff_ids: &[Digest], budget: Budget) -> Result<Vec<String>, ImageError> {
        let name = layers::name_of_chain("flat", diff_ids);
        let _lock = self.lock_layer(&name).await?;
        if self.store.has_layer(&name) {
            return Ok(vec![name]);
        }
        let missing = without_repetitions(all.to_vec());
        let counter = self.begin(&missing)?;
        let downloads: Vec<BoxFuture<'_, _>> =
            missing.iter().map(|layer| self.pull_blob(layer, &counter).boxed()).collect();
        futures_util::stream::iter(downloads).buffer_unordered(LAYERS_AT_ONCE).try_collect::<Vec<()>>().await?;
        self.set(|status| status.phase = PullPhase::Finishing);
        let (store, diff_ids) = (self.store.clone(), diff_ids.to_vec());
        let paths: Vec<_> = all.iter().map(|layer| self.store.blob(layer.blob.digest.hex())).collect();
        let name = blocking(move || {
            let archive = |n: usize| File::open(&paths[n]).map_err(at("opening a layer"));
            let made = layers::add_flat(&store, &diff_ids, archive, budget);
            paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
            made
        })
        .await?;
        Ok(vec![name])
    }

    async fn pull_blob(&self, layer: &Layer, counter: &Counter) -> Result<(), ImageError> {
        let _lock = self.lock_layer(layer.blob.digest.hex()).await?;
        self.download(layer, counter).await?;
        self.set(|status| status.layers_done += 1);
        Ok(())
    }

    /// Notes what is to be downloaded, and refuses what the disk has no room for.
    fn begin(&self, missing: &[Layer]) -> Result<Counter, ImageError> {
        let total: u64 = missing.iter().map(|layer| layer.blob.size).fold(0, u64::saturating_add);
        let free = self.store.free_bytes().map_err(at("looking how much room the disk has"))?;
        if total > free {
            let message =
                format!("the image has {} MiB to download, and the disk has {} MiB free", total >> 20, free >> 20);
            return Err(ImageError::Archive(message));
        }
        self.set(|status| {
            *status = PullStatus {
                phase: PullPhase::Downloading,
                layers: missing.len(),
                total_bytes: total,
                ..PullStatus::default()
            };
        });
        Ok(Counter::default())
    }

    async fn download(&self, layer: &Layer, counter: &Counter) -> Result<std::path::PathBuf, ImageError> {
        self.set(|status| status.phase = PullPhase::Downloading);
        let path = self.store.blob(layer.blob.digest.hex());
        self.blobs.lock().await.push(layer.blob.digest.hex().to_owned());
        // A download that begins again counts again from where it begins.
        let seen = AtomicU64::new(0);
        let progress = |bytes: u64| {
            failpoint::pass("image.pull.downloading");
            let before = seen.swap(bytes, Ordering::Relaxed);
            let sum = counter.add(before, bytes);
            self.set(|status| status.bytes = sum);
        };
        download(self.client, self.reference, &layer.blob, &path, &progress).await?;
        Ok(path)
    }

    async fn lock_layer(&self, name: &str) -> Result<LayerLock, ImageError> {
        loop {
            if let Some(lock) = self.store.try_lock_layer(name).map_err(at("locking a layer"))? {
                return Ok(lock);
            }
            self.set(|status| status.phase = PullPhase::Waiting);
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
    }

    fn set(&self, change: impl FnOnce(&mut PullStatus)) {
        self.status.send_modify(change);
    }

    /// Removes the layers that this pull has added for nothing, and what it has downloaded.
    async fn sweep(&self) {
        let (store, added) = (self.store.clone(), self.missing_before.lock().await.clone());
        let blobs = self.blobs.lock().await.clone();
        let swept = blocking(move || {
            // While others pull, nothing can be removed. `prune` finds it later.
            let Some(lock) = store.try_lock_to_remove().map_err(at("locking the store"))? else { return Ok(()) };
            store
                .remove_layers(|layer| added.iter().any(|name| name == layer), &lock)
                .map_err(at("removing layers"))?;
            // Most are gone: whoever unpacks a blob removes it.
            blobs.iter().for_each(|blob| drop(std::fs::remove_file(store.blob(blob))));
            Ok(())
        });
        if let Err(error) = swept.await {
            tracing::warn!(error = %error.whole(), "layers of a failed pull are left; `cove image prune` removes them");
        }
    }
}

/// The sum of the bytes of several downloads.
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    /// Replaces what one download had counted by what it counts now.
    fn add(&self, before: u64, now: u64) -> u64 {
        let sum = |total: u64| total.wrapping_add(now).wrapping_sub(before);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |total| Some(sum(total))).map_or(0, sum)
    }
}

/// Pairs the layers of a manifest with their contents, and refuses what cannot be an image.
fn described(manifest: &Manifest, config: &ImageConfig) -> Result<Vec<Layer>, ImageError> {
    let diff_ids = &config.rootfs.diff_ids;
    let refuse = |why: String| Err(ImageError::Archive(why));
    if manifest.layers.is_empty() {
        return refuse("the image has no layers".into());
    }
    if manifest.layers.len() > MAX_LAYERS {
        return refuse(format!("the image has {} layers, and at most {MAX_LAYERS} are taken", manifest.layers.len()));
    }
    if manifest.layers.len() != diff_ids.len() {
        let (layers, contents) = (manifest.layers.len(), diff_ids.len());
        return refuse(format!("the image's manifest has {layers} layers, and its configuration {contents}"));
    }
    for blob in &manifest.layers {
        layer_compression(blob)?;
    }
    let pair = |(blob, diff_id): (&Descriptor, &Digest)| Layer { blob: blob.clone(), diff_id: diff_id.clone() };
    Ok(manifest.layers.iter().zip(diff_ids).map(pair).collect())
}

/// An image may have one layer twice.
fn without_repetitions(layers: Vec<Layer>) -> Vec<Layer> {
    let mut seen: Vec<Layer> = Vec::new();
    for layer in layers {
        if !seen.iter().any(|known| known.diff_id == layer.diff_id) {
            seen.push(layer);
        }
    }
    seen
}

async fn lock_to_add(store: &ImageStore) -> Result<StoreLock, ImageError> {
    let waiting = async {
        loop {
            if let Some(lock) = store.try_lock_to_add().map_err(at("locking the store of images"))? {
                return Ok(lock);
            }
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
    };
    let late = || ImageError::Busy("somebody removes images; try again when that is over".into());
    tokio::time::timeout(REMOVAL_TIMEOUT, waiting).await.map_err(|_| late())?
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let lost = |error: tokio::task::JoinError| at("working on the disk")(std::io::Error::other(error));
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_registry::RootFs;

    fn blob(n: u8, media_type: &str) -> Descriptor {
        Descriptor { media_type: media_type.into(), digest: Digest::of(&[n]), size: 1, platform: None }
    }

    #[test]
    fn manifest_and_configuration_must_fit_together() {
        const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
        let check = |media_types: &[&str], contents: u8| {
            let layers = media_types.iter().zip(0..).map(|(media_type, n)| blob(n, media_type)).collect();
            let manifest = Manifest { config: blob(0, ""), layers };
            let diff_ids = (0..contents).map(|n| Digest::of(&[n])).collect();
            let config = ImageConfig { rootfs: RootFs { diff_ids }, ..ImageConfig::default() };
            described(&manifest, &config).map(|layers| layers.len()).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[GZIP, GZIP], 2), Ok(2));
        assert!(check(&[], 0).unwrap_err().contains("no layers"));
        assert!(check(&[GZIP], 2).unwrap_err().contains("1 layers"));
        assert!(check(&["text/plain"], 1).unwrap_err().contains("text/plain"));
        assert!(check(&[GZIP; MAX_LAYERS + 1], 128).unwrap_err().contains("128 layers"));
    }

    #[test]
    fn a_download_that_begins_again_is_counted_once() {
        let counter = Counter::default();
        assert_eq!(counter.add(0, 10), 10);
        assert_eq!(counter.add(0, 5), 15);
        assert_eq!(counter.add(10, 0), 5);
        assert_eq!(counter.add(0, 12), 17);
    }
}
