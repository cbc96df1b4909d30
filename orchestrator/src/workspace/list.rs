//! The list of workspaces: directories and those on disks, with their sizes and limits.

use std::path::Path;

use shared_protocol::api::WorkspaceKind;
use shared_protocol::{KeyName, WorkspaceId};

use super::dirs::{DISKS, OWNERS, WorkspaceDirs};
use super::{WorkspaceError, usage};
use crate::owner::WorkspaceName;

/// The most files that one listing looks at to determine sizes, in all workspaces together.
const MAX_ENTRIES_COUNTED: usize = 50_000;

/// A workspace as a listing finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWorkspace {
    pub name: WorkspaceName,
    pub made: std::time::SystemTime,
    pub kind: WorkspaceKind,
    /// The size. `None` if counting would take too long, or if the workspace cannot be reached.
    pub size_bytes: Option<u64>,
    /// The size limit, if there is one that is enforced.
    pub limit_bytes: Option<u64>,
}

impl WorkspaceDirs {
    /// A workspace that is a directory, with its size from its quota or by a walk.
    fn found_directory(
        &self,
        name: WorkspaceName,
        made: std::time::SystemTime,
        budget: &mut usage::Budget,
    ) -> FoundWorkspace {
        let path = self.path(&name);
        let project = self.0.quota.account_of(&path);
        let counted = project.as_ref().and_then(|project| project.used_bytes().ok());
        let size_bytes = counted.or_else(|| usage::used_bytes(&path, budget));
        let limit_bytes = project.and_then(|_| self.0.quota.bytes());
        FoundWorkspace { name, made, kind: WorkspaceKind::Directory, size_bytes, limit_bytes }
    }

    fn found_on_disk(&self, name: WorkspaceName) -> FoundWorkspace {
        let on_disks = &self.0.on_disks;
        FoundWorkspace {
            made: on_disks.made(&name).unwrap_or(std::time::SystemTime::UNIX_EPOCH),
            kind: WorkspaceKind::Disk,
            size_bytes: on_disks.used_bytes(&name),
            limit_bytes: on_disks.limit(),
            name,
        }
    }

    /// Lists the workspaces of one owner, or of all, with their creation times and sizes, sorted by owner and id.
    pub async fn list(&self, owner: Option<&KeyName>) -> Result<Vec<FoundWorkspace>, WorkspaceError> {
        let (dirs, owner) = (self.clone(), owner.cloned());
        let look = move || {
            let mut budget = usage::Budget(MAX_ENTRIES_COUNTED);
            let owners = owner.map_or_else(|| dirs.owners(), |owner| Ok(vec![owner]))?;
            let mut all = Vec::new();
            for owner in owners {
                let on_disks = dirs.0.on_disks.names(Some(&owner))?;
                for (name, made) in dirs.entries(&owner)? {
                    if !on_disks.contains(&name) {
                        all.push(dirs.found_directory(name, made, &mut budget));
                    }
                }
                all.extend(on_disks.into_iter().map(|name| dirs.found_on_disk(name)));
            }
            all.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(all)
        };
        // This does not use the disk threads, whose time is limited: a walk of large trees may take long.
        let found = tokio::task::spawn_blocking(look).await.map_err(std::io::Error::other);
        let found: std::io::Result<Vec<FoundWorkspace>> = found.and_then(|found| found);
        found.map_err(|error| WorkspaceError::Failed(format!("workspaces could not be listed: {error}")))
    }

    /// The owners that have, or had, a workspace.
    fn owners(&self) -> std::io::Result<Vec<KeyName>> {
        let mut owners = vec![KeyName::first()];
        for place in [OWNERS, DISKS] {
            for entry in directory(&self.0.root.join(place))? {
                owners.extend(entry?.file_name().to_str().and_then(|name| KeyName::new(name).ok()));
            }
        }
        owners.sort();
        owners.dedup();
        Ok(owners)
    }

    /// How many workspaces an owner has.
    pub(super) fn count(&self, owner: &KeyName) -> std::io::Result<usize> {
        Ok(self.entries(owner)?.len() + self.0.on_disks.names(Some(owner))?.len())
    }

    fn entries(&self, owner: &KeyName) -> std::io::Result<Vec<(WorkspaceName, std::time::SystemTime)>> {
        let mut found = Vec::new();
        for entry in directory(&self.of_owner(owner))? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| WorkspaceId::new(name).ok()) else { continue };
            // A workspace that is deleted meanwhile is left out.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                // Code inside a sandbox cannot forge the creation time. The modification time is for file systems without a
                // creation time.
                let made = metadata.created().or_else(|_| metadata.modified());
                let name = WorkspaceName { owner: owner.clone(), id };
                found.push((name, made.unwrap_or(std::time::SystemTime::UNIX_EPOCH)));
            }
        }
        Ok(found)
    }
}

/// The entries of a directory; none if it does not exist.
fn directory(path: &Path) -> std::io::Result<impl Iterator<Item = std::io::Result<std::fs::DirEntry>>> {
    match std::fs::read_dir(path) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}
