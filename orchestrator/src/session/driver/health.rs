//! Finds out whether a sandbox's runner still answers, and what to do about one that does not.
//!
//! ```text
//!  a call or a stream waits ──▶ doubt ─┐
//!  nothing was heard for `HEARTBEAT` ──┴─▶ ask /healthz ─ answer ─▶ all is well
//!                                           │ ▲  └─ none ─▶ look at its process ─▶ `judge`
//!                                           │ └── ask again, or continue it and ask again ──┘ └─▶ crashed, with the reason
//!                                           └── at most `ASK_TIME` each
//! ```
//!
//! A session that nobody uses is asked once in `HEARTBEAT`, and only if its runner was ever heard; a paused session is not
//! asked. `judge` is pure. A busy host must not cost anybody a session, so the patience depends on what the kernel says about
//! the runner's process: one that waits for a processor gets more time than one that sleeps while it is asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SessionId;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::runner_client::{Pulse, RunnerClient};
use crate::runtime::{ProcessSample, ProcessState, Runtime};
use crate::session::SessionError;

/// How long a runner may be silent before it is asked without another reason.
const HEARTBEAT: Duration = Duration::from_secs(120);
/// The time for one answer.
const ASK_TIME: Duration = Duration::from_secs(2);
/// The fewest questions without an answer before a runner counts as lost.
const MIN_TRIES: u32 = 3;
/// How long a runner may give no answer, from the first question on.
const PATIENCE: Duration = Duration::from_secs(8);
/// The same for a runner that waits in the kernel, as for a slow disk, or whose process cannot be seen.
const BLOCKED_PATIENCE: Duration = Duration::from_secs(20);
/// The same for a runner that could go on but gets no processor, or that runs now and then: it is there, and the host is slow.
const STARVED_PATIENCE: Duration = Duration::from_secs(60);
/// A runner that has used this much processor time since the first question is not starved: it is busy with something else.
const SPINNING: Duration = Duration::from_secs(2);
/// The shortest time between two doubts that are acted on, because each of many quiet streams may cause one.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// A daemon that notices the end of `ASK_TIME` this much too late gets too little processor time itself.
const LATE: Duration = Duration::from_millis(500);
/// The longest time to look at a process or to continue it.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// What is known about a runner that did not answer.
#[derive(Debug, Clone, Copy)]
struct Silence {
    /// Since the first question.
    lasted: Duration,
    tries: u32,
    /// Whether the process was already told to continue.
    is_continued: bool,
    /// Whether its process has had a processor since it was first looked at, or the daemon itself had too little of one.
    is_host_slow: bool,
    /// Its process now, if it can be seen, and the processor time that it has used since the first question.
    process: Option<(ProcessState, Duration)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    AskAgain,
    /// Somebody stopped the process with a signal.
    Continue,
    Lost,
}

fn judge(silence: Silence) -> Judgement {
    let patience = match silence.process {
        Some((ProcessState::Stopped, _)) if !silence.is_continued => return Judgement::Continue,
        Some((ProcessState::Runnable, used)) if used < SPINNING => STARVED_PATIENCE,
        Some((ProcessState::Sleeping | ProcessState::Blocked, _)) if silence.is_host_slow => STARVED_PATIENCE,
        Some((ProcessState::Blocked, _)) | None => BLOCKED_PATIENCE,
        Some(_) => PATIENCE,
    };
    if silence.tries >= MIN_TRIES && silence.lasted >= patience { Judgement::Lost } else { Judgement::AskAgain }
}

fn describe(process: Option<ProcessState>) -> &'static str {
    match process {
        Some(ProcessState::Runnable) => "its process runs, or waits for a processor",
        Some(ProcessState::Sleeping) => "its process sleeps",
        Some(ProcessState::Blocked) => "its process waits in the kernel",
        Some(ProcessState::Stopped) => "its process is stopped",
        Some(ProcessState::Traced) => "its process is stopped by a debugger",
        Some(ProcessState::Ended) => "its process has ended",
        None => "its process cannot be seen",
    }
}

