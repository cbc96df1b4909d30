//! Finds the engine's image for the name that a session asks for: first the configured names, then the engine's own images.
//!
//! The name becomes part of the engine's URLs, so every name with other characters is refused first. Configured images are
//! pulled; other images are pulled only if the operator allows it, so that a client cannot fill the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::models::ImageInspect;
use bollard::query_parameters::{ContainerArchiveInfoOptionsBuilder, CreateImageOptionsBuilder};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, Shared};

use super::engine;
use super::request::{OWN_RUNNER, SESSION_LABEL};
use super::tags::is_held;
use crate::config::Pull;
use crate::runtime::RuntimeError;

/// The images that `scripts/docker/images` builds, for names that are not configured.
pub const BUILT_IN: [(&str, &str); 3] = [("base", "cove-base"), ("python", "cove-python"), ("node", "cove-node")];

const MAX_NAME_BYTES: usize = 256;
/// The longest pull. It continues when the create that began it has given up, so that the next create finds the image.
const PULL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The most lines that are logged for one pull.
const MAX_PROGRESS_LINES: usize = 256;

/// The paths where bash may be. It is the one program that every sandbox needs.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];
/// The most images that are remembered to have bash. If there are more, all are forgotten and checked again.
const MAX_KNOWN_SHELLS: usize = 1024;

/// The facts of an image that a container's request depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// The id of the image's content, so that a tag that moves meanwhile changes nothing.
    pub id: String,
    /// Whether the image's entry point is a runner of its own.
    pub has_runner: bool,
    pub volumes: BTreeSet<String>,
}

impl ImageFacts {
    pub fn of(inspected: ImageInspect, name: &str) -> Self {
        let config = inspected.config.unwrap_or_default();
        let entrypoint = config.entrypoint.unwrap_or_default();
        let volumes = config.volumes.unwrap_or_default().into_iter();
        Self {
            id: inspected.id.unwrap_or_else(|| name.to_owned()),
            has_runner: entrypoint.first().is_some_and(|program| program == OWN_RUNNER),
            volumes: volumes
                .map(|path| path.trim_end_matches('/').to_owned())
                .filter(|path| path.starts_with('/'))
                .collect(),
        }
    }
}

/// The engine's name of an image, and where that name comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub name: String,
    pub source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Configured,
    /// An image that was built on this host. It is never pulled, because anybody could own the name at a registry.
    BuiltIn,
    /// A name that the client chose.
    Asked,
}

pub fn resolve(name: &str, configured: &BTreeMap<String, String>) -> Result<Reference, RuntimeError> {
    let (reference, source) = match configured.get(name) {
        Some(reference) => (reference.as_str(), Source::Configured),
        None => match BUILT_IN.iter().find(|(logical, tag)| *logical == name || *tag == name) {
            Some((_, tag)) => (*tag, Source::BuiltIn),
            None => (name, Source::Asked),
        },
    };
    if is_held(reference) {
        return Err(of_a_sandbox(reference));
    }
    if !is_reference(reference) {
        return Err(RuntimeError::InvalidImage(format!("{reference:?} cannot be the name of an image")));
    }
    Ok(Reference { name: reference.to_owned(), source })
}

/// Whether a name has only the characters of `[host[:port]/]path[:tag][@digest]`.
pub fn is_reference(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/:@-".contains(&byte);
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_plain)
        && !name.split('/').any(|part| part.is_empty() || part.chars().all(|c| c == '.'))
}

type Pulling = Shared<BoxFuture<'static, Result<(), String>>>;

#[derive(Default)]
pub struct Images {
    /// The running pulls: one for each name, shared by all creates that wait for it.
    pulls: Mutex<HashMap<String, Pulling>>,
    /// The ids of images that have bash. The content behind an id does not change.
    with_bash: Mutex<BTreeSet<String>>,
}

