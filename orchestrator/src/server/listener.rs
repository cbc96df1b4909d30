//! Where the daemon listens: a TCP address, and a Unix socket if the configuration names one.
//!
//! The socket never has other rights than those that were asked for: it is bound under another name, gets its group and its
//! mode, is renamed to its own name, and only then listens. A file that is there already is replaced only if it is a socket
//! at which nobody answers. At the end the file is removed, unless another one is there by now.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Group};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};

use super::clients::Peer;

/// The mode of the socket's file: its owner and its group can connect, and nobody else.
const SOCKET_MODE: u32 = 0o660;
/// The most connections that wait to be accepted, as for TCP.
const BACKLOG: u32 = 1024;

pub struct Listener {
    pub tcp: TcpListener,
    pub socket: Option<SocketFile>,
}

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Writes as much as fits at once.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

impl Listener {
    pub async fn accept(&self) -> io::Result<(Stream, Peer)> {
        let socket = async {
            match &self.socket {
                Some(socket) => socket.listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, address) = accepted?;
                Ok((Stream::Tcp(stream), Peer::Address(address.ip())))
            }
            accepted = socket => {
                let (stream, _) = accepted?;
                let uid = stream.peer_cred()?.uid();
                Ok((Stream::Unix(stream), Peer::User(uid)))
            }
        }
    }
}

/// A Unix socket with its file, which is removed at the end.
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is, by device and inode: another daemon may have replaced it.
    file: (u64, u64),
}

impl SocketFile {
    pub async fn bind(path: &Path, group: Option<&str>) -> anyhow::Result<Self> {
        let shown = path.display();
        check_replaceable(path).await.with_context(|| format!("cannot listen on unix:{shown}"))?;
        let group = group.map(group_id).transpose()?;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = PathBuf::from(name);
        let made = Self::make(path, &temporary, group);
        if made.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        made.with_context(|| format!("cannot listen on unix:{shown}"))
    }

    fn make(path: &Path, temporary: &Path, group: Option<Gid>) -> io::Result<Self> {
        match std::fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixSocket::new_stream()?;
        socket.bind(temporary)?;
        if let Some(group) = group {
            std::os::unix::fs::lchown(temporary, None, Some(group.as_raw()))?;
        }
        std::fs::set_permissions(temporary, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        let metadata = std::fs::symlink_metadata(temporary)?;
        std::fs::rename(temporary, path)?;
        // Until here a connection was refused.
        let listener = socket.listen(BACKLOG)?;
        Ok(Self { listener, path: path.to_owned(), file: (metadata.dev(), metadata.ino()) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file);
        if is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses a path at which there is something else than a socket that nobody listens on.
async fn check_replaceable(path: &Path) -> anyhow::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !found.file_type().is_socket() {
        bail!("there is a file that is not a socket");
    }
    match UnixStream::connect(path).await {
        Ok(_) => bail!("another program listens there"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error).context("there is a socket, and nobody knows whether it is in use"),
    }
}

fn group_id(name: &str) -> anyhow::Result<Gid> {
    let found = match name.parse::<u32>() {
        Ok(number) => return Ok(Gid::from_raw(number)),
        Err(_) => Group::from_name(name).context("cannot look for the group of server.socket_group")?,
    };
    found.map(|group| group.gid).with_context(|| format!("server.socket_group: there is no group {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_for_its_group_and_goes_with_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cove.sock");
        let own = nix::unistd::getgid().to_string();
        let socket = SocketFile::bind(&path, Some(&own)).await.unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, nix::unistd::getgid().as_raw()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let (connected, accepted) = tokio::join!(UnixStream::connect(&path), socket.listener.accept());
        connected.unwrap();
        assert_eq!(accepted.unwrap().0.peer_cred().unwrap().uid(), nix::unistd::getuid().as_raw());
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_on_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cove.sock");
        // As a daemon that was killed leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = SocketFile::bind(&path, None).await.unwrap();
        let refused = SocketFile::bind(&path, None).await.err().unwrap();
        assert!(format!("{refused:#}").contains("another program listens there"), "{refused:#}");
        // What somebody put there meanwhile is not ours to remove.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        drop(socket);
        let refused = SocketFile::bind(&path, None).await.err().unwrap();
        assert!(format!("{refused:#}").contains("not a socket"), "{refused:#}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let refused = SocketFile::bind(&folder.path().join("x"), Some("no-such-group")).await.err().unwrap();
        assert!(format!("{refused:#}").contains("no-such-group"), "{refused:#}");
    }
}
