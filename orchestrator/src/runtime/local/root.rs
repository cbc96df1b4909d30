//! Makes a sandbox's root file system. Each mount is made detached, is restricted, and is then attached by descriptor.
//!
//! Every path inside is resolved with the new root as its root. So no symbolic link of an image leads out of it, whether it is
//! absolute or has any number of `..`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, mkdirat, mknodat, stat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, symlinkat, unlinkat};

use ::proc_files::ProcFile;

use super::first_process::InheritedFds;
use super::host_copy;
use super::host_view::{HostView, hidden, read_only_overlay};
use super::ids::IdRange;
use super::launcher::{AtStep as _, LaunchError};
use super::plan::{DeviceNodes, DiskPlan, DiskSource, ImageTree, LaunchPlan, Owner, RootPlan, Step, View};
use super::proc_files;
use crate::runtime::policy::MAX_STORE_BYTES;
use crate::sys::mount::{self, Overlay, Restrictions, Submounts};

pub const READ_ONLY: Restrictions = Restrictions { read_only: true, no_suid: true, no_dev: true, no_exec: false };
const WRITABLE: Restrictions = Restrictions { read_only: false, no_suid: true, no_dev: true, no_exec: false };
const DATA_ONLY: Restrictions = Restrictions { read_only: false, no_suid: true, no_dev: true, no_exec: true };
const DEVICES: Restrictions = Restrictions { read_only: false, no_suid: true, no_dev: false, no_exec: true };

/// The size of an `Empty` root, which holds directories and links and no data.
const EMPTY_ROOT_BYTES: u64 = 1 << 20;
const EMPTY_ROOT_INODES: u64 = 1024;

const PREPARING: &str = "preparing the sandbox's files in memory";

/// Directories on the sandbox's file systems that no step uses.
pub const EMPTY_DIRECTORY: &str = ".empty";
const DISK_DIRECTORY: &str = ".disk";
pub const ROOT_DIRECTORY: &str = ".root";
const LOWER: &str = ".lower-";
const COVER: &str = ".cover";
pub const OVERLAY_UPPER: &str = ".upper";
const OVERLAY_WORK: &str = ".work";

pub const O_DIRECTORY_PATH: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Everybody may use the devices that a sandbox has.
const DEVICE_MODE: Mode = Mode::from_bits_truncate(0o666);

pub struct NewRoot<'a> {
    /// The root of the new mount.
    root: OwnedFd,
    /// The root of the sandbox's files in memory. No path inside leads to it.
    memory: OwnedFd,
    /// The root of the sandbox's disk: the same, or a file system of its own. No path inside leads to it.
    disk: OwnedFd,
    inherited: &'a InheritedFds,
    /// Who mounts what the runner serves.
    owner: Owner,
    host: HostView,
}

