//! The format: reads a tar stream entry by entry.
//!
//! The `tar` crate parses the fields of a header. The rest is done here, since its reader holds long names and extended
//! headers in memory whatever length they claim. `unpack` decides which paths and kinds are allowed.

use std::io::{self, Read};

use tar::{EntryType, Header};

use crate::error::shown;

/// The unit of a tar stream: headers are one block, and data is filled up to whole blocks.
pub const BLOCK: usize = 512;

/// The longest extended header or long name. Paths are much shorter; attributes that are not used can be long.
const MAX_EXTENSION: u64 = 1 << 20;
/// Extended headers before one entry. Three are usual: a long name, a long link, and a pax header.
const MAX_EXTENSIONS: usize = 16;

/// The first bytes of compressed streams, and what they are.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// What is wrong with a stream.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("not a tar stream: it looks like {0}; send it decompressed")]
    Compressed(&'static str),
    #[error("not a tar stream")]
    NotTar,
    #[error("the tar stream stops before its end")]
    Truncated,
    #[error("the tar stream is damaged after {0}")]
    Damaged(String),
    #[error("the tar stream has an extended header that is too long or one of too many, after {0}")]
    Extension(String),
    #[error("the entry {0:?} is sparse, which is not supported; pack it without --sparse")]
    Sparse(String),
    #[error("the stream could not be read: {0}")]
    Input(io::Error),
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    HardLink,
    /// Something else, in words.
    Other(&'static str),
}

/// One entry. The reader yields its data until the next entry is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: EntryKind,
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub mode: u32,
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// What extended headers say about the entry after them.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<(i64, i64)>,
    sparse: bool,
}

/// Reads entries, and the data of the current one.
pub struct Reader<'a> {
    from: &'a mut dyn Read,
    /// Bytes that are left of the current entry's data, and of the zeros after it.
    data_left: u64,
    padding_left: u64,
    /// The path of the last entry, for errors.
    last: Option<String>,
}

impl<'a> Reader<'a> {
    pub fn new(from: &'a mut dyn Read) -> Self {
        Self { from, data_left: 0, padding_left: 0, last: None }
    }

    /// The next entry; `None` at the end marker.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extensions = Extensions::default();
        for _ in 0..=MAX_EXTENSIONS {
            let Some(header) = self.next_header()? else { return Ok(None) };
            let size = header.entry_size().map_err(|_| self.damaged())?;
            let kind = header.entry_type();
            match kind {
                EntryType::XGlobalHeader => self.begin(size),
                EntryType::GNULongName => extensions.path = Some(until_nul(self.extension(size)?)),
                EntryType::GNULongLink => extensions.link = Some(until_nul(self.extension(size)?)),
                EntryType::XHeader => {
                    let bytes = self.extension(size)?;
                    parse_pax(&bytes, &mut extensions).ok_or_else(|| self.damaged())?;
                }
                _ => {
                    let entry = self.entry(&header, &extensions)?;
                    // Links have no data, though some archivers write the size of what they link to.
                    let has_data = !matches!(entry.kind, EntryKind::HardLink);
                    self.begin(if has_data { extensions.size.unwrap_or(size) } else { 0 });
                    self.last = Some(shown(&entry.path));
                    return Ok(Some(entry));
                }
            }
        }
        Err(self.extension_error())
    }

    fn entry(&self, header: &Header, extensions: &Extensions) -> Result<Entry, TarError> {
        let path = extensions.path.clone().unwrap_or_else(|| header.path_bytes().into_owned());
        let link = extensions.link.clone();
        let link = link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
        if extensions.sparse || header.entry_type() == EntryType::GNUSparse {
            return Err(TarError::Sparse(shown(&path)));
        }
        let kind = match header.entry_type() {
            // Old archives mark a directory by a slash at the end of its path.
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => EntryKind::Directory,
            EntryType::Regular | EntryType::Continuous => EntryKind::File,
            EntryType::Directory => EntryKind::Directory,
            EntryType::Symlink => EntryKind::Symlink,
            EntryType::Link => EntryKind::HardLink,
            EntryType::Fifo => EntryKind::Other("a FIFO"),
            EntryType::Block | EntryType::Char => EntryKind::Other("a device"),
            _ => EntryKind::Other("of an unknown type"),
        };
        let mtime = || Some((i64::try_from(header.mtime().ok()?).ok()?, 0));
        let (seconds, nanoseconds) = extensions.mtime.or_else(mtime).ok_or_else(|| self.damaged())?;
        let mode = header.mode().map_err(|_| self.damaged())?;
        Ok(Entry { kind, path, link, mode, seconds, nanoseconds })
    }

    /// Starts the data of an entry of this size.
    fn begin(&mut self, size: u64) {
        self.data_left = size;
        self.padding_left =
            if size.checked_next_multiple_of(BLOCK as u64).is_some() { padding(size) as u64 } else { 0 };
    }

    /// Skips what is left of the current entry, and reads the next header.
    fn next_header(&mut self) -> Result<Option<Header>, TarError> {
        let left = self.data_left.saturating_add(self.padding_left);
        (self.data_left, self.padding_left) = (0, 0);
        let passed = io::copy(&mut (&mut *self.from).take(left), &mut io::sink()).map_err(stream_error)?;
        if passed < left {
            return Err(TarError::Truncated);
        }
        let mut block = Vec::with_capacity(BLOCK);
        (&mut *self.from).take(BLOCK as u64).read_to_end(&mut block).map_err(stream_error)?;
        if block.len() == BLOCK {
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            if header.cksum().is_ok_and(|sum| sum == checksum(&block)) {
                return Ok(Some(header.clone()));
            }
        }
        Err(match (&self.last, COMPRESSED.iter().find(|(magic, _)| block.starts_with(magic))) {
            (None, Some((_, name))) => TarError::Compressed(name),
            (None, None) => TarError::NotTar,
            (Some(_), _) if block.len() < BLOCK => TarError::Truncated,
            (Some(_), _) => self.damaged(),
        })
    }

    /// Reads the data of an extended header.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_EXTENSION {
            return Err(self.extension_error());
        }
        self.begin(size);
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(stream_error)?;
        Ok(bytes)
    }

    fn damaged(&self) -> TarError {
        TarError::Damaged(self.so_far())
    }

    fn extension_error(&self) -> TarError {
        TarError::Extension(self.so_far())
    }

    /// How far the stream was good, for errors.
    fn so_far(&self) -> String {
        self.last.as_ref().map_or_else(|| "its beginning".into(), |path| format!("the entry {path:?}"))
    }
}

