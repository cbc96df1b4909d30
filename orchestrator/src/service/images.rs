//! Use cases for images of the `local` runtime: pull, commit, describe, remove, prune; and what a create does about an image that is not
//! here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use shared_protocol::RuntimeName;
use shared_protocol::api::{
    CommitImageRequest, CreateSessionRequest, ImageDetailsView, PullImageRequest, PullProgress, RemovedImagesView,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::access::Access;
use super::error::ImagesError;
use super::{Caller, Role};
use crate::image::{
    self, Asker, CommitSpec, ImageDetails, ImageError, PullPhase, PullStatus, Puller, Removed, RunningPull,
};
use crate::session::{HeldRoot, Registry, SessionError, show_wall};

pub struct Images {
    access: Access,
    registry: Registry,
    puller: Puller,
    images_dir: PathBuf,
    commits: Arc<Semaphore>,
}

/// The most images that are committed at a time. Each keeps a disk busy.
const MAX_COMMITS: usize = 2;

/// A pull or a commit that runs, for whoever follows it.
pub struct PullStream {
    images_dir: PathBuf,
    state: Following,
}

enum Following {
    Runs(RunningPull, PullWatch),
    /// There is nothing to pull: an image of this name is here.
    IsHere(String),
    Over,
}

/// The shortest time between two reports of how far a pull is. Whatever happens meanwhile is in the next one.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// How far a pull is, for whoever watches it: at once, then when it changes, within limits.
pub(super) struct PullWatch {
    status: watch::Receiver<PullStatus>,
    not_before: Instant,
}

impl PullWatch {
    pub(super) fn new(pull: &RunningPull) -> Self {
        let mut status = pull.status.clone();
        // Whoever joins late learns how far it is, even if nothing moves.
        status.mark_changed();
        Self { status, not_before: Instant::now() }
    }

    /// The next report. It never comes if the pull is over. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> PullProgress {
        tokio::time::sleep_until(self.not_before).await;
        if self.status.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.not_before = Instant::now() + PROGRESS_INTERVAL;
        progress(*self.status.borrow_and_update())
    }
}

/// What happens in a pull.
pub enum PullEvent {
    Progress(PullProgress),
    Done(Box<ImageDetailsView>),
    Failed(ImagesError),
}

impl Images {
    pub(super) fn new(access: Access, registry: Registry, puller: Puller) -> Self {
        let images_dir = puller.images_dir().to_owned();
        Self { access, registry, puller, images_dir, commits: Arc::new(Semaphore::new(MAX_COMMITS)) }
    }

    /// Starts the pull of a create's image, or joins the one that runs, if the image is one of a registry and not here. Everything else
    /// in the request is checked first.
    pub(super) async fn pull_for(
        &self,
        caller: &Caller,
        request: &CreateSessionRequest,
    ) -> Result<Option<RunningPull>, SessionError> {
        let name = request.image.as_deref().unwrap_or_else(|| self.registry.default_image());
        if !self.puller.may_be_missing(name) {
            return Ok(None);
        }
        // If something else is wrong with the request, the create says so.
        let Ok((name, runtime)) = self.registry.asked_image(&caller.creator(), request) else { return Ok(None) };
        if runtime != RuntimeName::local() {
            return Ok(None);
        }
        let puller = self.puller.clone();
        let missing = on_thread(move || Ok(puller.missing(&name))).await?;
        let Some(reference) = missing else { return Ok(None) };
        Ok(Some(self.puller.pull(&reference, asker(caller)).map_err(ImagesError::from)?))
    }

    /// Starts a pull, or joins the one of this image that runs. It goes on without the caller.
    pub async fn pull(&self, caller: &Caller, request: &PullImageRequest) -> Result<PullStream, ImagesError> {
        let name = request.image.as_str();
        let stream = |state| PullStream { images_dir: self.images_dir.clone(), state };
        let reference = match request.if_missing {
            false => name.parse().map_err(ImageError::Reference)?,
            true if !self.puller.may_be_missing(name) => {
                return Err(ImageError::Refused(format!("image {name:?} is not pulled unasked")).into());
            }
            true => {
                let (puller, wanted) = (self.puller.clone(), name.to_owned());
                match on_thread(move || Ok(puller.missing(&wanted))).await? {
                    None => return Ok(stream(Following::IsHere(name.to_owned()))),
                    Some(reference) => reference,
                }
            }
        };
        let pull = self.puller.pull(&reference, asker(caller))?;
        let watch = PullWatch::new(&pull);
        Ok(stream(Following::Runs(pull, watch)))
    }