impl<'a> NewRoot<'a> {
    /// Mounts the disk, and the new root over it.
    pub fn new(plan: &LaunchPlan, inherited: &'a InheritedFds) -> Result<Self, LaunchError> {
        let (limits, idmaps) = (plan.limits, &inherited.idmaps);
        let memory = tmpfs(limits.memory_bytes, limits.memory_inodes, 0o755, plan.host_owner, WRITABLE)
            .at("making the sandbox's files in memory")?;
        let memory = attach_at(memory, &plan.mount_point).at("mounting the sandbox's files in memory")?;
        mkdirat(&memory, EMPTY_DIRECTORY, Mode::from_bits_truncate(0o555)).at(PREPARING)?;
        fchmodat(&memory, EMPTY_DIRECTORY, Mode::from_bits_truncate(0o555), FchmodatFlags::FollowSymlink)
            .at(PREPARING)?;
        let disk = match &plan.disk {
            Some(disk) => mounted_disk(disk, idmaps, &memory).at("mounting the sandbox's disk")?,
            None => memory.try_clone().at(PREPARING)?,
        };
        let root = match &plan.root {
            RootPlan::Empty => {
                tmpfs(EMPTY_ROOT_BYTES, EMPTY_ROOT_INODES, 0o755, plan.host_owner, WRITABLE).at("making the root")?
            }
            RootPlan::Disk { owner } => make_directory(&disk, ROOT_DIRECTORY, 0o755, *owner)
                .and_then(|()| mount::clone_tree(&disk, Path::new(ROOT_DIRECTORY), Submounts::Exclude))
                .and_then(|tree| mount::restrict(tree.as_fd(), WRITABLE, Submounts::Exclude).map(|()| tree))
                .at("making the root")?,
            RootPlan::Image { tree, idmap, view } => {
                let image = image_tree(tree.path(), idmap.as_deref(), idmaps)
                    .at(format!("opening the image at {}", tree.path().display()))?;
                match (tree, view) {
                    (ImageTree::Directory(_), View::Bind) => image,
                    (ImageTree::Directory(_), View::Overlay | View::PartOfRoot) => {
                        { attach_at(image, &plan.mount_point).and_then(|lower| read_only_overlay(&lower, &memory)) }
                            .at("laying a root over the image")?
                    }
                    (ImageTree::Layers { .. }, _) => attach_at(image, &plan.mount_point)
                        .and_then(|image| {
                            let directories = Overlay { lower: &lower_directories(tree, &image), upper: None };
                            mount::overlay(&directories, READ_ONLY, &plan.mount_point)
                        })
                        .at("putting the layers of the image together")?,
                }
            }
            RootPlan::Overlay { tree, idmap } => {
                let lower = image_tree(tree.path(), idmap.as_deref(), idmaps)
                    .at(format!("opening the image at {}", tree.path().display()))?;
                overlay(tree, lower, &disk, &plan.mount_point).at("laying a writable root over the image")?
            }
        };
        let root = attach_at(root, &plan.mount_point).at("mounting the root")?;
        Ok(Self { root, memory, disk, inherited, owner: plan.host_owner, host: HostView::default() })
    }

    /// Carries out the plan's steps.
    pub fn fill(&self, plan: &LaunchPlan) -> Result<(), LaunchError> {
        for step in &plan.steps {
            let masks = matches!(step, Step::Mask { .. } | Step::ReadOnly { .. });
            if masks && !plan.protections.masks {
                continue;
            }
            if let Step::ShowNames { source, path, view, .. } = step
                && !plan.protections.masks
            {
                let every = ["*".to_owned()];
                self.show_names(source, path, &every, *view).at(describe(step))?;
                continue;
            }
            self.perform(step).at(describe(step))?;
        }
        Ok(())
    }

    /// Makes the new root the root of this process.
    pub fn enter(&self, plan: &LaunchPlan) -> Result<(), LaunchError> {
        let is_writable = matches!(plan.root, RootPlan::Overlay { .. } | RootPlan::Disk { .. });
        if plan.protections.read_only_root && !is_writable {
            mount::restrict(self.root.as_fd(), READ_ONLY, Submounts::Exclude).at("making the root read-only")?;
        }
        nix::unistd::fchdir(&self.root).at("going to the new root")?;
        mount::pivot_into_current_directory().at("entering the new root")
    }

