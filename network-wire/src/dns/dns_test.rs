//! Queries as resolvers send them, and hostile ones. Answers are read by a small reader of responses.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const ADDITIONAL_OPTIONS: &[u8] = b"\0\0\x29\x10\0\0\0\x80\0\0\0";

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

fn message(name: &[u8], kind: u16, additional: &[&[u8]]) -> Vec<u8> {
    let count = u8::try_from(additional.len()).unwrap();
    let header = [0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, count];
    [&header, name, &kind.to_be_bytes(), &[0, 1], &additional.concat()].concat()
}

fn query(name: &str, kind: RecordType) -> Query {
    Query::parse(&message(&labels(name), kind.0, &[])).unwrap()
}

/// The code of the reply to a message that is not answered.
fn failure_code(message: &[u8]) -> Option<u8> {
    Query::parse(message).unwrap_err().reply.map(|reply| {
        assert_eq!(reply[..2], message[..2]);
        reply[3] & 0x0f
    })
}

#[derive(Debug)]
struct Response {
    code: u8,
    is_truncated: bool,
    question: Vec<u8>,
    addresses: Vec<IpAddr>,
    has_soa: bool,
    has_options: bool,
}

/// Reads a response of ours, and asserts that nothing follows it.
fn response(message: &[u8], question_bytes: usize) -> Response {
    assert_eq!(message[2] & RESPONSE, RESPONSE);
    assert_eq!(message[3] & RECURSION_AVAILABLE, RECURSION_AVAILABLE);
    let count = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let mut response = Response {
        code: message[3] & 0x0f,
        is_truncated: message[2] & TRUNCATED != 0,
        question: message[HEADER_BYTES..HEADER_BYTES + question_bytes].to_vec(),
        addresses: Vec::new(),
        has_soa: count(8) == 1,
        has_options: count(10) == 1,
    };
    let mut cursor = crate::cursor::Cursor::new(&message[HEADER_BYTES + question_bytes..]);
    for index in 0..count(6) + count(8) + count(10) {
        if cursor.u8() == Some(0xc0) {
            assert_eq!(cursor.u8(), Some(0x0c));
        }
        let kind = cursor.u16().unwrap();
        cursor.take(6).unwrap();
        let content = cursor.field_u16().unwrap();
        match kind {
            1 => response.addresses.push(<[u8; 4]>::try_from(content).unwrap().into()),
            28 => response.addresses.push(<[u8; 16]>::try_from(content).unwrap().into()),
            6 => assert!(content.len() == 22 && index == count(6)),
            kind => assert_eq!(kind, TYPE_OPT),
        }
    }
    assert!(cursor.is_empty());
    response
}

#[test]
fn a_query_is_read_and_its_case_is_repeated() {
    let bytes = message(&labels("eXaMpLe.COM"), 1, &[ADDITIONAL_OPTIONS]);
    let query = Query::parse(&bytes).unwrap();
    assert_eq!((query.name.as_str(), query.record_type, query.recursion_desired), ("eXaMpLe.COM", RecordType::A, true));
    assert_eq!(query.edns, Some(Edns { udp_bytes: 4096, wants_dnssec: true }));
    assert_eq!(query.udp_limit(), 1232);
    let ips = ["203.0.113.1".parse().unwrap(), "2001:db8::1".parse().unwrap(), "203.0.113.2".parse().unwrap()];
    let answer = response(&query.answer(Answer::Addresses { ips: &ips, ttl_seconds: 5 }, 512), 17);
    assert_eq!(answer.question, &bytes[12..29]);
    assert_eq!(answer.addresses, [ips[0], ips[2]]);
    assert!(answer.has_options && !answer.has_soa && !answer.is_truncated && answer.code == 0);
}

#[test]
fn names_without_such_an_address_have_no_data() {
    let ips = ["203.0.113.1".parse().unwrap()];
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType(255)] {
        let answer =
            response(&query("a.example", kind).answer(Answer::Addresses { ips: &ips, ttl_seconds: 5 }, 512), 15);
        assert!(answer.code == 0 && answer.addresses.is_empty() && answer.has_soa && !answer.has_options, "{answer:?}");
    }
}

#[test]
fn each_answer_has_its_code() {
    let answers = [(Answer::NoData, 0), (Answer::ServerFailure, 2), (Answer::NoSuchName, 3), (Answer::Refused, 5)];
    for (answer, code) in answers {
        assert_eq!(response(&query("a.example", RecordType::A).answer(answer, 512), 15).code, code);
    }
}

#[test]
fn addresses_that_do_not_fit_are_left_out() {
    let ips: Vec<IpAddr> = (0..100).map(|last| [203, 0, 113, last].into()).collect();
    let query = query("a.example", RecordType::A);
    let short = query.answer(Answer::Addresses { ips: &ips, ttl_seconds: 5 }, query.udp_limit());
    let answer = response(&short, 15);
    assert!(short.len() <= 512 && answer.is_truncated && answer.addresses == ips[..30], "{answer:?}");
    let long = response(&query.answer(Answer::Addresses { ips: &ips, ttl_seconds: 5 }, MAX_TCP_ANSWER_BYTES), 15);
    assert!(!long.is_truncated && long.addresses == ips);
}

