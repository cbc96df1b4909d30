//! Requests to the kernel over netlink: builds messages, sends them, and waits for the kernel's acknowledgement.
//!
//! Only what a sandbox's network needs: nested attributes, and one acknowledgement for each message that asks for it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;

const NLMSG_ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;
const NLA_F_NESTED: u16 = 1 << 15;

/// The longest wait for an answer of the kernel, which normally answers before `send` returns.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of one answer: an acknowledgement and the message that it is about.
const MAX_ANSWER_BYTES: usize = 32 << 10;

/// A batch of messages that is sent at once.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// The number of messages, which is also the last sequence number.
    messages: u32,
    acknowledged: usize,
}

impl Batch {
    /// Adds a message. `body` writes what follows the header. With `flags`, the kernel acknowledges it.
    pub fn message(&mut self, kind: u16, flags: Option<u16>, body: impl FnOnce(&mut Body<'_>)) {
        let start = self.bytes.len();
        self.messages += 1;
        let all_flags = NLM_F_REQUEST | flags.map_or(0, |flags| flags | NLM_F_ACK);
        self.acknowledged += usize::from(flags.is_some());
        self.bytes.extend(0_u32.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(all_flags.to_ne_bytes());
        self.bytes.extend(self.messages.to_ne_bytes());
        self.bytes.extend(0_u32.to_ne_bytes());
        body(&mut Body(&mut self.bytes));
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        pad(&mut self.bytes);
    }
}

/// The part of a message after its header: a fixed structure, then attributes.
pub struct Body<'a>(&'a mut Vec<u8>);

impl Body<'_> {
    /// Appends a fixed structure, whose length must be a multiple of four.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.within(kind, |body| {
            body.0.extend_from_slice(value);
        })
    }

    /// An attribute with a number in network byte order, as nftables has them.
    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// An attribute with a text that ends with NUL.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.within(kind, |body| {
            body.0.extend_from_slice(value.as_bytes());
            body.0.push(0);
        })
    }

    pub fn nested(&mut self, kind: u16, content: impl FnOnce(&mut Body<'_>)) -> &mut Self {
        self.within(kind | NLA_F_NESTED, content)
    }

    fn within(&mut self, kind: u16, content: impl FnOnce(&mut Body<'_>)) -> &mut Self {
        let start = self.0.len();
        self.0.extend(0_u16.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        content(&mut Body(self.0));
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        pad(self.0);
        self
    }
}

/// Messages and attributes begin at multiples of four.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Sends the batch and waits for all acknowledgements. The first error ends the wait.
pub fn request(protocol: SockProtocol, batch: &Batch) -> io::Result<()> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let timeout = TimeVal::new(ANSWER_TIMEOUT.as_secs().try_into().unwrap_or(i64::MAX), 0);
    setsockopt(&socket, sockopt::ReceiveTimeout, &timeout)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    send(socket.as_raw_fd(), &batch.bytes, MsgFlags::empty())?;
    let mut left = batch.acknowledged;
    let mut buffer = vec![0; MAX_ANSWER_BYTES];
    while left > 0 {
        left = left.saturating_sub(acknowledgements(&socket, &mut buffer)?);
    }
    Ok(())
}

/// Reads one datagram and counts the acknowledgements in it.
fn acknowledgements(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let received = recv(socket.as_raw_fd(), buffer, MsgFlags::empty())?;
    let mut rest = &buffer[..received];
    let mut count = 0;
    while let Some((length, kind)) = header(rest) {
        if kind == NLMSG_ERROR {
            let code = rest.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
            match code.map(i32::from_ne_bytes) {
                Some(0) => count += 1,
                Some(code) => return Err(io::Error::from_raw_os_error(-code)),
                None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

/// The length and kind of the message at the start of `bytes`.
fn header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    (HEADER_BYTES..=bytes.len()).contains(&length).then_some((length, kind))
}
