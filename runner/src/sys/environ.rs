//! The environment block of this process, which `/proc/PID/environ` shows to others.

/// Removes the secret variables, and overwrites their bytes in the block.
///
/// Call it only before a second thread exists.
pub fn scrub(is_secret: impl Fn(&[u8]) -> bool) {
    unsafe extern "C" {
        static environ: *mut *mut libc::c_char;
    }
    // SAFETY: the process has one thread, so nobody else reads or moves the block. Each entry is a NUL-terminated string in
    // writable memory of the process, and only bytes before its NUL are changed.
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