    fn perform(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Directory { path, mode, owner } => self.directory(path, *mode, *owner),
            Step::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                match symlinkat(target.as_str(), &parent, name.as_str()) {
                    // A root that was kept has it, or what its user put in its place.
                    Err(nix::Error::EEXIST) => Ok(()),
                    made => Ok(made?),
                }
            }
            Step::File { path, content, mode, owner } => {
                let (parent, name) = self.parent(path)?;
                let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                let mode = Mode::from_bits_truncate(*mode);
                let opened = match openat(&parent, name.as_str(), flags, mode) {
                    // In a root that was kept, the file may be its user's. Only the name of the sandbox is another one now.
                    Err(nix::Error::EEXIST) if !is_host_name(path) => return Ok(()),
                    Err(nix::Error::EEXIST) => {
                        match unlinkat(&parent, name.as_str(), UnlinkatFlags::NoRemoveDir) {
                            // Its user has made a directory of it.
                            Err(nix::Error::EISDIR) => return Ok(()),
                            removed => removed?,
                        }
                        openat(&parent, name.as_str(), flags, mode)?
                    }
                    opened => opened?,
                };
                let mut file = File::from(opened);
                fchown(&file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
                fchmod(&file, mode)?;
                file.write_all(content.as_bytes())
            }
            Step::TrustBundle { path, authority, stores, covers_stores } => {
                self.write_bundle(path, authority, stores)?;
                if *covers_stores { self.cover(path, stores) } else { Ok(()) }
            }
            Step::Show { source, path, view } => self.show(source, path, *view),
            Step::ShowNames { source, path, names, view } => self.show_names(source, path, names, *view),
            Step::Overlay { source, path, name, idmap } => self.overlay(source, path, name, idmap.as_deref()),
            Step::CopyNames { source, path, names, owner } => {
                host_copy::copy_names(source, names, &self.target(path, true)?, *owner)
            }
            Step::Devices { path, names, bytes, inodes, owner, nodes } => {
                let restrictions = if *nodes == DeviceNodes::Own { DEVICES } else { DATA_ONLY };
                let tree = tmpfs(*bytes, *inodes, 0o755, *owner, restrictions)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())?;
                names.iter().try_for_each(|name| self.device(path, name, *nodes))
            }
            Step::Bind { source, path, writable, idmap } => {
                let restrictions = if *writable { WRITABLE } else { READ_ONLY };
                let idmap = idmap.as_deref().map(|map| namespace(&self.inherited.idmaps, map)).transpose()?;
                let tree = bound_tree(source, restrictions, idmap)?;
                let is_directory = SFlag::from_bits_truncate(fstat(&tree)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
                mount::attach(tree.as_fd(), self.target(path, is_directory)?.as_fd())
            }
            Step::Subvolume { device, subvolume, path, idmap } => {
                let tree = subvolume_tree(device, *subvolume, namespace(&self.inherited.idmaps, idmap)?)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::Disk { name, path, mode, owner } => self.part_of(&self.disk, name, path, *mode, *owner),
            Step::Memory { name, path, mode, owner } => self.part_of(&self.memory, name, path, *mode, *owner),
            Step::Tmpfs { path, bytes, inodes, mode, owner } => {
                let tree = tmpfs(*bytes, *inodes, *mode, *owner, DATA_ONLY)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::Proc { path } => {
                let tree = mount::new_filesystem("proc", &[], DATA_ONLY)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::Devpts { path, tty_group, max } => {
                let options = [
                    ("newinstance", String::new()),
                    ("ptmxmode", "0666".to_owned()),
                    ("mode", "0620".to_owned()),
                    ("gid", tty_group.to_string()),
                    ("max", max.to_string()),
                ];
                let tree = mount::new_filesystem("devpts", &options, DEVICES)?;
                mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
            }
            Step::ReadOnly { path } => {
                let Some(place) = self.existing(path)? else { return Ok(()) };
                let tree = mount::clone_tree(&place, Path::new(""), Submounts::Include)?;
                mount::restrict(tree.as_fd(), READ_ONLY, Submounts::Include)?;
                mount::attach(tree.as_fd(), place.as_fd())
            }
            Step::Cover { path, content } => {
                let Some(place) = self.existing(path)? else { return Ok(()) };
                let tree =
                    proc_files::fixed_file(&self.memory, &format!("{COVER}{}", path.replace('/', "-")), content)?;
                mount::attach(tree.as_fd(), place.as_fd())
            }
            Step::Serve => {
                ProcFile::ALL.into_iter().zip(&self.inherited.proc_files).try_for_each(|(file, connection)| {
                    let tree = proc_files::served_file(connection, self.owner)?;
                    mount::attach(tree.as_fd(), self.resolve(file.path())?.as_fd())
                })
            }
            Step::Mask { path } => {
                let Some(place) = self.existing(path)? else { return Ok(()) };
                let is_directory = SFlag::from_bits_truncate(fstat(&place)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
                let tree = if is_directory {
                    mount::clone_tree(&self.memory, Path::new(EMPTY_DIRECTORY), Submounts::Exclude)?
                } else {
                    mount::clone_tree(self.resolve("/dev/null")?, Path::new(""), Submounts::Exclude)?
                };
                let restrictions = if is_directory { READ_ONLY } else { Restrictions { read_only: true, ..DEVICES } };
                mount::restrict(tree.as_fd(), restrictions, Submounts::Exclude)?;
                mount::attach(tree.as_fd(), place.as_fd())
            }
        }
    }

    /// Writes a bundle of certificate authorities: that of the image, or else of the host, and one more.
    fn write_bundle(&self, path: &str, authority: &str, stores: &[String]) -> io::Result<()> {
        let of_image = stores.iter().find_map(|store| read_store(&self.existing(store).ok()??));
        let of_host = || {
            let open = |store: &String| openat(AT_FDCWD, store.as_str(), OFlag::O_PATH, Mode::empty()).ok();
            stores.iter().find_map(|store| read_store(&open(store)?))
        };
        let mut bundle = of_image.or_else(of_host).unwrap_or_default();
        if !bundle.is_empty() && !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
        bundle.extend_from_slice(authority.as_bytes());
        let (parent, name) = self.parent(path)?;
        let (flags, mode) =
            (OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o444));
        let mut file = File::from(openat(&parent, name.as_str(), flags, mode)?);
        fchmod(&file, mode)?;
        file.write_all(&bundle)
    }

    /// Shows a file in place of those that exist of these.
    fn cover(&self, path: &str, stores: &[String]) -> io::Result<()> {
        let file = self.resolve(path)?;
        for store in stores {
            let Some(place) = self.existing(store)? else { continue };
            // Two names may lead to one file, which is covered once.
            let (there, ours) = (fstat(&place)?, fstat(&file)?);
            let is_file = SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
            if is_file && (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino) {
                let tree = mount::clone_tree(&file, Path::new(""), Submounts::Exclude)?;
                mount::restrict(tree.as_fd(), READ_ONLY, Submounts::Exclude)?;
                mount::attach(tree.as_fd(), place.as_fd())?;
            }
        }
        Ok(())
    }

    /// Shows a directory of the host with a layer on the disk over it.
    fn overlay(&self, source: &Path, path: &str, name: &str, idmap: Option<&[IdRange]>) -> io::Result<()> {
        let lower = match image_tree(source, idmap, &self.inherited.idmaps) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            lower => hidden(&lower?, &format!("{LOWER}{name}"), &self.memory)?,
        };
        let (upper, work) = (format!("{OVERLAY_UPPER}-{name}"), format!("{OVERLAY_WORK}-{name}"));
        let tree = writable_overlay(&lower, &self.disk, &upper, &work)?;
        mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
    }

    /// Makes a directory in a file system of the sandbox's own and mounts it.
    fn part_of(&self, disk: &OwnedFd, name: &str, path: &str, mode: u32, owner: Owner) -> io::Result<()> {
        make_directory(disk, name, mode, owner)?;
        // In a root that its user may change, or in an image, a link may lead to another mount: from `/var/tmp` to `/tmp`, or from
        // `/home` to the runner's own files, over which nothing may be mounted.
        if self.is_elsewhere(path) {
            return Ok(());
        }
        let tree = mount::clone_tree(disk, Path::new(name), Submounts::Exclude)?;
        mount::restrict(tree.as_fd(), WRITABLE, Submounts::Exclude)?;
        mount::attach(tree.as_fd(), self.target(path, true)?.as_fd())
    }

    fn show(&self, source: &Path, path: &str, view: View) -> io::Result<()> {
        let tree = match self.host.tree(source, view, &self.memory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            tree => tree?,
        };
        match self.target(path, true) {
            // The place of a mount that the host no longer has.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
            target => mount::attach(tree.as_fd(), target?.as_fd()),
        }
    }

    fn show_names(&self, source: &Path, path: &str, names: &[String], view: View) -> io::Result<()> {
        self.host.show_names(source, names, view, &self.target(path, true)?, &self.memory)
    }

    /// Makes a device node in a directory inside, or mounts the host's.
    fn device(&self, directory: &str, name: &str, nodes: DeviceNodes) -> io::Result<()> {
        let (source, path) = (Path::new("/dev").join(name), format!("{directory}/{name}"));
        if nodes == DeviceNodes::Own {
            let (parent, name) = self.parent(&path)?;
            let device = stat(&source)?.st_rdev;
            match mknodat(&parent, name.as_str(), SFlag::S_IFCHR, DEVICE_MODE, device) {
                Ok(()) => return Ok(fchmodat(&parent, name.as_str(), DEVICE_MODE, FchmodatFlags::FollowSymlink)?),
                // Root in a container may lack the right to make devices.
                Err(nix::Error::EPERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let tree = bound_tree(&source, DEVICES, None)?;
        mount::attach(tree.as_fd(), self.target(&path, false)?.as_fd())
    }

    fn resolve(&self, path: &str) -> nix::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&self.root, path, how)
    }

    /// Whether the path leads to another mount than the root, by a link.
    fn is_elsewhere(&self, path: &str) -> bool {
        let fails_with = |forbidden, error| {
            let always = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
            let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(always | forbidden);
            openat2(&self.root, path, how).err() == Some(error)
        };
        fails_with(ResolveFlag::RESOLVE_NO_XDEV, nix::Error::EXDEV)
            && fails_with(ResolveFlag::RESOLVE_NO_SYMLINKS, nix::Error::ELOOP)
    }

    fn existing(&self, path: &str) -> io::Result<Option<OwnedFd>> {
        match self.resolve(path) {
            Ok(place) => Ok(Some(place)),
            Err(nix::Error::ENOENT | nix::Error::ENOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the place to mount at, and makes it if it is missing.
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

/// Whether a file has the name of the sandbox.
fn is_host_name(path: &str) -> bool {
    path == "/etc/hostname"
}

/// Reads a bundle of certificate authorities. What is no file, or larger than any bundle, is none.
fn read_store(place: &OwnedFd) -> Option<Vec<u8>> {
    let status = fstat(place).ok()?;
    if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return None;
    }
    let file = File::open(by_descriptor(place, "").trim_end_matches('/')).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_STORE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    (length > 0 && length <= MAX_STORE_BYTES).then_some(bytes)
}

/// Mounts a disk with its id mapping, at a place in memory to which no path inside leads.
fn mounted_disk(plan: &DiskPlan, idmaps: &[(Vec<IdRange>, OwnedFd)], memory: &OwnedFd) -> io::Result<OwnedFd> {
    let tree = match &plan.source {
        DiskSource::Device { device, subvolume } => {
            subvolume_tree(device, *subvolume, namespace(idmaps, &plan.idmap)?)?
        }
        DiskSource::Directory(path) => bound_tree(path, WRITABLE, Some(namespace(idmaps, &plan.idmap)?))?,
    };
    hidden(&tree, DISK_DIRECTORY, memory)
}

/// A detached, writable mount of a subvolume of the btrfs on a device, with its id mapping.
pub fn subvolume_tree(device: &Path, subvolume: u64, idmap: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let options = [("source", device.display().to_string()), ("subvolid", subvolume.to_string())];
    let tree = mount::new_filesystem("btrfs", &options, WRITABLE)?;
    mount::restrict_and_map(tree.as_fd(), WRITABLE, idmap)?;
    Ok(tree)
}

pub fn make_directory(parent: &OwnedFd, name: &str, mode: u32, owner: Owner) -> io::Result<()> {
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

pub fn bound_tree(source: &Path, restrictions: Restrictions, idmap: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    // A mapping and its restrictions reach one mount and not those below it, so these are left out of the copy. An ordinary
    // user may not leave a mount out, so there the restrictions go to all of them.
    let submounts = if idmap.is_some() { Submounts::Exclude } else { Submounts::Include };
    let tree = mount::clone_tree(AT_FDCWD, source, submounts)?;
    match idmap {
        Some(namespace) => mount::restrict_and_map(tree.as_fd(), restrictions, namespace)?,
        None => mount::restrict(tree.as_fd(), restrictions, submounts)?,
    }
    Ok(tree)
}

/// A detached, writable mount of a directory of the host, as a `Bind` step makes it.
pub fn writable_tree(source: &Path, idmap: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    bound_tree(source, WRITABLE, idmap)
}

fn image_tree(path: &Path, idmap: Option<&[IdRange]>, idmaps: &[(Vec<IdRange>, OwnedFd)]) -> io::Result<OwnedFd> {
    let tree = mount::clone_tree(AT_FDCWD, path, Submounts::Exclude)?;
    match idmap {
        Some(map) => mount::restrict_and_map(tree.as_fd(), WRITABLE, namespace(idmaps, map)?)?,
        None => mount::restrict(tree.as_fd(), WRITABLE, Submounts::Exclude)?,
    }
    Ok(tree)
}

/// Makes an overlay over an image. The lower layer must be mounted somewhere meanwhile; the root is mounted over it afterwards.
fn overlay(tree: &ImageTree, lower: OwnedFd, disk: &OwnedFd, place: &Path) -> io::Result<OwnedFd> {
    let lower = attach_at(lower, place)?;
    let root = match tree {
        ImageTree::Directory(_) => fstat(&lower)?,
        ImageTree::Layers { names, .. } => {
            let top = names.first().ok_or_else(|| io::Error::other("the image has no layers"))?;
            fstat(openat(&lower, top.as_str(), O_DIRECTORY_PATH, Mode::empty())?)?
        }
    };
    for name in [OVERLAY_UPPER, OVERLAY_WORK] {
        let owner = Owner { uid: root.st_uid, gid: root.st_gid };
        make_directory(disk, name, 0o755, owner)?;
    }
    let upper = (by_descriptor(disk, OVERLAY_UPPER), by_descriptor(disk, OVERLAY_WORK));
    let directories = Overlay { lower: &lower_directories(tree, &lower), upper: Some(upper) };
    mount::overlay(&directories, WRITABLE, place)
}

/// The directories that an overlay puts together, the topmost first. `lower` is the mount of the image.
fn lower_directories(tree: &ImageTree, lower: &OwnedFd) -> Vec<String> {
    match tree {
        ImageTree::Directory(_) => vec![by_descriptor(lower, "")],
        ImageTree::Layers { names, .. } => names.iter().map(|name| by_descriptor(lower, name)).collect(),
    }
}

/// Makes an overlay over a directory that is mounted somewhere, with its layer on the disk under these names.
fn writable_overlay(lower: &OwnedFd, disk: &OwnedFd, upper: &str, work: &str) -> io::Result<OwnedFd> {
    for name in [upper, work] {
        let status = fstat(lower)?;
        let owner = Owner { uid: status.st_uid, gid: status.st_gid };
        make_directory(disk, name, 0o755, owner)?;
    }
    let options = [
        ("lowerdir", by_descriptor(lower, "")),
        ("upperdir", by_descriptor(disk, upper)),
        ("workdir", by_descriptor(disk, work)),
    ];
    let options: Vec<(&str, String)> =
        options.into_iter().chain(mount::WHOLE_UPPER.map(|(name, value)| (name, value.to_owned()))).collect();
    mount::new_filesystem("overlay", &options, WRITABLE)
}

/// A path for options of an overlay. It has no characters that are special there, and tells the sandbox nothing.
pub fn by_descriptor(fd: &OwnedFd, name: &str) -> String {
    PathBuf::from("/proc/self/fd").join(fd.as_raw_fd().to_string()).join(name).display().to_string()
}

pub fn open_directory(path: &Path) -> nix::Result<OwnedFd> {
    openat(AT_FDCWD, path, O_DIRECTORY_PATH, Mode::empty())
}

fn namespace<'a>(idmaps: &'a [(Vec<IdRange>, OwnedFd)], map: &[IdRange]) -> io::Result<BorrowedFd<'a>> {
    let found = idmaps.iter().find(|(known, _)| known == map);
    found.map(|(_, fd)| fd.as_fd()).ok_or_else(|| io::Error::other("the plan's mapping was not made"))
}

/// Attaches a mount at a path of the host, over whatever is mounted there, and returns the root of the mount.
fn attach_at(tree: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let place: OwnedFd = File::open(path)?.into();
    mount::attach(tree.as_fd(), place.as_fd())?;
    Ok(open_directory(path)?)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Directory { path, .. } => format!("making the directory {path}"),
        Step::Symlink { path, .. } => format!("making the link {path}"),
        Step::File { path, .. } | Step::TrustBundle { path, .. } => format!("writing {path}"),
        Step::CopyNames { source, path, .. } => format!("copying {} to {path}", source.display()),
        Step::Bind { source, path, .. }
        | Step::Show { source, path, .. }
        | Step::Overlay { source, path, .. }
        | Step::ShowNames { source, path, .. } => {
            format!("mounting {} at {path}", source.display())
        }
        Step::Subvolume { path, .. }
        | Step::Disk { path, .. }
        | Step::Memory { path, .. }
        | Step::Tmpfs { path, .. }
        | Step::Proc { path }
        | Step::Devices { path, .. }
        | Step::Devpts { path, .. } => format!("mounting {path}"),
        Step::ReadOnly { path } => format!("making {path} read-only"),
        Step::Mask { path } => format!("masking {path}"),
        Step::Cover { path, .. } => format!("covering {path}"),
        Step::Serve => "mounting the sandbox's own files of /proc".to_owned(),
    }
}
