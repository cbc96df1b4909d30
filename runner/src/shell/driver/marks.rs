//! Matches bash's reports to requests: the machine's tickets, and the nonces of the lines that were sent to bash.

use std::fs::File;
use std::path::Path;

use super::super::machine::Ticket;
use super::super::scratch::StateFile;
use super::super::script::Mark;

/// One thing that bash was asked to do.
pub(super) struct Request {
    pub(super) ticket: Ticket,
    pub(super) mark: Mark,
    /// The file for the state after it. `None`: bash writes none, or the state is already kept.
    pub(super) state: Option<StateFile>,
}

impl Request {
    pub(super) fn state_path(&self) -> Option<&Path> {
        self.state.as_ref().map(|state| state.name.path())
    }
}

/// The requests to one bash.
#[derive(Default)]
pub(super) struct Marks {
    /// The request that bash has not reported yet.
    asked: Option<Request>,
    /// The latest reported request. Bash may report it again, and writes its state after it.
    reported: Option<Request>,
}

impl Marks {
    pub(super) fn ask(&mut self, request: Request) {
        self.asked = Some(request);
    }

    /// The request that bash has not reported yet.
    pub(super) fn asked(&self) -> Option<&Request> {
        self.asked.as_ref()
    }

    /// The mark of what bash ran last.
    pub(super) fn reported(&self) -> Option<&Mark> {
        self.reported.as_ref().map(|request| &request.mark)
    }

    /// Takes the nonce of a report. Returns the ticket if this is the first report of the current request.
    pub(super) fn report(&mut self, nonce: &str) -> Option<Ticket> {
        self.reported = Some(self.asked.take_if(|request| request.mark.nonce == nonce)?);
        self.reported.as_ref().map(|request| request.ticket)
    }

    /// Takes the nonce of a written state. Returns its ticket, and the file, which has no name any more.
    pub(super) fn state_written(&mut self, nonce: &str) -> Option<(Ticket, File)> {
        let request = self.reported.as_mut().filter(|request| request.mark.nonce == nonce)?;
        let StateFile { name, file } = request.state.take()?;
        drop(name);
        Some((request.ticket, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::machine::Ticket;
    use crate::shell::scratch::{Scratch, ScratchRoot};
    use crate::sys::identity::Identity;

    #[test]
    fn a_report_and_a_state_count_once_and_only_with_the_nonce_of_what_was_asked() {
        let dir = tempfile::tempdir().unwrap();
        let root = ScratchRoot::new(Some(dir.path()), None).unwrap();
        let scratch = Scratch::new(&root, Identity { uid: 0, gid: 0, switch: false }).unwrap();
        let (mut marks, mark) = (Marks::default(), Mark::new());
        let (ticket, nonce, state) = (Ticket::for_test(7), mark.nonce.clone(), scratch.state_file().unwrap());
        let path = state.name.path().to_owned();
        assert_eq!(marks.report(&nonce), None);
        marks.ask(Request { ticket, mark, state: Some(state) });
        assert_eq!(marks.report("guess"), None);
        assert!(marks.state_written(&nonce).is_none(), "no state before the report");
        assert_eq!(marks.report(&nonce), Some(ticket));
        assert_eq!(marks.report(&nonce), None);
        assert!(marks.state_written("guess").is_none());
        assert!(path.exists());
        assert_eq!(marks.state_written(&nonce).unwrap().0, ticket);
        assert!(!path.exists(), "nobody can open it by its name now");
        assert!(marks.state_written(&nonce).is_none());
    }
}
