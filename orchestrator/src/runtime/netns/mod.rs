//! Opens the way out of a sandbox's network namespace, which has no interface but loopback.
//!
//! Every address is made local there, and two sockets inside take what programs send: all TCP connections, and DNS over UDP.
//! The sockets belong to the daemon, which alone decides what is dialled. If the daemon ends, its sockets close and nothing
//! gets out; the next daemon opens new ones.
//!
//! ```text
//!  program ── connect 203.0.113.7:443 ──▶ lo ──▶ tproxy ──▶ listener, held by the daemon ──▶ policy ──▶ dial
//! ```
//!
//! `rules` has the routes and packet rules, `sockets` the two sockets, and `netlink` how the kernel is told. A thread can enter
//! a network namespace, so a root daemon uses a thread; only a process with one thread can enter a user namespace, so the daemon
//! of an ordinary user starts `cove` again.

mod netlink;
#[cfg(test)]
mod netns_test;
mod rules;
mod sockets;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use tokio::process::Command;
use tokio::sync::oneshot;

pub use sockets::SandboxSockets;

use crate::sys::loopback;

/// The hidden subcommand that makes `cove` open the sockets.
const SUBCOMMAND: &str = "__open-network";

/// The longest wait for the sockets. On an idle host a thread takes a millisecond, a process some milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the name server in a sandbox's `resolv.conf`. Any address would do; this one is reserved for documentation,
/// so that it cannot be somebody's.
const NAME_SERVER: &str = "192.0.2.53";

/// `/etc/resolv.conf` of every sandbox: the daemon answers, at once.
pub fn resolv_conf() -> String {
    format!("nameserver {}\noptions timeout:5 attempts:2\n", NAME_SERVER)
}

/// What the process sends together with the sockets. Any other answer is an error message.
const OPENED: &[u8] = b"opened";
const MAX_MESSAGE_BYTES: usize = 4 << 10;
const MAX_SOCKETS: usize = 2;

/// Opens the sockets as root. `sandbox` is a pidfd of a process in the sandbox.
pub async fn open_by_thread(sandbox: OwnedFd) -> io::Result<SandboxSockets> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        let _ = tell.send(enter(&sandbox, CloneFlags::CLONE_NEWNET).and_then(|()| set_up()));
    };
    // This is a separate thread, not one of the event loop's: it stays in the sandbox's network namespace.
    std::thread::Builder::new().name("network".into()).spawn(work)?;
    let done = tokio::time::timeout(TIMEOUT, told).await?;
    done.map_err(|_| io::Error::other("the thread panicked"))?
}

/// Opens the sockets as an ordinary user. `sandbox` is a pidfd of a process in the sandbox.
pub async fn open_by_process(sandbox: OwnedFd) -> io::Result<SandboxSockets> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUBCOMMAND).env_clear().current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::from(sandbox)).stdout(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::inherit());
    let mut child = command.spawn()?;
    // The command holds the other end of the pair.
    drop(command);
    tokio::time::timeout(TIMEOUT, child.wait()).await??;
    receive(&ours)
}

/// The whole program of the process that [`open_by_process`] starts; `None` for any other process. It has one thread.
pub fn main() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != SUBCOMMAND {
        return None;
    }
    let stdin = io::stdin();
    let entered = enter(&stdin, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET);
    Some(match entered.and_then(|()| set_up()).and_then(|sockets| give(&sockets)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Enters the sandbox's namespaces. Refused if the sandbox shares this process's network: that must never be set up.
fn enter(sandbox: &impl AsFd, namespaces: CloneFlags) -> io::Result<()> {
    let own = || std::fs::read_link("/proc/thread-self/ns/net");
    let before = own()?;
    setns(sandbox, namespaces)?;
    if own()? == before {
        return Err(io::Error::other("the sandbox has no network namespace of its own"));
    }
    Ok(())
}

/// Sends the sockets over standard output.
fn give(sockets: &SandboxSockets) -> io::Result<()> {
    let mut fds = vec![sockets.tcp.as_raw_fd()];
    fds.extend(sockets.dns.iter().map(|dns| dns.as_raw_fd()));
    let (output, parts) = (io::stdout().as_raw_fd(), [IoSlice::new(OPENED)]);
    sendmsg::<()>(output, &parts, &[ControlMessage::ScmRights(&fds)], MsgFlags::empty(), None)?;
    Ok(())
}

fn receive(from: &UnixStream) -> io::Result<SandboxSockets> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; MAX_SOCKETS]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let length = message.bytes;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            fds.extend(received.into_iter().map(crate::sys::received_fd));
        }
    }
    if &bytes[..length] != OPENED || fds.is_empty() {
        return Err(io::Error::other(String::from_utf8_lossy(&bytes[..length]).into_owned()));
    }
    let mut fds = fds.into_iter();
    let tcp = fds.next().ok_or(io::ErrorKind::InvalidData)?;
    Ok(SandboxSockets { tcp: tcp.into(), dns: fds.next().map(Into::into) })
}

/// Sets this thread's network namespace up. It can be done again, for the next daemon.
fn set_up() -> io::Result<SandboxSockets> {
    loopback::up()?;
    let (sockets, port) = sockets::open()?;
    // The rules come first: without them, programs would reach each other under every address.
    rules::set_packet_rules(port)?;
    rules::make_all_addresses_local()?;
    rules::add_addresses()?;
    Ok(sockets)
}
