//! Finds the end of a chunked HTTP body. Pure.

/// The most digits of a chunk's size, and the most bytes of a line: a size with its extensions, or a trailer.
const MAX_SIZE_DIGITS: usize = 15;
const MAX_LINE_BYTES: usize = 8 << 10;

#[derive(Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// All bytes belong to the body, and more of it follows.
    More,
    /// The body ends after this many bytes.
    End(usize),
    Malformed,
}

#[derive(Debug, Default)]
pub struct ChunkReader {
    part: Part,
    /// The length of the line so far, without its end.
    line: usize,
    size: u64,
    digits: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    Trailer,
    TrailerEnd,
}

impl ChunkReader {
    pub fn read(&mut self, bytes: &[u8]) -> ChunkState {
        let mut at = 0;
        while at < bytes.len() {
            if self.part == Part::Data {
                let count = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - at);
                self.size -= u64::try_from(count).unwrap_or(u64::MAX);
                at += count;
                if self.size == 0 {
                    self.part = Part::DataReturn;
                }
                continue;
            }
            match self.byte(bytes[at]) {
                Some(true) => return ChunkState::End(at + 1),
                Some(false) => at += 1,
                None => return ChunkState::Malformed,
            }
        }
        ChunkState::More
    }

    /// Takes one byte outside of data. Returns whether the body is over; `None` if it is malformed.
    fn byte(&mut self, byte: u8) -> Option<bool> {
        self.line += 1;
        if self.line > MAX_LINE_BYTES {
            return None;
        }
        match (self.part, byte) {
            (Part::Size, digit) if digit.is_ascii_hexdigit() => {
                self.digits += 1;
                let value = char::from(digit).to_digit(16)?;
                self.size = self.size * 16 + u64::from(value);
                if self.digits > MAX_SIZE_DIGITS {
                    return None;
                }
            }
            (Part::Size | Part::Extension, b'\r') if self.digits > 0 => self.part = Part::SizeEnd,
            (Part::Size, b';' | b' ' | b'\t') if self.digits > 0 => self.part = Part::Extension,
            (Part::Extension, byte) if byte != b'\n' => {}
            (Part::SizeEnd, b'\n') => {
                self.part = if self.size == 0 { Part::Trailer } else { Part::Data };
                (self.line, self.digits) = (0, 0);
            }
            (Part::DataReturn, b'\r') => self.part = Part::DataEnd,
            (Part::DataEnd, b'\n') => {
                self.part = Part::Size;
                self.line = 0;
            }
            (Part::Trailer, b'\r') => self.part = Part::TrailerEnd,
            (Part::Trailer, byte) if byte != b'\n' => {}
            (Part::TrailerEnd, b'\n') => {
                // The line without anything but its end is the last one.
                if self.line == 2 {
                    return Some(true);
                }
                self.part = Part::Trailer;
                self.line = 0;
            }
            _ => return None,
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_body_is_found_in_any_pieces() {
        for body in
            [&b"0\r\n\r\n"[..], b"5\r\nhello\r\n0\r\n\r\n", b"a;x=1\r\n0123456789\r\n1\r\nz\r\n000\r\nA: b\r\n\r\n"]
        {
            let more = [body, b"GET /"].concat();
            assert_eq!(ChunkReader::default().read(&more), ChunkState::End(body.len()));
            for cut in 1..body.len() {
                let mut reader = ChunkReader::default();
                assert_eq!(reader.read(&body[..cut]), ChunkState::More);
                assert_eq!(reader.read(&more[cut..]), ChunkState::End(body.len() - cut));
            }
        }
    }

    #[test]
    fn what_a_server_could_read_differently_is_malformed() {
        for bad in [
            &b"x\r\n"[..],
            b"\r\n",
            b"5\nhello",
            b"5\r\nhello!\r\n",
            b"-1\r\n",
            b"ffffffffffffffffff\r\n",
            b"0\r\nA: b\n\r\n",
            b"5\r\nhello\n",
            b"5 \n",
        ] {
            assert_eq!(ChunkReader::default().read(bad), ChunkState::Malformed, "{}", String::from_utf8_lossy(bad));
        }
    }
}
