//! The records of workspaces on disks: which there are, whether or not the disks can be opened.
//!
//! ```text
//! making ──▶ made ──▶ deleting ──▶ (no record)
//! ```
//!
//! A record is one word in a file of the data directory. `making` and `deleting` are on the disk before anything else happens; what
//! follows them is not waited for, because a start finds it out: a workspace that is there is `made`, and of one that is not there
//! these two records go. A workspace that is `made` and not there is not forgotten: its disks may come back.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use shared_protocol::{KeyName, WorkspaceId};

use crate::owner::WorkspaceName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    Making,
    Made,
    Deleting,
}

impl RecordState {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Making, "making\n"), (Self::Made, "made\n"), (Self::Deleting, "deleting\n")];

    fn text(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, text)| text)
    }
}

/// Whether a write waits until the disk has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Synced,
    Written,
}

/// `<data>/workspaces/.disks`, with a directory for each owner.
#[derive(Debug, Clone)]
pub struct Records(PathBuf);

impl Records {
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn path(&self, name: &WorkspaceName) -> PathBuf {
        self.0.join(name.owner.as_str()).join(name.id.as_str())
    }

    /// The state of a record. A file with any other content counts as `Made`: nothing is removed for it.
    pub fn state(&self, name: &WorkspaceName) -> io::Result<Option<RecordState>> {
        let text = match std::fs::read_to_string(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let known = RecordState::ALL.into_iter().find(|(_, known)| *known == text);
        Ok(Some(known.map_or(RecordState::Made, |(state, _)| state)))
    }

    pub fn write(&self, name: &WorkspaceName, state: RecordState, durability: Durability) -> io::Result<()> {
        let path = self.path(name);
        let of_owner = self.0.join(name.owner.as_str());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&of_owner)?;
        // The new content gets the name in one step: no crash leaves half a word. No workspace has a name that begins with a dot.
        let fresh = of_owner.join(format!(".{}", name.id));
        let mut file = std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        file.write_all(state.text().as_bytes())?;
        if durability == Durability::Synced {
            file.sync_all()?;
        }
        std::fs::rename(&fresh, &path)?;
        if durability == Durability::Synced {
            // The directories may be new as well, and so may be the image of disks, which is in the data directory.
            for directory in of_owner.ancestors().take(4) {
                std::fs::File::open(directory)?.sync_all()?;
            }
        }
        Ok(())
    }

    pub fn remove(&self, name: &WorkspaceName) -> io::Result<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The names of all records of one owner, or of all.
    pub fn names(&self, owner: Option<&KeyName>) -> io::Result<Vec<WorkspaceName>> {
        let owners = match owner {
            Some(owner) => vec![owner.clone()],
            None => entries(&self.0)?.into_iter().filter_map(|name| KeyName::new(name).ok()).collect(),
        };
        let mut all = Vec::new();
        for owner in owners {
            let names = entries(&self.0.join(owner.as_str()))?;
            let ids = names.into_iter().filter_map(|name| WorkspaceId::new(name).ok());
            all.extend(ids.map(|id| WorkspaceName { owner: owner.clone(), id }));
        }
        Ok(all)
    }
}

fn entries(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(owner: &str, id: &str) -> WorkspaceName {
        WorkspaceName { owner: KeyName::new(owner).unwrap(), id: WorkspaceId::new(id).unwrap() }
    }

    #[test]
    fn a_record_has_the_state_that_was_written_last_and_is_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("data/workspaces/.disks"));
        let (mine, other) = (name("alice", "w"), name("bob", "w"));
        assert_eq!(records.state(&mine).unwrap(), None);
        assert_eq!(records.names(None).unwrap(), []);
        for (state, durability) in [
            (RecordState::Making, Durability::Synced),
            (RecordState::Made, Durability::Written),
            (RecordState::Deleting, Durability::Synced),
        ] {
            records.write(&mine, state, durability).unwrap();
            assert_eq!(records.state(&mine).unwrap(), Some(state));
        }
        records.write(&other, RecordState::Made, Durability::Synced).unwrap();
        assert_eq!(records.names(Some(&mine.owner)).unwrap(), std::slice::from_ref(&mine));
        assert_eq!(records.names(None).unwrap().len(), 2);
        records.remove(&mine).unwrap();
        records.remove(&mine).unwrap();
        assert_eq!(records.names(None).unwrap(), [other]);
    }

    #[test]
    fn a_record_that_nobody_can_read_keeps_its_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        std::fs::create_dir(folder.path().join("alice")).unwrap();
        std::fs::write(folder.path().join("alice/w"), "").unwrap();
        assert_eq!(records.state(&name("alice", "w")).unwrap(), Some(RecordState::Made));
    }
}
