//! Hellos that Go and OpenSSL sent, and hellos that were built by hand.

use super::*;

/// From Go 1.26, with a post-quantum key share: 1.5 KiB.
const GO: &[u8] = include_bytes!("../../fuzz/corpus/network_wire/hello-go");
/// From OpenSSL 3.0, by Python.
const OPENSSL: &[u8] = include_bytes!("../../fuzz/corpus/network_wire/hello-openssl");

fn read(bytes: &[u8]) -> Result<Option<ClientHello>, Malformed> {
    HelloReader::default().read(bytes)
}

fn named(name: &str) -> Result<Option<ClientHello>, Malformed> {
    Ok(Some(ClientHello { server_name: Some(name.to_owned()), has_encrypted_hello: false }))
}

fn field_u16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), field_u16(content)].concat()
}

fn names(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = entries.iter().flat_map(|(kind, name)| [vec![*kind], field_u16(name)].concat()).collect();
    extension(0, &field_u16(&list))
}

/// A handshake message, without records.
fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut hello = [&[3, 3][..], &[7; 32], &[0], &[0, 4, 0x0a, 0x0a, 0x13, 0x01], &[1, 0]].concat();
    if !extensions.is_empty() {
        hello.extend(field_u16(&extensions.concat()));
    }
    let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &hello[..]].concat()
}

/// The message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [vec![0x16, 3, 1], field_u16(part)].concat()).collect()
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    records(&message(extensions), MAX_FRAGMENT_BYTES)
}

#[test]
fn the_hellos_of_go_and_openssl_are_read_wherever_they_are_split() {
    for (bytes, name) in [(GO, "Example.com"), (OPENSSL, "one.test")] {
        for split in 0..bytes.len() {
            let mut reader = HelloReader::default();
            assert_eq!(reader.read(&bytes[..split]), Ok(None), "{split}");
            assert_eq!(reader.read(bytes), named(name), "{split}");
        }
    }
}

#[test]
fn a_hello_is_read_from_records_of_any_size() {
    for size in (1..40).chain([500, 1515]) {
        let bytes = records(&GO[RECORD_HEADER_BYTES..], size);
        assert_eq!(read(&bytes), named("Example.com"), "{size}");
        let mut reader = HelloReader::default();
        let last = (0..=bytes.len()).map(|end| reader.read(&bytes[..end])).filter(|read| *read != Ok(None)).last();
        assert_eq!(last, Some(named("Example.com")), "{size}");
    }
}

#[test]
fn a_hello_of_sixteen_kib_with_grease_is_read() {
    let extensions =
        [extension(0x1a1a, &[]), extension(51, &[9; 16 << 10]), names(&[(0, b"a.example")]), extension(0x2a2a, &[0])];
    assert_eq!(read(&hello(&extensions)), named("a.example"));
}

#[test]
fn a_hello_without_a_name_has_none() {
    let none = Ok(Some(ClientHello { server_name: None, has_encrypted_hello: false }));
    assert_eq!(read(&hello(&[])), none);
    assert_eq!(read(&hello(&[extension(16, b"\0\x03\x02h2")])), none);
}

#[test]
fn an_encrypted_hello_is_reported() {
    let extensions = [names(&[(0, b"a.example")]), extension(0xfe0d, &[0; 40])];
    let expected = ClientHello { server_name: Some("a.example".to_owned()), has_encrypted_hello: true };
    assert_eq!(read(&hello(&extensions)), Ok(Some(expected)));
}

#[test]
fn names_that_are_not_one_host_name_are_malformed() {
    let lists = [
        vec![names(&[(0, b"a.example"), (0, b"b.example")])],
        vec![names(&[(0, b"a.example")]), names(&[(0, b"a.example")])],
        vec![names(&[(1, b"a.example")])],
        vec![names(&[(1, b"x"), (0, b"a.example")])],
        vec![names(&[])],
        vec![extension(0, &[])],
        vec![names(&[(0, b"")])],
        vec![names(&[(0, "ä.example".as_bytes())])],
        vec![names(&[(0, b"a\0.example")])],
        vec![names(&[(0, b"a example")])],
        vec![names(&[(0, &[b'a'; 256])])],
        vec![extension(0, &[field_u16(&[&[0][..], &field_u16(b"a")].concat()), vec![0]].concat())],
    ];
    for list in lists {
        assert!(read(&hello(&list)).is_err(), "{list:?}");
    }
}

#[test]
fn wrong_lengths_anywhere_are_malformed() {
    let good = message(&[names(&[(0, b"a.example")])]);
    // Session id, cipher suites, compressions, extensions, extension, list, name: each one byte too long or too short.
    for place in [38, 40, 45, 48, 52, 54, 57] {
        for change in [1_u8, 255] {
            let mut bad = good.clone();
            bad[place] = bad[place].wrapping_add(change);
            assert!(read(&records(&bad, MAX_FRAGMENT_BYTES)).is_err(), "{place} {change}");
        }
    }
}

#[test]
fn what_starts_like_tls_and_is_not_a_hello_is_malformed_at_once() {
    let starts: [&[u8]; 8] = [
        b"\x16\x02",
        b"\x16G",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\0\x10\x02",
        b"\x16\x03\x01\x40\0\x01\x01\0\0",
        b"\x16\x03\x01\0\x02\x01\0\x17",
        b"\x16\x03\x01\0\x08\x01\0\0\x02",
    ];
    for bytes in starts {
        assert!(read(bytes).is_err(), "{bytes:?}");
        assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(None), "{bytes:?}");
    }
}
