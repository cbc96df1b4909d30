//! Landlock: rules that a process puts on itself and on everything it starts, and that nobody can take off again.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// The rights to change files, as the kernel numbers them. `REFER` is to move or link a file to another directory.
const WRITE_FILE: u64 = 1 << 1;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

/// Connections to abstract Unix sockets, and signals, that leave the restricted processes.
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 1 << 1;

/// The first version in which files can be moved between directories at all, and those that know more rights and scopes.
pub const FIRST_USEFUL: u32 = 2;
const WITH_TRUNCATE: u32 = 3;
const WITH_NETWORK: u32 = 4;
pub const WITH_SCOPES: u32 = 6;

const CREATE_RULESET_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;

/// The version of Landlock that this kernel has. 0 means none.
pub fn version() -> u32 {
    // SAFETY: with this flag the call takes no structure and returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, CREATE_RULESET_VERSION) };
    u32::try_from(version).unwrap_or(0)
}

#[repr(C)]
struct RulesetAttributes {
    handled_files: u64,
    handled_network: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: libc::c_int,
}

/// Restricts this process, which must have `no_new_privs`. If there are `places`, files can be changed only in these directories, and
/// no devices can be made anywhere. Where the kernel has scopes, signals and abstract sockets of the process stay inside.
pub fn restrict(version: u32, places: Option<&[OwnedFd]>) -> io::Result<()> {
    let mut changes =
        WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER;
    if version >= WITH_TRUNCATE {
        changes |= TRUNCATE;
    }
    let attributes = RulesetAttributes {
        handled_files: places.map_or(0, |_| changes | MAKE_CHAR | MAKE_BLOCK),
        handled_network: 0,
        scoped: if version >= WITH_SCOPES { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 },
    };
    if attributes.handled_files == 0 && attributes.scoped == 0 {
        return Ok(());
    }
    // An older kernel refuses a structure with fields that it does not know.
    let size = match version {
        0..WITH_NETWORK => size_of::<u64>(),
        WITH_NETWORK..WITH_SCOPES => 2 * size_of::<u64>(),
        _ => size_of::<RulesetAttributes>(),
    };
    // SAFETY: the structure outlives the call, which reads `size` bytes of it.
    let ruleset = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0) };
    let ruleset = libc::c_int::try_from(ruleset).map_err(io::Error::other)?;
    if ruleset == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset) };
    for place in places.into_iter().flatten() {
        let rule = PathBeneath { allowed: changes, parent: place.as_raw_fd() };
        // SAFETY: the structure outlives the call, which only reads it.
        let added = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0)
        };
        if added == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the call takes integers only.
    let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if restricted == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
