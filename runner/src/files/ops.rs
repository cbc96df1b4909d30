//! Looking, making, moving and removing: operations whose whole answer is a small document.
//!
//! It refuses to move or remove the root, the workspace, and what leads to it: a sandbox must keep the ground it stands on.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use shared_protocol::runner::{FileKind, FileView};
use shared_protocol::{ErrorBody, ErrorCode};

use super::channel::Answer;
use super::error::{At, from_errno, from_io, invalid, shown};
use super::node::{self, is_directory};
use super::resolve::{self, Last, Missing, Place, Places, resolve};
use super::tree;
use crate::sys::fork::rename_to_free_name;

/// What a new directory gets unless asked otherwise.
pub const DIRECTORY_MODE: u32 = 0o755;

pub fn stat(places: &Places, path: &[u8], last: Last) -> Result<FileView, ErrorBody> {
    resolve(places, path, last, Missing::Fail)?.node(path)?.view(path)
}

/// Makes a directory; with `parents` also those that lead to it, and then one that is there already is as good.
pub fn mkdir(places: &Places, path: &[u8], parents: bool, mode: Option<u32>) -> Result<FileView, ErrorBody> {
    let (last, missing) = if parents { (Last::Follow, Missing::Make) } else { (Last::Keep, Missing::Fail) };
    let place = resolve(places, path, last, missing)?;
    match &place.node {
        Some(node) if parents && is_directory(&node.stat) => return node.view(path),
        Some(_) => return Err(from_errno(path, Errno::EEXIST)),
        None => {}
    }
    let name = place.name(path)?;
    match mkdirat(place.parent(), name, Mode::from_bits_truncate(mode.unwrap_or(DIRECTORY_MODE))) {
        Err(Errno::EEXIST) if parents => {}
        other => other.at(path)?,
    }
    view_of(&place, name, path)
}

pub fn rename(places: &Places, from: &[u8], to: &[u8], overwrite: bool) -> Result<FileView, ErrorBody> {
    let source = resolve(places, from, Last::Keep, Missing::Fail)?;
    let target = resolve(places, to, Last::Keep, Missing::Fail)?;
    keep_the_ground(places, &source, from, "moved")?;
    keep_the_ground(places, &target, to, "replaced")?;
    let (from_name, to_name) = (source.name(from)?, target.name(to)?);
    let Some(node) = &source.node else { return Err(from_errno(from, Errno::ENOENT)) };
    if target.only_directory && !is_directory(&node.stat) {
        return Err(from_errno(to, Errno::ENOTDIR));
    }
    let replacing = || renameat(source.parent(), from_name, target.parent(), to_name).map_err(std::io::Error::from);
    let result = if overwrite {
        replacing()
    } else {
        match rename_to_free_name(source.parent(), from_name, target.parent(), to_name) {
            // Not as safe, but the best such a filesystem has: what appears between the look and the step is replaced.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => match target.node {
                Some(_) => Err(Errno::EEXIST.into()),
                None => replacing(),
            },
            other => other,
        }
    };
    result.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EEXIST | Errno::ENOTEMPTY) => ErrorBody::new(
            ErrorCode::Conflict,
            format!("{}: it exists already; overwrite=1 replaces a file or an empty directory", shown(to)),
        ),
        Some(Errno::EINVAL) => invalid(format!("{}: a directory cannot be moved into itself", shown(from))),
        _ => from_io(&[from, b" -> ", to].concat(), &error),
    })?;
    view_of(&target, to_name, to)
}

/// Removes a file or an empty directory; with `recursive`, a directory with everything in it.
pub fn delete(places: &Places, path: &[u8], recursive: bool, answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let place = resolve(places, path, Last::Keep, Missing::Fail)?;
    keep_the_ground(places, &place, path, "removed")?;
    let name = place.name(path)?;
    let Some(node) = &place.node else { return Err(from_errno(path, Errno::ENOENT)) };
    if !is_directory(&node.stat) {
        return unlinkat(place.parent(), name, UnlinkatFlags::NoRemoveDir).at(path);
    }
    if recursive {
        return tree::remove(place.parent(), name, path, answer);
    }
    unlinkat(place.parent(), name, UnlinkatFlags::RemoveDir).at(path)
}

fn keep_the_ground(places: &Places, place: &Place, path: &[u8], what: &str) -> Result<(), ErrorBody> {
    // A workspace that is not there needs no protection, and one that cannot be reached has it.
    let leads_to_workspace = match resolve::workspace(places) {
        Ok(workspace) => place.leads_to(&workspace).at(path)?,
        Err(_) => false,
    };
    if leads_to_workspace {
        return Err(invalid(format!("{}: the root and the workspace cannot be {what}", shown(path))));
    }
    Ok(())
}

/// Of what has the name now; the path is as the client gave it.
fn view_of(place: &Place, name: &[u8], path: &[u8]) -> Result<FileView, ErrorBody> {
    let stat = fstatat(place.parent(), name, AtFlags::AT_SYMLINK_NOFOLLOW).at(path)?;
    let text = match node::kind(&stat) {
        FileKind::Symlink => Some(node::link_text(place.parent().as_fd(), name).at(path)?),
        _ => None,
    };
    Ok(node::view(path, &stat, text.as_deref()))
}

#[cfg(test)]
#[path = "ops_test.rs"]
mod tests;
