//! `POST /v1/fs/gather`: lists many directories and reads many files in one call.
//!
//! ```text
//! body     item NUL item NUL …        item: 'l' PATH, or 'r' LENGTH ':' PATH
//! answer   for each item, in order:   (entry line | data line, then its bytes)*  (end line | failed line)
//! ```
//!
//! A path may contain any byte but NUL, so neither the body nor a file's content is JSON.

use serde::{Deserialize, Serialize};

use super::FileView;
use crate::ErrorBody;

/// The most bytes in the body of one call.
pub const MAX_GATHER_BODY_BYTES: usize = 1 << 20;
/// The most items in one call.
pub const MAX_GATHER_ITEMS: usize = 4096;
/// The most entries of one directory.
pub const MAX_GATHER_ENTRIES: usize = 100_000;
/// The longest line of an answer. A path of 4,096 bytes has at most six characters for each in JSON, and may come three times.
pub const MAX_GATHER_LINE_BYTES: usize = 128 << 10;
/// The most bytes of a file after one line.
pub const MAX_GATHER_DATA_BYTES: usize = 64 << 10;

/// One thing that a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatherItem {
    /// The entries of a directory, in no order.
    List { path: Vec<u8> },
    /// The first bytes of a file.
    Read { path: Vec<u8>, length: u64 },
}

impl GatherItem {
    pub fn path(&self) -> &[u8] {
        match self {
            Self::List { path } | Self::Read { path, .. } => path,
        }
    }

    /// Appends the item to a body.
    pub fn write(&self, body: &mut Vec<u8>) {
        match self {
            Self::List { .. } => body.push(b'l'),
            Self::Read { length, .. } => body.extend_from_slice(format!("r{length}:").as_bytes()),
        }
        body.extend_from_slice(self.path());
        body.push(0);
    }

    /// Takes an item from its bytes, without the NUL. `None` if they are not an item.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let item = match kind {
            b'l' => Self::List { path: rest.to_vec() },
            b'r' => {
                let colon = rest.iter().position(|byte| *byte == b':')?;
                let (digits, path) = (rest.get(..colon)?, rest.get(colon + 1..)?);
                let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                let length = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
                Self::Read { path: path.to_vec(), length }
            }
            _ => return None,
        };
        (!item.path().is_empty()).then_some(item)
    }
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum GatherLine {
    /// An entry of the directory; its path is its name.
    Entry(FileView),
    /// This many bytes of the file follow the line.
    Data {
        /// The number of bytes.
        bytes: u32,
    },
    /// The item is complete.
    End {
        /// Whether there is more: the directory has more entries, or the file more bytes.
        truncated: bool,
    },
    /// The item could not be listed or read, or not to its end.
    Failed(ErrorBody),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_as_it_was_written() {
        let items = [
            GatherItem::List { path: b"a b\n\xff".to_vec() },
            GatherItem::Read { path: b"r1:x".to_vec(), length: 0 },
            GatherItem::Read { path: b"/x".to_vec(), length: u64::MAX },
        ];
        let mut body = Vec::new();
        items.iter().for_each(|item| item.write(&mut body));
        let read: Vec<_> = body.strip_suffix(&[0]).unwrap().split(|byte| *byte == 0).map(GatherItem::parse).collect();
        assert_eq!(read, items.map(Some));
    }

    #[test]
    fn what_is_no_item_is_not_guessed() {
        for bad in ["", "l", "r", "r5", "r5:", "r:x", "r+5:x", "r-1:x", "r99999999999999999999:x", "x/a"] {
            assert_eq!(GatherItem::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