/// The current entry's data. A stream that stops within it is an error, never a shorter file.
impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        match self.from.read(&mut buffer[..wanted])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.data_left -= read as u64;
                Ok(read)
            }
        }
    }
}

/// The error of a stream whose bytes could not be read.
pub fn stream_error(error: io::Error) -> TarError {
    if error.kind() == io::ErrorKind::UnexpectedEof { TarError::Truncated } else { TarError::Input(error) }
}

/// Bytes from the end of an entry's data to the next block.
pub fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from(size.next_multiple_of(block) - size).unwrap_or(0)
}

/// The sum of all bytes, with the field of the sum itself read as spaces.
pub fn checksum(block: &[u8]) -> u32 {
    const FIELD: std::ops::Range<usize> = 148..156;
    block.iter().enumerate().map(|(at, byte)| if FIELD.contains(&at) { 32 } else { u32::from(*byte) }).sum()
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Parses records of the form `LENGTH KEY=VALUE\n`. The length counts the whole record, since a value may hold any byte.
fn parse_pax(mut bytes: &[u8], extensions: &mut Extensions) -> Option<()> {
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let length: usize = text(&bytes[..space])?.parse().ok()?;
        let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
        bytes = bytes.get(length..)?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extensions.path = Some(value.to_vec()),
            b"linkpath" => extensions.link = Some(value.to_vec()),
            b"size" => extensions.size = Some(text(value)?.parse().ok()?),
            b"mtime" => extensions.mtime = Some(parse_time(text(value)?)?),
            _ if key.starts_with(b"GNU.sparse.") => extensions.sparse = true,
            _ => {}
        }
    }
    Some(())
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Parses a decimal number into seconds and nanoseconds, rounded towards the past.
fn parse_time(value: &str) -> Option<(i64, i64)> {
    const DIGITS: usize = 9;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(DIGITS).collect();
    let nanoseconds: i64 = digits.parse().ok()?;
    match whole.starts_with('-') && nanoseconds > 0 {
        true => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)),
        false => Some((seconds, nanoseconds)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pax_value_may_hold_a_newline_and_an_equals_sign() {
        let mut extensions = Extensions::default();
        parse_pax(b"17 path=a=b\nc/\xff!\n19 mtime=-1.250000\n", &mut extensions).unwrap();
        assert_eq!(extensions.path.unwrap(), b"a=b\nc/\xff!");
        assert_eq!(extensions.mtime, Some((-2, 750_000_000)));
    }

    #[test]
    fn times_are_read_to_the_nanosecond_whatever_their_length() {
        assert_eq!(parse_time("12"), Some((12, 0)));
        assert_eq!(parse_time("12.5"), Some((12, 500_000_000)));
        assert_eq!(parse_time("12.1234567899"), Some((12, 123_456_789)));
        assert_eq!(parse_time("12.x"), None);
        assert_eq!(parse_time(""), None);
    }

    #[test]
    fn a_long_name_that_claims_a_gigabyte_is_refused_before_it_is_read() {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 30);
        header.set_cksum();
        let mut stream = header.as_bytes().chain(io::repeat(b'a'));
        let error = Reader::new(&mut stream).next_entry().unwrap_err();
        assert!(matches!(error, TarError::Extension(_)), "{error}");
    }

    #[test]
    fn a_compressed_stream_is_called_by_its_name() {
        for (mut bytes, name) in [(&b"\x1f\x8b\x08"[..], "gzip"), (&b"\x28\xb5\x2f\xfd123"[..], "zstd")] {
            let error = Reader::new(&mut bytes).next_entry().unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(matches!(Reader::new(&mut &b""[..]).next_entry(), Err(TarError::NotTar)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_entries_or_an_error_and_never_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            sum_it: bool,
        ) {
            let mut bytes = bytes;
            if sum_it && bytes.len() >= BLOCK {
                // With a correct sum, the other fields of the header are reached too.
                let sum = format!("{:06o}\0 ", checksum(&bytes[..BLOCK]));
                bytes[148..156].copy_from_slice(sum.as_bytes());
            }
            let mut stream = bytes.as_slice();
            let mut reader = Reader::new(&mut stream);
            while let Ok(Some(_)) = reader.next_entry() {}
        }
    }
}
