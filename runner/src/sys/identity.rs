//! Makes a process the sandbox user for good, between fork and exec, and hides the runner's memory from that user. The sandbox user is an
//! ordinary user, or root of a [user namespace](super::user_namespace) without the runner in it.
//!
//! Code between fork and exec makes plain system calls only: no allocation, no lock.

use std::ffi::{CStr, CString};
use std::io;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid, write};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set as drop_from_bounding_set, set_capabilities,
};

use super::user_namespace;

/// The user that commands and file operations run as, with the ids that the runner knows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Whether the runner can become that user: it started as root, and the user is another one.
    pub switch: bool,
}

/// The capabilities of commands that are root, in their own user namespace: what package managers and `useradd`, `chown` and `su` need.
/// All of them are about users, files and processes of that namespace. Without effect are those about mounts, devices, networks,
/// tracing and the kernel, because these belong to other namespaces; they are not given either.
const ROOT_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP);

/// Root, as commands in their own user namespace see it.
pub const ROOT: u32 = 0;

/// How much likelier the kernel kills a command than the runner when memory runs out. It is added to the runner's own value,
/// because lowering a value needs a capability that sandboxes do not have.
pub const COMMAND_OOM_SCORE_ADJ: i32 = 500;

/// The highest value that the kernel takes.
const MAX_OOM_SCORE_ADJ: i32 = 1000;

/// The file that holds a process's own value.
const OOM_SCORE_ADJ_FILE: &CStr = c"/proc/self/oom_score_adj";

/// The highest capability number that fits into the kernel's sets. Dropping a capability that the kernel does not know is
/// EINVAL.
const MAX_CAPABILITY: u32 = 63;

/// Gives up everything that the sandbox user must not have. Call it in a forked child.
///
/// The order matters: the bounding set can only be emptied while CAP_SETPCAP is held, groups can only be dropped by root,
/// and no_new_privs comes last so that a failure before it is a failure to start and not a weaker sandbox.
pub fn become_user(identity: Identity) -> io::Result<()> {
    if identity.switch && user_namespace::enter()? {
        become_root()?;
    } else if identity.switch {
        limit_bounding_set(CapabilitySet::empty())?;
        match setgroups(&[]) {
            // A user namespace can forbid this; supplementary groups give no rights there.
            Ok(()) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
        // This fails if the kernel has no ambient set, and then there is nothing to clear.
        let _ = clear_ambient_capability_set();
    }
    Ok(prctl::set_no_new_privs()?)
}

/// Makes a process that has just entered the commands' user namespace its root, with few capabilities.
fn become_root() -> io::Result<()> {
    limit_bounding_set(ROOT_CAPABILITIES)?;
    setgroups(&[])?;
    let (uid, gid) = (Uid::from_raw(ROOT), Gid::from_raw(ROOT));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    // Entering gave every capability. Those that stay here are what root keeps at exec.
    let (kept, inheritable) = (ROOT_CAPABILITIES, CapabilitySet::empty());
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(clear_ambient_capability_set()?)
}

fn limit_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..=MAX_CAPABILITY {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match drop_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no capability with this number, and none with a higher one.
            Err(rustix::io::Errno::INVAL) => break,
            // Without CAP_SETPCAP the set stays as it is. setresuid still empties the effective set, and no_new_privs
            // keeps the bounding set from ever mattering.
            Err(rustix::io::Errno::PERM) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes this process likelier to be killed when memory runs out. Call it in a forked child; a failure is harmless.
pub fn raise_oom_score(score: &CStr) {
    if let Ok(file) = open(OOM_SCORE_ADJ_FILE, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()) {
        let _ = write(&file, score.to_bytes());
    }
}

/// The text that a command writes to its `oom_score_adj`: the runner's own value plus `COMMAND_OOM_SCORE_ADJ`.
pub fn command_oom_score() -> CString {
    let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    let own: i32 = text.trim().parse().unwrap_or(0);
    CString::new((own + COMMAND_OOM_SCORE_ADJ).min(MAX_OOM_SCORE_ADJ).to_string()).unwrap_or_default()
}

/// Keeps processes of the same user from tracing this one and from reading its memory and environment.
pub fn forbid_inspection() -> io::Result<()> {
    Ok(prctl::set_dumpable(false)?)
}

/// Makes orphans below this process its children even if it is not PID 1.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}
