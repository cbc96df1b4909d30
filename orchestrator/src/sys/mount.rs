//! The kernel's mount calls by descriptor (Linux 5.12): a mount is made detached, given all its attributes, and only then
//! put in its place. At no moment is it visible with fewer restrictions than asked for, and no path is walked twice.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::{check, descriptor};

/// What a mount may be used for; `true` forbids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restrictions {
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
}

impl Restrictions {
    fn attributes(self) -> u64 {
        let flags = [
            (self.read_only, libc::MOUNT_ATTR_RDONLY),
            (self.no_suid, libc::MOUNT_ATTR_NOSUID),
            (self.no_dev, libc::MOUNT_ATTR_NODEV),
            (self.no_exec, libc::MOUNT_ATTR_NOEXEC),
        ];
        flags.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag)
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(io::Error::other)
}

const EMPTY_PATH: libc::c_uint = 0x1000;

/// A detached copy of the mount at `path`, seen from `dir`, with what is mounted below it if `recursive`.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | EMPTY_PATH;
    if recursive {
        flags |= 0x8000; // AT_RECURSIVE
    }
    // SAFETY: a live C string and integers.
    descriptor(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
}

/// A new file system, detached. Options are `(name, value)`; an empty value is a flag.
pub fn new_filesystem(kind: &str, options: &[(&str, String)], restrictions: Restrictions) -> io::Result<OwnedFd> {
    let kind_name = c_string(kind)?;
    // SAFETY: a live C string and an integer.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, kind_name.as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    let configure = |command: libc::c_uint, name: Option<&CString>, value: Option<&CString>| {
        let name = name.map_or(std::ptr::null(), |s| s.as_ptr());
        let value = value.map_or(std::ptr::null(), |s| s.as_ptr());
        // SAFETY: live C strings or null, as the command asks for.
        check(unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, name, value, 0) })
    };
    for (name, value) in options {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{kind} does not take {name}={value}: {e}"));
        let name_c = c_string(name)?;
        if value.is_empty() {
            configure(libc::FSCONFIG_SET_FLAG, Some(&name_c), None).map_err(named)?;
        } else {
            configure(libc::FSCONFIG_SET_STRING, Some(&name_c), Some(&c_string(value)?)).map_err(named)?;
        }
    }
    configure(libc::FSCONFIG_CMD_CREATE, None, None)?;
    // SAFETY: integers only.
    descriptor(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), libc::FSMOUNT_CLOEXEC, restrictions.attributes())
    })
}

/// Adds restrictions to a mount, and to all below it if `recursive`; with `idmap`, also shows its files' owners through
/// that user namespace's mapping.
pub fn restrict(
    tree: BorrowedFd<'_>,
    restrictions: Restrictions,
    recursive: bool,
    idmap: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attributes = libc::mount_attr {
        attr_set: restrictions.attributes(),
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    if let Some(namespace) = idmap {
        attributes.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attributes.userns_fd = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?;
    }
    let flags = EMPTY_PATH | if recursive { 0x8000 } else { 0 };
    // SAFETY: a live structure and its exact size.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Puts a detached mount over `target`, which is a descriptor and thus what it was when it was opened.
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: constant C strings and integers.
    check(unsafe {
        libc::syscall(libc::SYS_move_mount, tree.as_raw_fd(), c"".as_ptr(), target.as_raw_fd(), c"".as_ptr(), flags)
    })?;
    Ok(())
}

/// Makes the current directory the root and lets go of the old one with everything in it.
pub fn pivot_into_current_directory() -> io::Result<()> {
    // SAFETY: constant C strings. With the same path twice the old root lies on top of the new one, from where it is taken off.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")?;
    Ok(())
}
