//! What a file is, by its first bytes: text, an image that a model can look at, or something else.
//!
//! Refuses to trust names: `photo.png` with text in it is text. The size of an image is read where it stands in the first bytes, and is a
//! claim of the file, not a fact.

use crate::text::Encoding;

/// A NUL among this many first bytes makes a file binary, as for git.
pub const HEAD_BYTES: usize = 8 << 10;

/// Formats that may have no NUL among their first bytes.
const BINARY_MAGIC: [&[u8]; 9] = [
    b"\x7fELF",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ",
    b"BZh91AY&SY",
    b"7z\xbc\xaf\x27\x1c",
    b"%PDF-",
    b"\xed\xab\xee\xdb",
];

/// What a file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileKind {
    Text(Encoding),
    Image(Image),
    Binary,
}

/// An image in a format that models read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Image {
    pub mime: &'static str,
    /// Width and height in pixels, if the first bytes have them.
    pub size: Option<(u32, u32)>,
}

/// Recognises a file by its first bytes; `HEAD_BYTES` of them are enough, more find the size of more JPEG images.
///
/// A character that is cut at the end of `head` does not make a file Latin-1. An empty file is text.
pub fn recognise(head: &[u8]) -> FileKind {
    if let Some(image) = image(head) {
        return FileKind::Image(image);
    }
    match head {
        [0xff, 0xfe, 0, 0, ..] => FileKind::Binary,
        [0xff, 0xfe, ..] => FileKind::Text(Encoding::Utf16Le),
        [0xfe, 0xff, ..] => FileKind::Text(Encoding::Utf16Be),
        _ if is_binary(head) => FileKind::Binary,
        _ => FileKind::Text(match std::str::from_utf8(head) {
            Err(error) if error.error_len().is_some() => Encoding::Latin1,
            _ if head.starts_with(b"\xef\xbb\xbf") => Encoding::Utf8Bom,
            _ => Encoding::Utf8,
        }),
    }
}

/// Whether a file without a byte order mark of UTF-16 is binary.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    memchr::memchr(0, head).is_some()
        || BINARY_MAGIC.iter().any(|magic| head.starts_with(magic))
        || image(head).is_some()
}

fn image(head: &[u8]) -> Option<Image> {
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        let size = (head.get(12..16) == Some(b"IHDR")).then(|| Some((be32(head, 16)?, be32(head, 20)?))).flatten();
        Some(Image { mime: "image/png", size })
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        Some(Image { mime: "image/gif", size: le16(head, 6).zip(le16(head, 8)) })
    } else if head.starts_with(b"\xff\xd8\xff") {
        Some(Image { mime: "image/jpeg", size: jpeg_size(head) })
    } else if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        Some(Image { mime: "image/webp", size: webp_size(head) })
    } else {
        None
    }
}

/// Walks from segment to segment until the one that starts the frame.
fn jpeg_size(head: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let [0xff, marker] = *head.get(at..at + 2)? else { return None };
        match marker {
            0xff => at += 1,
            0x01 | 0xd0..=0xd7 => at += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return be16(head, at + 7).zip(be16(head, at + 5)),
            0xd8..=0xda => return None,
            _ => at += 2 + usize::from(u16::from_be_bytes(*head.get(at + 2..)?.first_chunk()?)),
        }
    }
}

fn webp_size(head: &[u8]) -> Option<(u32, u32)> {
    match head.get(12..16)? {
        b"VP8X" => Some((le24(head, 24)? + 1, le24(head, 27)? + 1)),
        b"VP8L" if head.get(20) == Some(&0x2f) => {
            let bits = le32(head, 21)?;
            Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
        }
        b"VP8 " if head.get(23..26) == Some(b"\x9d\x01\x2a") => {
            Some((le16(head, 26)? & 0x3fff, le16(head, 28)? & 0x3fff))
        }
        _ => None,
    }
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes([a, b, c, 0]))
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;
    use proptest::prelude::*;

    fn image_of(parts: &[&[u8]]) -> Image {
        match recognise(&parts.concat()) {
            FileKind::Image(image) => image,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn images_are_recognised_with_their_size() {
        let png = image_of(&[b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x01\x02\0\0\0\x03"]);
        assert_eq!(png, Image { mime: "image/png", size: Some((258, 3)) });
        assert_eq!(image_of(&[b"GIF89a\x05\0\x06\0"]), Image { mime: "image/gif", size: Some((5, 6)) });
        let jpeg = image_of(&[b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\0\x07\0\x09"]);
        assert_eq!(jpeg, Image { mime: "image/jpeg", size: Some((9, 7)) });
        let head = b"RIFF\0\0\0\0WEBP";
        let webp = |size| Image { mime: "image/webp", size: Some(size) };
        assert_eq!(image_of(&[head, b"VP8X\0\0\0\0\0\0\0\0\x0f\0\0\x10\0\0"]), webp((16, 17)));
        assert_eq!(image_of(&[head, b"VP8L\0\0\0\0\x2f\x0f\xc0\x03\0"]), webp((16, 16)));
        assert_eq!(image_of(&[head, b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x20\0\x21\0"]), webp((32, 33)));
    }

    #[test]
    fn an_image_that_is_cut_has_no_size() {
        assert_eq!(image_of(&[b"\x89PNG\r\n\x1a\n\0\0"]).size, None);
        assert_eq!(image_of(&[b"\xff\xd8\xff\xe0\xff\xff"]).size, None);
    }

    #[test]
    fn a_nul_makes_a_file_binary_unless_it_is_utf_16() {
        assert_eq!(recognise(b"ab\0"), FileKind::Binary);
        assert_eq!(recognise(b"\xff\xfea\0"), FileKind::Text(Encoding::Utf16Le));
        assert_eq!(recognise(b"\xff\xfe\0\0"), FileKind::Binary);
        assert_eq!(recognise(b"\x7fELF"), FileKind::Binary);
        assert_eq!(recognise(b""), FileKind::Text(Encoding::Utf8));
        let late = [vec![b'a'; HEAD_BYTES], vec![0]].concat();
        assert_eq!(recognise(&late), FileKind::Text(Encoding::Utf8));
    }

    #[test]
    fn a_character_that_is_cut_is_still_utf_8() {
        assert_eq!(recognise(b"a\xe2\x82"), FileKind::Text(Encoding::Utf8));
        assert_eq!(recognise(b"a\xe2b"), FileKind::Text(Encoding::Latin1));
    }

    proptest! {
        #[test]
        fn a_whole_file_decodes_only_if_it_is_recognised_as_text(
            start in prop::sample::select(vec![&b""[..], b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8L", b"GIF89a", b"\xff\xfe", b"%PDF-"]),
            rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let bytes = [start, &rest].concat();
            if Text::decode(&bytes).is_ok() {
                prop_assert!(matches!(recognise(&bytes), FileKind::Text(_)));
            }
        }
    }
}
