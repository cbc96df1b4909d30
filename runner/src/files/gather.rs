//! Lists many directories and reads many files in one call, for whoever walks or searches a tree.
//!
//! Every item has its own result: one that is missing or may not be read does not fail the others. Links are not followed in
//! listings, and only regular files are read. Nothing but the body is held in memory.

use std::io::{Read, Write};

use nix::errno::Errno;
use shared_protocol::ErrorBody;
use shared_protocol::runner::{
    FileKind, GatherItem, GatherLine, MAX_GATHER_BODY_BYTES, MAX_GATHER_DATA_BYTES, MAX_GATHER_ENTRIES,
    MAX_GATHER_ITEMS,
};

use super::error::{At, invalid};
use super::inode;
use super::protocol::{BodyReader, Content, DataWriter, ReplyWriter};
use super::resolve::{FinalLink, MissingDirs, Roots, resolve};
use super::transfer;
use super::tree::{self, Descend, Entry, Visitor};

/// The path that errors of the call itself name.
const CALL: &[u8] = b"fs/gather";

pub fn gather(roots: &Roots, body: &mut BodyReader<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    reply.ready().at(CALL)?;
    let items = items(body)?;
    reply.head(200, Content::Bytes, None).at(CALL)?;
    let mut answer = DataWriter::new(reply);
    for item in &items {
        let line = match item {
            GatherItem::List { path } => list(roots, path, &mut answer),
            GatherItem::Read { path, length } => read(roots, path, *length, &mut answer),
        };
        let line = line.map_or_else(GatherLine::Failed, |truncated| GatherLine::End { truncated });
        send(&line, &mut answer).at(CALL)?;
    }
    answer.flush().at(CALL)?;
    reply.end().at(CALL)
}

/// Reads the whole body before anything is listed, so that a bad item has no effect.
fn items(body: &mut BodyReader<'_>) -> Result<Vec<GatherItem>, ErrorBody> {
    let mut bytes = Vec::new();
    body.take(MAX_GATHER_BODY_BYTES as u64 + 1).read_to_end(&mut bytes).at(CALL)?;
    if bytes.len() > MAX_GATHER_BODY_BYTES {
        return Err(invalid(format!("the body has more than {MAX_GATHER_BODY_BYTES} bytes")));
    }
    let Some(all) = bytes.strip_suffix(&[0]) else {
        return if bytes.is_empty() { Ok(Vec::new()) } else { Err(invalid("the last item has no NUL after it")) };
    };
    let items: Option<Vec<GatherItem>> = all.split(|byte| *byte == 0).map(GatherItem::parse).collect();
    let items = items.ok_or_else(|| invalid("an item is 'l' and a path, or 'r', a length, a colon and a path"))?;
    if items.len() > MAX_GATHER_ITEMS {
        return Err(invalid(format!("the body has more than {MAX_GATHER_ITEMS} items")));
    }
    Ok(items)
}

/// Sends the entries of a directory. Returns whether there are more.
fn list(roots: &Roots, path: &[u8], answer: &mut DataWriter<'_, '_>) -> Result<bool, ErrorBody> {
    let top = resolve(roots, path, FinalLink::Follow, MissingDirs::Fail)?.inode(path)?.open_directory(path)?;
    let mut listing = Listing { left: MAX_GATHER_ENTRIES, is_cut: false, answer };
    tree::walk(top, path, &mut listing)?;
    Ok(listing.is_cut)
}

struct Listing<'a, 'b, 'c> {
    left: usize,
    is_cut: bool,
    answer: &'a mut DataWriter<'b, 'c>,
}

impl Visitor for Listing<'_, '_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Descend, ErrorBody> {
        self.answer.reply.report_progress().at(CALL)?;
        if self.left == 0 {
            self.is_cut = true;
            return Ok(Descend::Skip);
        }
        self.left -= 1;
        let text = match inode::kind(entry.stat) {
            FileKind::Symlink => inode::link_text(entry.dir, entry.name).ok(),
            _ => None,
        };
        send(&GatherLine::Entry(inode::view(entry.path, entry.stat, text.as_deref())), self.answer).at(CALL)?;
        Ok(Descend::Skip)
    }

    fn not_entered(&mut self, _path: &[u8], _why: Errno) -> Result<(), ErrorBody> {
        Ok(())
    }
}

/// Sends the first bytes of a file. Returns whether there are more.
fn read(roots: &Roots, path: &[u8], length: u64, answer: &mut DataWriter<'_, '_>) -> Result<bool, ErrorBody> {
    let (file, _) = transfer::open(roots, path)?;
    // One byte more tells whether the file goes on.
    let mut file = file.take(length.saturating_add(1));
    let (mut buffer, mut left) = (vec![0; MAX_GATHER_DATA_BYTES], length);
    loop {
        let read = file.read(&mut buffer).at(path)?;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(read);
        let piece = buffer.get(..wanted).unwrap_or_default();
        if !piece.is_empty() {
            let bytes = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            send(&GatherLine::Data { bytes }, answer).at(CALL)?;
            answer.write_all(piece).at(CALL)?;
        }
        left -= piece.len() as u64;
        match read {
            0 => return Ok(false),
            read if read > wanted => return Ok(true),
            _ => {}
        }
    }
}

