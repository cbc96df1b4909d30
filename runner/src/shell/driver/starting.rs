//! Starting bash, and starting another when it has gone.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use tokio::time::Instant;

use super::super::bash::{Bash, BashSpec};
use super::super::scratch::Scratch;
use super::super::script::{self, Mark, file};
use super::messages::Job;
use super::{Driver, Manner, Starting};
use crate::reaper::Exit;
use crate::sys::tty::Size;

/// How long the login files may take before a shell is started without them.
pub(super) const STARTUP_DEADLINE: Duration = Duration::from_secs(10);

/// Shells that may be tried for one command.
const MAX_ATTEMPTS: u32 = 3;

/// Starts in a row, with no command run between them, before the next start waits.
const QUICK_STARTS: u32 = 4;
const START_PAUSE: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) fn start_if_due(&mut self) {
        if self.bash.is_some() || self.start_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.start_at = None;
        let manner = self.next_manner;
        if let Err(error) = self.start(manner) {
            tracing::error!(shell = %self.shared.view.borrow().name, %error, ?manner, "bash could not be started");
            self.start_failed(manner, &error.to_string());
        }
    }

    pub(super) fn start(&mut self, manner: Manner) -> std::io::Result<()> {
        let context = &self.context;
        let scratch = Scratch::new(&context.scratch, context.identity)?;
        let state = self.shared.state.borrow();
        let state = state.as_ref().filter(|_| manner == Manner::Restore);
        // Without a state to restore it begins with the environment, and all that came with a claim is in that.
        self.is_claim_due &= state.is_some();
        if let Some(state) = state {
            scratch.write(file::RESTORE, &state.restore_file(self.fresh.as_ref()))?;
        }
        let cwd = self.shared.view.borrow().cwd.clone();
        let init = script::InitSpec {
            profile: manner == Manner::Login,
            restore: state.is_some(),
            cwd: &cwd,
            variables: &mut self
                .extra_variables
                .iter()
                .filter(|_| state.is_none())
                .map(|(name, value)| (name.as_str(), value.as_str())),
        };
        scratch.write(file::INIT, script::init_file(scratch.dir(), init).as_bytes())?;
        let view = self.shared.view.borrow();
        let spec = BashSpec {
            program: &context.config.shell,
            identity: context.identity,
            environment: state.is_none().then_some(&*context.environment),
            size: Size { cols: view.cols, rows: view.rows },
        };
        let bash = Bash::start(&spec, &context.reaper, scratch)?;
        drop(view);
        let mark = Mark::new(0);
        bash.feed(&script::init_line(bash.scratch.dir()))?;
        bash.feed(&script::tail_line(bash.scratch.dir(), &mark))?;
        self.starting = Some(Starting { mark, manner, deadline: Instant::now() + STARTUP_DEADLINE });
        self.bash = Some(bash);
        Ok(())
    }

    /// Has bash take what came with the claim, where it has not begun with that. The next command waits for it, as for a start.
    pub(super) fn send_claim(&mut self) {
        self.is_claim_due = false;
        // From here on the state before it is not what a new shell shall have: until the first command has left another, that
        // begins with the environment.
        *self.shared.state.borrow_mut() = None;
        self.next_manner = Manner::Login;
        let cwd = self.context.environment.start_dir.to_string_lossy().into_owned();
        let Some(bash) = &self.bash else { return };
        let mark = Mark::new(self.ended.slot);
        let text = script::claim_file(&mut self.context.environment.claimed(), &cwd);
        let sent = bash
            .scratch
            .write(file::CLAIM, text.as_bytes())
            .and_then(|()| bash.feed(&script::claim_line(bash.scratch.dir(), &self.ended.variable)))
            .and_then(|()| bash.feed(&script::short_tail_line(bash.scratch.dir(), &mark)));
        self.shared.view.borrow_mut().cwd = cwd;
        match sent {
            Ok(()) => {
                self.starting =
                    Some(Starting { mark, manner: Manner::Claim, deadline: Instant::now() + STARTUP_DEADLINE });
            }
            Err(error) => {
                tracing::warn!(shell = %self.shared.view.borrow().name, %error, "replacing a shell that takes no claim");
                self.replace_bash();
            }
        }
    }

    /// Whether what is in bash's hands by now would be different had it begun with the claim.
    pub(super) fn has_to_know_of_claim(&self) -> bool {
        let environment = &self.context.environment;
        let is_there = |bash: &Bash| {
            let at = |path: &std::path::Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
            let cwd = at(&std::path::PathBuf::from(format!("/proc/{}/cwd", bash.pid())));
            cwd.is_some() && cwd == at(&environment.start_dir)
        };
        // A directory may have been mounted over the one it is in.
        environment.claimed().next().is_some() || !self.bash.as_ref().is_some_and(is_there)
    }

    pub(super) fn start_failed(&mut self, manner: Manner, why: &str) {
        self.starting = None;
        match manner {
            Manner::Login | Manner::Restore | Manner::Claim => {
                self.next_manner = if manner == Manner::Claim { Manner::Login } else { Manner::Bare };
                self.start_at = Some(Instant::now());
            }
            Manner::Bare => {
                // Nothing better to try: those who wait are told, and the next exec tries from the beginning.
                let reason = format!("no shell could be started: {why}");
                self.next_manner = if self.shared.state.borrow().is_some() { Manner::Restore } else { Manner::Login };
                while let Some(job) = self.queue.pop_front() {
                    self.never_ran(&job, &reason);
                }
            }
        }
    }

    /// Kills bash; what follows, follows from its exit.
    pub(super) fn replace_bash(&mut self) {
        if let Some(bash) = &self.bash {
            bash.watch.signal(libc::SIGKILL);
            self.is_doomed = true;
        }
    }

    pub(super) fn bash_exited(&mut self, exit: Exit) {
        let starting = self.starting.take();
        if let Some(state) = self.shared.state.borrow_mut().as_mut() {
            state.load();
        }
        if let Some(current) = self.current.take() {
            self.restart_unreported = true;
            if self.bash.as_ref().is_some_and(|bash| bash.scratch.has_begun(&current.mark.variable)) {
                self.finish_after_death(current, exit);
            } else {
                self.send_again(current.job);
            }
        } else if starting.is_none() {
            self.restart_unreported = true;
        }
        self.bash = None;
        self.is_doomed = false;
        self.suspect_until = None;
        self.is_state_due = false;
        self.tell_state();
        self.shared.view.borrow_mut().restarts += 1;
        self.quick_starts += 1;
        let pause = if self.quick_starts > QUICK_STARTS { START_PAUSE } else { Duration::ZERO };
        match starting {
            Some(starting) => self.start_failed(starting.manner, "bash ended while it started"),
            None => self.start_at = Some(Instant::now() + pause),
        }
    }

    pub(super) fn send_again(&mut self, mut job: Box<Job>) {
        job.restarted = true;
        if job.attempts >= MAX_ATTEMPTS {
            self.never_ran(&job, "the shell did not take the command, nor did those that replaced it");
        } else {
            self.queue.push_front(job);
        }
    }
}
