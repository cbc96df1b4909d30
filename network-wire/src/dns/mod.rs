//! DNS as a sandbox's programs speak it: a query is read, and an answer is written. Names are not resolved here.

mod answer;
mod query;
mod tcp;

pub use answer::{Answer, MAX_TCP_ANSWER_BYTES};
pub use query::{Edns, ParseFailure, Query, RecordType};
pub use tcp::{TcpMessage, TooLong, take_tcp_message, tcp_frame};

/// The header of a message: id, flags and four counts.
const HEADER_BYTES: usize = 12;
/// The longest query, by UDP or TCP. A query is a name with a few options.
pub const MAX_QUERY_BYTES: usize = 4096;
const CLASS_IN: u16 = 1;
const TYPE_OPT: u16 = 41;
/// The largest answer by UDP that crosses every network in one packet (DNS flag day 2020).
const MAX_UDP_ANSWER_BYTES: u16 = 1232;

/// The first byte of the flags.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
/// The second byte of the flags; its lower half is the response code.
const RECURSION_AVAILABLE: u8 = 0x80;
const CHECKING_DISABLED: u8 = 0x10;

const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

#[cfg(test)]
#[path = "dns_test.rs"]
mod tests;
