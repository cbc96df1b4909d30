//! Opens a connection to a runner's socket.
//!
//! The socket is in a directory that the sandbox can write to. So the client first opens the name, without following a link
//! and only if it is a socket, and then connects to the opened file. If a sandbox puts a link to another sandbox's socket
//! there, the client refuses it. This also works for a path longer than the 107 bytes that a socket address can hold.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_socket, setsockopt, socket, sockopt,
};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::time::TimeVal;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::RunnerError;

/// The longest time for the runner to accept a connection. The socket is local, so a longer time means that the runner is
/// stopped or gone.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The most connects of one sandbox that wait on a thread because the runner's backlog is full.
pub const MAX_WAITING_CONNECTS: usize = 1;

/// Connects to one sandbox's runner.
#[derive(Debug)]
pub struct Connector {
    path: PathBuf,
    waiting: Semaphore,
}

impl Connector {
    pub fn new(path: PathBuf) -> Self {
        Self { path, waiting: Semaphore::new(MAX_WAITING_CONNECTS) }
    }

    /// Connects within `CONNECT_TIMEOUT`.
    pub async fn connect(&self) -> Result<UnixStream, RunnerError> {
        let lost = |why: &dyn std::fmt::Display| RunnerError::Lost(format!("cannot connect: {why}"));
        let work = async {
            let socket = open_socket(&self.path)?;
            match UnixStream::connect(address(&socket)).await {
                // The backlog is full, and the kernel does not notify when there is room again: only a blocking call can
                // wait for it.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let _turn = self.waiting.acquire().await;
                    tokio::task::spawn_blocking(move || connect_blocking(&socket))
                        .await
                        .map_err(|error| lost(&error))?
                        .and_then(UnixStream::from_std)
                        .map_err(|error| lost(&error))
                }
                other => other.map_err(|error| lost(&error)),
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, work).await {
            Ok(connected) => connected,
            Err(_) => Err(lost(&format_args!("not within {} seconds", CONNECT_TIMEOUT.as_secs()))),
        }
    }
}

fn open_socket(path: &Path) -> Result<OwnedFd, RunnerError> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::ENOENT => RunnerError::Lost("its socket is gone".to_owned()),
        other => RunnerError::Lost(format!("its socket cannot be opened: {}", other.desc())),
    })?;
    let stat = fstat(&opened).map_err(|errno| RunnerError::Lost(errno.desc().to_owned()))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK {
        Ok(opened)
    } else {
        Err(RunnerError::hostile("something that is not a socket lies in its socket's place"))
    }
}

/// A path to the opened file, whatever its name is by now.
fn address(socket: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()))
}

fn connect_blocking(target: &OwnedFd) -> std::io::Result<StdStream> {
    let ours = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let seconds = i64::try_from(CONNECT_TIMEOUT.as_secs()).unwrap_or(i64::MAX);
    setsockopt(&ours, sockopt::SendTimeout, &TimeVal::new(seconds, 0))?;
    connect_socket(ours.as_raw_fd(), &UnixAddr::new(&address(target))?)?;
    let stream = StdStream::from(ours);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn a_path_longer_than_an_address_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        // The socket is bound by a short path, and the client connects by a long one.
        let short = dir.path().join("s");
        let _listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(&short, deep.join("s")).unwrap();
        Connector::new(deep.join("s")).connect().await.unwrap();
    }

    #[tokio::test]
    async fn a_link_to_another_socket_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join("link"));
        let _listener = UnixListener::bind(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(matches!(Connector::new(link).connect().await, Err(RunnerError::Hostile(_))));
        Connector::new(other).connect().await.unwrap();
    }

    #[tokio::test]
    async fn no_socket_is_lost_and_a_file_is_a_lie() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(matches!(Connector::new(file.clone()).connect().await, Err(RunnerError::Lost(_))));
        std::fs::write(&file, "").unwrap();
        assert!(matches!(Connector::new(file).connect().await, Err(RunnerError::Hostile(_))));
    }

    #[tokio::test]
    async fn a_full_backlog_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let ours = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::bind(ours.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        nix::sys::socket::listen(&ours, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let connector = Connector::new(path);
        let _first = connector.connect().await.unwrap();
        let second = connector.connect();
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::ZERO, second.as_mut()).await.is_err());
        let listener = UnixListener::from(ours);
        let accepted = tokio::task::spawn_blocking(move || (listener.accept().unwrap(), listener));
        second.await.unwrap();
        drop(accepted.await.unwrap());
    }
}
