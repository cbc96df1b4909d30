//! DNS over TCP: each message has its length in two bytes before it.

use super::MAX_QUERY_BYTES;
use crate::cursor::Cursor;

/// One message at the front of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpMessage<'a> {
    pub message: &'a [u8],
    /// The bytes to drop from the front of the stream: the message and its length.
    pub consumed: usize,
}

/// A client announced a message that no query needs. The caller closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a DNS message over TCP is announced with {0} bytes, and may have {MAX_QUERY_BYTES}")]
pub struct TooLong(pub usize);

/// The first message, if it is whole.
pub fn take_tcp_message(received: &[u8]) -> Result<Option<TcpMessage<'_>>, TooLong> {
    let mut cursor = Cursor::new(received);
    let Some(length) = cursor.u16().map(usize::from) else { return Ok(None) };
    if length > MAX_QUERY_BYTES {
        return Err(TooLong(length));
    }
    Ok(cursor.take(length).map(|message| TcpMessage { message, consumed: received.len() - cursor.len() }))
}

/// A message with its length before it. A message has at most 65535 bytes: [`super::Query::answer`] makes no longer one.
pub fn tcp_frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(message.iter().take(length.into()));
    frame
}
