//! A body that is read line by line, such as NDJSON.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// The lines of a body as they arrive, without their line ends.
pub struct Lines {
    body: Incoming,
    buffer: LineBuffer,
}

impl Lines {
    pub fn new(body: Incoming) -> Self {
        Self { body, buffer: LineBuffer::default() }
    }

    /// The next line. `None` at the end of the body; an incomplete last line does not count.
    pub async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            if let Some(line) = self.buffer.next() {
                return Ok(Some(line));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.buffer.push(data);
            }
        }
    }
}

/// Splits chunks into lines. A line within one chunk is not copied: benchmarks read gigabytes through this.
#[derive(Default)]
struct LineBuffer {
    /// The beginning of an incomplete line.
    begun: BytesMut,
    /// The rest of the last chunk.
    chunk: Bytes,
}

impl LineBuffer {
    /// Takes the next chunk. The previous chunk must have been read to its end.
    fn push(&mut self, chunk: Bytes) {
        self.begun.extend_from_slice(&self.chunk);
        self.chunk = chunk;
    }

    fn next(&mut self) -> Option<Bytes> {
        let end = memchr::memchr(b'\n', &self.chunk)?;
        let line = self.chunk.split_to(end);
        let _line_end = self.chunk.split_to(1);
        if self.begun.is_empty() {
            return Some(line);
        }
        let mut whole = std::mem::take(&mut self.begun);
        whole.extend_from_slice(&line);
        Some(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&str]) -> Vec<String> {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            buffer.push(Bytes::copy_from_slice(chunk.as_bytes()));
            while let Some(line) = buffer.next() {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        lines
    }

    #[test]
    fn a_line_to_a_chunk_is_a_line() {
        assert_eq!(lines(&["one\n", "two\n", "three\n"]), ["one", "two", "three"]);
    }

    #[test]
    fn lines_are_the_same_wherever_the_chunks_are_cut() {
        let text = "one\n\nthree is longer\nfour\nwithout an end";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let chunks = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(lines(&chunks), ["one", "", "three is longer", "four"], "cut at {first} and {second}");
            }
        }
    }
}
