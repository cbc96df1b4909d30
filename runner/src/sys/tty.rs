//! A pseudo-terminal: opening it, its size, its modes, and its foreground process group.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

/// The control characters that the kernel has; libc has room for more.
const KERNEL_CONTROL_CHARS: usize = 19;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

impl Size {
    fn winsize(self) -> libc::winsize {
        libc::winsize { ws_row: self.rows, ws_col: self.cols, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// The side a terminal emulator holds: what is written here is typed, what is read here was printed.
pub struct Master(OwnedFd);

/// The side programs hold. The runner keeps one open for as long as the terminal lives, so that the master never reports
/// a hang-up, which would make poll spin.
pub struct Slave {
    fd: OwnedFd,
    pub path: PathBuf,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a terminal of the given size, its slave belonging to `owner` where the runner may give it away.
pub fn open(size: Size, owner: Option<(u32, u32)>) -> io::Result<(Master, Slave)> {
    // SAFETY: each descriptor is checked and owned at once; the name buffer outlives the call that fills it.
    unsafe {
        let fd = check(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK))?;
        let master = OwnedFd::from_raw_fd(fd);
        check(libc::grantpt(fd))?;
        check(libc::unlockpt(fd))?;
        let mut name = [0 as libc::c_char; 64];
        let error = libc::ptsname_r(fd, name.as_mut_ptr(), name.len());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let slave_fd = check(libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC))?;
        let slave = OwnedFd::from_raw_fd(slave_fd);
        let path = PathBuf::from(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned());
        check(libc::ioctl(fd, libc::TIOCSWINSZ, &size.winsize()))?;
        if let Some((uid, gid)) = owner {
            // As login does; programs open their terminal by name. Refused where the runner lacks CAP_CHOWN: then only
            // the inherited descriptors and /dev/tty work.
            libc::fchown(slave_fd, uid, gid);
        }
        Ok((Master(master), Slave { fd: slave, path }))
    }
}

impl Master {
    pub fn resize(&self, size: Size) -> io::Result<()> {
        // SAFETY: a live descriptor and a winsize that outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCSWINSZ, &size.winsize()) }).map(drop)
    }

    /// The foreground process group, or `None` where there is none that may be signalled: on a dead terminal the kernel
    /// says 0, and signalling group 0 would be signalling ourselves.
    pub fn foreground(&self) -> Option<i32> {
        // SAFETY: a live descriptor; the kernel writes one pid_t.
        let group = unsafe { libc::tcgetpgrp(self.0.as_raw_fd()) };
        (group > 1).then_some(group)
    }

    /// Sends INT, QUIT or TSTP to the foreground group as the terminal itself would: the kernel takes the group it holds,
    /// not a number that may have been given to another one since.
    pub fn signal_foreground(&self, signal: i32) -> io::Result<()> {
        /// From asm-generic/ioctls.h: _IOW('T', 0x36, int).
        const TIOCSIG: libc::Ioctl = 0x4004_5436u32 as libc::Ioctl;
        // SAFETY: TIOCSIG takes the signal number by value.
        match check(unsafe { libc::ioctl(self.0.as_raw_fd(), TIOCSIG, signal) }) {
            // gVisor has no such request, but a line discipline that knows the keys.
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.press(signal),
            other => other.map(drop),
        }
    }

    /// The key that a person would press for it, as a fresh terminal has them.
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

    /// Whether the kernel tells the foreground group to a process outside the terminal's session. gVisor does not.
    pub fn tells_foreground(&self) -> bool {
        // SAFETY: a live descriptor; the kernel writes one pid_t.
        let told = check(unsafe { libc::tcgetpgrp(self.0.as_raw_fd()) });
        told.err().and_then(|error| error.raw_os_error()) != Some(libc::ENOTTY)
    }

    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.0, buffer)?)
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(&self.0, bytes)?)
    }
}

impl AsRawFd for Master {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Master {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Slave {
    pub fn modes(&self) -> io::Result<Termios> {
        Ok(tcgetattr(&self.fd)?)
    }

    /// Puts the modes to `wanted` where they are not.
    pub fn restore_modes(&self, wanted: &Termios) -> io::Result<()> {
        let now = self.modes()?;
        // Field by field: what libc keeps beside them does not come back from the kernel.
        let same = now.input_flags == wanted.input_flags
            && now.output_flags == wanted.output_flags
            && now.control_flags == wanted.control_flags
            && now.local_flags == wanted.local_flags
            && now.control_chars[..KERNEL_CONTROL_CHARS] == wanted.control_chars[..KERNEL_CONTROL_CHARS];
        if same { Ok(()) } else { Ok(tcsetattr(&self.fd, SetArg::TCSANOW, wanted)?) }
    }

    /// Forgets what was typed and not read. What was printed stays.
    pub fn discard_typed(&self) {
        let _ = nix::sys::termios::tcflush(&self.fd, nix::sys::termios::FlushArg::TCIFLUSH);
    }

    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

impl AsRawFd for Slave {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Makes `group` the foreground group of the terminal on `fd`, from a process that may itself be in the background.
pub fn set_foreground(fd: BorrowedFd<'_>, group: i32) -> io::Result<()> {
    // SAFETY: integers and a live descriptor. TTOU is ignored around the call, or the kernel would stop us for it.
    unsafe {
        let before = libc::signal(libc::SIGTTOU, libc::SIG_IGN);
        let result = check(libc::tcsetpgrp(fd.as_raw_fd(), group)).map(drop);
        libc::signal(libc::SIGTTOU, before);
        result
    }
}
