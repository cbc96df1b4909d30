//! Runs work on the data directory, which may be slow or stuck (a network file system, a dying disk), on separate threads.
//!
//! The threads that serve requests never wait for a disk, and no lock is held during such a wait. The number of threads is
//! bounded. If a caller stops waiting, the thread finishes its work and its place stays taken until then, so a stuck disk
//! cannot take more threads than the bound. Work with the same `key` runs in order: the next piece begins when the one
//! before is over, whether or not a caller still waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, TryAcquireError};
use tokio::time::timeout;

/// The most threads of one owner that wait for the disk. Tokio has 512 for the whole process.
const MAX_THREADS: usize = 32;
/// The longest wait for a free thread. All threads are taken only if the disk is stuck.
const THREAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for the work: one look, a few small files or one directory take milliseconds on a healthy disk.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    #[error("the disk is stuck: {MAX_THREADS} threads wait for it already")]
    Busy,
    #[error("the disk did not answer within {} s", WORK_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the work on the disk was cut off: {0}")]
    Lost(String),
}

impl From<DiskError> for std::io::Error {
    fn from(error: DiskError) -> Self {
        Self::other(error)
    }
}

/// The disk threads of one owner. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DiskThreads {
    permits: Arc<Semaphore>,
    /// The keys that have work now.
    keys: Arc<Mutex<HashMap<String, Weak<Mutex<()>>>>>,
}

impl Default for DiskThreads {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_THREADS)), keys: Arc::default() }
    }
}

impl DiskThreads {
    /// Runs the work on another thread. After an error the work may still be running, or may never begin.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, DiskError> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => timeout(THREAD_TIMEOUT, self.permits.clone().acquire_owned())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or(DiskError::Busy)?,
            Err(TryAcquireError::Closed) => return Err(DiskError::Busy),
        };
        let working = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match timeout(WORK_TIMEOUT, working).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(DiskError::Lost(error.to_string())),
            Err(_) => Err(DiskError::TimedOut),
        }
    }

    /// The same as `run`, but after all earlier work for the same key.
    pub async fn run_for<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DiskError> {
        let turn = self.turn(key);
        self.run(move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            work()
        })
        .await
    }

    fn turn(&self, key: &str) -> Arc<Mutex<()>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = keys.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        keys.insert(key.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_keeps_its_place_until_it_is_done() {
        let threads = DiskThreads::default();
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(std::sync::Mutex::new(stuck));
        let mut waiting = Vec::new();
        for _ in 0..MAX_THREADS {
            let (threads, stuck) = (threads.clone(), stuck.clone());
            let mut work = Box::pin(async move { threads.run(move || stuck.lock().unwrap().recv()).await });
            assert!(futures_util::poll!(work.as_mut()).is_pending());
            waiting.push(work);
        }
        drop(waiting);
        assert_eq!(threads.permits.available_permits(), 0);
        for _ in 0..MAX_THREADS {
            release.send(()).unwrap();
        }
        assert_eq!(threads.run(|| 7).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_threads_are_stuck_the_next_is_told_so_in_bounded_time() {
        let threads = DiskThreads::default();
        let _all = threads.permits.clone().acquire_many_owned(u32::try_from(MAX_THREADS).unwrap()).await.unwrap();
        let start = tokio::time::Instant::now();
        assert_eq!(threads.run(|| 7).await, Err(DiskError::Busy));
        assert_eq!(start.elapsed(), THREAD_TIMEOUT);
    }

    #[tokio::test]
    async fn work_for_one_key_is_done_in_order_although_nobody_waits_for_the_first() {
        let threads = DiskThreads::default();
        let (release, stuck) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel::<()>();
        let (did, done) = mpsc::channel::<&str>();
        let mut first = Box::pin(threads.run_for("a", {
            let did = did.clone();
            move || {
                began.send(()).unwrap();
                let _ = stuck.recv();
                did.send("first").unwrap();
            }
        }));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        begun.recv().unwrap();
        drop(first);
        threads.run_for("b", || {}).await.expect("another key does not wait");
        let mut second = Box::pin(threads.run_for("a", move || did.send("second").unwrap()));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        release.send(()).unwrap();
        second.await.unwrap();
        assert_eq!(done.iter().collect::<Vec<_>>(), ["first", "second"]);
        for key in 0..50 {
            threads.run_for(&key.to_string(), || {}).await.unwrap();
        }
        assert!(threads.keys.lock().unwrap().len() <= 2, "keys are forgotten with their work");
    }
}
