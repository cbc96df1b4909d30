//! Pulls on behalf of others: who may pull what, and one pull for all who want the same image.
//!
//! A pull goes on if whoever asked for it leaves, so that the next one finds it done.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use oci_registry::{Client, CredentialFiles, Options, Reference};
use tokio::sync::watch;

use super::error::ImageError;
use super::pull::{PullLimits, PullStatus, pull};
use super::rootfs;
use crate::config::{ImagePull, ImagesConfig};
use crate::image_store::{ImageStore, StoredImage};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pull.
const PULL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The most images that are pulled at a time.
const MAX_PULLS: usize = 4;
const AGENT: &str = concat!("cove/", env!("CARGO_PKG_VERSION"));

/// Who wants a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The operator, or a key with the role admin.
    Admin,
    User,
}

type Pulling = Shared<BoxFuture<'static, Result<Arc<StoredImage>, Arc<ImageError>>>>;

/// A pull that runs, or has just ended.
#[derive(Clone)]
pub struct RunningPull {
    pub status: watch::Receiver<PullStatus>,
    pub done: Pulling,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Puller {
    images_dir: Arc<Path>,
    config: Arc<ImagesConfig>,
    running: Arc<Mutex<HashMap<Reference, RunningPull>>>,
}

impl Puller {
    pub fn new(images_dir: &Path, config: ImagesConfig) -> Self {
        Self { images_dir: images_dir.into(), config: Arc::new(config), running: Arc::default() }
    }

    pub fn images_dir(&self) -> &Path {
        &self.images_dir
    }

    /// The size of the largest image that is pulled or committed.
    pub fn max_unpacked_bytes(&self) -> u64 {
        self.config.max_unpacked_mb << 20
    }

    /// Whether a create would pull this image if it is not here: it is named as one of a registry. A name without a tag, a digest and a
    /// slash is one of this host and is never pulled unasked.
    pub fn may_be_missing(&self, name: &str) -> bool {
        self.config.pull != ImagePull::Never && self.meant(name).contains([':', '/', '@'])
    }

    /// The image that a name stands for by configuration.
    fn meant<'a>(&'a self, name: &'a str) -> &'a str {
        self.config.names.get(name).map_or(name, String::as_str)
    }

    /// The reference that a create has to pull, because it is not here. It reads the disk.
    pub fn missing(&self, name: &str) -> Option<Reference> {
        if !self.may_be_missing(name) {
            return None;
        }
        let name = self.meant(name);
        let is_here = rootfs(&self.images_dir, name).is_some() || self.store().find(name).is_some();
        if is_here { None } else { name.parse().ok() }
    }

    fn store(&self) -> ImageStore {
        ImageStore::new(&self.images_dir)
    }

    /// Starts a pull, or joins the one that runs.
    pub fn pull(&self, reference: &Reference, asker: Asker) -> Result<RunningPull, ImageError> {
        self.may_pull(reference, asker)?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, pull| pull.done.peek().is_none());
        if let Some(pull) = running.get(reference) {
            return Ok(pull.clone());
        }
        if running.len() >= MAX_PULLS {
            return Err(ImageError::Busy(format!("{MAX_PULLS} images are being pulled already; try again later")));
        }
        let (sender, status) = watch::channel(PullStatus::default());
        let (this, wanted) = (self.clone(), reference.clone());
        let task = tokio::spawn(async move { this.run(&wanted, &sender).await });
        let lost = |error: tokio::task::JoinError| ImageError::Io {
            step: "pulling the image".into(),
            source: std::io::Error::other(error),
        };
        let done = async move { task.await.unwrap_or_else(|error| Err(lost(error))).map(Arc::new).map_err(Arc::new) };
        let pull = RunningPull { status, done: done.boxed().shared() };
        running.insert(reference.clone(), pull.clone());
        Ok(pull)
    }