impl Images {
    pub async fn facts(&self, docker: &Docker, wanted: &Reference, pull: Pull) -> Result<ImageFacts, RuntimeError> {
        let name = &wanted.name;
        if let Some(found) = inspect(docker, name).await? {
            // An engine also takes the beginning of an id for a name.
            if is_of_a_sandbox(&found) {
                return Err(of_a_sandbox(name));
            }
            return Ok(ImageFacts::of(found, name));
        }
        let missing =
            |why: String| RuntimeError::InvalidImage(format!("the container engine has no image {name:?}{why}"));
        let may_pull = match (pull, wanted.source) {
            (_, Source::BuiltIn) => return Err(missing("; build it with: scripts/docker/images".into())),
            (Pull::Never, _) | (Pull::Configured, Source::Asked) => false,
            (Pull::Any, _) | (Pull::Configured, Source::Configured) => true,
        };
        if !may_pull {
            return Err(missing(format!(", and it is not pulled unasked; fetch it with: docker pull {name}")));
        }
        self.pull(docker, name).await.map_err(|why| match engine::is_full(&why) {
            true => RuntimeError::failed("pulling the image: the container engine's disk is full", why),
            false => missing(format!(", and pulling it failed: {why}")),
        })?;
        look(docker, name).await?.ok_or_else(|| missing(" after it was pulled".into()))
    }

    /// Refuses an image without bash. It looks into a container that was made from the image and has not run.
    pub async fn must_have_bash(
        &self,
        docker: &Docker,
        image: &ImageFacts,
        container: &str,
    ) -> Result<(), RuntimeError> {
        if self.with_bash.lock().unwrap_or_else(PoisonError::into_inner).contains(&image.id) {
            return Ok(());
        }
        for path in SHELLS {
            let options = ContainerArchiveInfoOptionsBuilder::new().path(path).build();
            match docker.get_container_archive_info(container, Some(options)).await {
                Ok(_) => {
                    let mut known = self.with_bash.lock().unwrap_or_else(PoisonError::into_inner);
                    if known.len() >= MAX_KNOWN_SHELLS {
                        known.clear();
                    }
                    known.insert(image.id.clone());
                    return Ok(());
                }
                Err(error) if engine::is_missing(&error) => {}
                Err(error) => return Err(engine::failed("looking for bash in the image", error)),
            }
        }
        let looked = SHELLS.join(", ");
        Err(RuntimeError::InvalidImage(format!(
            "the image has no bash (looked for {looked}), which every session needs for its shells"
        )))
    }

    async fn pull(&self, docker: &Docker, name: &str) -> Result<(), String> {
        let pulling = {
            let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
            pulls.retain(|_, pull| pull.peek().is_none());
            let begin = || {
                let task = tokio::spawn(pull(docker.clone(), name.to_owned()));
                async move { task.await.unwrap_or_else(|error| Err(error.to_string())) }.boxed().shared()
            };
            pulls.entry(name.to_owned()).or_insert_with(begin).clone()
        };
        pulling.await
    }
}

pub async fn look(docker: &Docker, name: &str) -> Result<Option<ImageFacts>, RuntimeError> {
    Ok(inspect(docker, name).await?.map(|found| ImageFacts::of(found, name)))
}

/// Whether an image exists only for snapshots and sessions, whose files are in it.
fn is_of_a_sandbox(image: &ImageInspect) -> bool {
    let names: Vec<&String> = image.repo_tags.iter().flatten().filter(|name| !name.contains("<none>")).collect();
    let labels = image.config.as_ref().and_then(|config| config.labels.as_ref());
    let is_commit = labels.is_some_and(|labels| labels.contains_key(SESSION_LABEL));
    names.iter().all(|name| is_held(name)) && (is_commit || !names.is_empty())
}

fn of_a_sandbox(name: &str) -> RuntimeError {
    let message = format!("the image {name:?} belongs to a snapshot or a session: name the snapshot in \"snapshot\"");
    RuntimeError::InvalidImage(message)
}

async fn inspect(docker: &Docker, name: &str) -> Result<Option<ImageInspect>, RuntimeError> {
    match docker.inspect_image(name).await {
        Ok(inspected) => Ok(Some(inspected)),
        Err(error) if engine::is_missing(&error) => Ok(None),
        Err(error) => Err(engine::failed("inspecting the image", error)),
    }
}

