//! Tells a client what changes in a directory, until the client leaves or the directory is gone.
//!
//! ```text
//! watch everything → head, `ready` → [events → changes → batch → client]* → `ended` | `error`
//!                         ▲                │ more events than the kernel keeps
//!                         └── `overflow` ◀─┴─ watch everything again
//! ```
//!
//! **Invariant:** a change is told, or an `overflow` or the end is. Nothing is left out silently, except in a directory that the sandbox
//! user may not read. Memory is bounded: by the number of directories, of changes that wait, and of events that the kernel keeps.
//!
//! The watch reports what the sandbox does, and is no protection: names that file operations use while they write are left out.

mod batch;
mod directories;
mod places;
mod teller;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InotifyEvent, WatchDescriptor};
use shared_protocol::ErrorBody;
use shared_protocol::runner::{WatchEnd, WatchFrame};

use directories::Directories;
use teller::Teller;

use super::error::At;
use super::protocol::ReplyWriter;
use super::resolve::Roots;
use super::temporary;

/// How often an idle watch reports that it works, and looks whether its path still leads to its directory. It is well below
/// `helper::HELPER_STALL`.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The most events that are read before changes that are due are sent.
const EVENTS_PER_TURN: usize = 4096;

/// How deep a watch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Directory,
    Tree,
}

/// What a client asked to watch.
pub struct Asked<'a> {
    path: &'a [u8],
    depth: Depth,
    /// What every path begins with: the client's path without parts that say nothing.
    prefix: Vec<u8>,
}

impl<'a> Asked<'a> {
    fn new(path: &'a [u8], depth: Depth) -> Self {
        let parts: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        let mut prefix = if path.first() == Some(&b'/') { b"/".to_vec() } else { Vec::new() };
        prefix.extend(parts.join(&b'/'));
        if !parts.is_empty() {
            prefix.push(b'/');
        }
        Self { path, depth, prefix }
    }

    fn full_path(&self, path: &[u8]) -> Vec<u8> {
        [self.prefix.as_slice(), path].concat()
    }
}

/// Watches the directory at `path`. `client` is closed by its other side when the client leaves.
pub fn watch(
    roots: &Roots,
    path: &[u8],
    depth: Depth,
    client: BorrowedFd<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), ErrorBody> {
    let asked = Asked::new(path, depth);
    let mut teller = Teller::new(&asked, reply);
    let directories = Directories::watch(roots, &asked, &mut teller)?;
    teller.begin()?;
    teller.tell(&WatchFrame::Ready { truncated: directories.truncated })?;
    let mut watcher = Watcher { roots, asked: &asked, directories, teller, leaving: HashMap::new() };
    let last = match watcher.run(client) {
        Ok(Some(reason)) => WatchFrame::Ended { reason },
        // The client has left.
        Ok(None) => return Ok(()),
        Err(error) => WatchFrame::Error(error),
    };
    watcher.teller.tell(&last)?;
    watcher.teller.end()
}

/// What an event means for the whole watch.
enum Turn {
    GoOn,
    Overflow,
    Ended(WatchEnd),
}

struct Watcher<'a, 'b> {
    roots: &'a Roots,
    asked: &'a Asked<'a>,
    directories: Directories,
    teller: Teller<'a, 'b>,
    /// Directories that have left a place, by the kernel's number of the move.
    leaving: HashMap<u32, WatchDescriptor>,
}

impl Watcher<'_, '_> {
    /// Returns why the watch is over, or `None` if the client has left.
    fn run(&mut self, client: BorrowedFd<'_>) -> Result<Option<WatchEnd>, ErrorBody> {
        let mut heartbeat = Instant::now() + HEARTBEAT;
        loop {
            let wake = self.teller.due().map_or(heartbeat, |due| due.min(heartbeat));
            if !self.wait(client, wake)? {
                return Ok(None);
            }
            // Both halves of a move are there at the same time, or nearly so: what is due is sent after all events were read.
            let mut is_drained = false;
            for _ in 0..EVENTS_PER_TURN {
                let events = self.directories.events().at(self.asked.path)?;
                is_drained = events.is_empty();
                for event in &events {
                    match self.take(event)? {
                        Turn::GoOn => {}
                        Turn::Overflow => {
                            if let Some(end) = self.begin_again()? {
                                return Ok(Some(end));
                            }
                            break;
                        }
                        Turn::Ended(end) => return Ok(Some(end)),
                    }
                }
                if is_drained {
                    break;
                }
            }
            let now = Instant::now();
            if self.teller.due().is_some_and(|due| due <= now) {
                self.teller.send()?;
                self.leaving.clear();
                if is_drained {
                    self.directories.settle();
                }
            }
            if heartbeat <= now {
                heartbeat = now + HEARTBEAT;
                if let Some(end) = self.directories.end_of_root(self.roots, self.asked) {
                    return Ok(Some(end));
                }
            }
            self.teller.progress()?;
        }
    }

