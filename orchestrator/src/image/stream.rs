//! Reads the archive of a layer or an image: decompresses it, counts and limits what comes out, and makes its digest.
//!
//! It runs in the process that unpacks. How an archive is compressed is read from its first bytes, whatever its name or media type
//! says.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use oci_registry::{Digest, Hasher};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The second to fourth bytes of a zstd frame that has no data; the first is 0x50 to 0x5f.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];

/// The first bytes of formats that are not read, with the command to use instead.
const OTHERS: [(&[u8], &str, &str); 2] = [
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz", "xzcat FILE | cove image import NAME -"),
    (b"BZh", "bzip2", "bzcat FILE | cove image import NAME -"),
];

const BUFFER_BYTES: usize = 256 << 10;

/// The bytes of an archive without its compression.
pub struct ArchiveStream<'a> {
    inner: Box<dyn Read + 'a>,
    hasher: Hasher,
    count: u64,
    limit: u64,
}

impl<'a> ArchiveStream<'a> {
    /// `limit` is how many bytes may come out.
    pub fn new(from: impl Read + 'a, limit: u64) -> io::Result<Self> {
        let mut from = BufReader::with_capacity(BUFFER_BYTES, from);
        let first = from.fill_buf()?;
        if let Some((_, kind, remedy)) = OTHERS.iter().find(|(magic, ..)| first.starts_with(magic)) {
            return Err(io::Error::other(format!("it is compressed with {kind}; use: {remedy}")));
        }
        let inner: Box<dyn Read + 'a> = if first.starts_with(GZIP) {
            Box::new(MultiGzDecoder::new(from))
        } else if first.starts_with(ZSTD) || first.get(1..4) == Some(ZSTD_SKIPPABLE) {
            Box::new(ZstdFrames::new(from))
        } else {
            Box::new(from)
        };
        Ok(Self { inner, hasher: Hasher::default(), count: 0, limit })
    }

    /// Reads what is left after the archive's end, and returns the digest of everything.
    pub fn finish(mut self) -> io::Result<Digest> {
        let mut chunk = vec![0; BUFFER_BYTES];
        while self.read(&mut chunk)? > 0 {}
        Ok(self.hasher.finish())
    }
}

impl Read for ArchiveStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.count = self.count.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if self.count > self.limit {
            return Err(io::Error::other(TooLarge { limit: self.limit }));
        }
        Ok(count)
    }
}

/// An archive has more in it than it may have.
#[derive(Debug, thiserror::Error)]
#[error("it unpacks to more than the {} MiB that are left for it (images.max_unpacked_mb, or what the disk has free)", .limit >> 20)]
pub struct TooLarge {
    pub limit: u64,
}

/// All frames of a zstd stream, one after the other. The decoder itself reads one.
struct ZstdFrames<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Begins the next frame that has data. `false` at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut Read::take(&mut self.source, length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame && !self.begin()? {
                return Ok(0);
            }
            self.is_in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(io::Error::other)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.is_in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write as _;

    const TEXT: &[u8] = b"one two three four one two three four";

    fn read(bytes: &[u8], limit: u64) -> io::Result<(Vec<u8>, Digest)> {
        let mut stream = ArchiveStream::new(bytes, limit)?;
        let mut first = [0; 5];
        stream.read_exact(&mut first)?;
        let mut text = first.to_vec();
        stream.read_to_end(&mut text)?;
        Ok((text, stream.finish()?))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_digest_is_that_of_what_was_compressed_in_whatever_way() {
        let zstd = compress_to_vec(TEXT, CompressionLevel::Fastest);
        let (head, tail) = TEXT.split_at(9);
        let members = [gzip(head), gzip(tail)].concat();
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        let frames = [
            skippable.clone(),
            compress_to_vec(head, CompressionLevel::Fastest),
            skippable,
            compress_to_vec(tail, CompressionLevel::Fastest),
        ]
        .concat();
        for bytes in [TEXT.to_vec(), gzip(TEXT), zstd, members, frames] {
            assert_eq!(read(&bytes, 1000).unwrap(), (TEXT.to_vec(), Digest::of(TEXT)));
        }
    }

    #[test]
    fn a_bomb_ends_at_the_limit() {
        let zeros = vec![0; 1 << 20];
        for bomb in [gzip(&zeros), compress_to_vec(zeros.as_slice(), CompressionLevel::Fastest)] {
            assert!(bomb.len() < 20_000, "{}", bomb.len());
            assert!(read(&bomb, 1 << 19).unwrap_err().to_string().contains("images.max_unpacked_mb"));
            assert!(read(&bomb, 1 << 20).is_ok());
        }
    }

    #[test]
    fn what_is_damaged_or_of_another_kind_is_refused() {
        let whole = gzip(TEXT);
        assert!(read(&whole[..whole.len() - 4], 1000).is_err());
        let whole = compress_to_vec(TEXT, CompressionLevel::Fastest);
        assert!(read(&whole[..whole.len() - 4], 1000).is_err());
        let refused = ArchiveStream::new(&b"BZh91AY"[..], 1000).err().unwrap().to_string();
        assert!(refused.contains("bzip2") && refused.contains("bzcat"), "{refused}");
    }
}
