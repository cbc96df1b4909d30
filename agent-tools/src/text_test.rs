//! Tests of decoding and encoding.

use super::*;
use proptest::prelude::*;

fn decoded(bytes: &[u8]) -> Text {
    Text::decode(bytes).unwrap()
}

#[test]
fn each_encoding_is_recognised() {
    for (bytes, encoding, text) in [
        (&b"a\xc3\xa9"[..], Encoding::Utf8, "aé"),
        (b"\xef\xbb\xbfa", Encoding::Utf8Bom, "a"),
        (b"\xff\xfea\0\xe9\0", Encoding::Utf16Le, "aé"),
        (b"\xfe\xff\0a\0\xe9", Encoding::Utf16Be, "aé"),
        (b"a\xe9", Encoding::Latin1, "aé"),
        (b"", Encoding::Utf8, ""),
    ] {
        let decoded = decoded(bytes);
        assert_eq!((decoded.encoding(), decoded.as_str()), (encoding, text));
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    assert_eq!(Text::decode(b"a\0b"), Err(NotText::Binary));
    assert_eq!(Text::decode(b"\xff\xfea"), Err(NotText::BrokenUtf16));
    assert_eq!(Text::decode(b"\xff\xfe\x00\xd8"), Err(NotText::BrokenUtf16), "half of a pair");
    assert_eq!(Text::decode(b"\xff\xfe\0\0a\0\0\0"), Err(NotText::BrokenUtf16), "UTF-32");
}

#[test]
fn line_endings_are_recognised() {
    for (text, ending) in [
        ("", LineEnding::None),
        ("a", LineEnding::None),
        ("a\nb", LineEnding::Lf),
        ("a\r\nb\r\n", LineEnding::Crlf),
        ("a\rb", LineEnding::Cr),
        ("a\r\nb\n", LineEnding::Mixed),
        ("50%\r60%\n", LineEnding::Lf),
    ] {
        assert_eq!(LineEnding::of(text), ending, "{text:?}");
    }
}

#[test]
fn lines_are_without_their_ends() {
    for (text, lines, has_final_newline) in [
        ("a\n\nb", &["a", "", "b"][..], false),
        ("a\r\nb\r\n", &["a", "b"], true),
        ("a\rb\r", &["a", "b"], true),
        ("a\rb\n", &["a\rb"], true),
        ("\n", &[""], true),
        ("", &[], false),
    ] {
        let decoded = decoded(text.as_bytes());
        assert_eq!(decoded.lines().collect::<Vec<_>>(), lines, "{text:?}");
        assert_eq!(decoded.line_count(), lines.len() as u64, "{text:?}");
        assert_eq!(decoded.has_final_newline(), has_final_newline, "{text:?}");
    }
}

#[test]
fn a_latin_1_file_refuses_characters_that_it_cannot_hold() {
    let text = decoded(b"\xe9");
    assert_eq!(text.encode("ü"), Ok(vec![0xfc]));
    assert_eq!(text.encode("a→"), Err(Unencodable { character: '→' }));
}

/// Bytes that are often text: pieces that decoders look at, and any other bytes.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"\xff\xfe",
        b"\xfe\xff",
        b"\xef\xbb\xbf",
        b"a",
        b"\n",
        b"\r",
        b"\r\n",
        b"\0",
        b"\xe9",
        b"\xc3\xa9",
        b"\0a",
        b"a\0",
    ];
    prop::collection::vec(prop_oneof![9 => prop::sample::select(pieces).prop_map(<[u8]>::to_vec), 1 => prop::collection::vec(any::<u8>(), 0..4)], 0..12)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn an_unchanged_text_gives_the_same_bytes(bytes in pieces()) {
        if let Ok(text) = Text::decode(&bytes) {
            prop_assert_eq!(text.encode(text.as_str()).unwrap(), bytes);
            prop_assert_eq!(text.lines().count() as u64, text.line_count());
        }
    }

    #[test]
    fn any_string_survives_each_unicode_encoding(string in "\\PC*") {
        for mark in [&b""[..], b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"] {
            let bytes = decoded(mark).encode(&string).unwrap();
            prop_assert!(bytes.starts_with(mark));
            if !string.starts_with('\u{feff}') {
                prop_assert_eq!(decoded(&bytes).as_str().to_owned(), string.clone());
            }
        }
    }
}
