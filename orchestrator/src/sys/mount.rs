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

/// The directories of an overlay, as paths. The topmost of the lower ones comes first.
pub struct Overlay<'a> {
    pub lower: &'a [String],
    /// The writable directory, and an empty one beside it that the kernel works in.
    pub upper: Option<(String, String)>,
}

/// Options that keep everything of a changed file or directory in the upper directory, also where the kernel is configured otherwise:
/// a renamed directory is no reference to a lower one, and a file with a new owner has its content. So it can become a layer.
pub const WHOLE_UPPER: [(&str, &str); 2] = [("redirect_dir", "off"), ("metacopy", "off")];

/// The most bytes of all options of a mount, in the call that old kernels have.
const MAX_OPTION_BYTES: usize = 4095;

/// Makes an overlay, detached. A kernel before 6.8 takes all directories in one option, which the newer call allows 255 bytes for; so
/// there the older call makes it at `place`, which is a mount point of this process alone, and it is copied from there.
pub fn overlay(directories: &Overlay<'_>, restrictions: Restrictions, place: &Path) -> io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (n, lower) in directories.lower.iter().enumerate() {
        match fsconfig_set_string(&context, "lowerdir+", lower.as_str()) {
            Err(rustix::io::Errno::INVAL) if n == 0 => return overlay_at(directories, restrictions, place),
            set => set.map_err(|error| io::Error::new(error.kind(), format!("layer {n} of {lower}: {error}")))?,
        }
    }
    if let Some((upper, work)) = &directories.upper {
        fsconfig_set_string(&context, "upperdir", upper.as_str())?;
        fsconfig_set_string(&context, "workdir", work.as_str())?;
        for (name, value) in WHOLE_UPPER {
            fsconfig_set_string(&context, name, value)?;
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, restrictions.attributes())?)
}

fn overlay_at(directories: &Overlay<'_>, restrictions: Restrictions, place: &Path) -> io::Result<OwnedFd> {
    let mut options = format!("lowerdir={}", directories.lower.join(":"));
    if let Some((upper, work)) = &directories.upper {
        options.push_str(&format!(",upperdir={upper},workdir={work}"));
        WHOLE_UPPER.iter().for_each(|(name, value)| options.push_str(&format!(",{name}={value}")));
    }
    if options.len() > MAX_OPTION_BYTES {
        return Err(io::Error::other(format!(
            "the image has {} layers, and this kernel (before Linux 6.8) can mount fewer",
            directories.lower.len()
        )));
    }
    let mut flags = nix::mount::MsFlags::empty();
    flags.set(nix::mount::MsFlags::MS_RDONLY, restrictions.read_only);
    flags.set(nix::mount::MsFlags::MS_NOSUID, restrictions.no_suid);
    flags.set(nix::mount::MsFlags::MS_NODEV, restrictions.no_dev);
    flags.set(nix::mount::MsFlags::MS_NOEXEC, restrictions.no_exec);
    nix::mount::mount(Some("overlay"), place, Some("overlay"), flags, Some(options.as_str()))?;
    clone_tree(nix::fcntl::AT_FDCWD, place, Submounts::Exclude)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In a mount namespace of one thread, so that nothing else sees it.
    #[test]
    fn the_call_of_old_kernels_makes_the_same_overlay() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: an overlay needs root");
            return;
        }
        let tried = std::thread::spawn(|| {
            let folder = tempfile::tempdir().unwrap();
            let make = |name: &str| {
                let path = folder.path().join(name);
                std::fs::create_dir(&path).unwrap();
                path.to_str().unwrap().to_owned()
            };
            let (top, bottom, place) = (make("top"), make("bottom"), make("place"));
            std::fs::write(format!("{top}/both"), "top").unwrap();
            std::fs::write(format!("{bottom}/both"), "bottom").unwrap();
            std::fs::write(format!("{bottom}/one"), "bottom").unwrap();
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            let flags = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
            let lower = [top, bottom];
            let directories = Overlay { lower: &lower, upper: None };
            let read_only = Restrictions { read_only: true, ..Restrictions::default() };
            let trees = [overlay, overlay_at].map(|make| make(&directories, read_only, Path::new(&place)).unwrap());
            for tree in trees {
                let read = |name: &str| std::fs::read_to_string(format!("/proc/self/fd/{}/{name}", tree.as_raw_fd()));
                assert_eq!((read("both").unwrap(), read("one").unwrap()), ("top".into(), "bottom".into()));
                let written = std::fs::write(format!("/proc/self/fd/{}/new", tree.as_raw_fd()), "");
                assert_eq!(written.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
            }
            let many = vec![lower[0].clone(); 1000];
            let refused = overlay_at(&Overlay { lower: &many, upper: None }, read_only, Path::new(&place));
            assert!(refused.unwrap_err().to_string().contains("1000 layers"));
            nix::mount::umount2(place.as_str(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        });
        tried.join().unwrap();
    }
}
