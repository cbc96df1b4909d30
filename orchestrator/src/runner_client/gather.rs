//! Lists many directories and reads many files of a sandbox in one call.
//!
//! The answer comes item by item, in the order in which they were asked for. What the runner says is checked: nothing is longer than what
//! was asked for, and an entry's path is one name.

use base64::Engine as _;
use bytes::{Buf as _, Bytes};
use hyper::Method;
use shared_protocol::ErrorBody;
use shared_protocol::runner::{
    FileView, GatherItem, GatherLine, MAX_GATHER_BODY_BYTES, MAX_GATHER_DATA_BYTES, MAX_GATHER_ENTRIES,
    MAX_GATHER_ITEMS, MAX_GATHER_LINE_BYTES,
};

use super::error::checked;
use super::file_calls::check;
use super::files::{FileCall, STALL_TIMEOUT};
use super::{FileAnswer, Outgoing, RunnerClient, RunnerError};

/// One item of an answer.
#[derive(Debug)]
pub enum Gathered {
    Listing {
        entries: Vec<ListedName>,
        is_cut: bool,
    },
    File {
        content: Vec<u8>,
        is_cut: bool,
    },
    /// The item could not be listed or read.
    Failed(ErrorBody),
}

/// An entry of a directory.
#[derive(Debug)]
pub struct ListedName {
    /// Its exact name: not empty, without a slash and without a NUL.
    pub name: Vec<u8>,
    pub view: FileView,
}

impl ListedName {
    fn new(view: FileView) -> Option<Self> {
        let name = match &view.path_base64 {
            None => view.path.clone().into_bytes(),
            Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).ok()?,
        };
        let is_name = !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        (is_name && name != b"." && name != b"..").then_some(Self { name, view })
    }
}

/// A call that is not too large for a runner.
#[derive(Debug, Default)]
pub struct GatherCall {
    items: Vec<GatherItem>,
    body: Vec<u8>,
}

impl GatherCall {
    /// Adds an item, or returns it if it has no room in this call.
    pub fn add(&mut self, item: GatherItem) -> Result<(), GatherItem> {
        // A prefix and a NUL are shorter than this.
        const AROUND: usize = 32;
        let is_full = self.items.len() >= MAX_GATHER_ITEMS
            || self.body.len() + item.path().len() + AROUND > MAX_GATHER_BODY_BYTES;
        if is_full {
            return Err(item);
        }
        item.write(&mut self.body);
        self.items.push(item);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl RunnerClient {
    /// Lists directories and reads files.
    pub async fn gather(&self, call: GatherCall) -> Result<GatherStream, RunnerError> {
        let body = Outgoing::full(call.body);
        let answer = self.send_file_call(FileCall::new(Method::POST, "fs/gather").with_body(body)).await?;
        Ok(GatherStream { answer, parts: Parts::default(), asked: call.items.into_iter() })
    }
}

/// The items of an answer, as they arrive.
pub struct GatherStream {
    answer: FileAnswer,
    parts: Parts,
    asked: std::vec::IntoIter<GatherItem>,
}

impl GatherStream {
    /// The next item; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Gathered>, RunnerError> {
        let Some(asked) = self.asked.next() else { return Ok(None) };
        let mut gathered = Gathering::new(&asked);
        loop {
            while let Some(part) = self.parts.next()? {
                if let Some(item) = gathered.take(part)? {
                    return Ok(Some(item));
                }
            }
            match tokio::time::timeout(STALL_TIMEOUT, self.answer.chunk()).await {
                Ok(Some(chunk)) => self.parts.push(chunk?),
                Ok(None) => return Err(RunnerError::Lost("the answer was cut".to_owned())),
                Err(_) => return Err(RunnerError::Lost("the answer stopped".to_owned())),
            }
        }
    }
}

/// What has arrived of one item. Pure.
enum Gathering {
    Listing(Vec<ListedName>),
    File { content: Vec<u8>, length: u64 },
}

impl Gathering {
    fn new(asked: &GatherItem) -> Self {
        match asked {
            GatherItem::List { .. } => Self::Listing(Vec::new()),
            GatherItem::Read { length, .. } => Self::File { content: Vec::new(), length: *length },
        }
    }

