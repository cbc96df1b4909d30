//! The kernel's mount calls by descriptor (Linux 5.12): a mount is made detached, gets all its attributes, and only then becomes
//! visible. At no moment is it visible with fewer restrictions than asked for, and no path is resolved twice.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

/// What a mount may not be used for; `true` forbids it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restrictions {
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
}

impl Restrictions {
    fn attributes(self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::empty();
        flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.read_only);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, self.no_suid);
        flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, self.no_dev);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, self.no_exec);
        flags
    }
}

/// Whether a call also covers what is mounted below a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submounts {
    Include,
    Exclude,
}

/// Copies the mount at `path`, which is resolved from `dir`. The copy is detached.
pub fn clone_tree(dir: impl AsFd, path: &Path, submounts: Submounts) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, submounts == Submounts::Include);
    Ok(open_tree(dir, path, flags)?)
}

/// Makes a new file system, detached. Options are `(name, value)`; an option with an empty value is a flag.
pub fn new_filesystem(kind: &str, options: &[(&str, String)], restrictions: Restrictions) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        let set = match value.as_str() {
            "" => fsconfig_set_flag(&context, *name),
            value => fsconfig_set_string(&context, *name, value),
        };
        set.map_err(|error| io::Error::new(error.kind(), format!("{kind} does not take {name}={value}: {error}")))?;
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, restrictions.attributes())?)
}

/// Adds restrictions to a mount.
pub fn restrict(tree: BorrowedFd<'_>, restrictions: Restrictions, submounts: Submounts) -> io::Result<()> {
    set_attributes(tree, attributes(restrictions), submounts)
}

/// Adds restrictions to a mount without submounts, and shows the owners of its files through the mapping of a user namespace.
pub fn restrict_and_map(
    tree: BorrowedFd<'_>,
    restrictions: Restrictions,
    user_namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut attributes = attributes(restrictions);
    attributes.attr_set |= libc::MOUNT_ATTR_IDMAP;
    attributes.userns_fd = u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?;
    set_attributes(tree, attributes, Submounts::Exclude)
}

fn attributes(restrictions: Restrictions) -> libc::mount_attr {
    libc::mount_attr {
        attr_set: restrictions.attributes().bits().into(),
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    }
}

fn set_attributes(tree: BorrowedFd<'_>, attributes: libc::mount_attr, submounts: Submounts) -> io::Result<()> {
    let mut flags = OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, submounts == Submounts::Include);
    // SAFETY: a constant C string, and a structure that outlives the call, with its exact size; the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags.bits(),
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Mounts a detached mount over `target`. That is a descriptor, so it is still the place that was opened.
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", target, c"", flags)?)
}

/// Makes the current directory the root of this process, and detaches the old root with everything in it.
pub fn pivot_into_current_directory() -> io::Result<()> {
    // With the same path twice, the old root lies on top of the new one, and is unmounted from there.
    rustix::process::pivot_root(c".", c".")?;
    nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")?;
    Ok(())
}
