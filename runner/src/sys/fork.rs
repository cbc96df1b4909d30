//! A forked helper: this program's own code in a process of its own, as the sandbox user, holding nothing but two pipes.
//!
//! It promises that the helper cannot outlive the runner, cannot reach a descriptor of the runner, cannot be inspected by
//! the user it runs as (it still has the runner's memory), and never returns into the runner's code. Forking without exec
//! is sound only while the runner has one thread: no lock can be held by a thread that the child does not have.
//!
//! It refuses nothing about what the helper does; that is `files`. Below it are the calls that `files` needs and that nix
//! has not for every libc.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::identity::{self, Identity};
use super::signal;

/// Where the helper finds its input. Standard output and error are the same, read-only, descriptor: a message of a panic
/// can then never end up in a file that took their number.
const INPUT_FD: RawFd = 0;
const OUTPUT_FD: RawFd = 3;
/// Copies made while shuffling are put above this, out of the way of the numbers they go to.
const SHUFFLE_FROM: RawFd = 10;

/// Without `close_range`, descriptors are closed one by one up to the limit, and never more than this many.
const MAX_CLOSED_BY_HAND: RawFd = 1 << 20;

/// The helper's exit statuses; what went wrong with the operation itself it says on its output.
pub const EXIT_DONE: i32 = 0;
pub const EXIT_PANICKED: i32 = 70;
pub const EXIT_NOT_SET_UP: i32 = 71;

/// Forks, and runs `work` in the child with its ends of two pipes. Gives the child's pid, which the caller must hand to the
/// reaper before it next awaits.
pub fn fork_helper(
    identity: Identity,
    input: OwnedFd,
    output: OwnedFd,
    work: impl FnOnce(OwnedFd, OwnedFd),
) -> io::Result<i32> {
    let oom_score = identity::command_oom_score();
    let runner = nix::unistd::getpid().as_raw();
    // A handler of the runner must not run in the child, nor a signal for the child be lost to the runner's mask.
    let mask = signal::block_all()?;
    // SAFETY: one thread, so that the child's copy of every lock is free; the child ends in `_exit` on every path.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        signal::reset_all();
        let status = match set_up(identity, &input, &output, &oom_score, runner) {
            Ok((input, output)) => {
                // Tests unwind; the runner itself aborts, which is as good.
                let work = std::panic::AssertUnwindSafe(|| work(input, output));
                std::panic::catch_unwind(work).map_or(EXIT_PANICKED, |()| EXIT_DONE)
            }
            Err(_) => EXIT_NOT_SET_UP,
        };
        // SAFETY: ends the process without running the runner's destructors and exit handlers.
        unsafe { libc::_exit(status) }
    }
    let result = if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    signal::restore(&mask);
    result
}

/// Makes the child a helper. The order matters: descriptors first, so that nothing later can use one of the runner's;
/// the death signal after the change of user, which clears it.
fn set_up(
    identity: Identity,
    input: &OwnedFd,
    output: &OwnedFd,
    oom_score: &CStr,
    runner: libc::pid_t,
) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: live descriptors; the copies are closed with everything else. Whatever held the numbers 0 to 3 is the
    // runner's and is never used again in this process.
    let ends = unsafe {
        let from = check(libc::fcntl(input.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SHUFFLE_FROM))?;
        let to = check(libc::fcntl(output.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SHUFFLE_FROM))?;
        for number in [INPUT_FD, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            check(libc::dup2(from, number))?;
        }
        check(libc::dup2(to, OUTPUT_FD))?;
        close_from(OUTPUT_FD + 1);
        (OwnedFd::from_raw_fd(INPUT_FD), OwnedFd::from_raw_fd(OUTPUT_FD))
    };
    identity::raise_oom_score(oom_score);
    identity::become_user(identity)?;
    identity::forbid_inspection()?;
    // SAFETY: integers and a constant string. `getppid` closes the race with a runner that died before the prctl.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        if libc::getppid() != runner {
            return Err(io::ErrorKind::NotConnected.into());
        }
        libc::prctl(libc::PR_SET_NAME, c"runner-files".as_ptr(), 0, 0, 0);
        // Modes are given in full by whoever makes a file.
        libc::umask(0);
    }
    Ok(ends)
}

