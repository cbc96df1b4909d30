//! Execs: one command or run with its id, its output and its outcome, and the table of recent execs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use shared_protocol::runner::{ExecOutcome, ExecState, ExecView, MAX_PATH_BYTES};
use shared_protocol::{ErrorBody, ErrorCode, ExecId, ShellName};
use tokio::sync::mpsc;

use crate::open_stdin::OpenStdin;
use crate::output::{Budget, OutputLog};
use crate::text;

/// The most ended execs that can still be asked for.
pub const MAX_ENDED_EXECS: usize = 1000;

/// The most output that all execs keep together. Beyond it the oldest ended execs are forgotten. It is below the limit of
/// the logs, so that ended execs take no room from running ones.
pub const MAX_KEPT_BYTES: usize = 12 << 20;

/// The most queued and running execs, in all shells and runs together.
pub const MAX_LIVE_EXECS: usize = 4096;

/// The most bytes of a directory in an outcome: a path of Linux, none of whose bytes is UTF-8, and the mark of a cut.
const MAX_CWD_BYTES: usize = 3 * MAX_PATH_BYTES + 3;

/// The most bytes of a reason in an outcome.
const MAX_REASON_BYTES: usize = 2 << 10;

/// A page of the list ends with the exec that makes it longer than this. The longest exec adds less than 100 KiB.
const PAGE_BYTES: usize = 1 << 20;

/// The most bytes of an exec in a list, apart from directory and reason.
const VIEW_BYTES: usize = 1 << 10;

#[derive(Debug, Clone, Copy)]
enum Progress {
    Queued,
    Running(Instant),
    Ended,
}

/// One command or run.
pub struct Exec {
    pub id: ExecId,
    /// The shell of a command. `None` for a run.
    pub shell: Option<ShellName>,
    pub log: Rc<OutputLog>,
    progress: Cell<Progress>,
    outcome: RefCell<Option<ExecOutcome>>,
    /// How often a program was seen to wait for input at the terminal.
    pub waits: Cell<u64>,
    /// The command that was in front of this one when it was queued.
    queued_behind: RefCell<Option<ExecId>>,
    /// Why the shell refused the command after it had waited. Its streams end with this error.
    refusal: RefCell<Option<ErrorBody>>,
    /// Sends signals to a run. Signals to a command go to its shell's driver.
    pub signals: Option<mpsc::Sender<i32>>,
    /// The process of a run. `None` before it was started.
    pub pid: Cell<Option<u32>>,
    /// The standard input of a run that was started with an open one.
    pub stdin: RefCell<Option<Rc<OpenStdin>>>,
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

    /// Notes that the command waits behind another one.
    pub fn note_queued(&self, behind: ExecId) {
        *self.queued_behind.borrow_mut() = Some(behind);
        self.log.wake();
    }

    /// The command that this one waits behind. `None` if it has begun, or never waited.
    pub fn queued_behind(&self) -> Option<ExecId> {
        self.queued_behind.borrow().clone().filter(|_| !self.has_begun())
    }

    /// Gives the command an error, which its streams end with. Call it before the exec is ended.
    pub fn refuse(&self, error: ErrorBody) {
        *self.refusal.borrow_mut() = Some(error);
    }

    pub fn refusal(&self) -> Option<ErrorBody> {
        self.refusal.borrow().clone()
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
            pid: self.pid.get(),
            output_bytes: self.log.end(),
            first_offset: self.log.start(),
            outcome: self.outcome(),
        }
    }
}

/// A part of the list of execs.
pub struct Page {
    pub views: Vec<ExecView>,
    pub has_more: bool,
}

/// The length of an exec in a list, rounded up.
fn json_bytes(view: &ExecView) -> usize {
    let texts = view.outcome.iter().flat_map(|outcome| [&outcome.cwd, &outcome.reason]).flatten();
    VIEW_BYTES + texts.map(|text| text::json_length(text)).sum::<usize>()
}

