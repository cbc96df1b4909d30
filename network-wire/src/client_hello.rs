//! The TLS client hello: put together from records, and read for the name of the server.
//!
//! ```text
//! record:     type 0x16, version 3.x, length (2 bytes), fragment of a handshake message
//! handshake:  type 0x01, length (3 bytes), client hello
//! ```
//!
//! The hello is read here and not by a library, for two reasons. `tls-parser` brings seventeen crates, among them a third `syn`
//! and a second `rand`. rustls's `Acceptor` hides what must be refused: it gives "no name" for a name that it cannot use. The
//! part that is needed is six fields with their lengths. Tests read hellos that Go and OpenSSL sent.
//!
//! A first byte of 0x16 promises TLS. If no well-formed client hello follows, the connection is malformed, not "something else":
//! no other protocol in use starts like that, and a server that is more tolerant than this file must not see a name that the
//! policy did not see.

use crate::Malformed;
use crate::cursor::Cursor;

/// The content type of a record with handshake messages, and so the first byte of a TLS connection.
pub const HANDSHAKE: u8 = 0x16;

const RECORD_HEADER_BYTES: usize = 5;
/// The longest fragment that RFC 8446 allows.
const MAX_FRAGMENT_BYTES: usize = 1 << 14;
const MAJOR_VERSION: u8 = 3;
const CLIENT_HELLO: u8 = 1;
const HANDSHAKE_HEADER_BYTES: usize = 4;
/// The longest hello. Hellos with post-quantum keys are near 2 KiB; the rest is room for tickets and padding.
const MAX_HELLO_BYTES: usize = 24 << 10;
const RANDOM_BYTES: usize = 32;
const MAX_SESSION_ID_BYTES: usize = 32;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const HOST_NAME: u8 = 0;
const MAX_NAME_BYTES: usize = 255;

/// What a client hello says about the server that it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    pub server_name: Option<String>,
    /// Whether there is an encrypted second hello, whose name may be another.
    pub has_encrypted_hello: bool,
}

/// Puts the hello together. It remembers how far it came, so each byte is copied once.
#[derive(Debug, Default)]
pub struct HelloReader {
    /// The bytes of whole records that were read.
    consumed: usize,
    message: Vec<u8>,
}

impl HelloReader {
    /// Reads on. `received` is everything since the start of the connection; `None` asks for more.
    pub fn read(&mut self, received: &[u8]) -> Result<Option<ClientHello>, Malformed> {
        loop {
            let record = received.get(self.consumed..).unwrap_or_default();
            let Some(length) = fragment_length(record)? else { return Ok(None) };
            let available = record.get(RECORD_HEADER_BYTES..).unwrap_or_default();
            let fragment = available.get(..length.min(available.len())).unwrap_or_default();
            // What the first bytes say can be wrong long before the record is whole.
            let Some(total) = message_length(&self.message, fragment)? else {
                if fragment.len() < length {
                    return Ok(None);
                }
                self.take(fragment);
                continue;
            };
            if self.message.len() + length > total {
                return Err(Malformed("the TLS record continues after the client hello"));
            }
            if fragment.len() < length {
                return Ok(None);
            }
            self.take(fragment);
            if self.message.len() == total {
                let hello = self.message.get(HANDSHAKE_HEADER_BYTES..).unwrap_or_default();
                return parse(hello).map(Some);
            }
        }
    }

    fn take(&mut self, fragment: &[u8]) {
        self.message.extend_from_slice(fragment);
        self.consumed += RECORD_HEADER_BYTES + fragment.len();
    }
}

