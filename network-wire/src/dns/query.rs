//! A DNS query (RFC 1035), with the options of EDNS (RFC 6891).
//!
//! It answers itself what cannot be a query for a name: the error has the bytes of the reply. It sends no reply to what is not a
//! query at all, because a reply to a reply could go around for ever.

use super::{
    CHECKING_DISABLED, CLASS_IN, FORMAT_ERROR, HEADER_BYTES, MAX_QUERY_BYTES, MAX_UDP_ANSWER_BYTES, NOT_IMPLEMENTED,
    OPCODE, RECURSION_AVAILABLE, RECURSION_DESIRED, RESPONSE, TYPE_OPT,
};
use crate::cursor::Cursor;

/// The longest name, with the lengths of its labels.
const MAX_NAME_BYTES: usize = 255;
const MAX_LABEL_BYTES: u8 = 63;
/// The top bits of a label's length that make it a pointer to another name.
const POINTER: u8 = 0xc0;
/// The most records after the question. Clients send one: the options.
const MAX_ADDITIONAL_RECORDS: u16 = 8;
/// The largest answer by UDP to a client without EDNS.
const PLAIN_UDP_ANSWER_BYTES: u16 = 512;
/// The extended response code for an unknown version of EDNS is 16: its upper part, in the options, is 1.
const BAD_VERSION_UPPER: u8 = 1;

/// The type of record that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordType(pub u16);

impl RecordType {
    pub const A: Self = Self(1);
    pub const AAAA: Self = Self(28);
    /// How to reach a web server. It can have the key for an encrypted client hello.
    pub const HTTPS: Self = Self(65);
}

/// The options that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// The largest answer by UDP that the client takes.
    pub udp_bytes: u16,
    pub wants_dnssec: bool,
}

/// One question of class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub id: u16,
    pub recursion_desired: bool,
    pub checking_disabled: bool,
    /// Labels in the case that was sent, with dots between them. The root is `.`; other names have no dot at the end.
    pub name: String,
    pub record_type: RecordType,
    pub edns: Option<Edns>,
    /// The question's bytes. Resolvers check that the answer repeats the case of every letter.
    pub(crate) question: Vec<u8>,
}

/// Why a message is not a query that can be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the DNS message cannot be answered: {why}")]
pub struct ParseFailure {
    pub why: &'static str,
    /// The reply to send, if one makes sense.
    pub reply: Option<Vec<u8>>,
}

impl Query {
    pub fn parse(message: &[u8]) -> Result<Self, ParseFailure> {
        let mut cursor = Cursor::new(message);
        let header = (cursor.u16(), cursor.array(), cursor.u16(), cursor.u16(), cursor.u16(), cursor.u16());
        let (Some(id), Some([first, second]), Some(questions), Some(answers), Some(authorities), Some(additional)) =
            header
        else {
            return Err(ParseFailure { why: "it is shorter than a header", reply: None });
        };
        if first & RESPONSE != 0 {
            return Err(ParseFailure { why: "it is a response", reply: None });
        }
        let fail = |code, why| ParseFailure { why, reply: Some(header_only(id, first, code)) };
        if first & OPCODE != 0 {
            return Err(fail(NOT_IMPLEMENTED, "its operation is not a query"));
        }
        let broken = |why| fail(FORMAT_ERROR, why);
        if message.len() > MAX_QUERY_BYTES {
            return Err(broken("it is too long"));
        }
        if questions != 1 || answers != 0 || authorities != 0 {
            return Err(broken("it does not have exactly one question"));
        }
        if additional > MAX_ADDITIONAL_RECORDS {
            return Err(broken("it has too many additional records"));
        }
        let name = name(&mut cursor).ok_or_else(|| broken("its name is not a host name in ASCII"))?;
        let (Some(record_type), Some(class)) = (cursor.u16(), cursor.u16()) else {
            return Err(broken("its question is cut off"));
        };
        let question = message.get(HEADER_BYTES..message.len() - cursor.len()).unwrap_or_default().to_vec();
        if class != CLASS_IN {
            return Err(fail(NOT_IMPLEMENTED, "its class is not IN"));
        }
        let options = options(&mut cursor, additional).ok_or_else(|| broken("an additional record is wrong"))?;
        let query = Self {
            id,
            recursion_desired: first & RECURSION_DESIRED != 0,
            checking_disabled: second & CHECKING_DISABLED != 0,
            name,
            record_type: RecordType(record_type),
            edns: options.map(|options| options.edns),
            question,
        };
        match options {
            Some(options) if options.version != 0 => {
                let reply = query.message(0, BAD_VERSION_UPPER, |_| {});
                Err(ParseFailure { why: "its version of EDNS is unknown", reply: Some(reply) })
            }
            _ => Ok(query),
        }
    }

    /// The largest answer by UDP.
    pub fn udp_limit(&self) -> usize {
        let wanted = self.edns.map_or(PLAIN_UDP_ANSWER_BYTES, |edns| edns.udp_bytes);
        wanted.clamp(PLAIN_UDP_ANSWER_BYTES, MAX_UDP_ANSWER_BYTES).into()
    }
}

/// A response without a question, since what was asked is not clear.
fn header_only(id: u16, first: u8, code: u8) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let flags = RESPONSE | (first & (OPCODE | RECURSION_DESIRED));
    vec![high, low, flags, RECURSION_AVAILABLE | code, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// The name of the question. `None` if a label cannot be text: a dot inside a label would look like the end of one.
fn name(cursor: &mut Cursor<'_>) -> Option<String> {
    let start = cursor.len();
    let mut text = String::new();
    loop {
        // Nothing is before the first name, so there is nothing that a pointer could mean.
        let label = match cursor.u8()? {
            0 => break,
            length if length <= MAX_LABEL_BYTES => cursor.take(length.into())?,
            _ => return None,
        };
        let is_text = label.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'.' | b'\\'));
        if !is_text || start - cursor.len() >= MAX_NAME_BYTES {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(std::str::from_utf8(label).ok()?);
    }
    Some(if text.is_empty() { ".".to_owned() } else { text })
}

#[derive(Clone, Copy)]
struct Options {
    edns: Edns,
    version: u8,
}

/// The options among the additional records, if there are any. `None` if a record is cut off, or there are two records of
/// options. Other records, such as signatures, are passed over.
fn options(cursor: &mut Cursor<'_>, count: u16) -> Option<Option<Options>> {
    let mut found = None;
    for _ in 0..count {
        let is_root = skip_name(cursor)?;
        let (kind, class, [_code, version, flags, _]) = (cursor.u16()?, cursor.u16()?, cursor.array()?);
        cursor.field_u16()?;
        if kind == TYPE_OPT {
            let edns = Edns { udp_bytes: class, wants_dnssec: flags & 0x80 != 0 };
            if !is_root || found.replace(Options { edns, version }).is_some() {
                return None;
            }
        }
    }
    Some(found)
}

/// Passes over the name of a record, and tells whether it is the root.
fn skip_name(cursor: &mut Cursor<'_>) -> Option<bool> {
    let start = cursor.len();
    loop {
        match cursor.u8()? {
            0 => return Some(start - cursor.len() == 1),
            length if length <= MAX_LABEL_BYTES => cursor.take(length.into())?,
            length if length >= POINTER => return cursor.u8().map(|_| false),
            _ => return None,
        };
    }
}
