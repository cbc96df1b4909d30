//! Dialogues of real clients with the proxy, and of hostile ones.

use super::*;
use crate::fuzz::talk;

/// The replies and the last step, the same however the bytes are split.
fn dialogue(bytes: &[u8]) -> (Vec<u8>, Step) {
    let whole = talk(bytes, bytes.len());
    for piece in 1..bytes.len() {
        assert_eq!(talk(bytes, piece), whole, "in pieces of {piece}");
    }
    whole
}

fn wants(bytes: &[u8]) -> Wants {
    match dialogue(bytes) {
        (_, Step::Wants(wants)) => wants,
        other => panic!("{other:?}: {:?}", bytes.escape_ascii().to_string()),
    }
}

/// The last reply before the connection is closed.
fn refusal(bytes: &[u8]) -> Vec<u8> {
    match dialogue(bytes) {
        (_, Step::Refused { reply, .. }) => reply,
        other => panic!("{other:?}: {:?}", bytes.escape_ascii().to_string()),
    }
}

const DENIAL: Denial<'_> =
    Denial { code: "not_allowed", sentence: "a.example is not allowed.", wanted_rule: "a.example" };

#[test]
fn a_socks5_client_gets_to_names_and_addresses() {
    let cases: [(&[u8], &str, u16); 4] = [
        (b"\x05\x01\0\x05\x01\0\x03\x09a.example\x01\xbb", "a.example", 443),
        (b"\x05\x02\x02\0\x05\x01\0\x01\xcb\0\x71\x09\0\x50", "203.0.113.9", 80),
        (b"\x05\x01\0\x05\x01\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x16\x33", "[2001:db8::1]", 5683),
        (b"\x05\x01\0\x05\x01\0\x03\x0b203.0.113.9\0\x50", "203.0.113.9", 80),
    ];
    for (bytes, host, port) in cases {
        let wants = wants(bytes);
        assert_eq!((wants.host.to_string().as_str(), wants.port, &wants.connecting), (host, port, &Connecting::Socks5));
        assert_eq!(dialogue(bytes).0, b"\x05\0");
        assert_eq!(wants.reply_ok(), b"\x05\0\0\x01\0\0\0\0\0\0");
        assert_eq!(wants.reply_not_connected(&NotConnected::Denied(DENIAL)), b"\x05\x02\0\x01\0\0\0\0\0\0");
        assert_eq!(wants.reply_not_connected(&NotConnected::ConnectionRefused)[1], 5);
    }
}

#[test]
fn what_follows_a_request_is_not_consumed() {
    let request = b"\x05\x01\0\x03\x09a.example\x01\xbb";
    let bytes = [b"\x05\x01\0", &request[..], b"\x16\x03\x01"].concat();
    assert_eq!(wants(&bytes).consumed, request.len());
}

#[test]
fn any_password_is_taken_from_a_client_that_offers_nothing_else() {
    let bytes = b"\x05\x01\x02\x01\x04user\x04pass\x05\x01\0\x03\x09a.example\x01\xbb";
    assert_eq!(dialogue(bytes).0, b"\x05\x02\x01\0");
    assert_eq!(wants(bytes).port, 443);
    assert_eq!(refusal(b"\x05\x01\x02\x02"), b"");
}

#[test]
fn what_socks_clients_cannot_have_is_refused_with_its_code() {
    assert_eq!(refusal(b"\x05\x01\x01"), b"\x05\xff");
    assert_eq!(refusal(b"\x05\0"), b"\x05\xff");
    assert_eq!(refusal(b"\x04"), b"\0\x5b\0\0\0\0\0\0");
    let code = |request: &[u8]| refusal(&[b"\x05\x01\0", request].concat())[1];
    assert_eq!(code(b"\x05\x02"), 7, "BIND");
    assert_eq!(code(b"\x05\x03"), 7, "UDP ASSOCIATE");
    assert_eq!(code(b"\x05\x01\0\x02"), 8);
    assert_eq!(code(b"\x05\x01\x01"), 1);
    for name in [&b"\0"[..], b"\x03a b", b"\x03a\0b", b"\x05127.1", b"\x02\xc3\xa4"] {
        assert_eq!(code(&[b"\x05\x01\0\x03", name, b"\0\x50"].concat()), 1, "{name:?}");
    }
    assert_eq!(code(b"\x05\x01\0\x01\xcb\0\x71\x09\0\0"), 1, "port 0");
}

#[test]
fn connect_gets_to_its_target() {
    let wants = wants(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Connection: Keep-Alive\r\n\r\n");
    assert_eq!(
        (wants.host.to_string().as_str(), wants.port, &wants.connecting),
        ("a.example", 443, &Connecting::HttpConnect)
    );
    assert_eq!(wants.reply_ok(), http::CONNECTED);
    let denied = String::from_utf8(wants.reply_not_connected(&NotConnected::Denied(DENIAL))).unwrap();
    assert!(denied.starts_with("HTTP/1.1 403 ") && denied.contains("a.example is not allowed."), "{denied}");
    assert!(wants.reply_not_connected(&NotConnected::TimedOut).starts_with(b"HTTP/1.1 504 "));
}

#[test]
fn a_request_for_a_url_is_rewritten_for_the_server() {
    let bytes = b"GET http://a.example:8080/x?y#z HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic eA==\r\nAccept: */*\r\n\
        Proxy-Connection: keep-alive\r\nConnection: keep-alive, Accept\r\nUpgrade: h2c\r\n\r\n";
    let request = wants(bytes);
    let head = b"GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n".to_vec();
    assert_eq!(request.connecting, Connecting::HttpRequest { head, body: Body::Bytes(0) });
    assert_eq!((request.port, request.consumed, request.reply_ok()), (8080, bytes.len(), Vec::new()));
    let lines = [
        ("GET http://a", "GET / "),
        ("GET http://a?q", "GET /?q "),
        ("OPTIONS http://a", "OPTIONS * "),
        ("GET HTTP://a/", "GET / "),
    ];
    for (line, expected) in lines {
        match wants(format!("{line} HTTP/1.0\r\n\r\n").as_bytes()).connecting {
            Connecting::HttpRequest { head, .. } => assert!(head.starts_with(expected.as_bytes()), "{line}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_length_of_a_body_is_told() {
    let request = wants(b"POST http://a/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET http://b/ HTTP/1.1\r\n\r\n");
    assert!(matches!(request.connecting, Connecting::HttpRequest { body: Body::Bytes(3), .. }));
}

#[test]
fn other_requests_get_an_answer_that_says_why() {
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET https://a/ HTTP/1.1\r\n\r\n",
        "CONNECT a HTTP/1.1\r\n\r\n",
        "CONNECT a:0 HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://u@a/ HTTP/1.1\r\n\r\n",
        "hello\n\n",
    ] {
        assert!(refusal(head.as_bytes()).starts_with(b"HTTP/1.1 400 Bad Request\r\n"), "{head}");
    }
    assert_eq!(refusal(b"\x16"), b"");
    assert_eq!(refusal(b"GET \0"), b"");
    let long = format!("GET http://a/{}", "x".repeat(32 << 10));
    assert!(matches!(talk(long.as_bytes(), long.len()), (_, Step::Refused { .. })));
}
