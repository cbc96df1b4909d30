//! One command or run: its id, its output, and how it ended; and the table of those that ran of late.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use shared_protocol::runner::{ExecOutcome, ExecState, ExecView};
use shared_protocol::{ErrorBody, ErrorCode, ExecId, ShellName};
use tokio::sync::mpsc;

use crate::output::{Budget, OutputLog};

/// Ended execs that can still be asked for.
pub const MAX_ENDED_EXECS: usize = 1000;

/// Output kept of all execs together, past which the oldest ended ones are forgotten. Below the logs' own bound, so that
/// what runs now is not crowded by what ran.
pub const MAX_KEPT_BYTES: usize = 12 << 20;

/// Execs that are queued or running, over all shells and runs.
pub const MAX_LIVE_EXECS: usize = 4096;

#[derive(Debug, Clone, Copy)]
enum Progress {
    Queued,
    Running(Instant),
    Ended,
}

pub struct Exec {
    pub id: ExecId,
    /// `None` for a run.
    pub shell: Option<ShellName>,
    pub log: Rc<OutputLog>,
    progress: Cell<Progress>,
    outcome: RefCell<Option<ExecOutcome>>,
    /// How often a program was seen to begin to wait at the terminal.
    pub waits: Cell<u64>,
    /// Signals to a run; a shell's go to its driver.
    pub signals: Option<mpsc::Sender<i32>>,
}

impl Exec {
    pub fn begin(&self) {
        self.progress.set(Progress::Running(Instant::now()));
        self.log.wake();
    }

    pub fn has_begun(&self) -> bool {
        !matches!(self.progress.get(), Progress::Queued)
    }

    pub fn duration_ms(&self) -> u64 {
        match self.progress.get() {
            Progress::Running(since) => u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            Progress::Queued | Progress::Ended => 0,
        }
    }

    pub fn note_waiting(&self) {
        self.waits.set(self.waits.get() + 1);
        self.log.wake();
    }

    pub fn outcome(&self) -> Option<ExecOutcome> {
        self.outcome.borrow().clone()
    }

    pub fn view(&self) -> ExecView {
        ExecView {
            exec_id: self.id.clone(),
            shell: self.shell.clone(),
            state: match self.progress.get() {
                Progress::Queued => ExecState::Queued,
                Progress::Running(_) => ExecState::Running,
                Progress::Ended => ExecState::Ended,
            },
            output_bytes: self.log.end(),
            first_offset: self.log.start(),
            outcome: self.outcome(),
        }
    }
}

#[derive(Clone, Default)]
pub struct ExecTable(Rc<RefCell<Table>>);

#[derive(Default)]
struct Table {
    by_id: HashMap<ExecId, Rc<Exec>>,
    order: VecDeque<ExecId>,
    ended: VecDeque<ExecId>,
    made: u64,
    budget: Budget,
}

