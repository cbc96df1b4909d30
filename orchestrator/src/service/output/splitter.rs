//! Cuts output into events between characters: an incomplete character waits for its remaining bytes, so that text stays
//! exact if the output is UTF-8.
//!
//! Only the next bytes of the same stream can complete the character. If other bytes come first, it is sent incomplete: a
//! client reattaches at an event's offset, so everything before that offset must have been sent.

use shared_protocol::runner::Stream;

use crate::runner_client::Data;

/// The output of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub offset: u64,
    pub text: String,
    /// The exact bytes, if they are not valid UTF-8 and `text` shows them only approximately.
    pub exact: Option<Vec<u8>>,
}

impl Piece {
    fn new(stream: Stream, offset: u64, bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { stream, offset, text, exact: None },
            Err(error) => {
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                Self { stream, offset, text, exact: Some(error.into_bytes()) }
            }
        }
    }

    /// The offset after the last byte.
    pub fn end(&self) -> u64 {
        let length = self.exact.as_ref().map_or(self.text.len(), Vec::len);
        self.offset + length as u64
    }
}

/// Cuts output between characters.
#[derive(Debug, Default)]
pub struct Splitter(Option<Begun>);

/// The first one to three bytes of a character that is not complete yet.
#[derive(Debug)]
struct Begun {
    stream: Stream,
    offset: u64,
    bytes: Vec<u8>,
}

impl Splitter {
    /// Takes output and returns the pieces that can be sent: at most two.
    pub fn push(&mut self, stream: Stream, offset: u64, data: Data) -> impl Iterator<Item = Piece> + use<> {
        let (mut before, mut start) = (None, offset);
        let mut bytes = match (self.0.take(), data) {
            // The common case.
            (None, Data::Text(text)) => {
                return None.into_iter().chain(Some(Piece { stream, offset, text, exact: None }));
            }
            (None, Data::Bytes(bytes)) => bytes,
            (Some(begun), data) if begun.stream == stream => {
                start = begun.offset;
                let mut bytes = begun.bytes;
                bytes.extend_from_slice(data.as_bytes());
                bytes
            }
            (Some(begun), data) => {
                before = Some(Piece::new(begun.stream, begun.offset, begun.bytes));
                data.as_bytes().to_vec()
            }
        };
        let kept = unfinished(&bytes);
        if kept > 0 {
            let rest = bytes.split_off(bytes.len() - kept);
            self.0 = Some(Begun { stream, offset: start + bytes.len() as u64, bytes: rest });
        }
        let piece = (!bytes.is_empty()).then(|| Piece::new(stream, start, bytes));
        before.into_iter().chain(piece)
    }

    /// Returns the incomplete character, whose remaining bytes will not come.
    pub fn flush(&mut self) -> Option<Piece> {
        self.0.take().map(|begun| Piece::new(begun.stream, begun.offset, begun.bytes))
    }
}

/// The number of bytes at the end that are an incomplete character.
pub fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|count| {
            let end = &bytes[bytes.len() - count..];
            std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(bytes: &[u8]) -> Data {
        Data::Bytes(bytes.to_vec())
    }

    #[test]
    fn a_character_waits_for_its_rest() {
        let mut splitter = Splitter::default();
        let first: Vec<_> = splitter.push(Stream::Merged, 0, bytes("a€".as_bytes().split_at(2).0)).collect();
        assert_eq!(first, [Piece { stream: Stream::Merged, offset: 0, text: "a".into(), exact: None }]);
        let second: Vec<_> = splitter.push(Stream::Merged, 2, bytes(&"a€b".as_bytes()[2..])).collect();
        assert_eq!(second, [Piece { stream: Stream::Merged, offset: 1, text: "€b".into(), exact: None }]);
        assert_eq!(second[0].end(), 5);
        assert_eq!(splitter.flush(), None);
    }

    #[test]
    fn another_stream_does_not_wait_for_it() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.push(Stream::Stdout, 0, bytes(b"\xe2\x82")).count(), 0);
        let pieces: Vec<_> = splitter.push(Stream::Stderr, 2, Data::Text("x".into())).collect();
        assert_eq!(pieces[0].exact.as_deref(), Some(&b"\xe2\x82"[..]));
        assert_eq!((pieces[1].offset, pieces[1].text.as_str()), (2, "x"));
    }

    #[test]
    fn what_can_never_become_a_character_does_not_wait() {
        for (end, count) in [
            (&b"a\xe2"[..], 1),
            (b"a\xe2\x82", 2),
            (b"a\xf0\x9f\x92", 3),
            (b"a\xff", 0),
            (b"a\xc0", 0),
            (b"\x82\x82\x82", 0),
            (b"abc", 0),
            (b"", 0),
        ] {
            assert_eq!(unfinished(end), count, "{end:x?}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_comes_once_in_order(
            chunks in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 1..20)), 0..12),
        ) {
            let (mut splitter, mut sent, mut came, mut next) = (Splitter::default(), Vec::new(), Vec::new(), 0);
            let mut take = |piece: Piece| {
                assert_eq!(piece.offset, next);
                next = piece.end();
                came.extend(piece.exact.unwrap_or_else(|| piece.text.into_bytes()));
            };
            for (is_stderr, chunk) in chunks {
                let stream = if is_stderr { Stream::Stderr } else { Stream::Stdout };
                let offset = sent.len() as u64;
                sent.extend_from_slice(&chunk);
                splitter.push(stream, offset, Data::Bytes(chunk)).for_each(&mut take);
            }
            splitter.flush().into_iter().for_each(&mut take);
            prop_assert_eq!(came, sent);
        }

        #[test]
        fn text_stays_exact_however_it_is_cut(text in "[aä€𝄞]{0,40}", size in 1usize..6) {
            let (mut splitter, mut came, mut offset) = (Splitter::default(), String::new(), 0);
            for chunk in text.as_bytes().chunks(size) {
                for piece in splitter.push(Stream::Merged, offset, Data::Bytes(chunk.to_vec())) {
                    prop_assert_eq!(piece.exact, None);
                    came.push_str(&piece.text);
                }
                offset += chunk.len() as u64;
            }
            prop_assert_eq!(splitter.flush(), None);
            prop_assert_eq!(came, text);
        }
    }
}
