//! The set of capabilities that a process and all it starts can ever have.

use std::io;

pub const CHOWN: u8 = 0;
pub const DAC_OVERRIDE: u8 = 1;
pub const FOWNER: u8 = 3;
pub const FSETID: u8 = 4;
pub const KILL: u8 = 5;
pub const SETGID: u8 = 6;
pub const SETUID: u8 = 7;
pub const SETPCAP: u8 = 8;
pub const SYS_PTRACE: u8 = 19;

/// More than any kernel has; the first unknown number ends the walk.
const MAX_CAPABILITY: u8 = 63;

/// Takes all but `kept` out of the bounding set. What is in force now ends with the next exec.
pub fn bound(kept: &[u8]) -> io::Result<()> {
    for capability in (0..=MAX_CAPABILITY).filter(|c| !kept.contains(c)) {
        // SAFETY: integers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) } == -1 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINVAL) => break,
                _ => return Err(error),
            }
        }
    }
    // SAFETY: integers only.
    if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
