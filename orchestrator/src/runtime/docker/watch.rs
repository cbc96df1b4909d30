//! The one task that listens to the engine: a container that dies, is removed or paused behind our back is seen at once.
//!
//! An engine's connection can end and its past is short. So each connection begins with a look at what there is, and while
//! there is none, a sandbox whose runner no longer listens is known to be gone without the engine.
//!
//! An engine goes on with what it was asked for when the one who asked is killed. So a container can come to be after the next
//! daemon has looked at all there are; its event tells, and it is removed.

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

use super::body::{DATA_DIR_LABEL, SESSION_LABEL};
use super::engine;
use super::live::LiveTable;
use super::slot::Slots;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// An engine that takes longer to list is as good as gone, until it answers again.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Events of that long ago come again, which does no harm: what has ended stays so.
const OVERLAP: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_KNOWN_IMAGES: usize = 1000;

/// What is asked for, in Docker's words and, at the end, in those that only Podman's filter knows.
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
    pub live: Arc<LiveTable>,
    pub slots: Arc<Slots>,
    /// Names of images that the engine has.
    pub images: Arc<Mutex<BTreeSet<String>>>,
}

/// What an event means to us.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Made(SessionId),
    Ended(SessionId, String),
    OutOfMemory(SessionId),
    Paused(SessionId),
    Images,
}

impl Watcher {
    pub async fn run(self) {
        let mut pause = FIRST_PAUSE;
        let complain = |pause: Duration, cause: &str| match pause {
            // Once for each time that it is gone.
            FIRST_PAUSE => tracing::warn!(%cause, "the container engine is not reachable"),
            _ => tracing::debug!(%cause, "the container engine is still not reachable"),
        };
        loop {
            let since = SystemTime::now() - OVERLAP;
            match tokio::time::timeout(LOOK_TIMEOUT, self.look()).await {
                Ok(Ok(())) => {
                    pause = FIRST_PAUSE;
                    let cause = self.listen(since).await;
                    tracing::warn!(%cause, "the container engine's events have ended");
                }
                Ok(Err(error)) => complain(pause, &error.to_string()),
                Err(_) => complain(pause, "no answer"),
            }
            self.knock().await;
            // Another program's restart is waited for, and nothing tells us of it.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Tells of all that has ended unseen.
    async fn look(&self) -> Result<(), bollard::errors::Error> {
        // Before the list is made: what is begun later is not missing from it.
        let waiting = self.live.all();
        let found = containers(&self.docker, &self.instance).await?;
        let states: HashMap<_, _> = found.iter().filter_map(|one| Some((session_of(one)?, one.state))).collect();
        for (id, _) in waiting {
            match states.get(&id) {
                None => self.live.ended(&id, "its container is gone"),
                Some(Some(ContainerSummaryStateEnum::PAUSED)) => self.wake(&id).await,
                Some(Some(
                    ContainerSummaryStateEnum::EXITED
                    | ContainerSummaryStateEnum::DEAD
                    | ContainerSummaryStateEnum::REMOVING,
                )) => self.live.ended(&id, "its container has ended"),
                Some(_) => {}
            }
        }
        self.look_at_images().await;
        Ok(())
    }

    async fn look_at_images(&self) {
        let options = ListImagesOptionsBuilder::new().build();
        match self.docker.list_images(Some(options)).await {
            Ok(images) => {
                let names =
                    images.into_iter().flat_map(|image| image.repo_tags).filter(|name| !name.contains("<none>"));
                *self.images.lock().unwrap_or_else(PoisonError::into_inner) = names.take(MAX_KNOWN_IMAGES).collect();
            }
            Err(error) => tracing::warn!(%error, "the container engine's images are unknown"),
        }
    }

    /// Until the connection ends; why it did.
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
                    Some(Change::Ended(id, why)) => self.live.ended(&id, &why),
                    Some(Change::OutOfMemory(id)) => self.live.note_out_of_memory(&id),
                    Some(Change::Paused(id)) => self.wake(&id).await,
                    Some(Change::Images) => self.look_at_images().await,
                    None => {}
                },
                Some(Err(error)) => return error.to_string(),
                None => return "the connection was closed".into(),
            }
        }
    }

    /// A session that we hold to be running must run: its requests would hang otherwise.
    async fn wake(&self, id: &SessionId) {
        if self.live.is_paused_by_us(id) != Some(false) {
            return;
        }
        tracing::warn!(session_id = %id, "a container was paused behind our back; it goes on");
        if let Err(error) = self.docker.unpause_container(&container_name(&self.instance, id)).await {
            tracing::warn!(session_id = %id, %error, "a container stays paused");
        }
    }

    /// Ours, made by nobody here and never started: the last wish of a daemon that was killed. One that its row has made known
    /// was started long ago.
    async fn remove_late(&self, id: &SessionId) {
        if self.slots.is_open(id) {
            return;
        }
        let name = container_name(&self.instance, id);
        let made = self.docker.inspect_container(&name, None).await.ok().and_then(|made| made.state?.status);
        if made != Some(ContainerStateStatusEnum::CREATED) {
            return;
        }
        tracing::info!(session_id = %id, "a container that an earlier daemon asked for is removed");
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.docker.remove_container(&name, Some(options)).await {
            Err(error) if !engine::is_missing(&error) && !engine::is_conflict(&error) => {
                tracing::warn!(session_id = %id, %error, "a container of an earlier daemon stays");
            }
            _ => {}
        }
    }

    /// Without the engine: a runner that is gone does not listen any more.
    async fn knock(&self) {
        for (id, socket) in self.live.all() {
            let connecting = tokio::net::UnixStream::connect(&socket);
            let answer = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            if let Ok(Err(error)) = answer
                && matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound)
                && !self.is_known(&id).await
            {
                self.live.ended(&id, "its runner has ended, and the container engine is not reachable");
            }
        }
    }

    /// Whether the engine has it and says so in time; then it tells of its end as well.
    async fn is_known(&self, id: &SessionId) -> bool {
        let name = container_name(&self.instance, id);
        let asking = tokio::time::timeout(CONNECT_TIMEOUT, self.docker.inspect_container(&name, None));
        asking.await.is_ok_and(|answer| answer.is_ok())
    }
}

