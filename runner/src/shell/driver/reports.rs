//! Turns the reports and output of bash into events of the machine.

use std::io;

use super::super::bash;
use super::super::control::Record;
use super::super::machine::{Event, Report, Ticket};
use super::super::saved_state::SavedState;
use super::Driver;
use crate::reaper::Exit;

/// The status with which bash refuses a command that it cannot parse.
const SYNTAX_ERROR: i32 = 2;

/// Whether a command may have damaged bash's memory.
///
/// After a command substitution that never ends, bash 5.2 writes outside of its own buffers (valgrind shows it in a script
/// of two lines), and dies at some later command. So such a bash is not used again. Brackets in quotes can make this check
/// wrong, which costs a new shell and nothing else.
fn may_have_broken_bash(cmd: &str, status: i32) -> bool {
    let count = |bracket: u8| cmd.bytes().filter(|byte| *byte == bracket).count();
    status == SYNTAX_ERROR && ["$(", "<(", ">("].iter().any(|open| cmd.contains(open)) && count(b'(') > count(b')')
}

impl Driver {
    pub(super) fn on_bash_event(&mut self, event: bash::Event) {
        match event {
            // It comes on the other socket.
            bash::Event::Record(Record::Begun { .. }) => {}
            bash::Event::Record(Record::Done { nonce, status, cwd }) => {
                if let Some(ticket) = self.live.as_mut().and_then(|live| live.marks.report(&nonce)) {
                    self.on_report(ticket, status, cwd);
                }
            }
            bash::Event::Record(Record::State { nonce, shellopts, bashopts }) => {
                self.on_state_record(&nonce, Some((&shellopts, &bashopts)));
            }
            bash::Event::Record(Record::NoState { nonce }) => self.on_state_record(&nonce, None),
            bash::Event::Terminal(bytes) => {
                self.record_terminal_output(&bytes);
                self.handle(Event::Printed);
            }
            // Nobody else would continue a shell that stopped itself.
            bash::Event::Stopped => {
                if let Some(live) = &self.live {
                    live.bash.watch.signal(libc::SIGCONT);
                }
            }
            bash::Event::Exited(exit) => self.on_exit(exit),
        }
    }

    fn on_report(&mut self, ticket: Ticket, status: i32, cwd: Vec<u8>) {
        let (mut has_begun, mut is_broken) = (false, false);
        if let (Some(live), Some(running)) = (&mut self.live, &self.running) {
            has_begun = live.marks.reported().is_some_and(|mark| live.bash.has_begun(&mark.variable));
            let job = self.jobs.get(&running.job);
            is_broken = job.is_some_and(|job| may_have_broken_bash(&job.request.cmd, status));
        }
        self.handle(Event::Reported(Report { ticket, status, has_begun, may_have_broken_bash: is_broken, cwd }));
    }

    /// Handles a written state with these options, or one that could not be written.
    fn on_state_record(&mut self, nonce: &str, options: Option<(&str, &str)>) {
        let Some(live) = &mut self.live else { return };
        // The client of the last command has its answer by now.
        live.old_files.clear();
        let Some((ticket, file)) = live.marks.state_written(nonce) else { return };
        if let (None, Some((shellopts, bashopts)), false) = (&self.fresh_options, options, self.is_copy) {
            self.fresh_options = Some(SavedState::with_options(shellopts, bashopts));
        }
        let saved = match options {
            Some((shellopts, bashopts)) => SavedState::new(shellopts, bashopts, file),
            None => Err(io::ErrorKind::StorageFull.into()),
        };
        let saved = saved.inspect_err(|error| {
            tracing::warn!(shell = %self.view.borrow().name, %error, "the state of a shell is not saved");
        });
        self.handle(Event::StateWritten { ticket, saved: saved.ok() });
    }

    fn on_exit(&mut self, exit: Exit) {
        let live = self.live.as_mut().filter(|_| self.running.is_some());
        let has_begun = live
            .is_some_and(|live| live.marks.asked().is_some_and(|request| live.bash.has_begun(&request.mark.variable)));
        self.handle(Event::Exited { exit, has_begun });
    }
}
