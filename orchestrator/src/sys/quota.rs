//! Project quotas of ext4 and xfs, by descriptor (Linux 5.14): the account that a directory and all that is made below it belong
//! to, and how much an account may hold.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::check;

const PROJECT: libc::c_int = 2;
/// Of all accounts of a file system; see `linux/dqblk_xfs.h`.
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

/// What an account may hold and holds, in bytes; a limit of 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    pub limit: u64,
    pub used: u64,
    pub files: u64,
}

/// `data` is what the command takes or gives, and large enough for it.
fn quotactl<T>(dir: BorrowedFd<'_>, command: libc::c_int, id: u32, data: &mut T) -> io::Result<()> {
    let command = (command << 8) | PROJECT;
    // SAFETY: a live structure that each caller chooses for its command; the kernel keeps nothing of it.
    check(unsafe { libc::syscall(libc::SYS_quotactl_fd, dir.as_raw_fd(), command, id, std::ptr::from_mut(data)) })?;
    Ok(())
}

/// Whether the file system of a directory holds projects to their limits. An error where it has none or we may not ask.
pub fn is_enforced(dir: BorrowedFd<'_>) -> io::Result<bool> {
    /// `struct fs_quota_statv`, of which the beginning is of interest, and some room.
    #[repr(C, align(8))]
    struct State {
        version: u8,
        padding: u8,
        flags: u16,
        rest: [u8; 252],
    }
    let mut state = State { version: STATE_VERSION, padding: 0, flags: 0, rest: [0; 252] };
    quotactl(dir, GET_STATE, 0, &mut state)?;
    Ok(state.flags & PROJECT_LIMITS_ENFORCED != 0)
}

/// The account of a directory that hands it down; `None` where it has none.
pub fn project(dir: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let mut attributes = Attributes::default();
    // SAFETY: a live structure of the call's own type.
    unsafe { get_attributes(dir.as_raw_fd(), &raw mut attributes) }?;
    Ok(Some(attributes.project).filter(|project| *project != 0 && attributes.flags & INHERIT_PROJECT != 0))
}

/// Puts a directory, and what is made in it from now on, on an account.
pub fn set_project(dir: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut attributes = Attributes::default();
    // SAFETY: a live structure of the call's own type, twice.
    unsafe {
        get_attributes(dir.as_raw_fd(), &raw mut attributes)?;
        attributes.project = project;
        attributes.flags |= INHERIT_PROJECT;
        set_attributes(dir.as_raw_fd(), &raw const attributes)?;
    }
    Ok(())
}

pub fn account(dir: BorrowedFd<'_>, project: u32) -> io::Result<Account> {
    let mut found = empty();
    match quotactl(dir, libc::Q_GETQUOTA, project, &mut found) {
        Ok(()) => {}
        // An account that nobody has written to.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        Err(error) => return Err(error),
    }
    Ok(Account {
        limit: found.dqb_bhardlimit.saturating_mul(BLOCK_BYTES),
        used: found.dqb_curspace,
        files: found.dqb_curinodes,
    })
}

/// A limit of 0 takes it away.
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
