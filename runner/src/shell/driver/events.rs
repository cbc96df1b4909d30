//! What bash reports and prints, and what clients ask.

use std::rc::Rc;

use shared_protocol::runner::{OutcomeKind, Stream};
use shared_protocol::{ErrorBody, ErrorCode, ExecId};
use tokio::time::Instant;

use super::super::bash::{Bash, Event, MAX_PENDING_INPUT};
use super::super::control::Record;
use super::super::script::file;
use super::super::state::State;
use super::messages::Request;
use super::time::FIRST_LOOK;
use super::{Current, Driver, Manner, RUNNER_ENDS, Unheard};
use crate::output::OutputLog;

impl Driver {
    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Record(Record::Done { nonce, status, begun, cwd }) => self.done(&nonce, status, begun, &cwd),
            Event::Record(Record::State { nonce, shellopts, bashopts }) => {
                if let (Some(bash), true) = (&self.bash, nonce == self.ended.nonce) {
                    let file = bash.scratch.path(file::STATES[self.ended.slot]);
                    let state = State::new(&shellopts, &bashopts, file);
                    if self.fresh.is_none() {
                        self.fresh = Some(state.without_text());
                    }
                    // One of before the claim that bash takes now is not what a new shell shall have.
                    if !self.starting.as_ref().is_some_and(|starting| starting.manner == Manner::Claim) {
                        *self.shared.state.borrow_mut() = Some(state);
                        self.next_manner = Manner::Restore;
                    }
                    self.is_state_due = false;
                    self.tell_state();
                    if self.suspect_until.take().is_some() {
                        self.replace_bash();
                    }
                }
            }
            Event::Terminal(bytes) => self.on_terminal_output(&bytes),
            // A shell that stopped itself has nobody to continue it.
            Event::Stopped => {
                if let Some(bash) = &self.bash {
                    bash.watch.signal(libc::SIGCONT);
                }
            }
            Event::Exited(exit) => self.bash_exited(exit),
        }
    }

    /// Answers those who asked for the state, unless a newer one is about to come.
    pub(super) fn tell_state(&mut self) {
        if self.is_state_due {
            return;
        }
        for waiter in self.state_waiters.drain(..) {
            let mut state = self.shared.state.borrow().clone();
            if let Some(state) = &mut state {
                state.load();
            }
            let _ = waiter.send(state);
        }
    }

    pub(super) fn on_terminal_output(&mut self, bytes: &[u8]) {
        if let Some(log) = self.terminal_log() {
            log.append(Stream::Tty, bytes);
        }
        self.attachments.send(bytes);
        if let Some(current) = &mut self.current {
            // What is printed is often a prompt.
            current.look = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
        }
    }

    /// Where the terminal's output goes now.
    pub(super) fn terminal_log(&self) -> Option<Rc<OutputLog>> {
        match &self.current {
            Some(current) => Some(current.job.exec.log.clone()),
            None => self.last_on_terminal.as_ref().map(|exec| exec.log.clone()),
        }
    }

    pub(super) fn on_request(&mut self, request: Request) {
        match request {
            Request::Exec(job) => self.queue.push_back(job),
            Request::Signal { number, exec_id, reply } => {
                let _ = reply.send(self.signal(number, exec_id.as_ref()));
            }
            Request::Input { bytes, reply } => {
                let _ = reply.send(self.input(&bytes));
            }
            // Where nothing runs that could read it, it is lost, as at any terminal.
            Request::Type { bytes, reply } => {
                let _ = self.input(&bytes);
                let _ = reply.send(());
            }
            Request::Resize { size, reply } => {
                {
                    let mut view = self.shared.view.borrow_mut();
                    (view.cols, view.rows) = (size.cols, size.rows);
                }
                let resized = self.bash.as_ref().map_or(Ok(()), |bash| bash.resize(size));
                let _ = reply.send(resized.map_err(|e| ErrorBody::new(ErrorCode::InternalError, e.to_string())));
            }
            Request::Attach { reply } => {
                let _ = reply.send(self.attachments.add());
            }
            Request::Reset { reply } => {
                self.reset();
                let _ = reply.send(());
            }
            Request::Claim => self.is_claim_due = true,
            Request::State { reply } => {
                self.state_waiters.retain(|waiter| !waiter.is_closed());
                self.state_waiters.push(reply);
                self.tell_state();
            }
            Request::Drain => {
                self.is_draining = true;
                while let Some(job) = self.queue.pop_front() {
                    self.never_ran(&job, RUNNER_ENDS);
                }
            }
            Request::Close { reply } => {
                let _ = reply.send(());
            }
        }
    }

    pub(super) fn running(&self) -> Result<(&Current, &Bash), ErrorBody> {
        match (&self.current, &self.bash) {
            (Some(current), Some(bash)) => Ok((current, bash)),
            _ => {
                let message = format!("no command is running in shell {}", self.shared.view.borrow().name);
                Err(ErrorBody::new(ErrorCode::Conflict, message))
            }
        }
    }

    pub(super) fn signal(&mut self, number: i32, exec_id: Option<&ExecId>) -> Result<(), ErrorBody> {
        self.running()?;
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return Ok(()) };
        if let Some(id) = exec_id.filter(|id| **id != current.job.exec.id) {
            let message = format!("exec {id} is not running");
            return Err(ErrorBody::new(ErrorCode::Conflict, message));
        }
        let unheard = Unheard::before(number, bash);
        bash.signal_foreground(number).map_err(|error| {
            ErrorBody::new(ErrorCode::Conflict, format!("no foreground program took the signal: {error}"))
        })?;
        bash.feed_tail(&current.mark);
        current.unheard = unheard.map(|unheard| unheard.sent(bash));
        Ok(())
    }

    pub(super) fn input(&mut self, bytes: &[u8]) -> Result<(), ErrorBody> {
        self.running()?;
        let (Some(current), Some(bash)) = (&mut self.current, &mut self.bash) else { return Ok(()) };
        if !bash.type_in(bytes) {
            let message = format!("{} bytes of input wait to be read already", MAX_PENDING_INPUT);
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        current.awaiting_input = false;
        current.look = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
        Ok(())
    }

    /// A fresh shell: the command that runs is lost, those that wait never run, and nothing is restored.
    pub(super) fn reset(&mut self) {
        self.abandon("the shell was reset");
        self.end_bash();
        *self.shared.state.borrow_mut() = None;
        self.shared.view.borrow_mut().cwd = self.context.environment.start_dir.to_string_lossy().into_owned();
        self.last_status = 0;
        self.restart_unreported = false;
        self.next_manner = Manner::Login;
        self.start_at = Some(Instant::now());
    }

    pub(super) fn close(&mut self, reason: &str) {
        self.abandon(reason);
        self.end_bash();
    }

    /// Ends bash and what it runs in the foreground. Its background jobs get what a closed terminal gives them: HUP.
    pub(super) fn end_bash(&mut self) {
        if let Some(bash) = self.bash.take() {
            if let Some(group) = bash.foreground() {
                let _ = crate::sys::signal::kill_group(group, libc::SIGKILL);
            }
            tokio::task::spawn_local(super::super::end_session(bash.watch));
        }
        self.starting = None;
        self.is_doomed = false;
        self.suspect_until = None;
    }

    pub(super) fn abandon(&mut self, reason: &str) {
        if let Some(current) = self.current.take() {
            self.end_without_status(&current.job.exec, OutcomeKind::Lost, 128 + libc::SIGKILL, reason);
        }
        while let Some(job) = self.queue.pop_front() {
            self.never_ran(&job, reason);
        }
    }
}
