//! How soon a thread gets the processor when it wakes.

/// The shortest that Linux grants. Less time at once, not less time: who asks for little gets it sooner.
const SLICE_NANOSECONDS: u64 = 100_000;

/// Asks for short turns for the calling thread, and not for what it forks: it is to answer soon beside programs that compute.
/// Linux before 6.12 knows no such wish; where it is refused everything works as well, only not as soon.
pub fn take_short_turns() {
    let Ok(size) = u32::try_from(size_of::<libc::sched_attr>()) else { return };
    // SAFETY: all zero is a valid value of this plain struct.
    let mut turns: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: thread 0 is the calling one; the kernel writes no more than the size it is told.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut turns, size, 0) };
    if read == -1 || turns.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return;
    }
    turns.size = size;
    turns.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into();
    turns.sched_runtime = SLICE_NANOSECONDS;
    // SAFETY: as above, and the kernel only reads.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const turns, 0) };
}