    fn may_pull(&self, reference: &Reference, asker: Asker) -> Result<(), ImageError> {
        let host = &reference.host;
        let refuse = |why: String| Err(ImageError::Refused(why));
        match asker {
            Asker::Admin => Ok(()),
            // The operator has named the image itself.
            Asker::User if self.config.names.values().any(|name| name.parse().as_ref() == Ok(reference)) => Ok(()),
            Asker::User if self.config.pull == ImagePull::Never => {
                refuse("images.pull is \"never\": only an admin may pull".into())
            }
            Asker::User if !self.config.registries.contains(host) => {
                let known = self.config.registries.join(", ");
                refuse(format!(
                    "this key may pull from {known}, and not from {host}; an admin may, or changes images.registries"
                ))
            }
            Asker::User => Ok(()),
        }
    }

    async fn run(&self, reference: &Reference, status: &watch::Sender<PullStatus>) -> Result<StoredImage, ImageError> {
        let image = reference.to_string();
        tracing::info!(%image, "pulling an image");
        let options = Options {
            insecure: self.config.insecure.clone(),
            mirrors: self.config.mirrors.clone(),
            credentials: CredentialFiles::of_user(|name| std::env::var_os(name)),
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: self.config.timeout,
            agent: AGENT.to_owned(),
        };
        let work = async {
            let client = tokio::task::spawn_blocking(move || Client::new(options)).await;
            let client = client.map_err(|error| ImageError::Archive(error.to_string()))??;
            let limits = PullLimits { unpacked_bytes: self.max_unpacked_bytes() };
            pull(&self.store(), &client, reference, limits, status).await
        };
        let late = || ImageError::Busy(format!("the pull was not done after {} minutes", PULL_TIMEOUT.as_secs() / 60));
        let pulled = tokio::time::timeout(PULL_TIMEOUT, work).await.unwrap_or_else(|_| Err(late()));
        match &pulled {
            Ok(stored) => {
                tracing::info!(%image, digest = ?stored.digest.as_ref().map(ToString::to_string), "image pulled")
            }
            Err(error) => tracing::warn!(%image, cause = %error.whole(), "image not pulled"),
        }
        pulled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn puller(pull: ImagePull, images_dir: &Path) -> Puller {
        let config = ImagesConfig {
            names: BTreeMap::new(),
            pull,
            registries: vec!["docker.io".into()],
            mirrors: BTreeMap::new(),
            insecure: Vec::new(),
            max_unpacked_mb: 1 << 10,
            timeout: Duration::from_secs(1),
        };
        Puller::new(images_dir, config)
    }

    #[test]
    fn only_the_name_of_a_registrys_image_is_pulled_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let missing =
            |policy, name: &str| puller(policy, folder.path()).missing(name).map(|reference| reference.to_string());
        assert_eq!(missing(ImagePull::Missing, "python:3"), Some("docker.io/library/python:3".into()));
        assert_eq!(missing(ImagePull::Missing, "h.example.com/x"), Some("h.example.com/x:latest".into()));
        for name in ["python", "base", "nosuch", "a b:c", "UPPER:1"] {
            assert_eq!(missing(ImagePull::Missing, name), None, "{name}");
        }
        assert_eq!(missing(ImagePull::Never, "python:3"), None);
    }

    #[test]
    fn a_user_pulls_from_the_registries_that_the_operator_names() {
        let folder = tempfile::tempdir().unwrap();
        let may = |policy, name: &str, asker| {
            puller(policy, folder.path()).may_pull(&name.parse().unwrap(), asker).map_err(|error| error.to_string())
        };
        assert_eq!(may(ImagePull::Missing, "python:3", Asker::User), Ok(()));
        let refused = may(ImagePull::Missing, "127.0.0.1:6379/x", Asker::User).unwrap_err();
        assert!(refused.contains("images.registries"), "{refused}");
        assert_eq!(may(ImagePull::Missing, "127.0.0.1:6379/x", Asker::Admin), Ok(()));
        assert!(may(ImagePull::Never, "python:3", Asker::User).unwrap_err().contains("never"));
        assert_eq!(may(ImagePull::Never, "python:3", Asker::Admin), Ok(()));
    }
}
