//! Making a sandbox's root file system: mounts are made detached, restricted, and put in place by descriptor.
//!
//! Every path inside is resolved with the new root as its root, so that no symbolic link of an image, absolute or with any
//! number of `..`, leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, mkdirat};
use nix::unistd::{Gid, Uid, fchownat, symlinkat};

use super::ids::IdRange;
use super::launcher::{AtStep as _, LaunchError};
use super::plan::{LaunchPlan, Owner, RootPlan, Step};
use crate::sys::mount::{self, Restrictions};

const READ_ONLY: Restrictions = Restrictions { read_only: true, no_suid: true, no_dev: true, no_exec: false };
const WRITABLE: Restrictions = Restrictions { read_only: false, no_suid: true, no_dev: true, no_exec: false };
const DATA_ONLY: Restrictions = Restrictions { read_only: false, no_suid: true, no_dev: true, no_exec: true };
const DEVICES: Restrictions = Restrictions { read_only: false, no_suid: true, no_dev: false, no_exec: true };

/// Of the root of an `Empty` plan: directories and links, no data.
const EMPTY_ROOT_BYTES: u64 = 1 << 20;
const EMPTY_ROOT_INODES: u64 = 1024;

/// Names on the sandbox's disk that no step uses.
const EMPTY_DIRECTORY: &str = ".empty";
const OVERLAY_UPPER: &str = ".upper";
const OVERLAY_WORK: &str = ".work";

pub struct NewRoot<'a> {
    /// The mount itself.
    root: OwnedFd,
    /// The disk's own root, which no path inside leads to.
    disk: OwnedFd,
    idmaps: &'a [(Vec<IdRange>, OwnedFd)],
}

impl<'a> NewRoot<'a> {
    /// Mounts the disk, and over it the root.
    pub fn new(plan: &LaunchPlan, idmaps: &'a [(Vec<IdRange>, OwnedFd)]) -> Result<Self, LaunchError> {
        let limits = plan.limits;
        let disk = tmpfs(limits.disk_bytes, limits.disk_inodes, 0o755, plan.host_owner, WRITABLE)
            .at("making the sandbox's disk")?;
        let disk = attach_at(disk, &plan.mount_point).at("mounting the sandbox's disk")?;
        mkdirat(&disk, EMPTY_DIRECTORY, Mode::from_bits_truncate(0o555)).at("preparing the sandbox's disk")?;
        fchmodat(&disk, EMPTY_DIRECTORY, Mode::from_bits_truncate(0o555), FchmodatFlags::FollowSymlink)
            .at("preparing the sandbox's disk")?;
        let root = match &plan.root {
            RootPlan::Empty => {
                tmpfs(EMPTY_ROOT_BYTES, EMPTY_ROOT_INODES, 0o755, plan.host_owner, WRITABLE).at("making the root")?
            }
            RootPlan::Image { path, idmap } => {
                image_tree(path, idmap.as_deref(), idmaps).at(format!("opening the image at {}", path.display()))?
            }
            RootPlan::Overlay { path, idmap } => {
                let lower = image_tree(path, idmap.as_deref(), idmaps)
                    .at(format!("opening the image at {}", path.display()))?;
                overlay(lower, &disk, &plan.mount_point).at("laying a writable root over the image")?
            }
        };
        let root = attach_at(root, &plan.mount_point).at("mounting the root")?;
        Ok(Self { root, disk, idmaps })
    }

    pub fn fill(&self, plan: &LaunchPlan) -> Result<(), LaunchError> {
        for step in &plan.steps {
            let masks = matches!(step, Step::Mask { .. } | Step::ReadOnly { .. });
            if masks && !plan.protections.masks {
                continue;
            }
            self.perform(step).at(describe(step))?;
        }
        Ok(())
    }

    /// Makes it the root of this process.
    pub fn enter(&self, plan: &LaunchPlan) -> Result<(), LaunchError> {
        if plan.protections.read_only_root && !matches!(plan.root, RootPlan::Overlay { .. }) {
            mount::restrict(self.root.as_fd(), READ_ONLY, false, None).at("making the root read-only")?;
        }
        nix::unistd::fchdir(&self.root).at("going to the new root")?;
        mount::pivot_into_current_directory().at("entering the new root")
    }

