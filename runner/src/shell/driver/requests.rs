//! Handles the requests of clients to a shell.

use std::time::Duration;

use shared_protocol::{ErrorBody, ErrorCode, ExecId};

use super::super::bash::MAX_PENDING_INPUT;
use super::super::machine::{CloseReason, Event, JobId};
use super::interrupt::SentInterrupt;
use super::messages::{QueuedExec, Request};
use super::{Driver, LiveBash, RunningCommand};
use crate::sys::tty::Size;

/// The signals that take a waiting command out of the queue: what people and programs send to end something.
const ENDING_SIGNALS: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGKILL, libc::SIGPIPE, libc::SIGTERM];

impl Driver {
    pub(super) fn on_request(&mut self, request: Request) {
        match request {
            Request::Exec(job) => self.queue(job),
            Request::Signal { number, exec_id, reply } => {
                let _ = reply.send(self.signal(number, exec_id.as_ref()));
            }
            Request::Input { bytes, reply } => {
                let _ = reply.send(self.type_in(&bytes));
            }
            // If no program runs that could read the input, it is lost, as at any terminal.
            Request::Type { bytes, reply } => {
                let _ = self.type_in(&bytes);
                let _ = reply.send(());
            }
            Request::Resize { size, reply } => {
                let _ = reply.send(self.resize(size));
            }
            Request::Attach { reply } => {
                let _ = reply.send(self.attachments.add());
            }
            Request::Reset { reply } => {
                self.handle(Event::Reset);
                let _ = reply.send(());
            }
            Request::Claim => self.handle(Event::Claimed),
            Request::State { reply } => {
                self.state_requests.retain(|waiting| !waiting.is_closed());
                self.state_requests.push(reply);
                self.handle(Event::StateRequested);
            }
            Request::Drain => self.handle(Event::Drain),
            Request::Close { reply } => {
                self.handle(Event::Close(CloseReason::Closed));
                let _ = reply.send(());
            }
        }
    }

    pub(super) fn queue(&mut self, job: Box<QueuedExec>) {
        self.jobs_made += 1;
        let id = JobId(self.jobs_made);
        let timeout = job.request.timeout_ms.map(Duration::from_millis);
        let patience = job.request.queue_timeout_ms.map(Duration::from_millis);
        self.jobs.insert(id, job);
        self.handle(Event::Queued { job: id, timeout, patience });
        let front = self.machine.in_front_of(id).and_then(|front| self.jobs.get(&front));
        if let (Some(job), Some(front)) = (self.jobs.get(&id), front) {
            job.exec.note_queued(front.exec.id.clone());
        }
    }

    /// The job of an exec that waits in the queue.
    fn waiting(&self, exec_id: &ExecId) -> Option<JobId> {
        let running = self.running.as_ref().map(|running| running.job);
        let mut jobs = self.jobs.iter().filter(|(id, _)| Some(**id) != running);
        jobs.find(|(_, job)| job.exec.id == *exec_id).map(|(id, _)| *id)
    }

    fn running(&mut self) -> Result<(&mut RunningCommand, &mut LiveBash), ErrorBody> {
        match (&mut self.running, &mut self.live) {
            (Some(running), Some(live)) => Ok((running, live)),
            _ => {
                let message = format!("no command is running in shell {}", self.view.borrow().name);
                Err(ErrorBody::new(ErrorCode::Conflict, message))
            }
        }
    }

    fn signal(&mut self, number: i32, exec_id: Option<&ExecId>) -> Result<(), ErrorBody> {
        if let Some((id, job)) = exec_id.and_then(|id| self.waiting(id).map(|job| (id, job))) {
            if !ENDING_SIGNALS.contains(&number) {
                let message =
                    format!("exec {id} waits in the queue, where only a signal that ends programs has an effect");
                return Err(ErrorBody::new(ErrorCode::Conflict, message));
            }
            self.handle(Event::Cancelled { job, signal: number });
            return Ok(());
        }
        let (running, live) = self.running()?;
        if let Some(id) = exec_id.filter(|id| **id != running.exec.id) {
            let message = format!("exec {id} is not running");
            return Err(ErrorBody::new(ErrorCode::Conflict, message));
        }
        let sent = SentInterrupt::before(number, &live.bash);
        live.bash.signal_foreground(number).map_err(|error| {
            ErrorBody::new(ErrorCode::Conflict, format!("no foreground program took the signal: {error}"))
        })?;
        self.handle(Event::Signalled { may_be_lost: sent.is_some() });
        if let (Some(running), Some(live)) = (&mut self.running, &self.live) {
            running.interrupt = sent.map(|sent| sent.after(&live.bash));
        }
        Ok(())
    }

    fn type_in(&mut self, bytes: &[u8]) -> Result<(), ErrorBody> {
        let (_, live) = self.running()?;
        if !live.bash.type_in(bytes) {
            let message = format!("{MAX_PENDING_INPUT} bytes of input wait to be read already");
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        self.handle(Event::Typed);
        Ok(())
    }

    fn resize(&mut self, size: Size) -> Result<(), ErrorBody> {
        {
            let mut view = self.view.borrow_mut();
            (view.cols, view.rows) = (size.cols, size.rows);
        }
        let resized = self.live.as_ref().map_or(Ok(()), |live| live.bash.resize(size));
        resized.map_err(|error| ErrorBody::new(ErrorCode::InternalError, error.to_string()))
    }
}
