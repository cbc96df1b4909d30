//! The containers that run now, and who wants to know of their end. Each is told of once, and only if nobody asked for it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shared_protocol::SessionId;
use tokio::sync::oneshot;

struct Live {
    socket: PathBuf,
    tell: Option<oneshot::Sender<String>>,
    /// Whether it is us who paused it.
    paused: bool,
    out_of_memory: bool,
}

#[derive(Default)]
pub struct LiveTable(Mutex<HashMap<SessionId, Live>>);

impl LiveTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Live>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the container is started, so that no end can be missed.
    pub fn insert(&self, id: &SessionId, socket: PathBuf) -> oneshot::Receiver<String> {
        let (tell, told) = oneshot::channel();
        let live = Live { socket, tell: Some(tell), paused: false, out_of_memory: false };
        self.lock().insert(id.clone(), live);
        told
    }

    pub fn remove(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    /// Those whose end has not been told, with their sockets.
    pub fn all(&self) -> Vec<(SessionId, PathBuf)> {
        let table = self.lock();
        let waiting = table.iter().filter(|(_, live)| live.tell.is_some());
        waiting.map(|(id, live)| (id.clone(), live.socket.clone())).collect()
    }

    pub fn ended(&self, id: &SessionId, why: &str) {
        let mut table = self.lock();
        let Some(live) = table.get_mut(id) else { return };
        let Some(tell) = live.tell.take() else { return };
        let memory = if live.out_of_memory { ", after the kernel killed for memory" } else { "" };
        let _ = tell.send(format!("{why}{memory}"));
    }

    pub fn note_out_of_memory(&self, id: &SessionId) {
        if let Some(live) = self.lock().get_mut(id) {
            live.out_of_memory = true;
        }
    }

    pub fn set_paused(&self, id: &SessionId, paused: bool) {
        if let Some(live) = self.lock().get_mut(id) {
            live.paused = paused;
        }
    }

    /// `None` of one that is not ours.
    pub fn is_paused_by_us(&self, id: &SessionId) -> Option<bool> {
        self.lock().get(id).map(|live| live.paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_once_and_not_of_what_was_removed() {
        let table = LiveTable::default();
        let (one, two) = (SessionId::new("one").unwrap(), SessionId::new("two").unwrap());
        let (mut first, mut second) = (table.insert(&one, "/a".into()), table.insert(&two, "/b".into()));
        table.note_out_of_memory(&one);
        table.ended(&one, "it exited with 137");
        table.ended(&one, "it was removed");
        assert_eq!(first.try_recv().unwrap(), "it exited with 137, after the kernel killed for memory");
        table.remove(&two);
        table.ended(&two, "it exited");
        assert!(second.try_recv().is_err());
        assert!(table.all().is_empty());
    }
}
