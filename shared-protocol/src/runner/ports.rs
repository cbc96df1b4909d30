//! The TCP ports on which programs in the sandbox listen, and the upgrade that connects to one of them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The protocol of the upgrade: after the answer 101, both sides send the bytes of one TCP connection.
pub const TCP_PROTOCOL: &str = "cove-tcp";

/// The length of a frame, before each piece that the daemon sends into a connection of a program (`/v1/network/accept`): an unsigned
/// number, the highest byte first. A length of 0 ends what the daemon sends; without it the connection was broken off.
pub const FRAME_HEADER_BYTES: usize = 4;

/// The most listening sockets in a list.
pub const MAX_LISTED_PORTS: usize = 1024;

/// The ports of a sandbox that are Cove's own: the daemon's listener for the sandbox's connections to the network has one of them.
/// They are neither listed nor connected to.
pub const RESERVED_PORTS: RangeInclusive<u16> = 1..=9;

/// The longest name of a program in a list. The kernel keeps 15 bytes of a name.
pub const MAX_PROGRAM_BYTES: usize = 64;

/// The listening sockets of a sandbox, by port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PortList {
    /// The listening sockets, sorted by port and address.
    pub ports: Vec<PortView>,
}

/// One listening TCP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PortView {
    /// The number of the port.
    pub port: u16,
    /// The address that the program bound, such as `0.0.0.0`, `127.0.0.1` or `::1`.
    pub address: String,
    /// Whether the port can be connected to: the address includes the sandbox's loopback, `127.0.0.1` or `::1`.
    pub reachable: bool,
    /// The process that listens, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The name of its program, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}
