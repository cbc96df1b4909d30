//! Becoming the sandbox user for good, between fork and exec, and keeping the runner's own secrets to itself.

use std::ffi::CStr;
use std::io;

/// Whom commands and file operations run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Whether the runner can become that user: it started as root and the user is another one.
    pub switch: bool,
}

/// How much likelier than the runner a command is to be chosen when memory runs out. The value is added to whatever the
/// runner itself was started with, since lowering one's own needs a capability that sandboxes do not have.
pub const COMMAND_OOM_SCORE_ADJ: i32 = 500;

/// The number of the highest capability that a kernel of today could know; dropping beyond its last is EINVAL.
const MAX_CAPABILITY: libc::c_ulong = 63;

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives up everything that the sandbox user must not have. Async-signal-safe: called between fork and exec.
///
/// The order matters: the bounding set can only be emptied while CAP_SETPCAP is held, groups only while root, and
/// no_new_privs last so that a failure before it is a failure to start and not a weaker sandbox.
pub fn become_user(identity: Identity) -> io::Result<()> {
    if identity.switch {
        for capability in 0..=MAX_CAPABILITY {
            // SAFETY: prctl with integer arguments touches no memory of ours.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == -1 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // Past the last capability this kernel knows.
                    Some(libc::EINVAL) => break,
                    // Without CAP_SETPCAP the set stays as it is; setresuid below still empties the effective one,
                    // and no_new_privs keeps the bounding set from ever mattering.
                    Some(libc::EPERM) => break,
                    _ => return Err(error),
                }
            }
        }
        // SAFETY: a null list of length zero; then plain integers. setgroups is refused in a user namespace that denies
        // it, where supplementary groups carry no rights anyway.
        unsafe {
            if libc::setgroups(0, std::ptr::null()) == -1 {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EPERM) {
                    return Err(error);
                }
            }
            check(libc::setresgid(identity.gid, identity.gid, identity.gid))?;
            check(libc::setresuid(identity.uid, identity.uid, identity.uid))?;
        }
        clear_ambient();
    }
    // SAFETY: integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

fn clear_ambient() {
    // SAFETY: integers only. Failure means that the kernel has no ambient set to clear.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    }
}

/// Raises this process's likelihood of being chosen when memory runs out. Async-signal-safe; failing is harmless.
pub fn raise_oom_score(text: &CStr) {
    // SAFETY: a constant path, a live C string and its exact length; the descriptor is closed on the same path.
    unsafe {
        let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.count_bytes());
            libc::close(fd);
        }
    }
}

/// The runner's own `oom_score_adj`, plus what commands get on top of it, as the text to write.
pub fn command_oom_score() -> std::ffi::CString {
    let own: i32 =
        std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|s| s.trim().parse().ok()).unwrap_or(0);
    let score = (own + COMMAND_OOM_SCORE_ADJ).min(1000);
    std::ffi::CString::new(score.to_string()).unwrap_or_default()
}

/// Keeps processes of the same user from reading this one's memory and environment or tracing it.
pub fn forbid_inspection() -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })
}

/// Orphans below this process become its children even where it is not PID 1.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// Takes variables out of the environment and overwrites their bytes in the block that `/proc/PID/environ` shows.
///
/// Only before a second thread exists.
pub fn scrub_environment(is_secret: impl Fn(&[u8]) -> bool) {
    unsafe extern "C" {
        static environ: *mut *mut libc::c_char;
    }
    // SAFETY: single-threaded start-up, so nobody else reads or moves the block. Each entry is a NUL-terminated string in
    // memory that belongs to the process and is writable; only bytes before its NUL are changed.
    unsafe {
        if environ.is_null() {
            return;
        }
        let (mut from, mut to) = (environ, environ);
        while !(*from).is_null() {
            let length = libc::strlen(*from);
            let entry = std::slice::from_raw_parts_mut((*from).cast::<u8>(), length);
            let name_end = entry.iter().position(|b| *b == b'=').unwrap_or(length);
            if is_secret(&entry[..name_end]) {
                entry.fill(0);
            } else {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = std::ptr::null_mut();
    }
}
