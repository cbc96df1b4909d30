//! The scheduler: how soon a thread gets the processor when it wakes up, and what the host has.

/// The shortest time slice that Linux grants. A thread with short slices runs as much as any other, but sooner.
const SLICE_NANOSECONDS: u64 = 100_000;

/// Asks for short time slices for the calling thread, so that it answers soon beside programs that compute. Forked processes
/// do not inherit them. Linux before 6.12 has no such setting; if it is refused, everything works, only less promptly.
pub fn request_short_slices() {
    let Ok(size) = u32::try_from(size_of::<libc::sched_attr>()) else { return };
    // SAFETY: all zero is a valid value of this plain struct.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: thread 0 is the calling one; the kernel writes no more than the size it is told.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if read == -1 || attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return;
    }
    attributes.size = size;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into();
    attributes.sched_runtime = SLICE_NANOSECONDS;
    // SAFETY: thread 0 is the calling one; the kernel only reads.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// The number of processors on which this process may run.
pub fn usable_processors() -> usize {
    // Not the function of the standard library, which also looks at the quota.
    rustix::thread::sched_getaffinity(None).map_or(1, |set| usize::try_from(set.count()).unwrap_or(1))
}

/// The memory that the host has. The call asks the kernel, and reads no file.
pub fn host_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}
