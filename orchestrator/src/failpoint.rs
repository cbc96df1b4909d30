//! Failpoints: places at which a test can make the daemon die, fail or wait, with `COVE_FAILPOINTS=NAME=ACTION[@N],…`. The
//! action happens when the place is reached for the Nth time, or every time if there is no N:
//!
//! - `abort` ends the daemon as `kill -9` does;
//! - `error` makes the step fail;
//! - `wait:FIFO` blocks the thread until another process opens that named pipe for writing, which simulates a stuck disk.
//!
//! Failpoints exist only with the feature `failpoints` or in a debug build. Otherwise `at` does nothing, and the daemon
//! refuses the variable.

use std::io;

/// The names of all failpoints. A test looks for each of them in the sources.
pub const NAMES: &[&str] = &[
    "claim.given",
    "claim.intended",
    "claim.workspace",
    "claim.claimed",
    "claim.running",
    "create.admitted",
    "create.intended",
    "create.turn",
    "create.made",
    "create.running",
    "destroy.asked",
    "destroy.intended",
    "destroy.removed",
    "destroy.ended",
    "docker.create.directory",
    "docker.create.made",
    "docker.create.started",
    "docker.destroy.container",
    "docker.destroy.directory",
    "docker.restore.filled",
    "docker.restore.image",
    "docker.restore.released",
    "docker.snapshot.directory",
    "docker.snapshot.disk",
    "docker.snapshot.image",
    "docker.snapshot.removed",
    "docker.snapshot.state",
    "docker.snapshot.synced",
    "docker.stop.disk",
    "docker.stop.ended",
    "docker.stop.image",
    "docker.stop.state",
    "expire.due",
    "image.commit.complete",
    "image.commit.copying",
    "image.commit.packed",
    "image.commit.staged",
    "image.commit.started",
    "image.layer.named",
    "image.layer.sized",
    "image.layer.unpacked",
    "image.prune.layers",
    "image.prune.leftover",
    "image.pull.described",
    "image.pull.downloaded",
    "image.pull.downloading",
    "image.record.named",
    "image.record.written",
    "image.remove.moved",
    "image.remove.unnamed",
    "image.unpack.staged",
    "image.unpack.started",
    "local.create.directory",
    "local.create.disk",
    "local.create.cgroup",
    "local.create.launched",
    "local.create.recorded",
    "local.create.kept",
    "local.image",
    "local.destroy.killed",
    "local.destroy.cgroup",
    "local.destroy.disk",
    "local.destroy.directory",
    "pool.intended",
    "pool.made",
    "pool.idle",
    "pool.discarding",
    "recover.loaded",
    "recover.listed",
    "recover.adopted",
    "recover.undone",
    "recover.unowned",
    "recover.done",
    "store.commit",
    "store.committed",
    "touch.written",
    "workspace.directory",
    "workspace.disk.deleting",
    "workspace.disk.discarded",
    "workspace.disk.made",
    "workspace.disk.recorded",
    "local.snapshot.directory",
    "local.snapshot.disk",
    "local.snapshot.removed",
    "local.snapshot.state",
    "local.snapshot.synced",
    "local.stop.ended",
    "local.stop.recorded",
    "local.stop.state",
    "recover.snapshot",
    "recover.stopped",
    "snapshot.forgotten",
    "snapshot.frozen",
    "snapshot.intended",
    "snapshot.kept",
    "snapshot.made",
    "snapshot.ready",
    "start.made",
    "start.turn",
    "stop.intended",
    "stop.saved",
    "stop.stopped",
];

#[cfg(any(feature = "failpoints", debug_assertions))]
mod active {
    use std::collections::HashMap;
    use std::io;
    use std::path::PathBuf;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Action {
        Abort,
        Error,
        /// Waits until another process opens this named pipe for writing.
        Wait(PathBuf),
    }

    pub struct Point {
        pub action: Action,
        /// The occurrence at which the action happens. `None` means every time.
        pub nth: Option<u64>,
        reached: AtomicU64,
    }

    static POINTS: LazyLock<HashMap<String, Point>> = LazyLock::new(|| {
        std::env::var(super::VARIABLE).map_or_else(|_| HashMap::new(), |text| parse(&text).unwrap_or_default())
    });

