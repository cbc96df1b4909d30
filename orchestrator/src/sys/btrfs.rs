//! Subvolumes and quota groups of btrfs, by `ioctl` on descriptors.
//!
//! Every subvolume has a quota group with its own number, which counts what is below the subvolume and can limit it. A name
//! is always a single name in the directory that the descriptor is.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

const MAGIC: u8 = 0x94;

/// `struct btrfs_ioctl_vol_args`: a name, with room for the longest.
#[repr(C)]
struct Name {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`: a subvolume by descriptor, and a name for its snapshot.
#[repr(C)]
struct SnapshotArgs {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct InodeLookup {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

/// `struct btrfs_ioctl_quota_ctl_args`.
#[repr(C)]
struct QuotaControl {
    command: u64,
    status: u64,
}

/// `struct btrfs_ioctl_qgroup_create_args`.
#[repr(C)]
struct GroupCreation {
    create: u64,
    group: u64,
}

/// `struct btrfs_ioctl_qgroup_limit_args`.
#[repr(C)]
struct GroupLimit {
    group: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    reserved_referenced: u64,
    reserved_exclusive: u64,
}

/// `struct btrfs_ioctl_fs_info_args`: its first fields, and room for the rest.
#[repr(C)]
struct FilesystemInfo {
    max_device: u64,
    devices: u64,
    id: [u8; 16],
    rest: [u8; 992],
}

nix::ioctl_write_ptr!(resize_device, MAGIC, 3, Name);
nix::ioctl_write_ptr!(subvolume_create, MAGIC, 14, Name);
nix::ioctl_write_ptr!(subvolume_destroy, MAGIC, 15, Name);
nix::ioctl_readwrite!(inode_lookup, MAGIC, 18, InodeLookup);
nix::ioctl_read!(filesystem_info, MAGIC, 31, FilesystemInfo);
nix::ioctl_write_ptr!(wait_sync, MAGIC, 22, u64);
nix::ioctl_write_ptr!(snapshot_create, MAGIC, 23, SnapshotArgs);
nix::ioctl_read!(start_sync, MAGIC, 24, u64);
nix::ioctl_readwrite!(quota_control, MAGIC, 40, QuotaControl);
nix::ioctl_write_ptr!(group_create, MAGIC, 42, GroupCreation);
// The kernel's number says "read", although it reads the structure.
nix::ioctl_read!(group_limit, MAGIC, 43, GroupLimit);

/// The inode number of the root of every subvolume.
const SUBVOLUME_ROOT: u64 = 256;
const ENABLE_QUOTAS: u64 = 1;
/// Linux 6.7: extents count for the subvolume that wrote them, so nothing has to be searched for at each commit.
const ENABLE_SIMPLE_QUOTAS: u64 = 4;
const LIMIT_REFERENCED: u64 = 1;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 1 << 1;

/// Whether a snapshot can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMode {
    ReadOnly,
    Writable,
}

fn named(name: &str) -> io::Result<Name> {
    let mut args = Name { fd: 0, name: [0; 4088] };
    // A name in a file system has at most 255 bytes, and a NUL follows it.
    if name.is_empty() || name.len() > 255 || name.contains(['/', '\0']) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    args.name[..name.len()].copy_from_slice(name.as_bytes());
    Ok(args)
}

/// Makes an empty subvolume. Its root belongs to the caller.
pub fn create_subvolume(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let args = named(name)?;
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { subvolume_create(directory.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// Makes a snapshot of a subvolume, by a descriptor of its root. It has everything that was written before, also what is not on
/// the disk yet, as of one moment.
pub fn snapshot(
    subvolume: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &str,
    mode: SnapshotMode,
) -> io::Result<()> {
    let long = named(name)?;
    let flags = if mode == SnapshotMode::ReadOnly { READ_ONLY } else { 0 };
    let mut args =
        SnapshotArgs { fd: subvolume.as_raw_fd().into(), transaction: 0, flags, unused: [0; 4], name: [0; 4040] };
    // A name has at most 255 bytes, which `named` has checked.
    args.name.copy_from_slice(&long.name[..4040]);
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { snapshot_create(directory.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// Waits until every change of names and subvolumes so far is on the disk. Unlike a sync, it does not write out what others have
/// written to files, so it does not take longer the more they write.
pub fn commit(root: BorrowedFd<'_>) -> io::Result<()> {
    let mut transaction = 0u64;
    // SAFETY: the number has the type that the call fills in, and outlives it.
    unsafe { start_sync(root.as_raw_fd(), &raw mut transaction) }?;
    // SAFETY: the number has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { wait_sync(root.as_raw_fd(), &raw const transaction) }?;
    Ok(())
}

/// Removes a subvolume's name. The kernel frees what is in it in the background.
pub fn destroy_subvolume(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let args = named(name)?;
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { subvolume_destroy(directory.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// The number of the subvolume that a directory is in.
pub fn subvolume_of(directory: BorrowedFd<'_>) -> io::Result<u64> {
    let mut args = InodeLookup { tree: 0, object: SUBVOLUME_ROOT, name: [0; 4080] };
    // SAFETY: the structure has the type that the call reads and fills in, and outlives it.
    unsafe { inode_lookup(directory.as_raw_fd(), &raw mut args) }?;
    Ok(args.tree)
}

/// Turns quotas on: the cheap kind if the kernel has it.
pub fn enable_quotas(root: BorrowedFd<'_>) -> io::Result<()> {
    let enable = |command| {
        let mut args = QuotaControl { command, status: 0 };
        // SAFETY: the structure has the type that the call reads and fills in, and outlives it.
        unsafe { quota_control(root.as_raw_fd(), &raw mut args) }
    };
    enable(ENABLE_SIMPLE_QUOTAS).or_else(|_| enable(ENABLE_QUOTAS))?;
    Ok(())
}

/// What the kernel takes for "no limit".
const NO_LIMIT: u64 = u64::MAX;

/// Limits what a subvolume may hold, in bytes, or removes its limit.
pub fn limit_subvolume(root: BorrowedFd<'_>, subvolume: u64, bytes: Option<u64>) -> io::Result<()> {
    let mut args = GroupLimit {
        group: subvolume,
        flags: LIMIT_REFERENCED,
        max_referenced: bytes.unwrap_or(NO_LIMIT),
        max_exclusive: 0,
        reserved_referenced: 0,
        reserved_exclusive: 0,
    };
    // SAFETY: the structure has the type that the call takes and outlives it.
    unsafe { group_limit(root.as_raw_fd(), &raw mut args) }?;
    Ok(())
}

/// Removes the quota group of a subvolume that no longer exists. It fails with EBUSY while the kernel still frees its files.
pub fn remove_group(root: BorrowedFd<'_>, subvolume: u64) -> io::Result<()> {
    let args = GroupCreation { create: 0, group: subvolume };
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { group_create(root.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// Makes the file system as large as its device.
pub fn grow_to_device(root: BorrowedFd<'_>) -> io::Result<()> {
    let args = named("max")?;
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { resize_device(root.as_raw_fd(), &raw const args) }?;
    Ok(())
}

/// The id of the file system, as the kernel names its directory in `/sys/fs/btrfs`.
pub fn filesystem_id(root: BorrowedFd<'_>) -> io::Result<String> {
    let mut args = FilesystemInfo { max_device: 0, devices: 0, id: [0; 16], rest: [0; 992] };
    // SAFETY: the structure has the size that the call fills in, and outlives it.
    unsafe { filesystem_info(root.as_raw_fd(), &raw mut args) }?;
    let hex: Vec<String> = args.id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(<[String]>::concat).join("-"))
}
