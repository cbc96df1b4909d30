//! The containers that run now, and the receiver that waits for each of them to end.
//!
//! An end is reported once, and only for a container that is still in the table: `remove` takes it out before a destroy, so that
//! an end that was asked for is not reported. A sandbox that is stopped and started again has another container, and what an engine
//! tells late of the old one does not count.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shared_protocol::SessionId;
use tokio::sync::oneshot;

struct RunningContainer {
    socket: PathBuf,
    /// The engine's id of the container. `None` if an older version of cove made it.
    container: Option<String>,
    /// The sender for the end. `None` after the end was reported.
    report_end: Option<oneshot::Sender<String>>,
    is_paused_by_us: bool,
    is_out_of_memory: bool,
}

impl RunningContainer {
    fn is(&self, which: Option<&str>) -> bool {
        match (&self.container, which) {
            (Some(own), Some(which)) => own == which,
            _ => true,
        }
    }
}

#[derive(Default)]
pub struct RunningContainers(Mutex<HashMap<SessionId, RunningContainer>>);

impl RunningContainers {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, RunningContainer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a container. Call this before it is started, so that no end is missed.
    pub fn insert(&self, id: &SessionId, socket: PathBuf, container: Option<String>) -> oneshot::Receiver<String> {
        let (report_end, ended) = oneshot::channel();
        let running = RunningContainer {
            socket,
            container,
            report_end: Some(report_end),
            is_paused_by_us: false,
            is_out_of_memory: false,
        };
        self.lock().insert(id.clone(), running);
        ended
    }

    pub fn remove(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    /// The containers whose end was not reported yet, with their sockets.
    pub fn all(&self) -> Vec<(SessionId, PathBuf)> {
        let table = self.lock();
        let running = table.iter().filter(|(_, container)| container.report_end.is_some());
        running.map(|(id, container)| (id.clone(), container.socket.clone())).collect()
    }

    /// Reports the end of a sandbox's container. `which` is the engine's id of it, if it is known.
    pub fn report_end(&self, id: &SessionId, which: Option<&str>, why: &str) {
        let mut table = self.lock();
        let Some(container) = table.get_mut(id).filter(|found| found.is(which)) else { return };
        let Some(report_end) = container.report_end.take() else { return };
        let memory = if container.is_out_of_memory { ", after the kernel killed for memory" } else { "" };
        let _ = report_end.send(format!("{why}{memory}"));
    }

    pub fn note_out_of_memory(&self, id: &SessionId, which: Option<&str>) {
        if let Some(container) = self.lock().get_mut(id).filter(|found| found.is(which)) {
            container.is_out_of_memory = true;
        }
    }

    pub fn set_paused_by_us(&self, id: &SessionId, paused: bool) {
        if let Some(container) = self.lock().get_mut(id) {
            container.is_paused_by_us = paused;
        }
    }

    /// Whether this daemon paused the container. `None` for a container that is not in the table.
    pub fn is_paused_by_us(&self, id: &SessionId) -> Option<bool> {
        self.lock().get(id).map(|container| container.is_paused_by_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_reported_once_and_not_for_what_was_removed() {
        let table = RunningContainers::default();
        let (one, two) = (SessionId::new("one").unwrap(), SessionId::new("two").unwrap());
        let (mut first, mut second) =
            (table.insert(&one, "/a".into(), Some("c1".into())), table.insert(&two, "/b".into(), None));
        table.report_end(&one, Some("c0"), "the container before it ended");
        table.note_out_of_memory(&one, Some("c1"));
        table.report_end(&one, Some("c1"), "it exited with 137");
        table.report_end(&one, None, "it was removed");
        assert_eq!(first.try_recv().unwrap(), "it exited with 137, after the kernel killed for memory");
        table.remove(&two);
        table.report_end(&two, Some("c2"), "it exited");
        assert!(second.try_recv().is_err());
        assert!(table.all().is_empty());
    }
}