#[test]
fn what_is_not_a_query_gets_no_reply() {
    assert_eq!(failure_code(&message(&labels("a"), 1, &[])[..11]), None);
    let mut bytes = message(&labels("a"), 1, &[]);
    bytes[2] |= RESPONSE;
    assert_eq!(failure_code(&bytes), None);
}

#[test]
fn queries_that_cannot_be_answered_get_their_code() {
    let good = message(&labels("a.example"), 1, &[]);
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        failure_code(&bytes)
    };
    assert_eq!(changed(2, 0x28), Some(NOT_IMPLEMENTED), "UPDATE");
    assert_eq!(changed(26, 3), Some(NOT_IMPLEMENTED), "class CH");
    for (at, byte) in [
        (5, 0),
        (5, 2),
        (7, 1),
        (9, 1),
        (11, 1),
        (10, 1),
        (12, 0xc0),
        (12, 0x40),
        (12, 60),
        (13, b'.'),
        (13, 0),
        (13, 0xe4),
        (13, b' '),
    ] {
        assert_eq!(changed(at, byte), Some(FORMAT_ERROR), "{at} {byte}");
    }
    assert_eq!(failure_code(&good[..good.len() - 1]), Some(FORMAT_ERROR));
    assert_eq!(failure_code(&message(&labels("a"), 1, &[ADDITIONAL_OPTIONS; 2])), Some(FORMAT_ERROR));
    assert_eq!(failure_code(&[message(&labels("a"), 1, &[]), vec![0; MAX_QUERY_BYTES]].concat()), Some(FORMAT_ERROR));
}

#[test]
fn an_unknown_version_of_edns_gets_its_own_code() {
    let mut options = ADDITIONAL_OPTIONS.to_vec();
    options[6] = 1;
    let reply = Query::parse(&message(&labels("a"), 1, &[&options])).unwrap_err().reply.unwrap();
    assert_eq!((reply[3] & 0x0f, reply[reply.len() - 6]), (0, 1));
}

#[test]
fn other_additional_records_are_passed_over() {
    let cookie = b"\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08abcdefgh";
    let signature = b"\x01k\0\0\xfa\0\xff\0\0\0\0\0\x02xx";
    let pointer = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04abcd";
    let query = Query::parse(&message(&labels("a"), 1, &[signature, cookie, pointer])).unwrap();
    assert_eq!(query.edns, Some(Edns { udp_bytes: 1232, wants_dnssec: false }));
}

#[test]
fn the_longest_name_is_read_and_a_longer_one_is_not() {
    let label = "a".repeat(63);
    let longest = [label.as_str(), &label, &label, &label[..61]].join(".");
    let query = query(&longest, RecordType::A);
    assert_eq!(query.name, longest);
    assert!(query.answer(Answer::NoSuchName, 0).len() <= 512);
    assert_eq!(
        failure_code(&message(&labels(&[label.as_str(), &label, &label, &label[..62]].join(".")), 1, &[])),
        Some(FORMAT_ERROR)
    );
    assert_eq!(self::query("", RecordType(2)).name, ".");
}

#[test]
fn messages_over_tcp_are_taken_one_by_one() {
    let stream = [tcp_frame(b"one"), tcp_frame(b""), tcp_frame(b"two")].concat();
    assert_eq!(take_tcp_message(&stream), Ok(Some(TcpMessage { message: b"one", consumed: 5 })));
    assert_eq!(take_tcp_message(&stream[5..]), Ok(Some(TcpMessage { message: b"", consumed: 2 })));
    for end in 0..5 {
        assert_eq!(take_tcp_message(&stream[..end]), Ok(None));
    }
    assert_eq!(take_tcp_message(&[0xff, 0xff]), Err(TooLong(0xffff)));
}

proptest! {
    #[test]
    fn every_answer_is_a_response_to_its_question(
        name in "([a-zA-Z0-9_-]{1,20}\\.){0,8}[a-zA-Z]{2,10}",
        kind in prop_oneof![Just(1_u16), Just(28), any::<u16>()],
        ips in proptest::collection::vec(any::<IpAddr>(), 0..200),
        limit in 0_usize..4000,
        has_options: bool,
    ) {
        let additional: &[&[u8]] = if has_options { &[ADDITIONAL_OPTIONS] } else { &[] };
        let query = Query::parse(&message(&labels(&name), kind, additional)).unwrap();
        prop_assert_eq!(&query.name, &name);
        let bytes = query.answer(Answer::Addresses { ips: &ips, ttl_seconds: 1 }, limit);
        prop_assert!(bytes.len() <= limit.max(512));
        let answer = response(&bytes, name.len() + 6);
        let wanted: Vec<_> = ips.into_iter().filter(|ip| if ip.is_ipv4() { kind == 1 } else { kind == 28 }).collect();
        prop_assert_eq!(answer.has_options, has_options);
        prop_assert_eq!(answer.has_soa, wanted.is_empty());
        prop_assert_eq!(answer.is_truncated, answer.addresses.len() < wanted.len());
        prop_assert!(wanted.starts_with(&answer.addresses));
    }
}