    /// Starts to make an image from what a session has changed of its root. It goes on without the caller. Images are everybody's, so
    /// this is for admins: what a user could leave under a name would run in the sessions of others.
    pub async fn commit(&self, caller: &Caller, request: &CommitImageRequest) -> Result<PullStream, ImagesError> {
        self.access.admin(caller, "committing an image")?;
        let session = self.access.session(caller, &request.session_id)?;
        self.registry.check_commit(&session)?;
        let (images_dir, name) = (self.images_dir.clone(), request.image.clone());
        on_thread(move || image::check_commit_name(&images_dir, &name)).await?;
        let turn = self.commits.clone().try_acquire_owned();
        let turn = turn.map_err(|_| {
            ImageError::Busy(format!("{MAX_COMMITS} images are being committed already; try again later"))
        })?;
        let root = self.registry.hold_root(&session).await?;
        let spec = CommitSpec {
            name: request.image.clone(),
            origin: format!("session {} on {}", session.id(), session.facts().spec.image),
            created: show_wall(SystemTime::now()),
            max_bytes: self.puller.max_unpacked_bytes(),
        };
        let (sender, status) = watch::channel(PullStatus { phase: PullPhase::Packing, ..PullStatus::default() });
        let images_dir = self.images_dir.clone();
        let committing = tokio::task::spawn_blocking(move || {
            let HeldRoot { changes, snapshot } = root;
            let mut tell = |bytes| sender.send_modify(|status| status.bytes = bytes);
            let made = image::commit(&images_dir, &spec, changes, &mut tell);
            match &made {
                Ok(_) => tracing::info!(image = %spec.name, from = %spec.origin, "image committed"),
                Err(error) => tracing::warn!(image = %spec.name, cause = %error.whole(), "image not committed"),
            }
            drop((snapshot, turn));
            made
        });
        let lost = |error: tokio::task::JoinError| ImageError::Io {
            step: "committing the image".into(),
            source: std::io::Error::other(error),
        };
        let done =
            async move { committing.await.unwrap_or_else(|error| Err(lost(error))).map(Arc::new).map_err(Arc::new) };
        let commit = RunningPull { status, done: done.boxed().shared() };
        let watch = PullWatch::new(&commit);
        Ok(PullStream { images_dir: self.images_dir.clone(), state: Following::Runs(commit, watch) })
    }

    pub async fn describe(&self, _caller: &Caller, name: &str) -> Result<ImageDetailsView, ImagesError> {
        let (images_dir, name) = (self.images_dir.clone(), name.to_owned());
        Ok(view(on_thread(move || image::inspect(&images_dir, &name)).await?))
    }

    /// Removes an image. Layers that sandboxes use stay until nobody does.
    pub async fn remove(&self, caller: &Caller, name: &str) -> Result<RemovedImagesView, ImagesError> {
        self.access.admin(caller, "removing an image")?;
        let (images_dir, name) = (self.images_dir.clone(), name.to_owned());
        Ok(removed(on_thread(move || image::remove(&images_dir, &name)).await?))
    }

    pub async fn prune(&self, caller: &Caller) -> Result<RemovedImagesView, ImagesError> {
        self.access.admin(caller, "pruning images")?;
        let images_dir = self.images_dir.clone();
        Ok(removed(on_thread(move || image::prune(&images_dir)).await?))
    }
}

impl PullStream {
    /// The next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<PullEvent> {
        let last = match &mut self.state {
            Following::Over => return None,
            Following::IsHere(name) => described(&self.images_dir, name).await,
            Following::Runs(pull, watch) => tokio::select! {
                biased;
                done = pull.done.clone() => match done {
                    Ok(stored) => described(&self.images_dir, &stored.name).await,
                    Err(error) => PullEvent::Failed(error.into()),
                },
                progress = watch.next() => return Some(PullEvent::Progress(progress)),
            },
        };
        self.state = Following::Over;
        Some(last)
    }
}

async fn described(images_dir: &Path, name: &str) -> PullEvent {
    let (images_dir, name) = (images_dir.to_owned(), name.to_owned());
    match on_thread(move || image::inspect(&images_dir, &name)).await {
        Ok(details) => PullEvent::Done(Box::new(view(details))),
        Err(error) => PullEvent::Failed(error),
    }
}

fn asker(caller: &Caller) -> Asker {
    match caller.role() {
        Role::Admin => Asker::Admin,
        Role::User => Asker::User,
    }
}

fn progress(status: PullStatus) -> PullProgress {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    PullProgress {
        phase: status.phase.name().to_owned(),
        layers: count(status.layers),
        layers_done: count(status.layers_done),
        bytes: status.bytes,
        total_bytes: status.total_bytes,
    }
}

fn view(details: ImageDetails) -> ImageDetailsView {
    let config = details.config.unwrap_or_default();
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    ImageDetailsView {
        name: details.summary.name,
        digest: details.summary.digest.map(|digest| digest.to_string()),
        bytes: details.summary.bytes,
        shared_bytes: details.summary.shared_bytes,
        created: details.summary.created,
        layers: details.layers.into_iter().map(|layer| layer.digest).collect(),
        env: config.env.unwrap_or_default(),
        working_dir: said(config.working_dir),
        user: said(config.user),
        committed_from: details.committed_from,
    }
}

fn removed(removed: Removed) -> RemovedImagesView {
    RemovedImagesView { layers: removed.layers, leftovers: removed.leftovers, bytes: removed.bytes }
}

/// Runs work on the disk on a thread of its own. It may take as long as the disk does.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImagesError> {
    let lost = |error: tokio::task::JoinError| ImageError::Io {
        step: "working on images".into(),
        source: std::io::Error::other(error),
    };
    Ok(tokio::task::spawn_blocking(work).await.map_err(lost)??)
}

impl From<ImagesError> for SessionError {
    fn from(error: ImagesError) -> Self {
        let error: Arc<ImageError> = match error {
            ImagesError::Caller(error) => return error,
            ImagesError::Image(error) => error,
        };
        let message = error.whole();
        match error.as_ref() {
            ImageError::Refused(_) => Self::Forbidden(message),
            ImageError::Busy(_) => Self::Conflict(message),
            ImageError::Io { .. } => Self::Internal(message),
            _ => Self::InvalidImage(message),
        }
    }
}