    /// Waits for an event or a time. Returns whether the client is still there.
    fn wait(&self, client: BorrowedFd<'_>, until: Instant) -> Result<bool, ErrorBody> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that it does not wake a moment too early, over and over.
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        let mut fds = [
            PollFd::new(self.directories.as_fd(), PollFlags::POLLIN),
            // The other side sends nothing. Its end is always reported.
            PollFd::new(client, PollFlags::empty()),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).at(self.asked.path),
        }
        Ok(!fds[1].any().unwrap_or(false))
    }

    fn take(&mut self, event: &InotifyEvent) -> Result<Turn, ErrorBody> {
        let has = |flag: AddWatchFlags| event.mask.contains(flag);
        if has(AddWatchFlags::IN_Q_OVERFLOW) {
            return Ok(Turn::Overflow);
        }
        let is_root = self.directories.is_root(event.wd);
        if has(AddWatchFlags::IN_UNMOUNT) {
            return Ok(if is_root { Turn::Ended(WatchEnd::Unmounted) } else { Turn::Overflow });
        }
        let has_gone = event.mask.intersects(AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF);
        if (is_root && has_gone) || self.directories.is_about_root(event) {
            return Ok(self.directories.end_of_root(self.roots, self.asked).map_or(Turn::GoOn, Turn::Ended));
        }
        if is_root && has(AddWatchFlags::IN_IGNORED) {
            return Ok(Turn::Overflow);
        }
        if has(AddWatchFlags::IN_IGNORED) {
            self.directories.forget(event.wd);
            return Ok(Turn::GoOn);
        }
        let name = event.name.as_ref().map(|name| name.as_bytes());
        if let (Some(parent), Some(name)) = (self.directories.path(event.wd), name)
            && !temporary::is_name(name)
        {
            let path = if parent.is_empty() { name.to_vec() } else { [&parent, &b"/"[..], name].concat() };
            self.change(event, name, &path)?;
        }
        Ok(Turn::GoOn)
    }

    /// Tells one change, and keeps the watched directories true to it.
    fn change(&mut self, event: &InotifyEvent, name: &[u8], path: &[u8]) -> Result<(), ErrorBody> {
        let has = |flag: AddWatchFlags| event.mask.contains(flag);
        let is_dir = has(AddWatchFlags::IN_ISDIR);
        if has(AddWatchFlags::IN_CREATE) {
            self.teller.created(path, is_dir)?;
            if is_dir {
                self.directories.appeared(event.wd, name, None, &mut self.teller)?;
            }
        }
        if event.mask.intersects(AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE) {
            self.teller.modified(path, is_dir)?;
        }
        if has(AddWatchFlags::IN_DELETE) {
            self.teller.deleted(path, is_dir)?;
            self.directories.left(event.wd, name);
        }
        if has(AddWatchFlags::IN_MOVED_FROM) {
            self.teller.moved_away(event.cookie, path, is_dir)?;
            if let Some(watch) = self.directories.left(event.wd, name) {
                self.leaving.insert(event.cookie, watch);
            }
        }
        if has(AddWatchFlags::IN_MOVED_TO) {
            let is_move = self.teller.moved_here(event.cookie, path, is_dir)?;
            let moved = self.leaving.remove(&event.cookie).filter(|_| is_move);
            if is_dir {
                self.directories.appeared(event.wd, name, moved, &mut self.teller)?;
            }
        }
        Ok(())
    }

    /// Watches everything again after events were lost, and then says that some were: what the client finds from then on is kept
    /// up to date. Returns why the watch is over if the directory is gone.
    fn begin_again(&mut self) -> Result<Option<WatchEnd>, ErrorBody> {
        self.teller.drop_changes();
        self.leaving.clear();
        if let Some(end) = self.directories.end_of_root(self.roots, self.asked) {
            return Ok(Some(end));
        }
        self.directories = Directories::watch(self.roots, self.asked, &mut self.teller)?;
        self.teller.tell(&WatchFrame::Overflow)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_given_in_the_form_that_other_calls_take() {
        let full = |asked: &str, path: &str| {
            String::from_utf8(Asked::new(asked.as_bytes(), Depth::Tree).full_path(path.as_bytes())).unwrap()
        };
        assert_eq!(full(".", "a/f"), "a/f");
        assert_eq!(full("./", "a/f"), "a/f");
        assert_eq!(full("src", "f"), "src/f");
        assert_eq!(full("./src//x/.", "f"), "src/x/f");
        assert_eq!(full("/", "f"), "/f");
        assert_eq!(full("/tmp/", "f"), "/tmp/f");
        assert_eq!(full("a/../b", "f"), "a/../b/f", "a may be a link");
    }
}