/// The length of the fragment in a record, when its header is there.
fn fragment_length(record: &[u8]) -> Result<Option<usize>, Malformed> {
    if record.first().is_some_and(|&kind| kind != HANDSHAKE)
        || record.get(1).is_some_and(|&major| major != MAJOR_VERSION)
    {
        return Err(Malformed("it starts like TLS, and a record of the client hello is something else"));
    }
    let Some(&[high, low]) = record.get(3..RECORD_HEADER_BYTES) else { return Ok(None) };
    match usize::from(u16::from_be_bytes([high, low])) {
        0 => Err(Malformed("a TLS record of the client hello is empty")),
        length if length > MAX_FRAGMENT_BYTES => Err(Malformed("a TLS record is longer than TLS allows")),
        length => Ok(Some(length)),
    }
}

/// The length of the handshake message with its header, which may itself be split between records.
fn message_length(message: &[u8], fragment: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut header = [0; HANDSHAKE_HEADER_BYTES];
    let mut known = 0;
    for (place, byte) in header.iter_mut().zip(message.iter().chain(fragment)) {
        *place = *byte;
        known += 1;
    }
    let [kind, length @ ..] = header;
    if known > 0 && kind != CLIENT_HELLO {
        return Err(Malformed("the first TLS message is not a client hello"));
    }
    let [a, b, c] = length.map(usize::from);
    let length = (a << 16) | (b << 8) | c;
    match known == HANDSHAKE_HEADER_BYTES {
        false => Ok(None),
        true if length > MAX_HELLO_BYTES => Err(Malformed("the TLS client hello is too long")),
        true => Ok(Some(HANDSHAKE_HEADER_BYTES + length)),
    }
}

fn parse(hello: &[u8]) -> Result<ClientHello, Malformed> {
    let extensions = extensions(&mut Cursor::new(hello)).ok_or(Malformed("the TLS client hello has wrong lengths"))?;
    let mut rest = Cursor::new(extensions);
    let mut names = None;
    let mut has_encrypted_hello = false;
    while !rest.is_empty() {
        let (Some(kind), Some(content)) = (rest.u16(), rest.field_u16()) else {
            return Err(Malformed("an extension of the TLS client hello has a wrong length"));
        };
        match kind {
            EXTENSION_SERVER_NAME if names.replace(content).is_some() => {
                return Err(Malformed("the TLS client hello has two lists of server names"));
            }
            EXTENSION_ENCRYPTED_CLIENT_HELLO => has_encrypted_hello = true,
            _ => {}
        }
    }
    Ok(ClientHello { server_name: names.map(server_name).transpose()?, has_encrypted_hello })
}

/// The extensions, empty if there are none. `None` if a length is wrong.
fn extensions<'a>(hello: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let [major, _minor] = hello.array()?;
    hello.take(RANDOM_BYTES)?;
    let session_id = hello.field_u8()?;
    let cipher_suites = hello.field_u16()?;
    let compressions = hello.field_u8()?;
    let extensions = if hello.is_empty() { &[][..] } else { hello.field_u16()? };
    let is_valid = major == MAJOR_VERSION
        && session_id.len() <= MAX_SESSION_ID_BYTES
        && cipher_suites.len() >= 2
        && cipher_suites.len().is_multiple_of(2)
        && !compressions.is_empty()
        && hello.is_empty();
    is_valid.then_some(extensions)
}

/// The one host name in a list of server names. RFC 6066 allows a single name of each type, and has no type but host names.
fn server_name(content: &[u8]) -> Result<String, Malformed> {
    let single = |mut content: Cursor<'_>| {
        let mut list = Cursor::new(content.field_u16()?);
        let (kind, name) = (list.u8()?, list.field_u16()?.to_vec());
        (kind == HOST_NAME && list.is_empty() && content.is_empty()).then_some(name)
    };
    let name =
        single(Cursor::new(content)).ok_or(Malformed("the TLS client hello does not have exactly one host name"))?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.iter().all(u8::is_ascii_graphic) {
        return Err(Malformed("the server name in the TLS client hello is not a host name"));
    }
    String::from_utf8(name).map_err(|_| Malformed("the server name in the TLS client hello is not a host name"))
}

#[cfg(test)]
#[path = "client_hello_test.rs"]
mod tests;