    pub fn parse(text: &str) -> Result<HashMap<String, Point>, String> {
        let mut points = HashMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let known = || {
                format!("{part:?} is none of NAME=abort|error|wait:FIFO[@N]; the names are {}", super::NAMES.join(" "))
            };
            let (name, action) = part.split_once('=').ok_or_else(known)?;
            let (action, nth) = match action.split_once('@') {
                Some((action, nth)) => (action, Some(nth.parse::<u64>().map_err(|_| known())?)),
                None => (action, None),
            };
            let action = match (action, action.strip_prefix("wait:")) {
                ("abort", _) => Action::Abort,
                ("error", _) => Action::Error,
                (_, Some(fifo)) if !fifo.is_empty() => Action::Wait(fifo.into()),
                _ => return Err(known()),
            };
            if !super::NAMES.contains(&name) {
                return Err(known());
            }
            points.insert(name.to_owned(), Point { action, nth, reached: AtomicU64::new(0) });
        }
        Ok(points)
    }

    pub fn at(name: &str) -> io::Result<()> {
        debug_assert!(super::NAMES.contains(&name), "{name} is not in the list");
        let Some(point) = POINTS.get(name) else { return Ok(()) };
        let reached = point.reached.fetch_add(1, Ordering::Relaxed) + 1;
        if point.nth.is_some_and(|nth| nth != reached) {
            return Ok(());
        }
        match &point.action {
            Action::Abort => {
                // Like a KILL from an operator or the kernel, this writes, unwinds and flushes nothing.
                let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
                std::process::abort();
            }
            Action::Error => Err(io::Error::other(format!("failpoint {name}"))),
            // Opening a named pipe waits for its other end.
            Action::Wait(fifo) => std::fs::File::open(fifo).map(drop),
        }
    }
}

pub const VARIABLE: &str = "COVE_FAILPOINTS";

/// Dies, fails or waits if `COVE_FAILPOINTS` says so. A failpoint that can wait must be on a thread that may block.
#[cfg(any(feature = "failpoints", debug_assertions))]
pub fn at(name: &str) -> io::Result<()> {
    active::at(name)
}

#[cfg(not(any(feature = "failpoints", debug_assertions)))]
#[inline(always)]
pub fn at(_: &str) -> io::Result<()> {
    Ok(())
}

/// Dies if `COVE_FAILPOINTS` says so. For places where nothing can fail.
pub fn pass(name: &str) {
    let _ = at(name);
}

/// Refuses a variable that names an unknown failpoint or action, and any variable in a build without failpoints.
pub fn check() -> Result<(), String> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let checked = active::parse(&text).map(drop);
    #[cfg(not(any(feature = "failpoints", debug_assertions)))]
    let checked = if text.is_empty() { Ok(()) } else { Err("this build of cove has no failpoints".to_owned()) };
    checked.map_err(|problem| format!("{VARIABLE}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_there_is_refused_with_those_that_are() {
        let Err(refused) = active::parse("create.nowhere=abort") else { panic!("it was taken") };
        assert!(refused.contains("create.intended"), "{refused}");
        for wrong in ["create.intended", "create.intended=explode", "create.intended=abort@x", "create.intended=wait:"]
        {
            assert!(active::parse(wrong).is_err(), "{wrong}");
        }
        let points = active::parse("create.intended=abort@3, store.commit=error").unwrap();
        assert_eq!(points["create.intended"].action, active::Action::Abort);
        assert_eq!(points["create.intended"].nth, Some(3));
        assert_eq!(points["store.commit"].nth, None);
    }

    #[test]
    fn every_name_is_a_place_in_the_sources() {
        fn sources(folder: &std::path::Path, all: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.path().is_dir() {
                    sources(&entry.path(), all);
                } else if entry.file_name() != "failpoint.rs" {
                    all.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
                }
            }
        }
        let mut all = String::new();
        sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut all);
        for name in NAMES {
            let place = |call: &str| all.contains(&format!("failpoint::{call}(\"{name}\")"));
            assert!(place("at") || place("pass"), "{name} is nowhere");
        }
    }
}
