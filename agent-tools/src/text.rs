//! Bytes as text and back: encoding, line endings and the final newline are remembered, so that an unchanged text gives the same bytes.
//!
//! Promises: `encode(as_str())` of a decoded text is exactly what was decoded. Refuses bytes that are no text: a NUL in the first 8 KiB, the
//! first bytes of a well-known binary format, or UTF-16 that is broken.

use crate::kind;
use std::borrow::Cow;

/// How a file writes characters as bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encoding {
    Utf8,
    /// UTF-8 that starts with a byte order mark.
    Utf8Bom,
    /// UTF-16, little endian, with a byte order mark.
    Utf16Le,
    /// UTF-16, big endian, with a byte order mark.
    Utf16Be,
    /// The file is not UTF-8, so each byte stands for the character with its number.
    Latin1,
}

impl Encoding {
    /// The encoding's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with a byte order mark",
            Self::Utf16Le => "UTF-16 (little endian)",
            Self::Utf16Be => "UTF-16 (big endian)",
            Self::Latin1 => "Latin-1",
        }
    }
}

/// How the lines of a text end. A carriage return elsewhere in a line is a character of the line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineEnding {
    /// The text has at most one line, which does not end.
    None,
    Lf,
    Crlf,
    /// There are carriage returns and no line feeds.
    Cr,
    /// Some lines end with LF and some with CRLF.
    Mixed,
}

impl LineEnding {
    /// The line ending of a text.
    pub fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let (mut lf, mut crlf) = (false, false);
        for at in memchr::memchr_iter(b'\n', bytes) {
            if at > 0 && bytes[at - 1] == b'\r' {
                crlf = true;
            } else {
                lf = true;
            }
            if lf && crlf {
                return Self::Mixed;
            }
        }
        match (lf, crlf) {
            (true, _) => Self::Lf,
            (_, true) => Self::Crlf,
            _ if bytes.contains(&b'\r') => Self::Cr,
            _ => Self::None,
        }
    }

    /// The ending's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lf => "LF",
            Self::Crlf => "CRLF",
            Self::Cr => "CR",
            Self::Mixed => "mixed LF and CRLF",
        }
    }
}

/// The bytes are no text.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotText {
    #[error("the file is binary")]
    Binary,
    #[error("the file starts with a byte order mark of UTF-16, but is not valid UTF-16")]
    BrokenUtf16,
}

/// The encoding of a file has no such character.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the file is not UTF-8 (it is treated as Latin-1), so it cannot hold the character {character:?}; convert it to UTF-8 first, for example with iconv"
)]
pub struct Unencodable {
    pub character: char,
}

/// The text of a file, and what is needed to write it back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text {
    text: String,
    encoding: Encoding,
    line_ending: LineEnding,
}

impl Text {
    /// Decodes a whole file.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotText> {
        let (text, encoding) = match bytes {
            [0xff, 0xfe, rest @ ..] => (utf16(rest, u16::from_le_bytes)?, Encoding::Utf16Le),
            [0xfe, 0xff, rest @ ..] => (utf16(rest, u16::from_be_bytes)?, Encoding::Utf16Be),
            _ if kind::is_binary(bytes) => return Err(NotText::Binary),
            _ => match std::str::from_utf8(bytes) {
                Ok(text) => match text.strip_prefix('\u{feff}') {
                    Some(text) => (text.to_owned(), Encoding::Utf8Bom),
                    None => (text.to_owned(), Encoding::Utf8),
                },
                Err(_) => (bytes.iter().map(|byte| char::from(*byte)).collect(), Encoding::Latin1),
            },
        };
        Ok(Self { line_ending: LineEnding::of(&text), text, encoding })
    }

    /// The text, without a byte order mark and with its own line endings.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub fn line_ending(&self) -> LineEnding {
        self.line_ending
    }

    /// Whether the last line ends like the others. An empty text has no last line, and so no final newline.
    pub fn has_final_newline(&self) -> bool {
        self.text.ends_with('\n') || (self.line_ending == LineEnding::Cr && self.text.ends_with('\r'))
    }

    /// The lines without their ends.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        let (end, is_cr) = if self.line_ending == LineEnding::Cr { ('\r', true) } else { ('\n', false) };
        self.text.split_inclusive(end).map(move |line| match line.strip_suffix(end) {
            Some(line) if is_cr => line,
            Some(line) => line.strip_suffix('\r').unwrap_or(line),
            None => line,
        })
    }

    /// How many lines there are.
    pub fn line_count(&self) -> u64 {
        let end = if self.line_ending == LineEnding::Cr { b'\r' } else { b'\n' };
        let ended = memchr::memchr_iter(end, self.text.as_bytes()).count();
        crate::output::count(ended) + u64::from(!self.text.is_empty() && !self.has_final_newline())
    }

    /// The text with LF at the end of each line.
    pub(crate) fn with_lf(&self) -> Cow<'_, str> {
        match self.line_ending {
            LineEnding::None | LineEnding::Lf => Cow::Borrowed(&self.text),
            LineEnding::Crlf | LineEnding::Mixed => Cow::Owned(self.text.replace("\r\n", "\n")),
            LineEnding::Cr => Cow::Owned(self.text.replace('\r', "\n")),
        }
    }

    /// Another text as the bytes of this file: the same encoding and byte order mark.
    pub fn encode(&self, text: &str) -> Result<Vec<u8>, Unencodable> {
        Ok(match self.encoding {
            Encoding::Utf8 => text.as_bytes().to_vec(),
            Encoding::Utf8Bom => ["\u{feff}", text].concat().into_bytes(),
            Encoding::Utf16Le => [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect(),
            Encoding::Utf16Be => [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect(),
            Encoding::Latin1 => text
                .chars()
                .map(|character| u8::try_from(character).map_err(|_| Unencodable { character }))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, NotText> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let text: String = char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
        .collect::<Result<_, _>>()
        .map_err(|_| NotText::BrokenUtf16)?;
    // UTF-32 starts like UTF-16, and has zeros between its characters.
    if rest.is_empty() && !text.contains('\0') { Ok(text) } else { Err(NotText::BrokenUtf16) }
}

#[cfg(test)]
#[path = "text_test.rs"]
mod tests;
