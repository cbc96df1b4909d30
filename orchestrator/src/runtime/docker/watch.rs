//! The one task that listens to the engine's events. It notices at once when another program ends, removes or pauses a
//! container.
//!
//! The connection to an engine can end, and an engine keeps few past events. So each connection begins with a list of all
//! containers. While there is no connection, a sandbox counts as ended if its runner no longer listens.
//!
//! An engine finishes a request even if the daemon that sent it was killed. So a container can appear after the next daemon
//! has listed all of them. An event reports it, and this task removes it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bollard::Docker;
use bollard::models::{
    ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum, EventMessage, EventMessageTypeEnum,
};
use bollard::query_parameters::{
    EventsOptionsBuilder, ListContainersOptionsBuilder, ListImagesOptionsBuilder, RemoveContainerOptionsBuilder,
};
use futures_util::StreamExt as _;
use shared_protocol::SessionId;

use super::engine;
use super::request::{DATA_DIR_LABEL, LOOK_LABEL, SESSION_LABEL};
use super::running::RunningContainers;
use super::sandbox_lock::SandboxLocks;
use super::tags::is_held;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// The longest wait for a list. An engine that takes longer counts as unreachable.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The age of events that are asked for again. Seeing an event twice does no harm, also one of a container that was replaced.
const OVERLAP: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_KNOWN_IMAGES: usize = 1000;

/// The events to ask for. Only Podman's filter knows the last names.
const EVENTS: [&str; 16] = [
    "create",
    "die",
    "oom",
    "destroy",
    "pause",
    "tag",
    "untag",
    "delete",
    "pull",
    "import",
    "load",
    "start",
    "unpause",
    "died",
    "remove",
    "loadfromarchive",
];

pub struct Watcher {
    pub docker: Docker,
    pub instance: String,
    pub running: Arc<RunningContainers>,
    pub locks: Arc<SandboxLocks>,
    /// The names of the images that the engine has.
    pub images: Arc<Mutex<BTreeSet<String>>>,
}

/// What an event means for this daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Made(SessionId),
    /// The end of this container of a session.
    Ended(SessionId, Option<String>, String),
    OutOfMemory(SessionId, Option<String>),
    Paused(SessionId),
    Images,
}