pub fn container_name(instance: &str, id: &SessionId) -> String {
    format!("{instance}-{id}")
}

/// All that are marked as ours, in whatever state.
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
    let attributes = event.actor.as_ref()?.attributes.as_ref()?;
    if attributes.get(DATA_DIR_LABEL)? != instance {
        return None;
    }
    let id = SessionId::new(attributes.get(SESSION_LABEL)?.clone()).ok()?;
    match event.action.as_deref()? {
        "create" => Some(Change::Made(id)),
        "die" | "died" => {
            let code = attributes.get("exitCode").map_or("an unknown status", String::as_str);
            Some(Change::Ended(id, format!("its container ended with {code}")))
        }
        "destroy" | "remove" => Some(Change::Ended(id, "its container was removed".into())),
        "oom" => Some(Change::OutOfMemory(id)),
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
            Some(Change::Ended(id.clone(), "its container ended with 137".into()))
        );
        assert_eq!(decide(&event("oom", &ours), "cove-1"), Some(Change::OutOfMemory(id.clone())));
        assert_eq!(decide(&event("create", &ours), "cove-1"), Some(Change::Made(id.clone())));
        assert_eq!(decide(&event("pause", &ours), "cove-1"), Some(Change::Paused(id)));
        for removed in ["destroy", "remove"] {
            assert!(matches!(decide(&event(removed, &ours), "cove-1"), Some(Change::Ended(..))));
        }
        assert_eq!(decide(&event("start", &ours), "cove-1"), None);
        assert_eq!(decide(&event("die", &ours), "cove-2"), None);
        assert_eq!(decide(&event("die", &ours[1..]), "cove-1"), None);
        assert_eq!(decide(&event("die", &[(DATA_DIR_LABEL, "cove-1"), (SESSION_LABEL, "../x")]), "cove-1"), None);
    }
}
