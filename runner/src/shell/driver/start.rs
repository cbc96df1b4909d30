//! Starts bash, and applies a claim to a running bash.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::super::bash::{Bash, BashSpec};
use super::super::machine::{Event, StartMode, Ticket};
use super::super::scratch::{Scratch, ScratchFile};
use super::super::script::{self, Mark};
use super::marks::{Marks, Request};
use super::{Driver, LiveBash};
use crate::sys::tty::Size;

impl Driver {
    pub(super) fn start(&mut self, ticket: Ticket, mode: StartMode) -> Event {
        match self.try_start(ticket, mode) {
            Ok(live) => {
                self.live = Some(live);
                Event::Started
            }
            Err(error) => {
                tracing::error!(shell = %self.view.borrow().name, %error, ?mode, "bash could not be started");
                Event::StartFailed { why: error.to_string() }
            }
        }
    }

    fn try_start(&self, ticket: Ticket, mode: StartMode) -> io::Result<LiveBash> {
        let context = &self.context;
        let scratch = Scratch::new(&context.scratch, context.identity)?;
        let saved = self.saved_state.as_ref().filter(|_| mode.restores());
        let restore = saved.map(|saved| scratch.write(&saved.restore_file(self.fresh_options.as_ref()))).transpose()?;
        let view = self.view.borrow();
        let opened_with = self.extra_variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        // A restored state has all of them, as the commands before have left them.
        let variables = context.environment.of_session().chain(opened_with).filter(|_| saved.is_none());
        let init = script::init_file(script::InitSpec {
            profile: mode == StartMode::Login,
            restore: restore.as_ref().map(ScratchFile::path),
            cwd: &view.cwd,
            variables: variables.collect(),
        });
        let init = scratch.write(init.as_bytes())?;
        let spec = BashSpec {
            program: &context.config.shell,
            identity: context.identity,
            environment: saved.is_none().then_some(&*context.environment),
            size: Size { cols: view.cols, rows: view.rows },
        };
        let bash = Bash::start(&spec, &context.reaper, scratch)?;
        bash.send_line(&script::init_line(init.path()))?;
        let scripts = restore.into_iter().chain([init]).collect();
        let mut live = LiveBash { scripts, old_files: Vec::new(), bash, marks: Marks::default() };
        live.marks.ask(Request { ticket, mark: Mark::new(), state: live.state_file() });
        live.send_tail()?;
        Ok(live)
    }

    /// Whether bash has another directory or other variables than it would have if it had started with the claim.
    pub(super) fn is_claim_needed(&self) -> bool {
        let environment = &self.context.environment;
        let is_in_start_dir = |live: &LiveBash| {
            let at = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
            let cwd = at(&PathBuf::from(format!("/proc/{}/cwd", live.bash.pid())));
            cwd.is_some() && cwd == at(&environment.start_dir)
        };
        // The directories are not compared by name: a directory may have been mounted over the one that bash is in.
        environment.claimed().next().is_some() || !self.live.as_ref().is_some_and(is_in_start_dir)
    }

    pub(super) fn send_claim(&mut self, ticket: Ticket) -> Option<Event> {
        let error = self.try_send_claim(ticket).err()?;
        tracing::warn!(shell = %self.view.borrow().name, %error, "a claim could not be sent to bash");
        Some(Event::SendFailed { ticket })
    }

    fn try_send_claim(&mut self, ticket: Ticket) -> io::Result<()> {
        let Some(live) = &mut self.live else { return Err(io::ErrorKind::NotConnected.into()) };
        let Some(previous) = live.marks.reported() else { return Err(io::ErrorKind::NotConnected.into()) };
        let environment = &self.context.environment;
        let text = script::claim_file(&mut environment.claimed(), &environment.start_dir.to_string_lossy());
        let claim = live.bash.scratch.write(text.as_bytes())?;
        live.bash.send_line(&script::claim_line(claim.path(), &previous.variable))?;
        live.scripts.push(claim);
        // Bash writes no state after a claim: the next shell starts with the claim itself.
        live.marks.ask(Request { ticket, mark: Mark::new(), state: None });
        live.send_tail()
    }
}
