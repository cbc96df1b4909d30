//! Stories of `cove shell`: a person at a real terminal window, in which the real command runs against the real daemon.
//!
//! The stories assert on the screen that a terminal emulator draws from the output. Every window is checked to be restored
//! when the command ends. They run only on the `local` runtime: `daemon::terminal` covers terminals on other runtimes.

mod commands;
mod leaving;
mod returning;
mod screen;

use e2e::daemon::{Cove, Daemon, Session, TerminalWindow};

/// A daemon with one session, and the commands that find it.
struct Desk {
    daemon: Daemon,
    session: Session,
    cove: Cove,
}

impl Desk {
    async fn new() -> Self {
        let daemon = Daemon::start().await;
        let session = daemon.session().await;
        let cove = Cove::of(&daemon);
        Self { daemon, session, cove }
    }

    /// Opens a window with a new shell in the session, and waits for its prompt.
    async fn shell(&self) -> TerminalWindow {
        let window = TerminalWindow::open(&self.cove, &["shell", &self.session.id]);
        window.prompts().await;
        window
    }

    /// Opens a window with the shell of this name, which keeps running when the window is left.
    async fn named_shell(&self, name: &str) -> TerminalWindow {
        TerminalWindow::open(&self.cove, &["shell", &self.session.id, "--name", name])
    }

    /// Whether a program is installed and runs in the sandbox. If not, it prints the skip.
    async fn has(&self, program: &str, story: &str) -> bool {
        let found = self.session.exec(&format!("command -v {program}")).await["exit_code"] == 0;
        if !found {
            e2e::skipped(story, &format!("{program} is not installed"));
        }
        found
    }
}