/// The table of execs that clients can ask for. Cheap to clone.
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
    /// Registers a new exec with the client's id, or with a new id.
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
            queued_behind: RefCell::new(None),
            refusal: RefCell::new(None),
            signals,
            pid: Cell::new(None),
            stdin: RefCell::new(None),
        });
        table.order.push_back(id.clone());
        table.by_id.insert(id, exec.clone());
        Ok(exec)
    }

    /// Forgets an exec that was admitted and then refused.
    pub fn withdraw(&self, exec: &Exec) {
        let mut table = self.0.borrow_mut();
        table.by_id.remove(&exec.id);
        table.order.retain(|id| *id != exec.id);
    }

    /// Ends an exec once: a second outcome is ignored. What is kept of an outcome is bounded, wherever its texts come from.
    pub fn end(&self, exec: &Exec, mut outcome: ExecOutcome) {
        if exec.outcome.borrow().is_some() {
            return;
        }
        outcome.cwd = outcome.cwd.map(|cwd| text::cut(cwd, MAX_CWD_BYTES));
        outcome.reason = outcome.reason.map(|reason| text::cut(reason, MAX_REASON_BYTES));
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

    /// A page of the list, the oldest exec first: at most `limit` execs after the exec `after`, and about `PAGE_BYTES` of JSON.
    /// A page that is not the last one has at least one exec.
    pub fn page(&self, after: Option<&ExecId>, limit: usize) -> Result<Page, ErrorBody> {
        let table = self.0.borrow();
        let from = match after {
            None => 0,
            Some(after) => match table.order.iter().position(|id| id == after) {
                Some(at) => at + 1,
                None => {
                    let message = format!("no exec {after} in the list any more: begin again without after");
                    return Err(ErrorBody::new(ErrorCode::ExecNotFound, message));
                }
            },
        };
        let (mut views, mut bytes) = (Vec::new(), 0);
        for exec in table.order.iter().skip(from).filter_map(|id| table.by_id.get(id)) {
            if views.len() == limit || bytes > PAGE_BYTES {
                return Ok(Page { views, has_more: true });
            }
            let view = exec.view();
            bytes += json_bytes(&view);
            views.push(view);
        }
        Ok(Page { views, has_more: false })
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
                // A background job may keep the pumps alive, but nobody can ask for their output any more.
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
        assert_eq!(table.page(None, usize::MAX).unwrap().views.len(), table.len());
    }

    /// Reads the whole list page by page, and checks that no page is too long.
    fn all(table: &ExecTable, limit: usize) -> Vec<ExecView> {
        let mut views: Vec<ExecView> = Vec::new();
        loop {
            let after = views.last().map(|view| view.exec_id.clone());
            let page = table.page(after.as_ref(), limit).unwrap();
            let bytes = serde_json::to_vec(&page.views).unwrap().len();
            assert!(bytes <= PAGE_BYTES + (100 << 10), "{bytes}");
            assert!(page.views.len() <= limit && (!page.has_more || !page.views.is_empty()));
            views.extend(page.views);
            if !page.has_more {
                return views;
            }
        }
    }

    #[test]
    fn a_full_list_of_the_longest_execs_is_read_in_short_pages() {
        let longest = |prefix: &str, number: usize| {
            let text = format!("{prefix}{number}");
            format!("{text}{}", "x".repeat(64 - text.len()))
        };
        for byte in ['a', '\u{1}', '"', 'é', '\u{fffd}'] {
            let table = ExecTable::default();
            let texts = byte.to_string().repeat(100_000);
            for number in 0..MAX_ENDED_EXECS {
                let id = ExecId::new(longest("id", number)).unwrap();
                let exec = table.admit(Some(id), ShellName::new(longest("shell", 0)).ok(), None).unwrap();
                let (cwd, reason) = (Some(texts.clone()), Some(texts.clone()));
                let numbers =
                    ExecOutcome { output_bytes: u64::MAX, duration_ms: u64::MAX, ..outcome(&exec.id, i32::MIN) };
                table.end(&exec, ExecOutcome { cwd, reason, signal: Some(i32::MIN), ..numbers });
            }
            assert_eq!(all(&table, 1000).len(), MAX_ENDED_EXECS, "{byte:?}");
        }
    }

    #[test]
    fn pages_have_every_exec_once_and_in_order() {
        let table = ExecTable::default();
        let ids: Vec<_> = (0..50).map(|_| table.admit(None, None, None).unwrap().id.clone()).collect();
        for limit in [1, 7, 50, 1000] {
            let listed: Vec<_> = all(&table, limit).into_iter().map(|view| view.exec_id).collect();
            assert_eq!(listed, ids, "{limit}");
        }
        let unknown = table.page(Some(&ExecId::new("nobody").unwrap()), 10).err().unwrap();
        assert_eq!(unknown.error_code, ErrorCode::ExecNotFound);
    }
}
