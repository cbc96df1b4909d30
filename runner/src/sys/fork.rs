//! A helper process: a fork of this program that runs one closure as the sandbox user and holds only two pipes.
//!
//! The helper cannot outlive the runner, cannot reach a descriptor of the runner, cannot be inspected by the user it runs as
//! (it still has the runner's memory), and never returns into the runner's code. Forking without exec is sound only while
//! the runner has one thread: no lock can be held by a thread that the child does not have.
//!
//! `files` decides what the helper does.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, Pid, dup2_raw, dup2_stderr, dup2_stdin, dup2_stdout, fork, getpid, getppid};

use super::fd::close_from;
use super::identity::{self, Identity};
use super::{cgroup, signal, user_namespace};

/// The descriptor of the helper's input. Standard output and error are copies of the same read-only descriptor, so that a
/// panic message can never end up in a file that got their number.
const INPUT_FD: RawFd = libc::STDIN_FILENO;
const OUTPUT_FD: RawFd = 3;

/// The helper's exit codes. The helper reports a failure of the operation itself in its output.
pub const EXIT_DONE: i32 = 0;
pub const EXIT_PANICKED: i32 = 70;
pub const EXIT_NOT_SET_UP: i32 = 71;

/// Whose memory a helper uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The runner's, which commands cannot use up.
    Runner,
    /// The commands', for a helper that writes files: on a disk in memory their content is memory too.
    Commands,
}

/// Forks, and runs `work` in the child with its ends of two pipes. Returns the child's pid, which the caller must hand to
/// the reaper before it next awaits.
pub fn fork_helper(
    identity: Identity,
    input: OwnedFd,
    output: OwnedFd,
    memory: Memory,
    work: impl FnOnce(OwnedFd, OwnedFd),
) -> io::Result<i32> {
    let oom_score = identity::command_oom_score();
    let runner = getpid();
    // No signal may reach the child before it has its own handlers and mask.
    let mask = signal::block_all()?;
    // SAFETY: this process has one thread, so the child's copy of every lock is free; the child ends in `_exit` on every path.
    let forked = unsafe { fork() };
    if let Ok(ForkResult::Child) = forked {
        signal::reset_all();
        let status = match set_up(identity, &input, &output, memory, &oom_score, runner) {
            Ok((input, output)) => {
                // Tests unwind here. The runner itself aborts, which ends the child as well.
                let work = std::panic::AssertUnwindSafe(|| work(input, output));
                std::panic::catch_unwind(work).map_or(EXIT_PANICKED, |()| EXIT_DONE)
            }
            Err(_) => EXIT_NOT_SET_UP,
        };
        // SAFETY: ends the process without running the runner's destructors and exit handlers.
        unsafe { libc::_exit(status) }
    }
    signal::restore(&mask);
    match forked? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => unreachable!("the child has ended above"),
    }
}

/// Turns the child into a helper. The order matters: descriptors come first, so that nothing later can use one of the
/// runner's; the death signal comes after the change of user, which clears it.
fn set_up(
    identity: Identity,
    input: &OwnedFd,
    output: &OwnedFd,
    memory: Memory,
    oom_score: &CStr,
    runner: Pid,
) -> io::Result<(OwnedFd, OwnedFd)> {
    if memory == Memory::Commands {
        cgroup::enter_commands()?;
    }
    // Neither pipe has a number from 0 to 2: the standard library opens those at the start of every program.
    dup2_stdin(input)?;
    dup2_stdout(input)?;
    dup2_stderr(input)?;
    // SAFETY: whatever held the number 3 belongs to the runner and is never used again in this process; the same goes for
    // standard input, which is the pipe now.
    let pipes = unsafe { (OwnedFd::from_raw_fd(INPUT_FD), dup2_raw(output, OUTPUT_FD)?) };
    user_namespace::close_all_others_from(OUTPUT_FD + 1);
    identity::raise_oom_score(oom_score);
    identity::become_user(identity)?;
    close_from(OUTPUT_FD + 1);
    identity::forbid_inspection()?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The runner may have died before the call above.
    if getppid() != runner {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let _ = prctl::set_name(c"runner-files");
    // Whoever creates a file gives its full mode.
    umask(Mode::empty());
    Ok(pipes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;

    const OURSELVES: Identity = Identity { uid: 0, gid: 0, switch: false };

    /// Forks a helper and sends it `sent`. Returns its output and its status.
    fn helped(sent: &[u8], work: impl FnOnce(OwnedFd, OwnedFd)) -> (Vec<u8>, WaitStatus) {
        let (input, to_child) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let (from_child, output) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let pid = fork_helper(OURSELVES, input.try_clone().unwrap(), output.try_clone().unwrap(), Memory::Runner, work)
            .unwrap();
        drop((input, output));
        File::from(to_child).write_all(sent).unwrap();
        let mut said = Vec::new();
        File::from(from_child).read_to_end(&mut said).unwrap();
        (said, waitpid(Pid::from_raw(pid), None).unwrap())
    }

    #[test]
    fn a_helper_reads_its_input_and_answers_on_its_output() {
        let (said, status) = helped(b"abc", |input, output| {
            let mut bytes = Vec::new();
            File::from(input).read_to_end(&mut bytes).unwrap();
            bytes.reverse();
            File::from(output).write_all(&bytes).unwrap();
        });
        assert_eq!(said, b"cba");
        assert!(matches!(status, WaitStatus::Exited(_, EXIT_DONE)), "{status:?}");
    }

    #[test]
    fn a_helper_holds_no_descriptor_but_its_own_four() {
        let _descriptor_of_the_runner = File::open("/").unwrap();
        let (said, _) = helped(b"", |_, output| {
            let open: Vec<u8> = (0..1024u16)
                .filter(|fd| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok())
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
        assert!(matches!(status, WaitStatus::Exited(_, EXIT_PANICKED)), "{status:?}");
    }

    #[test]
    fn a_helper_dies_with_the_thread_that_forked_it() {
        let (from_child, output) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let (input, _to_child) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let mut from_child = File::from(from_child);
        let mut reader = from_child.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            let pid = fork_helper(OURSELVES, input, output, Memory::Runner, |_, output| {
                File::from(output.try_clone().unwrap()).write_all(b"!").unwrap();
                std::thread::sleep(std::time::Duration::from_secs(60));
            });
            // The helper is ready, and will notice the end of this thread.
            reader.read_exact(&mut [0]).unwrap();
            pid.unwrap()
        });
        let pid = thread.join().unwrap();
        // The output ends with the helper, long before its sleep does.
        let started = std::time::Instant::now();
        from_child.read_to_end(&mut Vec::new()).unwrap();
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
        waitpid(Pid::from_raw(pid), None).unwrap();
    }
}
