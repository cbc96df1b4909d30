//! The first bytes of real clients and of hostile ones. The hellos are tested beside their reader.

use super::*;
use crate::HostOrAddress;

fn read(bytes: &[u8]) -> Reading {
    crate::fuzz::first_bytes(bytes);
    FirstBytes::new().read(bytes)
}

/// The reading of a request that is nothing but this head.
fn http(head: &[u8], method: &str, host: Option<&str>) -> Reading {
    let host = host.map(|text| Authority::parse(text.as_bytes()).unwrap());
    Reading::Http { method: method.to_owned(), host, head_bytes: head.len(), body: Body::Bytes(0) }
}

#[track_caller]
fn assert_malformed(bytes: &[u8]) {
    let reading = read(bytes);
    assert!(matches!(reading, Reading::Malformed(_)), "{reading:?}: {:?}", bytes.escape_ascii().to_string());
}

const CURL: &[u8] = b"GET /x?y HTTP/1.1\r\nHost: example.com\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
const WGET: &[u8] = b"GET / HTTP/1.1\r\nUser-Agent: Wget/1.21\r\nAccept: */*\r\nAccept-Encoding: identity\r\nHost: example.com:8080\r\nConnection: Keep-Alive\r\n\r\n";
const PYTHON: &[u8] = b"POST /legacy/ HTTP/1.1\r\nAccept-Encoding: identity\r\nContent-Length: 3\r\nHost: 203.0.113.9\r\nConnection: close\r\n\r\na=b";

#[test]
fn the_heads_of_curl_wget_and_python_are_read_wherever_they_are_split() {
    let post = Reading::Http {
        method: "POST".to_owned(),
        host: Some(Authority { host: HostOrAddress::Address([203, 0, 113, 9].into()), port: None }),
        head_bytes: PYTHON.len() - 3,
        body: Body::Bytes(3),
    };
    for (bytes, expected) in [
        (CURL, http(CURL, "GET", Some("example.com"))),
        (WGET, http(WGET, "GET", Some("example.com:8080"))),
        (PYTHON, post),
    ] {
        let head = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        for split in 0..head {
            let mut first = FirstBytes::new();
            assert_eq!(first.read(&bytes[..split]), Reading::Incomplete, "{split}");
            assert_eq!(first.read(bytes), expected, "{split}");
        }
        let mut first = FirstBytes::new();
        let decisions: Vec<_> = (0..=bytes.len()).map(|end| first.read(&bytes[..end])).skip(head).collect();
        assert!(decisions.iter().all(|reading| *reading == expected));
    }
}

#[test]
fn a_request_without_a_host_has_none() {
    let head = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(read(head), http(head, "GET", None));
}

#[test]
fn an_unknown_method_is_http_too() {
    let head = b"PROPFIND / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(read(head), http(head, "PROPFIND", Some("a.example")));
    let head = b"x-1 / HTTP/1.1\nhost:a.example\n\n";
    assert_eq!(read(head), http(head, "x-1", Some("a.example")));
}

#[test]
fn a_whole_url_must_agree_with_the_host() {
    for host in ["", "Host: a.example\r\n", "host: A.Example.:80\r\n"] {
        let bytes = format!("GET http://a.example/ HTTP/1.1\r\n{host}\r\n");
        assert_eq!(read(bytes.as_bytes()), http(bytes.as_bytes(), "GET", Some("a.example")), "{host}");
    }
    for target in [
        "http://b.example/",
        "http://a.example:81/",
        "https://a.example/",
        "http://u@a.example/",
        "http://a.example\\@b/",
        "ftp://a.example/",
        "a.example/",
    ] {
        assert_malformed(format!("GET {target} HTTP/1.1\r\nHost: a.example:80\r\n\r\n").as_bytes());
    }
}

#[test]
fn a_connect_request_is_told_apart() {
    let authority = Authority::parse(b"b.example:443").unwrap();
    assert_eq!(
        read(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n"),
        Reading::HttpConnect { authority }
    );
    assert_malformed(b"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_malformed(b"connect b.example:443 HTTP/1.1\r\n\r\n");
    assert_malformed(b"CONNECT / HTTP/1.1\r\nHost: a.example\r\n\r\n");
}

#[test]
fn what_servers_read_in_different_ways_is_malformed() {
    let fields = [
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nhost: b\r\n",
        "Host:\r\n",
        "Host: a, b\r\n",
        "Host : a\r\n",
        "Host: a\r\n b\r\n",
        "Host: a\0\r\n",
        "Host: a\rb\r\n",
        "Host: \u{e4}\r\n",
        "Host: 127.1\r\n",
        "Host: a:b\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: +1\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
    ];
    for fields in fields {
        assert_malformed(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes());
    }
    for line in [
        "GET  / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "get / http/1.1",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET /",
        "GET / SIP/2.0",
        "GET a HTTP/1.1",
        "X / HTTP/9",
    ] {
        assert_malformed(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
    }
    assert_malformed(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_malformed(b"\n");
    assert_malformed(format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101)).as_bytes());
    assert_malformed(b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn other_protocols_are_told_after_as_few_bytes_as_are_certain() {
    let starts: [&[u8]; 12] = [
        b"SSH-2.0-OpenSSH_9.6\r",
        b"\0",
        b"\x13",
        b"\x05",
        b"*1\r",
        b"EHLO a.example\r\n",
        b"NICK joe\n",
        b"PING\r",
        b"{",
        b"003egit-upload-pack /a\0",
        b"REGISTER sip:a SIP/2.0\r\n",
        b"\x80\x2e\x02",
    ];
    for bytes in starts {
        assert_eq!(read(bytes), Reading::Other, "{bytes:?}");
        assert_eq!(read(&bytes[..bytes.len() - 1]), Reading::Incomplete, "{bytes:?}");
    }
    assert_eq!(read(&[b'a'; MAX_METHOD_BYTES + 1]), Reading::Other);
}

#[test]
fn http_2_without_tls_is_told_by_its_first_line() {
    assert_eq!(read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Reading::Http2);
    assert_eq!(read(b"PRI * HTTP/2.0\r"), Reading::Incomplete);
}

#[test]
fn tls_is_read_with_its_name_and_in_the_format_of_ssl_2_without() {
    let hello = include_bytes!("../../fuzz/corpus/network_wire/hello-go");
    assert_eq!(read(hello), Reading::Tls { server_name: Some("Example.com".to_owned()), has_encrypted_hello: false });
    assert_eq!(read(b"\x80\x2e\x01\x03"), Reading::Tls { server_name: None, has_encrypted_hello: false });
}

#[test]
fn nothing_is_read_beyond_the_bound() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", "y".repeat(MAX_FIRST_BYTES));
    assert_malformed(long.as_bytes());
    let mut first = FirstBytes::new();
    assert_eq!(first.read(&long.as_bytes()[..MAX_FIRST_BYTES - 1]), Reading::Incomplete);
    assert_malformed(format!("GET /{}", "y".repeat(MAX_FIRST_LINE_BYTES)).as_bytes());
    assert_eq!(read(format!("HELO {}", "y".repeat(MAX_FIRST_LINE_BYTES)).as_bytes()), Reading::Other);
}

#[test]
fn a_long_head_that_comes_byte_by_byte_is_read_at_its_end() {
    let long = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(90)
    );
    let mut first = FirstBytes::new();
    let readings = (0..=long.len()).filter(|&end| first.read(&long.as_bytes()[..end]) != Reading::Incomplete);
    assert_eq!(readings.collect::<Vec<_>>(), [long.len()]);
}
