//! What the tools last saw of files, so that `diff` can show what has changed since.
//!
//! It is a memory of the daemon: bounded for each session and for all of them, and gone when the daemon restarts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shared_protocol::SessionId;

/// A larger file is not remembered.
const MAX_FILE_BYTES: usize = 512 << 10;
/// What one session may take, and all of them together.
const MAX_SESSION_FILES: usize = 64;
const MAX_TOTAL_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
pub struct SeenFiles(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(SessionId, Vec<u8>), Seen>,
    bytes: usize,
    /// Counts uses: the smallest number was used longest ago.
    clock: u64,
}

#[derive(Debug)]
struct Seen {
    content: Vec<u8>,
    used: u64,
}

impl SeenFiles {
    /// Remembers the content of a file. What was used longest ago gives room.
    pub fn put(&self, session: &SessionId, path: &[u8], content: Vec<u8>) {
        let mut table = self.table();
        table.remove(session, path);
        if content.len() > MAX_FILE_BYTES {
            return;
        }
        while table.files.keys().filter(|(of, _)| of == session).count() >= MAX_SESSION_FILES {
            table.remove_oldest(Some(session));
        }
        while table.bytes + content.len() > MAX_TOTAL_BYTES {
            table.remove_oldest(None);
        }
        table.bytes += content.len();
        table.clock += 1;
        let used = table.clock;
        table.files.insert((session.clone(), path.to_vec()), Seen { content, used });
    }

    pub fn get(&self, session: &SessionId, path: &[u8]) -> Option<Vec<u8>> {
        let mut table = self.table();
        table.clock += 1;
        let used = table.clock;
        let seen = table.files.get_mut(&(session.clone(), path.to_vec()))?;
        seen.used = used;
        Some(seen.content.clone())
    }

    pub fn forget(&self, session: &SessionId, path: &[u8]) {
        self.table().remove(session, path);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn remove(&mut self, session: &SessionId, path: &[u8]) {
        if let Some(seen) = self.files.remove(&(session.clone(), path.to_vec())) {
            self.bytes -= seen.content.len();
        }
    }

    fn remove_oldest(&mut self, of: Option<&SessionId>) {
        let ours = self.files.iter().filter(|((session, _), _)| of.is_none_or(|of| of == session));
        let Some(oldest) = ours.min_by_key(|(_, seen)| seen.used).map(|(key, _)| key.clone()) else { return };
        self.remove(&oldest.0, &oldest.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    #[test]
    fn the_last_content_of_a_file_is_known_until_it_is_forgotten() {
        let seen = SeenFiles::default();
        seen.put(&id("a"), b"f", b"one".to_vec());
        seen.put(&id("a"), b"f", b"two".to_vec());
        assert_eq!(seen.get(&id("a"), b"f").as_deref(), Some(&b"two"[..]));
        assert_eq!(seen.get(&id("b"), b"f"), None, "another session's");
        seen.forget(&id("a"), b"f");
        assert_eq!(seen.get(&id("a"), b"f"), None);
        assert_eq!(seen.table().bytes, 0);
    }

    #[test]
    fn memory_is_bounded_and_what_was_used_last_stays() {
        let seen = SeenFiles::default();
        let name = |number: usize| number.to_string().into_bytes();
        for number in 0..MAX_SESSION_FILES {
            seen.put(&id("a"), &name(number), vec![0; 10]);
        }
        assert!(seen.get(&id("a"), &name(0)).is_some());
        seen.put(&id("a"), b"more", vec![0; 10]);
        assert!(seen.get(&id("a"), &name(0)).is_some() && seen.get(&id("a"), &name(1)).is_none());
        seen.put(&id("a"), b"large", vec![0; MAX_FILE_BYTES + 1]);
        assert_eq!(seen.get(&id("a"), b"large"), None);
        for number in 0..3 * MAX_TOTAL_BYTES / MAX_FILE_BYTES {
            seen.put(&id(&format!("s{number}")), b"f", vec![0; MAX_FILE_BYTES]);
        }
        let table = seen.table();
        assert!(table.bytes <= MAX_TOTAL_BYTES);
        assert_eq!(table.bytes, table.files.values().map(|seen| seen.content.len()).sum::<usize>());
    }
}
