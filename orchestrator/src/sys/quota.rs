//! Project quotas of ext4 and xfs, by descriptor (Linux 5.14).
//!
//! A directory belongs to a project, and so does everything that is made below it from then on. The file system counts what a
//! project holds and can limit it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

const PROJECT: libc::c_int = 2;
/// Asks for the quota state of a whole file system; see `linux/dqblk_xfs.h`.
const GET_STATE: libc::c_int = (0x58 << 8) + 8;
const STATE_VERSION: u8 = 1;
const PROJECT_LIMITS_ENFORCED: u16 = 1 << 5;
const LIMITS_ARE_VALID: u32 = 1;
/// The kernel's unit for limits of space.
const BLOCK_BYTES: u64 = 1024;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

const INHERIT_PROJECT: u32 = 0x200;

nix::ioctl_read!(get_attributes, b'X', 31, Attributes);
nix::ioctl_write_ptr!(set_attributes, b'X', 32, Attributes);

/// The usage and the limit of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUsage {
    /// The limit in bytes; 0 means no limit.
    pub limit: u64,
    /// The used bytes.
    pub used: u64,
    pub files: u64,
}

/// Calls `quotactl_fd`. `data` must be the structure that the command reads or fills in.
fn quotactl<T>(dir: BorrowedFd<'_>, command: libc::c_int, id: u32, data: &mut T) -> io::Result<()> {
    let command = (command << 8) | PROJECT;
    let data = std::ptr::from_mut(data);
    // SAFETY: each caller in this file passes the structure of its command; it outlives the call, and the kernel keeps no
    // pointer.
    let result = unsafe { libc::syscall(libc::SYS_quotactl_fd, dir.as_raw_fd(), command, id, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the file system of a directory enforces project limits. It fails if there are no quotas or the daemon may not
/// ask.
pub fn is_enforced(dir: BorrowedFd<'_>) -> io::Result<bool> {
    /// `struct fs_quota_statv`: its first fields, and room for the rest.
    #[repr(C, align(8))]
    struct QuotaState {
        version: u8,
        padding: u8,
        flags: u16,
        rest: [u8; 252],
    }
    let mut state = QuotaState { version: STATE_VERSION, padding: 0, flags: 0, rest: [0; 252] };
    quotactl(dir, GET_STATE, 0, &mut state)?;
    Ok(state.flags & PROJECT_LIMITS_ENFORCED != 0)
}

/// The project of new files below this directory, if there is one.
pub fn project(dir: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let attributes = attributes(dir)?;
    Ok(Some(attributes.project).filter(|project| *project != 0 && attributes.flags & INHERIT_PROJECT != 0))
}

/// Makes a directory, and what is made in it from now on, belong to a project.
pub fn set_project(dir: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut attributes = attributes(dir)?;
    attributes.project = project;
    attributes.flags |= INHERIT_PROJECT;
    // SAFETY: the structure has the type that the call takes and outlives it; the kernel only reads it.
    unsafe { set_attributes(dir.as_raw_fd(), &raw const attributes) }?;
    Ok(())
}

fn attributes(dir: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the structure has the type that the call fills in, and outlives it.
    unsafe { get_attributes(dir.as_raw_fd(), &raw mut attributes) }?;
    Ok(attributes)
}

/// The usage and the limit of a project on the file system of a directory.
pub fn usage(dir: BorrowedFd<'_>, project: u32) -> io::Result<ProjectUsage> {
    let mut found = empty();
    match quotactl(dir, libc::Q_GETQUOTA, project, &mut found) {
        Ok(()) => {}
        // Nothing was ever written to this project.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        Err(error) => return Err(error),
    }
    Ok(ProjectUsage {
        limit: found.dqb_bhardlimit.saturating_mul(BLOCK_BYTES),
        used: found.dqb_curspace,
        files: found.dqb_curinodes,
    })
}

/// Limits what a project may hold. A limit of 0 bytes removes the limit.
pub fn set_limit(dir: BorrowedFd<'_>, project: u32, bytes: u64) -> io::Result<()> {
    let mut wanted = empty();
    wanted.dqb_bhardlimit = bytes.div_ceil(BLOCK_BYTES);
    wanted.dqb_valid = LIMITS_ARE_VALID;
    quotactl(dir, libc::Q_SETQUOTA, project, &mut wanted)
}

fn empty() -> libc::dqblk {
    libc::dqblk {
        dqb_bhardlimit: 0,
        dqb_bsoftlimit: 0,
        dqb_curspace: 0,
        dqb_ihardlimit: 0,
        dqb_isoftlimit: 0,
        dqb_curinodes: 0,
        dqb_btime: 0,
        dqb_itime: 0,
        dqb_valid: 0,
    }
}
