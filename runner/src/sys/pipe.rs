//! Pipes and FIFOs, non-blocking on the runner's side.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

/// A pipe whose ends are close-on-exec and whose runner's side (`reader` or `writer`) does not block.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    set_nonblocking(&reader)?;
    Ok((reader, writer))
}

pub fn input_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    set_nonblocking(&writer)?;
    Ok((reader, writer))
}

/// A pair of sockets on which one write is one read. The second does not block, and learns who wrote.
pub fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
    let (theirs, ours) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    set_nonblocking(&ours)?;
    setsockopt(&ours, sockopt::PassCred, &true)?;
    Ok((theirs, ours))
}

/// Reads one message, and gives its length and the pid of the process that wrote it: the kernel's word, not the message's. With
/// a length of 0 nobody holds the other end any more, and all that was written there has been read.
///
/// An end that was closed with messages unread resets the line. Linux says so once, before what still lies there; gVisor after
/// it, and again and again: as an error it would be one that never goes, for a reader that waits for the end.
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

/// Bytes (with the kernel's own on top) of messages that the other side has not read.
pub fn unsent(fd: &impl AsRawFd) -> usize {
    queued(fd, libc::TIOCOUTQ)
}

pub fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, fcntl};
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Asks for a larger buffer; a kernel that refuses leaves the one it has.
pub fn grow(fd: &impl AsFd, bytes: i32) {
    let _ = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETPIPE_SZ(bytes));
}

/// Makes a FIFO at `path`. The runner's umask is 0, so these are its permission bits.
pub fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    Ok(nix::unistd::mkfifo(path, Mode::from_bits_truncate(mode))?)
}

/// Opens a FIFO for reading without waiting for a writer.
pub fn open_fifo_reader(path: &Path) -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    Ok(file.into())
}

/// Bytes that lie unread in a pipe, asked from either end.
pub fn unread(fd: &impl AsRawFd) -> usize {
    queued(fd, libc::FIONREAD)
}

fn queued(fd: &impl AsRawFd, question: libc::Ioctl) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both questions write one int to a live int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), question, &raw mut bytes) };
    if result == -1 { 0 } else { usize::try_from(bytes).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_the_line_was_reset_is_read_and_then_its_end() {
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
