//! A pseudo-terminal: opens it, and controls its size, its modes, and its foreground process group.
//!
//! portable-pty opens, names and resizes it. Its way to start programs is not used (`spawn` has its own, see
//! docs/decisions/0002), and neither are its reader and writer, which block and type an end-of-file when they are dropped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_file};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::sys::termios::{FlushArg, SetArg, Termios, tcflush, tcgetattr, tcsetattr};
use nix::unistd::{Gid, Pid, Uid, fchown, tcgetpgrp, tcsetpgrp};
use portable_pty::{MasterPty, PtySize, PtySystem, unix::UnixPtySystem};

use super::pipe::set_nonblocking;

/// The number of control characters in the kernel; libc has room for more.
const KERNEL_CONTROL_CHARS: usize = 19;

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

impl From<Size> for PtySize {
    fn from(size: Size) -> Self {
        Self { rows: size.rows, cols: size.cols, pixel_width: 0, pixel_height: 0 }
    }
}

/// The side that a terminal emulator holds: bytes written here are typed, bytes read here were printed. It does not block.
pub struct Master {
    pty: Box<dyn MasterPty + Send>,
    fd: RawFd,
}

/// The side that programs hold. The runner keeps one open as long as the terminal lives; otherwise the master reports a
/// hang-up, and poll would spin.
pub struct Slave {
    fd: OwnedFd,
    pub path: PathBuf,
}

/// Opens a terminal of the given size. Its slave belongs to `owner` if the runner has the right to change the owner.
pub fn open(size: Size, owner: Option<(u32, u32)>) -> io::Result<(Master, Slave)> {
    let missing = |what: &str| io::Error::other(format!("the new terminal has no {what}"));
    let pair = UnixPtySystem::default().openpty(size.into()).map_err(io::Error::other)?;
    let path = pair.master.tty_name().ok_or_else(|| missing("name"))?;
    let fd = pair.master.as_raw_fd().ok_or_else(|| missing("descriptor"))?;
    let master = Master { pty: pair.master, fd };
    set_nonblocking(&master)?;
    // `pair.slave` gives no descriptor. It stays open until the new one is, so that the master never hangs up.
    let slave =
        Slave { fd: open_file(&path, OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC, Mode::empty())?, path };
    if let Some((uid, gid)) = owner {
        // Login does this too, because programs open their terminal by name. Without CAP_CHOWN it is refused; then only the
        // inherited descriptors and /dev/tty work.
        let _ = fchown(&slave.fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    }
    Ok((master, slave))
}

impl Master {
    /// Changes the size. The kernel tells the foreground programs with SIGWINCH.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        self.pty.resize(size.into()).map_err(io::Error::other)
    }

    /// The foreground process group. `None` if there is none that may be signalled: on a dead terminal the kernel reports 0,
    /// and a signal to group 0 would reach the runner itself.
    pub fn foreground(&self) -> Option<i32> {
        tcgetpgrp(self).ok().map(Pid::as_raw).filter(|group| *group > 1)
    }

    /// Sends INT, QUIT or TSTP to the foreground group as the terminal itself does: the kernel uses its current group, and
    /// not a number that may belong to another group by now.
    pub fn signal_foreground(&self, signal: i32) -> io::Result<()> {
        /// The request number `_IOW('T', 0x36, int)` from asm-generic/ioctls.h.
        const TIOCSIG: libc::Ioctl = 0x4004_5436u32 as libc::Ioctl;
        // SAFETY: TIOCSIG takes the signal number by value.
        match Errno::result(unsafe { libc::ioctl(self.fd, TIOCSIG, signal) }) {
            // gVisor has no such request, but its terminal reacts to the keys.
            Err(Errno::ENOTTY) => self.press(signal),
            other => other.map(drop).map_err(io::Error::from),
        }
    }

    /// Types the key for a signal, as a person would on a new terminal.
    fn press(&self, signal: i32) -> io::Result<()> {
        let key = match signal {
            libc::SIGINT => 0x03,
            libc::SIGQUIT => 0x1c,
            libc::SIGTSTP => 0x1a,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        match self.write(&[key])? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    /// Whether the kernel reports the foreground group to a process outside the terminal's session. gVisor does not.
    pub fn tells_foreground(&self) -> bool {
        tcgetpgrp(self) != Err(Errno::ENOTTY)
    }

    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(self, buffer)?)
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(self, bytes)?)
    }
}

impl AsRawFd for Master {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl AsFd for Master {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `pty` owns this descriptor, and keeps it open for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Slave {
    pub fn modes(&self) -> io::Result<Termios> {
        Ok(tcgetattr(&self.fd)?)
    }

    /// Sets the modes to `wanted` if they differ.
    pub fn restore_modes(&self, wanted: &Termios) -> io::Result<()> {
        let now = self.modes()?;
        // The fields are compared one by one, because the kernel does not return libc's additional fields.
        let same = now.input_flags == wanted.input_flags
            && now.output_flags == wanted.output_flags
            && now.control_flags == wanted.control_flags
            && now.local_flags == wanted.local_flags
            && now.control_chars[..KERNEL_CONTROL_CHARS] == wanted.control_chars[..KERNEL_CONTROL_CHARS];
        if same { Ok(()) } else { Ok(tcsetattr(&self.fd, SetArg::TCSANOW, wanted)?) }
    }

    /// Discards typed and unread input. Printed output stays.
    pub fn discard_typed(&self) {
        let _ = tcflush(&self.fd, FlushArg::TCIFLUSH);
    }

    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

/// Makes `group` the foreground group of the terminal on `fd`. The calling process may be in the background.
pub fn set_foreground(fd: BorrowedFd<'_>, group: i32) -> io::Result<()> {
    // While TTOU is blocked, the kernel does not stop a background process for this call.
    let ttou = SigSet::from_iter([Signal::SIGTTOU]);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&ttou), Some(&mut before))?;
    let result = tcsetpgrp(fd, Pid::from_raw(group));
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_terminal_has_its_size_and_its_name() {
        let (master, slave) = open(Size { cols: 91, rows: 17 }, None).unwrap();
        let stty = |slave: &Slave| {
            let output = std::process::Command::new("stty").arg("size").stdin(slave.try_clone().unwrap()).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert_eq!(stty(&slave), "17 91\n");
        master.resize(Size { cols: 200, rows: 50 }).unwrap();
        assert_eq!(stty(&slave), "50 200\n");
        let named = std::fs::OpenOptions::new().write(true).open(&slave.path).unwrap();
        std::io::Write::write_all(&mut &named, b"printed by name").unwrap();
        let mut buffer = [0; 64];
        let count = master.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"printed by name");
    }

    #[test]
    fn a_master_without_output_does_not_block_and_no_program_inherits_it() {
        let (master, slave) = open(Size { cols: 80, rows: 24 }, None).unwrap();
        assert_eq!(master.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for fd in [master.as_fd(), slave.fd.as_fd()] {
            let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFD).unwrap();
            assert_eq!(flags, libc::FD_CLOEXEC);
        }
    }
}
