//! The engine's names of the images that snapshots and sessions need: `localhost/INSTANCE/snapshot:ID` and `localhost/INSTANCE/session:ID`.
//!
//! An image stays as long as one name of it does. So everyone who needs an image has a name of its own for it, and whoever goes
//! removes its name: whether that was the last one is the engine's business. No client can use such an image by its name.

use bollard::query_parameters::{
    CommitContainerOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use shared_protocol::{SessionId, SnapshotId};

use super::dialect::Dialect;
use super::image::{ImageFacts, look};
use super::{Inner, engine};
use crate::runtime::RuntimeError;

/// The host in these names. No registry is asked for it.
const HOST: &str = "localhost";
const SNAPSHOT: &str = "snapshot";
const SESSION: &str = "session";

/// Who needs an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder<'a> {
    Snapshot(&'a SnapshotId),
    Session(&'a SessionId),
}

impl Holder<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Snapshot(_) => SNAPSHOT,
            Self::Session(_) => SESSION,
        }
    }

    fn tag(&self) -> &str {
        match self {
            Self::Snapshot(id) => id.as_str(),
            Self::Session(id) => id.as_str(),
        }
    }
}

/// Whether a name is one of these, of this daemon or of another.
pub fn is_held(name: &str) -> bool {
    let rest = name.strip_prefix(HOST).and_then(|rest| rest.strip_prefix("/cove-"));
    let kind = rest.and_then(|rest| rest.split_once('/')).map(|(_, kind)| kind);
    kind.is_some_and(|kind| {
        [SNAPSHOT, SESSION].iter().any(|known| kind.strip_prefix(known).is_some_and(|rest| !rest.starts_with('/')))
    })
}

fn repository(instance: &str, kind: &str) -> String {
    format!("{HOST}/{instance}/{kind}")
}

impl Inner {
    fn reference(&self, holder: Holder<'_>) -> String {
        format!("{}:{}", repository(&self.instance, holder.kind()), holder.tag())
    }

    /// Podman loses a change of an image's names if another one is made at the same time.
    async fn turn_at_names(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.dialect {
            Dialect::Docker => None,
            Dialect::Podman(_) => Some(self.image_names.lock().await),
        }
    }

    /// Gives an image that exists one more name.
    pub(super) async fn hold_image(&self, image: &str, holder: Holder<'_>) -> Result<(), RuntimeError> {
        let repository = repository(&self.instance, holder.kind());
        let _turn = self.turn_at_names().await;
        let options = TagImageOptionsBuilder::new().repo(&repository).tag(holder.tag()).build();
        let named = self.docker.tag_image(image, Some(options)).await;
        named.map_err(|error| engine::failed("naming the image", error))
    }

    /// Makes an image of a container's root, under this name. The container's processes are held meanwhile.
    pub(super) async fn commit(&self, id: &SessionId, holder: Holder<'_>) -> Result<(), RuntimeError> {
        let repository = repository(&self.instance, holder.kind());
        let _turn = self.turn_at_names().await;
        let options = CommitContainerOptionsBuilder::new()
            .container(&self.name(id))
            .repo(&repository)
            .tag(holder.tag())
            // An engine that freezes the container would freeze its runner.
            .pause(false)
            .build();
        let made = self.docker.commit_container(options, bollard::models::ContainerConfig::default()).await;
        made.map(drop).map_err(|error| self.gone_or(id, "making an image of the container", error))
    }

    /// The image with this name, if the engine has it.
    pub(super) async fn held_image(&self, holder: Holder<'_>) -> Result<ImageFacts, RuntimeError> {
        let reference = self.reference(holder);
        look(&self.docker, &reference).await?.ok_or_else(|| {
            RuntimeError::failed("finding the image of the kept disk", format!("the engine has no image {reference:?}"))
        })
    }

    /// Removes a name, and with the last one the image. A missing name is no error.
    pub(super) async fn release_image(&self, holder: Holder<'_>) -> Result<(), RuntimeError> {
        let reference = self.reference(holder);
        let _turn = self.turn_at_names().await;
        let remove = async |force: bool| {
            let options = RemoveImageOptionsBuilder::new().force(force).build();
            self.docker.remove_image(&reference, Some(options), None).await
        };
        let removed = match remove(false).await {
            // A container of somebody else uses it: then only the name goes.
            Err(error) if engine::is_conflict(&error) => remove(true).await,
            removed => removed,
        };
        match removed {
            Err(error) if !engine::is_missing(&error) => Err(engine::failed("removing the image", error)),
            _ => Ok(()),
        }
    }

    /// The ids of all snapshots that have an image.
    pub(super) async fn snapshots_with_image(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        let tags = self.tags(SNAPSHOT).await?;
        Ok(tags.into_iter().filter_map(|tag| SnapshotId::new(tag).ok()).collect())
    }

    /// The ids of all sessions that have a name for their image.
    pub(super) async fn sessions_with_image(&self) -> Result<Vec<SessionId>, RuntimeError> {
        let tags = self.tags(SESSION).await?;
        Ok(tags.into_iter().filter_map(|tag| SessionId::new(tag).ok()).collect())
    }

    async fn tags(&self, kind: &str) -> Result<Vec<String>, RuntimeError> {
        let repository = repository(&self.instance, kind);
        let filters = std::collections::HashMap::from([("reference", vec![repository.as_str()])]);
        let options = ListImagesOptionsBuilder::new().filters(&filters).build();
        let images = self.docker.list_images(Some(options)).await;
        let images = images.map_err(|error| engine::failed("listing images", error))?;
        let names = images.iter().flat_map(|image| &image.repo_tags);
        Ok(names.filter_map(|name| Some(name.strip_prefix(&repository)?.strip_prefix(':')?.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_snapshots_and_sessions_are_known_and_no_others() {
        for name in [
            "localhost/cove-0123456789abcdef/snapshot:snap-1",
            "localhost/cove-x/session:s",
            "localhost/cove-x/session@sha256:0",
            "localhost/cove-x/snapshot",
        ] {
            assert!(is_held(name), "{name}");
        }
        for name in [
            "cove-base",
            "localhost/mine:1",
            "localhost/cove-x/other:1",
            "localhost/cove-x/snapshot/y",
            "a/cove-x/snapshot:1",
        ] {
            assert!(!is_held(name), "{name}");
        }
    }
}
