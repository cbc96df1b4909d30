//! The lines to one sandbox's runner: how many there may be, and the few that are kept for the next request.
//!
//! A line comes back only after its answer was read to the end. One at rest longer than `KEEP` is closed, well before the
//! runner would close it, so that a request does not meet a hang-up halfway.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use shared_protocol::ErrorCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::RunnerError;
use super::connect::Door;
use super::line::Line;

/// Lines at rest. As many commands at once as an agent has under way; more than these connect anew.
pub const MAX_IDLE_LINES: usize = 8;

/// How long a line rests. The runner gives a silent one 30 seconds.
pub const KEEP: Duration = Duration::from_secs(15);

/// Lines in use and at rest together. The runner takes 1024, and some are left for whoever looks into it by hand.
pub const MAX_LINES: usize = 1000;

pub struct Pool {
    door: Door,
    slots: Arc<Semaphore>,
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    /// The longest at rest first.
    lines: VecDeque<(Instant, Line)>,
    /// A task closes what has rested for too long, and ends when nothing is left.
    is_swept: bool,
}

impl Pool {
    pub fn new(door: Door) -> Arc<Self> {
        Arc::new(Self { door, slots: Arc::new(Semaphore::new(MAX_LINES)), rest: Mutex::default() })
    }

    /// The line that was used last and still works, if there is one.
    pub async fn kept(&self) -> Option<Line> {
        std::future::poll_fn(|cx| {
            loop {
                let Some((since, mut line)) = self.rest().lines.pop_back() else { return Poll::Ready(None) };
                if since.elapsed() < KEEP && line.is_usable(cx) {
                    return Poll::Ready(Some(line));
                }
            }
        })
        .await
    }

    /// A new line.
    pub async fn fresh(&self) -> Result<Line, RunnerError> {
        let slot = match self.slots.clone().try_acquire_owned() {
            Ok(slot) => slot,
            // Those at rest hold slots too.
            Err(_) if !std::mem::take(&mut self.rest().lines).is_empty() => {
                self.slots.clone().try_acquire_owned().map_err(|_| full())?
            }
            Err(_) => return Err(full()),
        };
        Line::new(self.door.connect().await?, slot).await
    }

    /// Keeps a line whose last answer was read to the end.
    pub fn put_back(self: &Arc<Self>, line: Line) {
        if !line.is_open() {
            return;
        }
        let mut rest = self.rest();
        rest.lines.push_back((Instant::now(), line));
        if rest.lines.len() > MAX_IDLE_LINES {
            rest.lines.pop_front();
        }
        if !rest.is_swept {
            rest.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        // Nothing is left half done by a panic under this lock.
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn at_rest(&self) -> usize {
        self.rest().lines.len()
    }
}

fn full() -> RunnerError {
    let message = format!("{MAX_LINES} requests to this session are under way; wait for some to end");
    RunnerError::refused(ErrorCode::LimitReached, message)
}

/// Closes lines as their time comes. Holds the pool only while it looks: a pool that is gone ends it too.
async fn sweep(pool: Weak<Pool>) {
    loop {
        let wake = {
            let Some(pool) = pool.upgrade() else { return };
            let mut rest = pool.rest();
            while rest.lines.front().is_some_and(|(since, _)| since.elapsed() >= KEEP) {
                rest.lines.pop_front();
            }
            match rest.lines.front() {
                Some((since, _)) => *since + KEEP,
                None => {
                    rest.is_swept = false;
                    return;
                }
            }
        };
        tokio::time::sleep_until(wake).await;
    }
}