/// Closes every descriptor from `first` on. Only where nobody in this process owns one: at the very start, or in a child.
pub fn close_from(first: RawFd) {
    // SAFETY: closes numbers that no owner in this process will use again. The raw call, since musl has no wrapper.
    unsafe {
        if libc::syscall(libc::SYS_close_range, libc::c_long::from(first), libc::c_long::from(u32::MAX), 0) == 0 {
            return;
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let known = libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0;
        let last = if known { RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX) } else { RawFd::MAX };
        for fd in first..last.min(MAX_CLOSED_BY_HAND) {
            libc::close(fd);
        }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Renames only where the new name is free. `Unsupported` where the kernel or the filesystem cannot promise that, or, as
/// the two are told apart by the kernel no better, where a directory would move into itself.
pub fn rename_to_free_name(
    from: BorrowedFd<'_>,
    from_name: &[u8],
    to: BorrowedFd<'_>,
    to_name: &[u8],
) -> io::Result<()> {
    let from_name = CString::new(from_name)?;
    let to_name = CString::new(to_name)?;
    // SAFETY: live descriptors and NUL-terminated names; the raw call, since musl has no wrapper.
    let result = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            from.as_raw_fd(),
            from_name.as_ptr(),
            to.as_raw_fd(),
            to_name.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    const OURSELVES: Identity = Identity { uid: 0, gid: 0, switch: false };

    /// Forks, gives the helper `sent`, and gives what it said and its raw status.
    fn helped(sent: &[u8], work: impl FnOnce(OwnedFd, OwnedFd)) -> (Vec<u8>, i32) {
        let (input, to_child) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let (from_child, output) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let pid = fork_helper(OURSELVES, input.try_clone().unwrap(), output.try_clone().unwrap(), work).unwrap();
        drop((input, output));
        File::from(to_child).write_all(sent).unwrap();
        let mut said = Vec::new();
        File::from(from_child).read_to_end(&mut said).unwrap();
        let mut status = 0;
        // SAFETY: waits for this child alone, which no reaper of the test process knows.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        (said, status)
    }

    #[test]
    fn a_helper_reads_its_input_and_answers_on_its_output() {
        let (said, status) = helped(b"abc", |input, output| {
            let mut bytes = Vec::new();
            File::from(input).read_to_end(&mut bytes).unwrap();
            bytes.reverse();
            File::from(output).write_all(&bytes).unwrap();
        });
        assert_eq!((said.as_slice(), status), (b"cba".as_slice(), 0));
    }

    #[test]
    fn a_helper_holds_no_descriptor_but_its_own_four() {
        let _of_the_runner = File::open("/").unwrap();
        let (said, _) = helped(b"", |_, output| {
            let open: Vec<u8> = (0..1024u16)
                // SAFETY: asks about a number only.
                .filter(|fd| unsafe { libc::fcntl(i32::from(*fd), libc::F_GETFD) } != -1)
                .map(|fd| u8::try_from(fd).unwrap())
                .collect();
            File::from(output).write_all(&open).unwrap();
        });
        assert_eq!(said, [0, 1, 2, 3]);
    }

    #[test]
    fn a_panic_ends_the_helper_and_writes_nowhere() {
        let (said, status) = helped(b"", |_, _| panic!("not to be seen"));
        assert_eq!(said, b"");
        assert_eq!(libc::WEXITSTATUS(status), EXIT_PANICKED);
    }

    #[test]
    fn a_helper_dies_with_the_thread_that_forked_it() {
        let (from_child, output) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let (input, _to_child) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let mut from_child = File::from(from_child);
        let mut reader = from_child.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            let pid = fork_helper(OURSELVES, input, output, |_, output| {
                File::from(output.try_clone().unwrap()).write_all(b"!").unwrap();
                std::thread::sleep(std::time::Duration::from_secs(60));
            });
            // It is set up, and will notice.
            reader.read_exact(&mut [0]).unwrap();
            pid.unwrap()
        });
        let pid = thread.join().unwrap();
        // The end of the output comes with the helper's end, sixty seconds early.
        let started = std::time::Instant::now();
        from_child.read_to_end(&mut Vec::new()).unwrap();
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
        // SAFETY: waits for this child alone.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    }
}
