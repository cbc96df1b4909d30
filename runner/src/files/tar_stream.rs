//! Reading a tar stream entry by entry, from a stranger.
//!
//! The `tar` crate knows the fields of a header; the rest is done here, since its reader holds long names and extended
//! headers in memory whatever length they claim. It promises bounded memory, and that a stream which stops anywhere before
//! its end marker is an error. It refuses sparse entries, and says of a compressed stream that it is one.
//!
//! What an entry's path and kind may be is decided by `unpack`.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::archive::{BLOCK, padding};
use super::error::shown;

/// The longest extended header or long name. Paths are much shorter; attributes that we do not use can be long.
const MAX_EXTENSION: u64 = 1 << 20;
/// Extended headers in a row. Three are usual: a long name, a long link, and a pax header.
const MAX_EXTENSIONS: usize = 16;

const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

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
    #[error("the request could not be read")]
    Input(#[source] io::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    File,
    Directory,
    Symlink,
    HardLink,
    /// What it is instead.
    Other(&'static str),
}

/// One entry. Its data is what the reader yields until the next one is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub kind: ItemKind,
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub mode: u32,
    pub seconds: i64,
    pub nanoseconds: i64,
}

#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<(i64, i64)>,
    sparse: bool,
}

pub struct TarReader<'a> {
    from: &'a mut dyn Read,
    /// Of the present entry's data, and of the zeros after it.
    data_left: u64,
    padding_left: u64,
    /// The path of the last entry, for errors.
    last: Option<String>,
}

impl<'a> TarReader<'a> {
    pub fn new(from: &'a mut dyn Read) -> Self {
        Self { from, data_left: 0, padding_left: 0, last: None }
    }

    /// The next entry; `None` at the end marker.
    pub fn next_item(&mut self) -> Result<Option<Item>, TarError> {
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
                    let item = self.item(&header, &extensions)?;
                    // Links have no data, though some archivers note the size of what they link to.
                    let has_data = !matches!(item.kind, ItemKind::HardLink);
                    self.begin(if has_data { extensions.size.unwrap_or(size) } else { 0 });
                    self.last = Some(shown(&item.path));
                    return Ok(Some(item));
                }
            }
        }
        Err(self.extension_error())
    }

    fn item(&self, header: &Header, extensions: &Extensions) -> Result<Item, TarError> {
        let path = extensions.path.clone().unwrap_or_else(|| header.path_bytes().into_owned());
        let link = extensions.link.clone();
        let link = link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
        if extensions.sparse || header.entry_type() == EntryType::GNUSparse {
            return Err(TarError::Sparse(shown(&path)));
        }
        let kind = match header.entry_type() {
            // Before there was a type for directories, a slash said it.
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => ItemKind::Directory,
            EntryType::Regular | EntryType::Continuous => ItemKind::File,
            EntryType::Directory => ItemKind::Directory,
            EntryType::Symlink => ItemKind::Symlink,
            EntryType::Link => ItemKind::HardLink,
            EntryType::Fifo => ItemKind::Other("a FIFO"),
            EntryType::Block | EntryType::Char => ItemKind::Other("a device"),
            _ => ItemKind::Other("of an unknown type"),
        };
        let mtime = || Some((i64::try_from(header.mtime().ok()?).ok()?, 0));
        let (seconds, nanoseconds) = extensions.mtime.or_else(mtime).ok_or_else(|| self.damaged())?;
        let mode = header.mode().map_err(|_| self.damaged())?;
        Ok(Item { kind, path, link, mode, seconds, nanoseconds })
    }

    fn begin(&mut self, size: u64) {
        self.data_left = size;
        self.padding_left =
            if size.checked_next_multiple_of(BLOCK as u64).is_some() { padding(size) as u64 } else { 0 };
    }

    /// Passes over what is left of the entry, and takes the next header.
    fn next_header(&mut self) -> Result<Option<Header>, TarError> {
        let left = self.data_left.saturating_add(self.padding_left);
        (self.data_left, self.padding_left) = (0, 0);
        let passed = io::copy(&mut (&mut *self.from).take(left), &mut io::sink()).map_err(broken)?;
        if passed < left {
            return Err(TarError::Truncated);
        }
        let mut block = Vec::with_capacity(BLOCK);
        (&mut *self.from).take(BLOCK as u64).read_to_end(&mut block).map_err(broken)?;
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

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_EXTENSION {
            return Err(self.extension_error());
        }
        self.begin(size);
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(broken)?;
        Ok(bytes)
    }

    fn damaged(&self) -> TarError {
        TarError::Damaged(self.so_far())
    }

    fn extension_error(&self) -> TarError {
        TarError::Extension(self.so_far())
    }

    fn so_far(&self) -> String {
        self.last.as_ref().map_or_else(|| "its beginning".into(), |path| format!("the entry {path:?}"))
    }
}

/// The present entry's data. A stream that stops within it is an error, never a shorter file.
impl Read for TarReader<'_> {
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

pub fn broken(error: io::Error) -> TarError {
    if error.kind() == io::ErrorKind::UnexpectedEof { TarError::Truncated } else { TarError::Input(error) }
}

/// The sum of all bytes, with the field of the sum itself read as spaces.
fn checksum(block: &[u8]) -> u32 {
    const FIELD: std::ops::Range<usize> = 148..156;
    block.iter().enumerate().map(|(at, byte)| if FIELD.contains(&at) { 32 } else { u32::from(*byte) }).sum()
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Records of the form `LENGTH KEY=VALUE\n`, the length counting the whole record: a value may hold any byte.
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

/// Seconds and nanoseconds of a decimal number, rounded towards the past.
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
        let error = TarReader::new(&mut stream).next_item().unwrap_err();
        assert!(matches!(error, TarError::Extension(_)), "{error}");
    }

    #[test]
    fn a_compressed_stream_is_called_by_its_name() {
        for (mut bytes, name) in [(&b"\x1f\x8b\x08"[..], "gzip"), (&b"\x28\xb5\x2f\xfd123"[..], "zstd")] {
            let error = TarReader::new(&mut bytes).next_item().unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(matches!(TarReader::new(&mut &b""[..]).next_item(), Err(TarError::NotTar)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_entries_or_an_error_and_never_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            sum_it: bool,
        ) {
            let mut bytes = bytes;
            if sum_it && bytes.len() >= BLOCK {
                // A header whose sum is right, so that its fields are reached.
                let sum = format!("{:06o}\0 ", checksum(&bytes[..BLOCK]));
                bytes[148..156].copy_from_slice(sum.as_bytes());
            }
            let mut stream = bytes.as_slice();
            let mut reader = TarReader::new(&mut stream);
            while let Ok(Some(_)) = reader.next_item() {}
        }
    }
}