impl Watcher {
    pub async fn run(self) {
        let mut pause = FIRST_PAUSE;
        let complain = |pause: Duration, cause: &str| match pause {
            // This warns once for each outage.
            FIRST_PAUSE => tracing::warn!(%cause, "the container engine is not reachable"),
            _ => tracing::debug!(%cause, "the container engine is still not reachable"),
        };
        loop {
            let since = SystemTime::now() - OVERLAP;
            match tokio::time::timeout(LIST_TIMEOUT, self.check_containers()).await {
                Ok(Ok(())) => {
                    pause = FIRST_PAUSE;
                    let cause = self.listen(since).await;
                    tracing::warn!(%cause, "the container engine's events have ended");
                }
                Ok(Err(error)) => complain(pause, &error.to_string()),
                Err(_) => complain(pause, "no answer"),
            }
            self.check_runners().await;
            // Nothing reports that the engine is back, so this has to try again.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Lists all containers, and reports those that ended while nobody listened.
    async fn check_containers(&self) -> Result<(), bollard::errors::Error> {
        // The table is read before the list is made, so that a container that is created meanwhile does not count as
        // missing.
        let running = self.running.all();
        let found = containers(&self.docker, &self.instance).await?;
        let states: HashMap<_, _> = found.iter().filter_map(|one| Some((session_of(one)?, one))).collect();
        for (id, _) in running {
            let Some(one) = states.get(&id) else {
                self.running.report_end(&id, None, "its container is gone");
                continue;
            };
            match one.state {
                Some(ContainerSummaryStateEnum::PAUSED) => self.unpause(&id).await,
                Some(
                    ContainerSummaryStateEnum::EXITED
                    | ContainerSummaryStateEnum::DEAD
                    | ContainerSummaryStateEnum::REMOVING,
                ) => self.running.report_end(&id, one.id.as_deref(), "its container has ended"),
                _ => {}
            }
        }
        self.list_images().await;
        Ok(())
    }

    async fn list_images(&self) {
        let options = ListImagesOptionsBuilder::new().build();
        match self.docker.list_images(Some(options)).await {
            Ok(images) => {
                let names = images
                    .into_iter()
                    .flat_map(|image| image.repo_tags)
                    .filter(|name| !name.contains("<none>") && !is_held(name));
                *self.images.lock().unwrap_or_else(PoisonError::into_inner) = names.take(MAX_KNOWN_IMAGES).collect();
            }
            Err(error) => tracing::warn!(%error, "cannot list the container engine's images"),
        }
    }

    /// Handles events until the connection ends, and returns why it ended.
    async fn listen(&self, since: SystemTime) -> String {
        let seconds = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let filters = HashMap::from([("type", words(&["container", "image"])), ("event", words(&EVENTS))]);
        let options = EventsOptionsBuilder::new().since(&seconds.to_string()).filters(&filters).build();
        let mut events = std::pin::pin!(self.docker.events(Some(options)));
        loop {
            match events.next().await {
                Some(Ok(event)) => match decide(&event, &self.instance) {
                    Some(Change::Made(id)) => self.remove_late(&id).await,
                    Some(Change::Ended(id, which, why)) => self.running.report_end(&id, which.as_deref(), &why),
                    Some(Change::OutOfMemory(id, which)) => self.running.note_out_of_memory(&id, which.as_deref()),
                    Some(Change::Paused(id)) => self.unpause(&id).await,
                    Some(Change::Images) => self.list_images().await,
                    None => {}
                },
                Some(Err(error)) => return error.to_string(),
                None => return "the connection was closed".into(),
            }
        }
    }

    /// Unpauses a container that another program has paused: requests to its session would hang.
    async fn unpause(&self, id: &SessionId) {
        if self.running.is_paused_by_us(id) != Some(false) {
            return;
        }
        tracing::warn!(session_id = %id, "somebody else has paused a container; unpausing it");
        if let Err(error) = self.docker.unpause_container(&container_name(&self.instance, id)).await {
            tracing::warn!(session_id = %id, %error, "a container stays paused");
        }
    }

    /// Removes a container that has this daemon's label, that this daemon did not make, and that was never started: a daemon
    /// that was killed had asked for it. A container of a session was started long ago.
    async fn remove_late(&self, id: &SessionId) {
        if self.locks.contains(id) {
            return;
        }
        let name = container_name(&self.instance, id);
        let made = self.docker.inspect_container(&name, None).await.ok().and_then(|made| made.state?.status);
        if made != Some(ContainerStateStatusEnum::CREATED) {
            return;
        }
        tracing::info!(session_id = %id, "removing a container that an earlier daemon asked for");
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.docker.remove_container(&name, Some(options)).await {
            Err(error) if !engine::is_missing(&error) && !engine::is_conflict(&error) => {
                tracing::warn!(session_id = %id, %error, "cannot remove a container of an earlier daemon");
            }
            _ => {}
        }
    }

    /// Finds ended containers without the engine: their runner no longer listens.
    async fn check_runners(&self) {
        for (id, socket) in self.running.all() {
            let connecting = tokio::net::UnixStream::connect(&socket);
            let answer = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            if let Ok(Err(error)) = answer
                && matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound)
                && !self.is_known(&id).await
            {
                self.running.report_end(&id, None, "its runner has ended, and the container engine is not reachable");
            }
        }
    }

    /// Whether the engine has the container and answers in time. Then it also reports the container's end.
    async fn is_known(&self, id: &SessionId) -> bool {
        let name = container_name(&self.instance, id);
        let asking = tokio::time::timeout(CONNECT_TIMEOUT, self.docker.inspect_container(&name, None));
        asking.await.is_ok_and(|answer| answer.is_ok())
    }
}

pub fn container_name(instance: &str, id: &SessionId) -> String {
    format!("{instance}-{id}")
}

/// All containers with this daemon's label, in any state.
pub async fn containers(docker: &Docker, instance: &str) -> Result<Vec<ContainerSummary>, bollard::errors::Error> {
    let filters = HashMap::from([("label", vec![format!("{DATA_DIR_LABEL}={instance}")])]);
    docker.list_containers(Some(ListContainersOptionsBuilder::new().all(true).filters(&filters).build())).await
}

pub fn session_of(container: &ContainerSummary) -> Option<SessionId> {
    SessionId::new(container.labels.as_ref()?.get(SESSION_LABEL)?.clone()).ok()
}

fn decide(event: &EventMessage, instance: &str) -> Option<Change> {
    if event.typ == Some(EventMessageTypeEnum::IMAGE) {
        return Some(Change::Images);
    }
    let actor = event.actor.as_ref()?;
    let attributes = actor.attributes.as_ref()?;
    if attributes.get(DATA_DIR_LABEL)? != instance {
        return None;
    }
    let id = SessionId::new(attributes.get(SESSION_LABEL)?.clone()).ok()?;
    match event.action.as_deref()? {
        "create" => Some(Change::Made(id)),
        "die" | "died" => {
            let code = attributes.get("exitCode").map_or("an unknown status", String::as_str);
            Some(Change::Ended(id, actor.id.clone(), format!("its container ended with {code}")))
        }
        // Its end is not the session's.
        "destroy" | "remove" if attributes.contains_key(LOOK_LABEL) => None,
        "destroy" | "remove" => Some(Change::Ended(id, actor.id.clone(), "its container was removed".into())),
        "oom" => Some(Change::OutOfMemory(id, actor.id.clone())),
        "pause" => Some(Change::Paused(id)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::EventActor;

    fn event(action: &str, labels: &[(&str, &str)]) -> EventMessage {
        let attributes = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        EventMessage {
            typ: Some(EventMessageTypeEnum::CONTAINER),
            action: Some(action.into()),
            actor: Some(EventActor { id: Some("0".into()), attributes: Some(attributes) }),
            ..EventMessage::default()
        }
    }

    #[test]
    fn an_event_counts_only_with_our_label() {
        let ours = [(DATA_DIR_LABEL, "cove-1"), (SESSION_LABEL, "one"), ("exitCode", "137")];
        let id = SessionId::new("one").unwrap();
        assert_eq!(
            decide(&event("die", &ours), "cove-1"),
            Some(Change::Ended(id.clone(), Some("0".into()), "its container ended with 137".into()))
        );
        assert_eq!(decide(&event("oom", &ours), "cove-1"), Some(Change::OutOfMemory(id.clone(), Some("0".into()))));
        assert_eq!(decide(&event("create", &ours), "cove-1"), Some(Change::Made(id.clone())));
        assert_eq!(decide(&event("pause", &ours), "cove-1"), Some(Change::Paused(id)));
        for removed in ["destroy", "remove"] {
            assert!(matches!(decide(&event(removed, &ours), "cove-1"), Some(Change::Ended(..))));
        }
        let look = [ours[0], ours[1], (LOOK_LABEL, "")];
        assert_eq!(decide(&event("destroy", &look), "cove-1"), None);
        assert_eq!(decide(&event("start", &ours), "cove-1"), None);
        assert_eq!(decide(&event("die", &ours), "cove-2"), None);
        assert_eq!(decide(&event("die", &ours[1..]), "cove-1"), None);
        assert_eq!(decide(&event("die", &[(DATA_DIR_LABEL, "cove-1"), (SESSION_LABEL, "../x")]), "cove-1"), None);
    }
}
