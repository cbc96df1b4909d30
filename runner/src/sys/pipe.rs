//! Pipes, FIFOs and message sockets, non-blocking on the runner's side.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

/// Makes a pipe (reader, writer) that a program writes to. The runner reads without blocking; neither end survives exec.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    set_nonblocking(&reader)?;
    Ok((reader, writer))
}

/// Makes a pipe (reader, writer) that a program reads from. The runner writes without blocking; neither end survives exec.
pub fn input_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    set_nonblocking(&writer)?;
    Ok((reader, writer))
}

/// Makes a pair of sockets (theirs, ours) on which one write is one read. Ours does not block, and receives the writer's
/// pid.
pub fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
    let (theirs, ours) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    set_nonblocking(&ours)?;
    setsockopt(&ours, sockopt::PassCred, &true)?;
    Ok((theirs, ours))
}

/// Reads one message. Returns its length and the pid of its writer, which the kernel guarantees. A length of 0 means that no
/// process holds the other socket any more and that all messages were read.
///
/// A peer that closes its socket with unread messages resets the connection. Linux reports that once, before the remaining
/// messages; gVisor reports it after them, again and again. As an error it would never go away, so it counts as the end.
pub fn receive(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    match receive_once(fd, buffer) {
        Err(error) if is_reset(&error) => match receive_once(fd, buffer) {
            Err(error) if is_reset(&error) => Ok((0, None)),
            other => other,
        },
        other => other,
    }
}

fn receive_once(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};
    let mut parts = [io::IoSliceMut::new(buffer)];
    let mut control = nix::cmsg_space!(UnixCredentials);
    let received = recvmsg::<()>(fd.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let writer = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.pid()),
        _ => None,
    });
    Ok((received.bytes, writer))
}

/// The bytes of messages that the other side has not read, with the kernel's overhead.
pub fn unsent(fd: &impl AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int to a live int.
    match unsafe { outq(fd.as_raw_fd(), &raw mut bytes) } {
        Ok(_) => usize::try_from(bytes).unwrap_or(0),
        Err(_) => 0,
    }
}

nix::ioctl_read_bad!(outq, libc::TIOCOUTQ, libc::c_int);

/// Makes reads and writes return `WouldBlock` instead of waiting.
pub fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, fcntl};
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Asks for a larger pipe buffer. If the kernel refuses, the pipe keeps its buffer.
pub fn grow(fd: &impl AsFd, bytes: i32) {
    let _ = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETPIPE_SZ(bytes));
}

/// Makes a FIFO at `path` with exactly these permission bits, since the runner's umask is 0.
pub fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    Ok(nix::unistd::mkfifo(path, Mode::from_bits_truncate(mode))?)
}

/// Opens a FIFO for reading without waiting for a writer.
pub fn open_fifo_reader(path: &Path) -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    Ok(file.into())
}

/// The unread bytes in a pipe, asked from either end.
pub fn unread(fd: &impl AsFd) -> usize {
    rustix::io::ioctl_fionread(fd).ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_a_reset_is_read_and_then_the_end() {
        let (theirs, ours) = message_pair().unwrap();
        nix::unistd::write(&ours, b"a line that nobody reads").unwrap();
        nix::unistd::write(&theirs, b"report").unwrap();
        drop(theirs);
        let mut buffer = [0; 64];
        let (count, writer) = receive(&ours, &mut buffer).unwrap();
        assert_eq!((&buffer[..count], writer), (&b"report"[..], i32::try_from(std::process::id()).ok()));
        for _ in 0..3 {
            assert_eq!(receive(&ours, &mut buffer).unwrap().0, 0);
        }
    }
}