    fn perform(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Directory { path, mode, owner } => self.directory(path, *mode, *owner),
            Step::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                Ok(symlinkat(target.as_str(), &parent, name.as_str())?)
            }
            Step::Bind { source, path, writable, devices, idmap } => {
                let restrictions = match (writable, devices) {
                    (_, true) => DEVICES,
                    (true, false) => WRITABLE,
                    (false, false) => READ_ONLY,
                };
                let idmap = idmap.as_deref().map(|map| namespace(self.idmaps, map)).transpose()?;
                let tree = bound_tree(source, restrictions, idmap)?;
                let is_directory = SFlag::from_bits_truncate(fstat(&tree)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
                mount::attach(tree.as_fd(), self.target(path, is_directory)?.as_fd())
            }
            Step::Disk { name, path, mode, owner } => {
                make_directory(&self.disk, name, *mode, *owner)?;
                let tree = mount::clone_tree(self.disk.as_fd(), Path::new(name), false)?;
                mount::restrict(tree.as_fd(), WRITABLE, false, None)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::Tmpfs { path, bytes, inodes, mode, owner } => {
                let tree = tmpfs(*bytes, *inodes, *mode, *owner, DATA_ONLY)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::Proc { path } => {
                let tree = mount::new_filesystem("proc", &[], DATA_ONLY)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::Devpts { path, tty_group } => {
                let options = [
                    ("newinstance", String::new()),
                    ("ptmxmode", "0666".to_owned()),
                    ("mode", "0620".to_owned()),
                    ("gid", tty_group.to_string()),
                ];
                let tree = mount::new_filesystem("devpts", &options, DEVICES)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::ReadOnly { path } => {
                let Some(place) = self.existing(path)? else { return Ok(()) };
                let tree = mount::clone_tree(place.as_fd(), Path::new(""), true)?;
                mount::restrict(tree.as_fd(), READ_ONLY, true, None)?;
                mount::attach(tree.as_fd(), place.as_fd())
            }
            Step::Mask { path } => {
                let Some(place) = self.existing(path)? else { return Ok(()) };
                let is_directory = SFlag::from_bits_truncate(fstat(&place)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
                let tree = if is_directory {
                    mount::clone_tree(self.disk.as_fd(), Path::new(EMPTY_DIRECTORY), false)?
                } else {
                    mount::clone_tree(AT_FDCWD, Path::new("/dev/null"), false)?
                };
                let restrictions = if is_directory { READ_ONLY } else { Restrictions { read_only: true, ..DEVICES } };
                mount::restrict(tree.as_fd(), restrictions, false, None)?;
                mount::attach(tree.as_fd(), place.as_fd())
            }
        }
    }

    fn resolve(&self, path: &str) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&self.root, path, how)
    }

    fn existing(&self, path: &str) -> io::Result<Option<OwnedFd>> {
        match self.resolve(path) {
            Ok(place) => Ok(Some(place)),
            Err(nix::Error::ENOENT | nix::Error::ENOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Where to mount: made, empty, if it is missing.
    fn target(&self, path: &str, is_directory: bool) -> io::Result<OwnedFd> {
        if let Some(place) = self.existing(path)? {
            return Ok(place);
        }
        let (parent, name) = self.parent(path)?;
        if is_directory {
            mkdirat(&parent, name.as_str(), Mode::from_bits_truncate(0o755))?;
            fchmodat(&parent, name.as_str(), Mode::from_bits_truncate(0o755), FchmodatFlags::FollowSymlink)?;
        } else {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            drop(openat(&parent, name.as_str(), flags, Mode::from_bits_truncate(0o444))?);
        }
        Ok(self.resolve(path)?)
    }

    fn parent(&self, path: &str) -> io::Result<(OwnedFd, String)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.resolve(if parent.is_empty() { "/" } else { parent })?, name.to_owned()))
    }

    fn directory(&self, path: &str, mode: u32, owner: Owner) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        make_directory(&parent, &name, mode, owner)
    }
}

fn make_directory(parent: &OwnedFd, name: &str, mode: u32, owner: Owner) -> io::Result<()> {
    match mkdirat(parent, name, Mode::from_bits_truncate(0o700)) {
        Ok(()) => {}
        Err(nix::Error::EEXIST) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    fchownat(parent, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(fchmodat(parent, name, Mode::from_bits_truncate(mode), FchmodatFlags::FollowSymlink)?)
}

fn tmpfs(bytes: u64, inodes: u64, mode: u32, owner: Owner, restrictions: Restrictions) -> io::Result<OwnedFd> {
    let options = [
        ("size", bytes.to_string()),
        ("nr_inodes", inodes.to_string()),
        ("mode", format!("{mode:o}")),
        ("uid", owner.uid.to_string()),
        ("gid", owner.gid.to_string()),
    ];
    mount::new_filesystem("tmpfs", &options, restrictions)
}

fn bound_tree(source: &Path, restrictions: Restrictions, idmap: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let tree = mount::clone_tree(AT_FDCWD, source, true)?;
    // An idmapped mount cannot have others below it; those of a workspace are not wanted either.
    let recursive = idmap.is_none();
    mount::restrict(tree.as_fd(), restrictions, recursive, idmap)?;
    Ok(tree)
}

/// A piece of the host that a sandbox may write to, as a `Bind` step makes it, not yet anywhere.
pub fn writable_tree(source: &Path, idmap: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    bound_tree(source, WRITABLE, idmap)
}

fn image_tree(path: &Path, idmap: Option<&[IdRange]>, idmaps: &[(Vec<IdRange>, OwnedFd)]) -> io::Result<OwnedFd> {
    let tree = mount::clone_tree(AT_FDCWD, path, false)?;
    let idmap = idmap.map(|map| namespace(idmaps, map)).transpose()?;
    mount::restrict(tree.as_fd(), WRITABLE, false, idmap)?;
    Ok(tree)
}

/// The lower layer has to be mounted somewhere while the overlay is made; afterwards the root lies over it.
fn overlay(lower: OwnedFd, disk: &OwnedFd, place: &Path) -> io::Result<OwnedFd> {
    let lower = attach_at(lower, place)?;
    for name in [OVERLAY_UPPER, OVERLAY_WORK] {
        let status = fstat(&lower)?;
        let owner = Owner { uid: status.st_uid, gid: status.st_gid };
        make_directory(disk, name, 0o755, owner)?;
    }
    let by_descriptor = |fd: &OwnedFd, name: &str| -> String {
        PathBuf::from("/proc/self/fd").join(fd.as_raw_fd().to_string()).join(name).display().to_string()
    };
    let options = [
        ("lowerdir", by_descriptor(&lower, "")),
        ("upperdir", by_descriptor(disk, OVERLAY_UPPER)),
        ("workdir", by_descriptor(disk, OVERLAY_WORK)),
    ];
    mount::new_filesystem("overlay", &options, WRITABLE)
}

fn namespace<'a>(idmaps: &'a [(Vec<IdRange>, OwnedFd)], map: &[IdRange]) -> io::Result<BorrowedFd<'a>> {
    let found = idmaps.iter().find(|(known, _)| known == map);
    found.map(|(_, fd)| fd.as_fd()).ok_or_else(|| io::Error::other("the plan's mapping was not made"))
}

/// Mounts at a path of the host, over whatever is mounted there, and returns the root of the mount.
fn attach_at(tree: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let place: OwnedFd = File::open(path)?.into();
    mount::attach(tree.as_fd(), place.as_fd())?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(openat(AT_FDCWD, path, flags, Mode::empty())?)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Directory { path, .. } => format!("making the directory {path}"),
        Step::Symlink { path, .. } => format!("making the link {path}"),
        Step::Bind { source, path, .. } => format!("mounting {} at {path}", source.display()),
        Step::Disk { path, .. } | Step::Tmpfs { path, .. } | Step::Proc { path } | Step::Devpts { path, .. } => {
            format!("mounting {path}")
        }
        Step::ReadOnly { path } => format!("making {path} read-only"),
        Step::Mask { path } => format!("masking {path}"),
    }
}