async fn pull(docker: Docker, name: String) -> Result<(), String> {
    // Without a tag or a digest, an engine would pull every tag.
    let last = name.rsplit('/').next().unwrap_or(&name);
    let reference = if last.contains([':', '@']) { name.clone() } else { format!("{name}:latest") };
    tracing::info!(image = %reference, "pulling an image");
    let options = CreateImageOptionsBuilder::new().from_image(&reference).build();
    let mut progress = docker.create_image(Some(options), None, None);
    let work = async {
        let mut lines = 0;
        while let Some(step) = progress.next().await {
            let step = step.map_err(|error| error.to_string())?;
            if let Some(message) = step.error_detail.and_then(|detail| detail.message) {
                return Err(message);
            }
            // Progress in bytes would be too many lines; the beginning and the end of each layer are logged.
            if let (Some(status), true) =
                (step.status, step.progress_detail.is_none_or(|detail| detail.total.is_none()))
            {
                lines += 1;
                if lines <= MAX_PROGRESS_LINES {
                    tracing::info!(image = %reference, layer = step.id.as_deref().unwrap_or(""), %status, "pull continues");
                }
            }
        }
        Ok(())
    };
    match tokio::time::timeout(PULL_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("not done after {} minutes", PULL_TIMEOUT.as_secs() / 60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_names_come_before_built_in_ones_and_those_before_what_the_engine_has() {
        let configured = BTreeMap::from([("python".to_owned(), "registry.example:5000/py:3".to_owned())]);
        let resolved = |name: &str| resolve(name, &configured).map(|found| (found.name, found.source)).unwrap();
        assert_eq!(resolved("python"), ("registry.example:5000/py:3".into(), Source::Configured));
        assert_eq!(resolved("base"), ("cove-base".into(), Source::BuiltIn));
        assert_eq!(resolved("debian:bookworm-slim"), ("debian:bookworm-slim".into(), Source::Asked));
    }

    #[test]
    fn a_name_cannot_become_another_address_of_the_engine() {
        for bad in
            ["", "../containers/x", "a/../b", "a//b", "a?b", "a#b", "a b", "a%2fb", "/a", "a/", "-a", "a\n", "a/./b"]
        {
            assert!(!is_reference(bad), "{bad:?}");
        }
        for good in ["debian", "debian:12", "a.b:5000/c/d:e", "x@sha256:00", "sha256:0a"] {
            assert!(is_reference(good), "{good:?}");
        }
    }

    #[test]
    fn an_image_of_a_sandbox_is_known_unless_somebody_gave_it_another_name() {
        use bollard::models::ImageConfig;
        let held = "localhost/cove-0/session:a";
        let is_refused = |names: &[&str], is_commit: bool| {
            let labels = is_commit.then(|| HashMap::from([(SESSION_LABEL.to_owned(), "a".to_owned())]));
            is_of_a_sandbox(&ImageInspect {
                repo_tags: Some(names.iter().map(|name| (*name).to_owned()).collect()),
                config: Some(ImageConfig { labels, ..ImageConfig::default() }),
                ..ImageInspect::default()
            })
        };
        assert!(is_refused(&[held], true) && is_refused(&[], true) && is_refused(&[held], false));
        assert!(!is_refused(&[held, "mine:1"], true) && !is_refused(&["mine:1"], false) && !is_refused(&[], false));
        assert!(resolve(held, &BTreeMap::new()).is_err());
    }

    #[test]
    fn an_image_has_a_runner_only_as_its_entry_point() {
        use bollard::models::ImageConfig;
        let facts = |entrypoint: &[&str]| {
            let entrypoint = Some(entrypoint.iter().map(|word| (*word).to_owned()).collect());
            let config =
                ImageConfig { entrypoint, volumes: Some(vec!["/data/".into(), "x".into()]), ..ImageConfig::default() };
            ImageFacts::of(ImageInspect { config: Some(config), ..ImageInspect::default() }, "x")
        };
        assert!(facts(&[OWN_RUNNER]).has_runner);
        assert!(!facts(&["/bin/sh", OWN_RUNNER]).has_runner && !facts(&[]).has_runner);
        assert_eq!(facts(&[]).volumes, BTreeSet::from(["/data".to_owned()]));
    }
}
