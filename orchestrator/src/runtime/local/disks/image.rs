//! `disks.img`: the file system of the daemon's own for the disks of its sandboxes, in a sparse file on a loop device.
//!
//! Nothing of it is visible on the host. The daemon holds the file system by a mount that has no place, and each sandbox mounts
//! its own part in its own mount namespace. The device is freed by the kernel when the last of these mounts ends, so a daemon that
//! is killed leaves a device only as long as sandboxes of it run.
//!
//! **Invariant:** at most one device shows the file. A start that finds a device for it uses that one: sandboxes of an earlier
//! daemon run on it. If there is none, no sandbox uses the file. Then the start makes a new one, unless the file has workspaces,
//! snapshots or disks of stopped sessions: that file is shown again, as it is after a restart of the host. Whether it has workspaces,
//! the start sees in the file itself: a file that was put back from a backup is kept even if nothing else knows of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::{format, workspaces};
use crate::sys::mount::{self, Restrictions};
use crate::sys::{btrfs, loop_device};

pub const FILE_NAME: &str = "disks.img";

/// How often another free device is asked for when another program was faster.
const DEVICE_ATTEMPTS: usize = 16;
/// The block size of the device. Btrfs writes nothing smaller, and most disks take direct writes of this size.
const BLOCK_BYTES: u32 = 4096;
/// An image is not grown for less than this.
const MIN_GROWTH: u64 = 1 << 30;
/// The largest image: more than any file of ext4 can have is of no use.
const MAX_BYTES: u64 = 8 << 40;

/// Whether an image that no sandbox uses has something that must stay: workspaces, snapshots, or disks of stopped sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldContent {
    Needed,
    Useless,
}

/// The mounted image.
pub struct Image {
    /// The root of the file system. It keeps the mount alive.
    pub root: File,
    /// The path of the block device.
    pub device: PathBuf,
    path: PathBuf,
}

impl Image {
    /// Opens the image in a directory, or makes one of at most `bytes`.
    pub fn open(data_dir: &Path, bytes: u64, content: OldContent) -> io::Result<Self> {
        let path = data_dir.join(FILE_NAME);
        let bytes = bytes.min(MAX_BYTES) & !u64::from(BLOCK_BYTES - 1);
        let shown = match in_use(&path)? {
            None if content == OldContent::Needed => Some(show_again(&path)?),
            None => with_workspaces(&path),
            shown => shown,
        };
        if let Some((file, device, place)) = shown {
            let root = mounted(&place)?;
            let old = file.metadata()?.len();
            if bytes >= old.saturating_add(MIN_GROWTH) {
                file.set_len(bytes)?;
                loop_device::follow_size(&device)?;
                btrfs::grow_to_device(std::os::fd::AsFd::as_fd(&root))?;
            }
            return Ok(Self { root, device: place, path });
        }
        let file = fresh(&path)?;
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(io::Error::other)?;
        format::format(&file, bytes, id)?;
        // The device stays open until the mount holds it.
        let (_device, place) = attach(&file)?;
        let root = mounted(&place)?;
        btrfs::grow_to_device(std::os::fd::AsFd::as_fd(&root))?;
        btrfs::enable_quotas(std::os::fd::AsFd::as_fd(&root))?;
        Ok(Self { root, device: place, path })
    }

    /// Whether there is an image with workspaces, as far as it can be mounted.
    pub fn has_workspaces(data_dir: &Path) -> bool {
        with_workspaces(&data_dir.join(FILE_NAME)).is_some()
    }

    /// Removes the file if no device shows it: nothing in it is needed any more.
    pub fn remove_unused(data_dir: &Path) -> io::Result<()> {
        let path = data_dir.join(FILE_NAME);
        if in_use(&path)?.is_none() { remove(&path) } else { Ok(()) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The bytes of the disk that an image takes now, and 0 if there is none.
pub fn allocated(data_dir: &Path) -> u64 {
    const STATUS_BLOCK: u64 = 512;
    std::fs::metadata(data_dir.join(FILE_NAME)).map_or(0, |status| status.blocks() * STATUS_BLOCK)
}

/// A new, empty file under the name. The old one goes in the background: to free a large file can take seconds.
fn fresh(path: &Path) -> io::Result<File> {
    remove(path)?;
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn remove(path: &Path) -> io::Result<()> {
    let old = match File::open(path) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    std::fs::remove_file(path)?;
    // The blocks are freed by whoever closes the file last.
    std::thread::Builder::new().name("old disks".into()).spawn(move || drop(old)).map(drop)
}

/// The device that shows the file, if there is one, with both open.
fn in_use(path: &Path) -> io::Result<Option<(File, File, PathBuf)>> {
    let file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let status = file.metadata()?;
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(None) };
    for device in devices {
        let device = device?;
        // Only a device that shows a file has this entry.
        if !device.path().join("loop/backing_file").exists() {
            continue;
        }
        let place = Path::new("/dev").join(device.file_name());
        let Ok(open) = File::options().read(true).write(true).open(&place) else { continue };
        // A device that was freed meanwhile shows nothing.
        if loop_device::backing_file(&open).is_ok_and(|found| found == (status.dev(), status.ino())) {
            return Ok(Some((file, open, place)));
        }
    }
    Ok(None)
}

/// Shows the file of an earlier daemon on a device again.
fn show_again(path: &Path) -> io::Result<(File, File, PathBuf)> {
    let file = File::options().read(true).write(true).open(path)?;
    let (device, place) = attach(&file)?;
    Ok((file, device, place))
}

/// Shows the file again if it can be mounted and has workspaces.
fn with_workspaces(path: &Path) -> Option<(File, File, PathBuf)> {
    let shown = show_again(path).ok()?;
    let has_workspaces = mounted(&shown.2).and_then(|root| workspaces::has_workspaces(&root));
    has_workspaces.is_ok_and(|has| has).then_some(shown)
}

/// Shows the file on a free device.
fn attach(file: &File) -> io::Result<(File, PathBuf)> {
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    let mut last = io::Error::other("no loop device is free");
    for _ in 0..DEVICE_ATTEMPTS {
        let place = PathBuf::from(format!("/dev/loop{}", loop_device::free_number(&control)?));
        let device = File::options().read(true).write(true).open(&place)?;
        // A file system without direct access is fine: the kernel then keeps what is written in memory twice.
        let configured =
            loop_device::configure(&device, file, BLOCK_BYTES, true).or_else(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => Err(error),
                _ => loop_device::configure(&device, file, BLOCK_BYTES, false),
            });
        match configured {
            Ok(()) => return Ok((device, place)),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Mounts the file system of a device, without a place, and opens its root.
fn mounted(device: &Path) -> io::Result<File> {
    let options = [("source", device.display().to_string()), ("discard", "async".to_owned())];
    let restrictions = Restrictions { read_only: false, no_suid: true, no_dev: true, no_exec: true };
    let tree = mount::new_filesystem("btrfs", &options, restrictions)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(openat(&tree, ".", flags, Mode::empty())?.into())
}