fn send(line: &GatherLine, answer: &mut DataWriter<'_, '_>) -> std::io::Result<()> {
    serde_json::to_writer(&mut *answer, line)?;
    answer.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use shared_protocol::ErrorCode;

    use super::*;
    use crate::files::Job;
    use crate::files::fixture::Fixture;
    use crate::files::protocol::tests::sent;

    fn body(items: &[GatherItem]) -> Vec<u8> {
        let mut body = Vec::new();
        items.iter().for_each(|item| item.write(&mut body));
        body
    }

    /// The lines of an answer, and the bytes after each.
    fn answered(fixture: &Fixture, items: &[GatherItem]) -> Vec<(GatherLine, Vec<u8>)> {
        let (_, data) = fixture.run_with(&Job::Gather, &sent(&body(items), 7, true));
        let (data, mut lines) = (data.expect("a complete answer"), Vec::new());
        let mut rest = data.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: GatherLine = serde_json::from_slice(&rest[..end]).unwrap();
            rest = &rest[end + 1..];
            let bytes = if let GatherLine::Data { bytes } = line { bytes as usize } else { 0 };
            let (content, after) = rest.split_at(bytes);
            lines.push((line, content.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty());
        lines
    }

    fn list_of(path: &[u8]) -> GatherItem {
        GatherItem::List { path: path.to_vec() }
    }

    fn read_of(path: &[u8], length: u64) -> GatherItem {
        GatherItem::Read { path: path.to_vec(), length }
    }

    const DONE: GatherLine = GatherLine::End { truncated: false };
    const CUT: GatherLine = GatherLine::End { truncated: true };

    #[test]
    fn directories_and_files_come_in_the_order_in_which_they_were_asked_for() {
        let fixture = Fixture::new();
        fixture.file("d/a", b"one\ntwo");
        fixture.link("/nowhere", "d/link");
        let lines = answered(&fixture, &[list_of(b"d"), read_of(b"d/a", 100)]);
        let mut entries: Vec<(String, FileKind)> = lines
            .iter()
            .filter_map(|(line, _)| match line {
                GatherLine::Entry(view) => Some((view.path.clone(), view.kind)),
                _ => None,
            })
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(entries, [("a".to_owned(), FileKind::File), ("link".to_owned(), FileKind::Symlink)]);
        let rest: Vec<_> = lines[2..].to_vec();
        assert_eq!(rest, [(DONE, vec![]), (GatherLine::Data { bytes: 7 }, b"one\ntwo".to_vec()), (DONE, vec![])]);
    }

    #[test]
    fn a_file_ends_at_the_length_that_was_asked_for() {
        let fixture = Fixture::new();
        fixture.file("f", b"12345");
        let of = |length| {
            let lines = answered(&fixture, &[read_of(b"f", length)]);
            (lines.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>(), lines.last().unwrap().0.clone())
        };
        assert_eq!(of(4), (b"1234".to_vec(), CUT));
        assert_eq!(of(5), (b"12345".to_vec(), DONE));
        assert_eq!(of(u64::MAX), (b"12345".to_vec(), DONE));
        assert_eq!(of(0), (b"".to_vec(), CUT));
        let large = vec![7; 3 * MAX_GATHER_DATA_BYTES + 1];
        fixture.file("f", &large);
        assert_eq!(of(1 << 30), (large, DONE));
    }

    #[test]
    fn what_fails_fails_alone() {
        let fixture = Fixture::new();
        fixture.file("f", b"x");
        nix::unistd::mkfifo(&fixture.workspace().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fixture.link(fixture.outside().join("secret"), "out");
        let items = [read_of(b"none", 9), read_of(b"fifo", 9), read_of(b"out", 9), list_of(b"f"), read_of(b"f", 9)];
        let ends: Vec<Option<ErrorCode>> = answered(&fixture, &items)
            .into_iter()
            .filter_map(|(line, _)| match line {
                GatherLine::Failed(error) => Some(Some(error.error_code)),
                GatherLine::End { .. } => Some(None),
                _ => None,
            })
            .collect();
        let (missing, invalid) = (Some(ErrorCode::FileNotFound), Some(ErrorCode::InvalidRequest));
        assert_eq!(ends, [missing, invalid, missing, invalid, None]);
    }

    #[test]
    fn a_body_that_is_not_a_list_of_items_does_nothing() {
        let fixture = Fixture::new();
        for (bad, why) in [
            (b"l.".to_vec(), "no NUL"),
            (b"x.\0".to_vec(), "an item is"),
            (b"l.\0\0".to_vec(), "an item is"),
            (b"l.\0".repeat(MAX_GATHER_ITEMS + 1), "items"),
            (vec![b'l'; MAX_GATHER_BODY_BYTES + 1], "bytes"),
        ] {
            let said = fixture.refusal_with(&Job::Gather, &bad);
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(answered(&fixture, &[]), []);
    }
}
