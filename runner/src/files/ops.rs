//! Stat, mkdir, move and delete: operations whose whole reply is a small document.
//!
//! They refuse to move or remove the root, the workspace, and the directories that lead to it.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};
use shared_protocol::runner::{FileKind, FileView};
use shared_protocol::{ErrorBody, ErrorCode};

use super::error::{At, from_errno, invalid, shown};
use super::inode::{self, is_directory};
use super::protocol::ReplyWriter;
use super::resolve::{self, FinalLink, MissingDirs, Resolved, Roots, resolve};
use super::tree;

/// The default mode of a new directory.
pub const DIRECTORY_MODE: u32 = 0o755;

/// Describes the file at a path.
pub fn stat(roots: &Roots, path: &[u8], last: FinalLink) -> Result<FileView, ErrorBody> {
    resolve(roots, path, last, MissingDirs::Fail)?.inode(path)?.view(path)
}

/// Makes a directory. With `parents` it also makes the missing parents, and an existing directory is no error.
pub fn mkdir(roots: &Roots, path: &[u8], parents: bool, mode: Option<u32>) -> Result<FileView, ErrorBody> {
    let (last, missing) =
        if parents { (FinalLink::Follow, MissingDirs::Create) } else { (FinalLink::Keep, MissingDirs::Fail) };
    let resolved = resolve(roots, path, last, missing)?;
    match &resolved.inode {
        Some(inode) if parents && is_directory(&inode.stat) => return inode.view(path),
        Some(_) => return Err(from_errno(path, Errno::EEXIST)),
        None => {}
    }
    let name = resolved.name(path)?;
    match mkdirat(resolved.parent(), name, Mode::from_bits_truncate(mode.unwrap_or(DIRECTORY_MODE))) {
        Err(Errno::EEXIST) if parents => {}
        other => other.at(path)?,
    }
    view_of(&resolved, name, path)
}

/// Moves a file or a directory.
pub fn rename(roots: &Roots, from: &[u8], to: &[u8], overwrite: bool) -> Result<FileView, ErrorBody> {
    let source = resolve(roots, from, FinalLink::Keep, MissingDirs::Fail)?;
    let target = resolve(roots, to, FinalLink::Keep, MissingDirs::Fail)?;
    protect_workspace(roots, &source, from, "moved")?;
    protect_workspace(roots, &target, to, "replaced")?;
    let (from_name, to_name) = (source.name(from)?, target.name(to)?);
    let Some(inode) = &source.inode else { return Err(from_errno(from, Errno::ENOENT)) };
    if target.only_directory && !is_directory(&inode.stat) {
        return Err(from_errno(to, Errno::ENOTDIR));
    }
    let replacing = || renameat(source.parent(), from_name, target.parent(), to_name);
    let result = if overwrite {
        replacing()
    } else {
        match rename_to_free_name(source.parent(), from_name, target.parent(), to_name) {
            // The kernel or the filesystem cannot rename without replacing (EINVAL also means that a directory would move
            // into itself). A check before the rename is the best alternative: a file that appears in between is replaced.
            Err(Errno::ENOSYS | Errno::EINVAL) => match target.inode {
                Some(_) => Err(Errno::EEXIST),
                None => replacing(),
            },
            other => other,
        }
    };
    result.map_err(|errno| match errno {
        Errno::EEXIST | Errno::ENOTEMPTY => ErrorBody::new(
            ErrorCode::Conflict,
            format!("{}: it exists already; overwrite=1 replaces a file or an empty directory", shown(to)),
        ),
        Errno::EINVAL => invalid(format!("{}: a directory cannot be moved into itself", shown(from))),
        other => from_errno(&[from, b" -> ", to].concat(), other),
    })?;
    view_of(&target, to_name, to)
}

/// Renames only if the new name is free.
fn rename_to_free_name(
    from: BorrowedFd<'_>,
    from_name: &[u8],
    to: BorrowedFd<'_>,
    to_name: &[u8],
) -> Result<(), Errno> {
    renameat_with(from, from_name, to, to_name, RenameFlags::NOREPLACE)
        .map_err(|errno| Errno::from_raw(errno.raw_os_error()))
}

/// Removes a file or an empty directory; with `recursive`, a directory with everything in it.
pub fn delete(roots: &Roots, path: &[u8], recursive: bool, reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let resolved = resolve(roots, path, FinalLink::Keep, MissingDirs::Fail)?;
    protect_workspace(roots, &resolved, path, "removed")?;
    let name = resolved.name(path)?;
    let Some(inode) = &resolved.inode else { return Err(from_errno(path, Errno::ENOENT)) };
    if !is_directory(&inode.stat) {
        return unlinkat(resolved.parent(), name, UnlinkatFlags::NoRemoveDir).at(path);
    }
    if recursive {
        return tree::remove(resolved.parent(), name, path, reply);
    }
    unlinkat(resolved.parent(), name, UnlinkatFlags::RemoveDir).at(path)
}

/// Refuses to change the workspace, or a directory that leads to it.
fn protect_workspace(roots: &Roots, resolved: &Resolved, path: &[u8], what: &str) -> Result<(), ErrorBody> {
    // A workspace that does not exist needs no protection, and a workspace that cannot be reached cannot be removed.
    let leads_to_workspace = match resolve::workspace(roots) {
        Ok(workspace) => resolved.leads_to(&workspace).at(path)?,
        Err(_) => false,
    };
    if leads_to_workspace {
        return Err(invalid(format!("{}: the root and the workspace cannot be {what}", shown(path))));
    }
    Ok(())
}

/// The description of the file that has the name now, with the path as the client sent it.
fn view_of(resolved: &Resolved, name: &[u8], path: &[u8]) -> Result<FileView, ErrorBody> {
    let stat = fstatat(resolved.parent(), name, AtFlags::AT_SYMLINK_NOFOLLOW).at(path)?;
    let text = match inode::kind(&stat) {
        FileKind::Symlink => Some(inode::link_text(resolved.parent().as_fd(), name).at(path)?),
        _ => None,
    };
    Ok(inode::view(path, &stat, text.as_deref()))
}

#[cfg(test)]
#[path = "ops_test.rs"]
mod tests;