    /// Takes a part. Returns the item when it is complete.
    fn take(&mut self, part: Part) -> Result<Option<Gathered>, RunnerError> {
        match (self, part) {
            (Self::Listing(entries), Part::Line(GatherLine::Entry(view))) => {
                check(&view)?;
                match ListedName::new(view).filter(|_| entries.len() < MAX_GATHER_ENTRIES) {
                    Some(entry) => entries.push(entry),
                    None => return Err(RunnerError::hostile("a listing has what no directory has")),
                }
                Ok(None)
            }
            (Self::File { content, length }, Part::Bytes(bytes)) => {
                if content.len() as u64 + bytes.len() as u64 > *length {
                    return Err(RunnerError::hostile("a file is longer than what was asked for"));
                }
                content.extend_from_slice(&bytes);
                Ok(None)
            }
            (Self::File { .. }, Part::Line(GatherLine::Data { .. })) => Ok(None),
            (Self::Listing(entries), Part::Line(GatherLine::End { truncated })) => {
                Ok(Some(Gathered::Listing { entries: std::mem::take(entries), is_cut: truncated }))
            }
            (Self::File { content, .. }, Part::Line(GatherLine::End { truncated })) => {
                Ok(Some(Gathered::File { content: std::mem::take(content), is_cut: truncated }))
            }
            (_, Part::Line(GatherLine::Failed(error))) => match checked(error) {
                RunnerError::Refused(error) => Ok(Some(Gathered::Failed(error))),
                other => Err(other),
            },
            _ => Err(RunnerError::hostile("a part of an answer came where it cannot be")),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Part {
    Line(GatherLine),
    /// Some bytes of a file.
    Bytes(Bytes),
}

/// Takes an answer apart into lines and bytes. Pure.
#[derive(Debug, Default)]
struct Parts {
    chunk: Bytes,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    /// How many bytes of a file come before the next line.
    data_left: usize,
}

impl Parts {
    /// Adds bytes that were read. Call it only when `next` has returned `None`.
    fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "parts are taken before more is read");
        self.chunk = chunk;
    }

    fn next(&mut self) -> Result<Option<Part>, RunnerError> {
        if self.chunk.is_empty() {
            return Ok(None);
        }
        if self.data_left > 0 {
            let bytes = self.chunk.split_to(self.chunk.len().min(self.data_left));
            self.data_left -= bytes.len();
            return Ok(Some(Part::Bytes(bytes)));
        }
        let end = self.chunk.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(self.chunk.len(), |end| end + 1);
        if self.begun.len() + length > MAX_GATHER_LINE_BYTES {
            return Err(RunnerError::hostile(format!("a line is longer than {MAX_GATHER_LINE_BYTES} bytes")));
        }
        self.begun.extend_from_slice(&self.chunk[..length]);
        self.chunk.advance(length);
        if end.is_none() {
            return Ok(None);
        }
        let line = serde_json::from_slice(&self.begun)
            .map_err(|error| RunnerError::hostile(format!("a line of an answer cannot be read: {error}")))?;
        self.begun.clear();
        if let GatherLine::Data { bytes } = line {
            self.data_left = usize::try_from(bytes).unwrap_or(usize::MAX);
            if self.data_left == 0 || self.data_left > MAX_GATHER_DATA_BYTES {
                return Err(RunnerError::hostile("a piece of a file has a length that no piece has"));
            }
        }
        Ok(Some(Part::Line(line)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENTRY: &str = r#"{"part":"entry","path":"a","kind":"file","size":1,"mode":420,"uid":1,"gid":1,"mtime_ms":0}"#;
    const END: &str = "{\"part\":\"end\",\"truncated\":false}\n";

    fn read(asked: &GatherItem, text: &str, cut: usize) -> Result<Option<Gathered>, RunnerError> {
        let (mut parts, mut gathering) = (Parts::default(), Gathering::new(asked));
        for piece in text.as_bytes().chunks(cut) {
            parts.push(Bytes::copy_from_slice(piece));
            while let Some(part) = parts.next()? {
                if let Some(item) = gathering.take(part)? {
                    return Ok(Some(item));
                }
            }
        }
        Ok(None)
    }

    fn file(length: u64) -> GatherItem {
        GatherItem::Read { path: b"f".to_vec(), length }
    }

    fn directory() -> GatherItem {
        GatherItem::List { path: b"d".to_vec() }
    }

    #[test]
    fn a_file_and_a_listing_are_put_together_however_they_are_cut() {
        let text = format!("{{\"part\":\"data\",\"bytes\":4}}\n\n{{}}\n{END}");
        for cut in 1..text.len() {
            let Ok(Some(Gathered::File { content, is_cut: false })) = read(&file(4), &text, cut) else {
                panic!("cut into pieces of {cut}")
            };
            assert_eq!(content, b"\n{}\n");
        }
        let listed = read(&directory(), &format!("{ENTRY}\n{ENTRY}\n{END}"), 10);
        assert!(matches!(listed, Ok(Some(Gathered::Listing { entries, .. })) if entries.len() == 2));
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let data = |bytes: u32| format!("{{\"part\":\"data\",\"bytes\":{bytes}}}\n{}", "x".repeat(bytes as usize));
        let long = "x".repeat(MAX_GATHER_LINE_BYTES + 1);
        for (asked, bad) in [
            (file(4), data(5)),
            (file(4), data(0)),
            (file(1 << 20), data(u32::try_from(MAX_GATHER_DATA_BYTES + 1).unwrap())),
            (file(4), format!("{ENTRY}\n")),
            (directory(), data(1)),
            (directory(), format!("{}\n", ENTRY.replace("\"a\"", "\"a/b\""))),
            (directory(), format!("{}\n", ENTRY.replace("\"a\"", "\"\""))),
            (directory(), format!("{}\n", ENTRY.replace("\"a\"", "\"..\""))),
            (directory(), format!("{}\n", ENTRY.replace("\"a\"", "\"a\",\"path_base64\":\"Ly8=\""))),
            (directory(), "\n".to_owned()),
            (directory(), long),
        ] {
            assert!(matches!(read(&asked, &bad, 1000), Err(RunnerError::Hostile(_))), "{asked:?}");
        }
    }

    #[test]
    fn a_call_is_full_before_a_runner_refuses_it() {
        let mut call = GatherCall::default();
        assert!((0..MAX_GATHER_ITEMS).all(|_| call.add(directory()).is_ok()) && call.add(directory()).is_err());
        let (mut call, long) = (GatherCall::default(), GatherItem::List { path: vec![b'x'; 4000] });
        while call.add(long.clone()).is_ok() {}
        assert!(call.body.len() <= MAX_GATHER_BODY_BYTES && call.body.len() + 5000 > MAX_GATHER_BODY_BYTES);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut parts = Parts::default();
            parts.push(bytes.into());
            while let Ok(Some(_)) = parts.next() {}
        }
    }
}