/// Watches one runner. The value is kept while the driver does other things, so an examination goes on.
pub(super) struct Health {
    id: SessionId,
    runner: RunnerClient,
    runtime: Arc<dyn Runtime>,
    /// The examination that is under way. It resolves with the reason if the runner is lost.
    examination: Option<Pin<Box<dyn Future<Output = Option<String>> + Send>>>,
    asked: Instant,
}

impl Health {
    pub fn new(id: SessionId, runner: RunnerClient, runtime: Arc<dyn Runtime>) -> Self {
        Self { id, runner, runtime, examination: None, asked: Instant::now() }
    }

    /// Resolves when the runner is lost, with the reason. It can be dropped and called again at any time.
    pub async fn lost(&mut self) -> String {
        loop {
            let examination = match &mut self.examination {
                Some(examination) => examination,
                None => {
                    until_doubt(self.runner.pulse(), self.asked).await;
                    self.asked = Instant::now();
                    let work = examine(self.id.clone(), self.runner.clone(), self.runtime.clone());
                    self.examination.insert(Box::pin(work))
                }
            };
            let lost = examination.as_mut().await;
            self.examination = None;
            if let Some(reason) = lost {
                return reason;
            }
        }
    }

    /// Forgets an examination: a paused runner cannot answer.
    pub fn forget(&mut self) {
        self.examination = None;
    }
}

/// Waits until there is a reason to ask a runner that was asked last at `asked`.
async fn until_doubt(pulse: &Pulse, asked: Instant) {
    loop {
        let heard = pulse.last_heard();
        // A runner that was never heard was never used.
        let at = heard.unwrap_or_else(Instant::now).max(asked) + HEARTBEAT;
        tokio::select! {
            biased;
            () = pulse.doubted() => return sleep_until(asked + MIN_PAUSE).await,
            () = sleep_until(at) => {
                if heard.is_some() && pulse.last_heard() == heard {
                    return;
                }
            }
        }
    }
}

/// Asks the runner until it answers or counts as lost. Returns the reason if it is lost.
async fn examine(id: SessionId, runner: RunnerClient, runtime: Arc<dyn Runtime>) -> Option<String> {
    let began = Instant::now();
    let mut is_continued = false;
    let mut first: Option<ProcessSample> = None;
    let mut is_host_slow = false;
    for tries in 1.. {
        let next = Instant::now() + ASK_TIME;
        let cause = match timeout(ASK_TIME, runner.ping()).await {
            Ok(Ok(())) => {
                if tries > 1 {
                    info!(session_id = %id, tries, "runner answers again");
                }
                return None;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} seconds", ASK_TIME.as_secs()),
        };
        is_host_slow |= next.elapsed() > LATE;
        let sample = timeout(LOOK_TIME, runtime.runner_process(&id)).await.ok().flatten();
        let process = sample.map(|sample| {
            let first = first.get_or_insert(sample);
            is_host_slow |= sample.turns > first.turns;
            (sample.state, sample.cpu.saturating_sub(first.cpu))
        });
        let state = describe(sample.map(|sample| sample.state));
        let lasted = began.elapsed();
        if tries == 1 {
            warn!(session_id = %id, step = "health", %cause, state, "runner does not answer");
        }
        match judge(Silence { lasted, tries, is_continued, is_host_slow, process }) {
            Judgement::Lost => {
                return Some(format!("its runner did not answer for {} s ({cause}; {state})", lasted.as_secs()));
            }
            Judgement::Continue => {
                is_continued = true;
                match timeout(LOOK_TIME, runtime.continue_runner(&id)).await {
                    Ok(Ok(())) => warn!(session_id = %id, "runner was stopped by a signal, and is continued"),
                    Ok(Err(error)) => {
                        let cause = SessionError::chain(&error);
                        warn!(session_id = %id, step = "continue", %cause, "runner is not continued");
                    }
                    Err(_) => {}
                }
            }
            // A refused connection fails at once; the questions are spread all the same.
            Judgement::AskAgain => sleep_until(next).await,
        }
    }
    None
}

#[cfg(test)]
#[path = "health_test.rs"]
mod tests;
