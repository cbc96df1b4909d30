//! What the fuzzer of this crate asserts; see `fuzz/`. The tests replay its inputs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::dns::{Answer, MAX_QUERY_BYTES, Query, take_tcp_message, tcp_frame};
use crate::{Denial, FirstBytes, MAX_FIRST_BYTES, NotConnected, Proxy, Reading, Step, Wants, denied_page};

/// Longer inputs are split at some of their bytes only, so that a fuzzer tries more inputs.
const MAX_SPLITS: usize = 64;

/// Any bytes, read as each of the protocols.
pub fn network_wire(bytes: &[u8]) {
    first_bytes(bytes);
    dns(bytes);
    proxy(bytes);
    page(bytes);
}

/// The reading does not depend on how the bytes were split, and stays when more bytes come.
pub fn first_bytes(bytes: &[u8]) {
    let whole = FirstBytes::new().read(bytes);
    let mut stepwise = FirstBytes::new();
    for end in steps(bytes.len()) {
        let prefix = bytes.get(..end).unwrap_or(bytes);
        let fresh = FirstBytes::new().read(prefix);
        assert_eq!(stepwise.read(prefix), fresh, "at {end}");
        assert!(fresh == Reading::Incomplete || fresh == whole, "{fresh:?} at {end}, then {whole:?}");
    }
    if let Reading::Tls { server_name: Some(name), .. } = &whole {
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    assert!(whole != Reading::Incomplete || bytes.len() < MAX_FIRST_BYTES);
}

/// A query gives answers that repeat its question within the limit, and no answer is taken for a query.
pub fn dns(bytes: &[u8]) {
    match take_tcp_message(&tcp_frame(bytes)) {
        Ok(message) => assert_eq!(message.map(|message| message.message), Some(bytes)),
        Err(_) => assert!(bytes.len() > MAX_QUERY_BYTES),
    }
    let query = match Query::parse(bytes) {
        Ok(query) => query,
        Err(failure) => {
            let reply = failure.reply.unwrap_or_default();
            return assert!(reply.is_empty() || Query::parse(&reply).is_err_and(|failure| failure.reply.is_none()));
        }
    };
    assert!(query.name.is_ascii() && query.name.len() < 255);
    let ips = [IpAddr::V4(Ipv4Addr::BROADCAST), IpAddr::V6(Ipv6Addr::LOCALHOST)].repeat(40);
    let addresses = Answer::Addresses { ips: &ips, ttl_seconds: 60 };
    for answer in [addresses, Answer::NoSuchName, Answer::NoData, Answer::Refused, Answer::ServerFailure] {
        let reply = query.answer(answer, query.udp_limit());
        assert!(reply.len() <= query.udp_limit(), "{} bytes", reply.len());
        assert!(Query::parse(&reply).is_err_and(|failure| failure.reply.is_none()), "a response was taken for a query");
        for message in [bytes, &reply] {
            assert!(message.get(12..).is_some_and(|rest| rest.starts_with(&query.question)));
        }
    }
}

/// The dialogue does not depend on how the bytes were split.
pub fn proxy(bytes: &[u8]) {
    let (replies, end) = talk(bytes, bytes.len());
    assert_eq!(talk(bytes, 1), (replies, end.clone()));
    if let Step::Wants(wants) = end {
        assert!(wants.port != 0);
        let denial = Denial { code: "not_allowed", sentence: "It is not allowed.", wanted_rule: "example.com" };
        assert!(!wants.reply_not_connected(&NotConnected::Denied(denial)).is_empty());
        no_header_was_added(&wants);
    }
}

/// Feeds `bytes` in pieces. Returns the replies, and the step that asks for more or ends the dialogue.
pub fn talk(bytes: &[u8], piece: usize) -> (Vec<u8>, Step) {
    let (mut proxy, mut replies, mut start, mut end) = (Proxy::new(), Vec::new(), 0, 0);
    loop {
        let step = proxy.feed(bytes.get(start..end).unwrap_or_default());
        match step {
            Step::NeedMore if end < bytes.len() => end = (end + piece.max(1)).min(bytes.len()),
            Step::Reply { reply, consumed } => {
                replies.extend(reply);
                start += consumed;
                assert!(start <= end, "more was consumed than was sent");
            }
            Step::Wants(ref wants) => {
                assert!(start + wants.consumed <= end);
                return (replies, step);
            }
            Step::NeedMore | Step::Refused { .. } => return (replies, step),
        }
    }
}

/// A rewritten head is read again, as one request for the same host.
fn no_header_was_added(wants: &Wants) {
    let crate::Connecting::HttpRequest { head, body } = &wants.connecting else { return };
    match FirstBytes::new().read(head) {
        Reading::Http { host: Some(host), body: again, .. } => {
            assert_eq!((host.host, host.port.unwrap_or(80), again), (wants.host.clone(), wants.port, *body));
        }
        // Ours can have two lines more than the client's, and so more than may be read.
        Reading::Malformed(_)
            if head.len() > MAX_FIRST_BYTES / 4 || head.iter().filter(|&&byte| byte == b'\n').count() > 100 => {}
        other => panic!("{other:?}: {:?}", head.escape_ascii().to_string()),
    }
}

fn page(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let page = denied_page(&Denial { code: &text, sentence: &text, wanted_rule: &text });
    let head_end = page.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    let (head, body) = page.split_at(head_end);
    assert_eq!(head.iter().filter(|&&byte| byte == b'\n').count(), 5);
    assert!(body.iter().filter(|&&byte| byte == b'\n').count() <= 4);
}

/// The lengths of prefixes, up to the whole.
fn steps(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by((length / MAX_SPLITS).max(1)).chain([length])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("network_wire", network_wire);
    }

    proptest! {
        #[test]
        fn any_bytes_keep_every_promise(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            network_wire(&bytes);
        }

        #[test]
        fn text_that_resembles_requests_keeps_every_promise(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("GET "), Just("CONNECT "), Just("FOO "), Just("PRI * HTTP/2.0\r\n"), Just("http://a.example"), Just("/"), Just(":443"),
                    Just(" HTTP/1.1\r\n"), Just(" HTTP/1.0\n"), Just("Host: a.example\r\n"), Just("Host: b:1\r\n"), Just("\r\n"), Just("\n"),
                    Just("Content-Length: 3\r\n"), Just("Transfer-Encoding: chunked\r\n"), Just("Connection: x"), Just("?"), Just("#"),
                    Just(" "), Just("\t"), Just("\0"), Just("ä"),
                ],
                0..14,
            ),
        ) {
            network_wire(parts.concat().as_bytes());
        }

        #[test]
        fn a_hello_with_changed_bytes_keeps_every_promise(at in 0_usize..1521, byte: u8, cut in 0_usize..1521) {
            let mut hello = include_bytes!("../../fuzz/corpus/network_wire/hello-go").to_vec();
            hello[at] = byte;
            first_bytes(&hello);
            hello.truncate(cut);
            first_bytes(&hello);
        }
    }
}