impl ExecTable {
    /// Registers a new exec under the client's id, or under one made here.
    pub fn admit(
        &self,
        id: Option<ExecId>,
        shell: Option<ShellName>,
        signals: Option<mpsc::Sender<i32>>,
    ) -> Result<Rc<Exec>, ErrorBody> {
        let mut table = self.0.borrow_mut();
        if table.by_id.len() - table.ended.len() >= MAX_LIVE_EXECS {
            let message = format!("{MAX_LIVE_EXECS} commands are queued or running; wait for some to end");
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        let id = match id {
            Some(id) => id,
            None => table.fresh_id()?,
        };
        if table.by_id.contains_key(&id) {
            let message = format!("exec id {id} is known already: reattach to it, or choose another");
            return Err(ErrorBody::new(ErrorCode::Conflict, message));
        }
        let exec = Rc::new(Exec {
            id: id.clone(),
            shell,
            log: Rc::new(OutputLog::new(table.budget.clone())),
            progress: Cell::new(Progress::Queued),
            outcome: RefCell::new(None),
            waits: Cell::new(0),
            signals,
        });
        table.order.push_back(id.clone());
        table.by_id.insert(id, exec.clone());
        Ok(exec)
    }

    /// Forgets an exec that was admitted and then refused: as if it had never been asked for.
    pub fn withdraw(&self, exec: &Exec) {
        let mut table = self.0.borrow_mut();
        table.by_id.remove(&exec.id);
        table.order.retain(|id| *id != exec.id);
    }

    /// Ends an exec. Exactly once: whoever comes second is ignored.
    pub fn end(&self, exec: &Exec, outcome: ExecOutcome) {
        if exec.outcome.borrow().is_some() {
            return;
        }
        *exec.outcome.borrow_mut() = Some(outcome);
        exec.progress.set(Progress::Ended);
        exec.log.wake();
        self.0.borrow_mut().note_ended(exec.id.clone());
    }

    pub fn get(&self, id: &ExecId) -> Result<Rc<Exec>, ErrorBody> {
        self.0.borrow().by_id.get(id).cloned().ok_or_else(|| {
            let message = format!("no exec {id}: it never was, or ended too long ago to be kept");
            ErrorBody::new(ErrorCode::ExecNotFound, message)
        })
    }

    pub fn views(&self) -> Vec<ExecView> {
        let table = self.0.borrow();
        table.order.iter().filter_map(|id| table.by_id.get(id)).map(|exec| exec.view()).collect()
    }

    pub fn len(&self) -> usize {
        self.0.borrow().by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    fn fresh_id(&mut self) -> Result<ExecId, ErrorBody> {
        self.made += 1;
        let id = format!("x{}-{}", self.made, &crate::sys::random_hex()[..8]);
        ExecId::new(id).map_err(|e| ErrorBody::new(ErrorCode::InternalError, e.to_string()))
    }

    fn note_ended(&mut self, id: ExecId) {
        self.ended.push_back(id);
        while self.ended.len() > 1 && (self.ended.len() > MAX_ENDED_EXECS || self.budget.kept() > MAX_KEPT_BYTES) {
            let Some(oldest) = self.ended.pop_front() else { break };
            if let Some(exec) = self.by_id.remove(&oldest) {
                // Its pumps may live on with a background job: they need no memory for what nobody can ask for.
                exec.log.forget();
            }
            if let Some(at) = self.order.iter().position(|id| *id == oldest) {
                self.order.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared_protocol::runner::{OutcomeKind, Stream};

    fn outcome(id: &ExecId, exit_code: i32) -> ExecOutcome {
        ExecOutcome {
            exec_id: id.clone(),
            kind: OutcomeKind::Exited,
            exit_code,
            signal: None,
            cwd: None,
            output_bytes: 0,
            timed_out: false,
            shell_restarted: false,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: 0,
            reason: None,
        }
    }

    #[test]
    fn an_exec_ends_once() {
        let table = ExecTable::default();
        let exec = table.admit(None, None, None).unwrap();
        table.end(&exec, outcome(&exec.id, 3));
        table.end(&exec, outcome(&exec.id, 4));
        assert_eq!(exec.outcome().unwrap().exit_code, 3);
    }

    #[test]
    fn the_same_id_twice_is_a_conflict_and_leaves_the_first_alone() {
        let table = ExecTable::default();
        let id = ExecId::new("a").unwrap();
        let first = table.admit(Some(id.clone()), None, None).unwrap();
        assert_eq!(table.admit(Some(id.clone()), None, None).err().unwrap().error_code, ErrorCode::Conflict);
        assert!(Rc::ptr_eq(&first, &table.get(&id).unwrap()));
    }

    #[test]
    fn what_ended_long_ago_makes_room_and_what_runs_does_not() {
        let table = ExecTable::default();
        let running = table.admit(None, None, None).unwrap();
        for _ in 0..MAX_ENDED_EXECS + 50 {
            let exec = table.admit(None, None, None).unwrap();
            exec.log.append(Stream::Merged, &[0; 100_000]);
            table.end(&exec, outcome(&exec.id, 0));
        }
        assert!(table.get(&running.id).is_ok());
        let kept: usize = table.0.borrow().by_id.values().map(|e| e.log.kept()).sum();
        assert!(kept <= MAX_KEPT_BYTES, "{kept}");
        assert!(table.len() <= MAX_ENDED_EXECS + 1);
        assert_eq!(table.views().len(), table.len());
    }
}
