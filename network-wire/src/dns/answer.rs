//! Answers to a query. They repeat the question byte for byte, and the options if the query had some.
//!
//! An answer without data has a small SOA record of the root with a TTL of one second: without it a resolver chooses for itself
//! how long it remembers that there is nothing, and a rule that was just added would seem not to work.

use std::net::IpAddr;

use super::{
    CHECKING_DISABLED, CLASS_IN, MAX_UDP_ANSWER_BYTES, NO_SUCH_NAME, Query, RECURSION_AVAILABLE, RECURSION_DESIRED,
    REFUSED, RESPONSE, RecordType, SERVER_FAILURE, TRUNCATED, TYPE_OPT,
};

/// The largest answer by TCP.
pub const MAX_TCP_ANSWER_BYTES: usize = 65535;
/// The smallest limit of an answer. Every answer without addresses fits into it.
const LEAST_LIMIT_BYTES: usize = 512;
/// Points to the name in the question.
const NAME_OF_QUESTION: [u8; 2] = [0xc0, 0x0c];
const TYPE_SOA: u16 = 6;
const NEGATIVE_TTL_SECONDS: u32 = 1;
/// Where the counts of answers and authorities are.
const ANSWER_COUNT: usize = 6;
const AUTHORITY_COUNT: usize = 8;
const OPTIONS_BYTES: usize = 11;
const NO_DATA_CODE: u8 = 0;

/// What a name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Those of the type that is asked for are given. If there are none, it is `NoData`.
    Addresses {
        ips: &'a [IpAddr],
        ttl_seconds: u32,
    },
    /// The name does not exist.
    NoSuchName,
    /// The name exists and has no record of this type.
    NoData,
    Refused,
    ServerFailure,
}

impl Query {
    /// The answer's bytes, at most `limit`, which counts as 512 if it is less. Addresses that do not fit are left out, and the
    /// answer is marked as truncated.
    pub fn answer(&self, answer: Answer<'_>, limit: usize) -> Vec<u8> {
        match answer {
            Answer::Addresses { ips, ttl_seconds } if ips.iter().any(|ip| self.asks_for(ip)) => {
                self.addresses(ips, ttl_seconds, limit.clamp(LEAST_LIMIT_BYTES, MAX_TCP_ANSWER_BYTES))
            }
            Answer::Addresses { .. } | Answer::NoData => self.message(NO_DATA_CODE, 0, no_data),
            Answer::NoSuchName => self.message(NO_SUCH_NAME, 0, no_data),
            Answer::Refused => self.message(REFUSED, 0, |_| {}),
            Answer::ServerFailure => self.message(SERVER_FAILURE, 0, |_| {}),
        }
    }

    const fn asks_for(&self, ip: &IpAddr) -> bool {
        match ip {
            IpAddr::V4(_) => self.record_type.0 == RecordType::A.0,
            IpAddr::V6(_) => self.record_type.0 == RecordType::AAAA.0,
        }
    }

    fn addresses(&self, ips: &[IpAddr], ttl_seconds: u32, limit: usize) -> Vec<u8> {
        let room = limit - self.edns.map_or(0, |_| OPTIONS_BYTES);
        self.message(NO_DATA_CODE, 0, |message| {
            let mut count = 0_u16;
            for ip in ips.iter().filter(|ip| self.asks_for(ip)) {
                let before = message.len();
                record(message, &NAME_OF_QUESTION, self.record_type.0, ttl_seconds, &octets(*ip));
                if message.len() > room {
                    message.truncate(before);
                    set(message, 2, &[RESPONSE | TRUNCATED | self.flag_of_recursion()]);
                    break;
                }
                count += 1;
            }
            set(message, ANSWER_COUNT, &count.to_be_bytes());
        })
    }

    const fn flag_of_recursion(&self) -> u8 {
        if self.recursion_desired { RECURSION_DESIRED } else { 0 }
    }

    /// A response with this code. `fill` adds the records between the question and the options.
    pub(super) fn message(&self, code: u8, upper_code: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let checking = if self.checking_disabled { CHECKING_DISABLED } else { 0 };
        let mut message = self.id.to_be_bytes().to_vec();
        message.extend([RESPONSE | self.flag_of_recursion(), RECURSION_AVAILABLE | checking | code]);
        // One question, no answers, no authorities, and the options if the query had some.
        message.extend([0, 1, 0, 0, 0, 0, 0, u8::from(self.edns.is_some())]);
        message.extend_from_slice(&self.question);
        fill(&mut message);
        if let Some(edns) = self.edns {
            message.push(0);
            message.extend(TYPE_OPT.to_be_bytes());
            message.extend(MAX_UDP_ANSWER_BYTES.to_be_bytes());
            message.extend([upper_code, 0, if edns.wants_dnssec { 0x80 } else { 0 }, 0, 0, 0]);
        }
        message
    }
}

/// Adds the SOA record of an answer without data.
fn no_data(message: &mut Vec<u8>) {
    const SERVER_AND_MAILBOX: [u8; 2] = [0, 0];
    let mut content = SERVER_AND_MAILBOX.to_vec();
    for number in [1, 1, 1, 1, NEGATIVE_TTL_SECONDS] {
        content.extend(number.to_be_bytes());
    }
    record(message, &[0], TYPE_SOA, NEGATIVE_TTL_SECONDS, &content);
    set(message, AUTHORITY_COUNT, &[0, 1]);
}

fn record(message: &mut Vec<u8>, name: &[u8], kind: u16, ttl_seconds: u32, content: &[u8]) {
    message.extend_from_slice(name);
    message.extend(kind.to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    message.extend(ttl_seconds.to_be_bytes());
    // Contents are addresses and one SOA record: all far shorter.
    message.extend(u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes());
    message.extend_from_slice(content);
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Writes over bytes in the header.
fn set(message: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = message.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
