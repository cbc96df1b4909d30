//! The protocol between the runner and a helper process, over two pipes.
//!
//! ```text
//! helper → runner   progress*  [ready]  progress*  head  (data | progress)*  end
//! runner → helper   data*  end
//! ```
//!
//! A frame is a tag, a length of four bytes (little-endian) and that many bytes. The end is always sent: a pipe that closes
//! without it was cut, because a process died or the client disconnected, and the data is incomplete. A failure is sent as a
//! head too. A failure after a successful head can only be logged, and cuts the reply.
//!
//! The runner trusts nothing that it reads here, because the helper runs as the sandbox user. A frame beyond `MAX_FRAME` is
//! an error.

use std::io::{self, IoSlice, Read, Write};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use shared_protocol::ErrorBody;

/// The longest payload of a frame. Files are read and sent in pieces of this size.
pub const MAX_FRAME: usize = 64 * 1024;
pub const PREFIX: usize = 5;

/// How often a helper that has nothing to send reports progress. It is well below `helper::HELPER_STALL`.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

const READY: u8 = b'R';
const PROGRESS: u8 = b'P';
const HEAD: u8 = b'H';
const DATA: u8 = b'D';
const END: u8 = b'E';

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelperFrame {
    /// The helper has opened the file that it writes to, so the body may be sent.
    Ready,
    /// The helper has worked since the last frame, but has nothing to send yet.
    Progress,
    Head(Bytes),
    Data(Bytes),
    End,
}

/// The head of a reply, or the reason that there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelperResult {
    Done(Head),
    Failed(ErrorBody),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub status: u16,
    pub content: Content,
    /// The number of data bytes that follow, if it is known.
    pub length: Option<u64>,
    /// The `Content-Range` of a part of a file.
    pub range: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    Json,
    Bytes,
    Tar,
    Ndjson,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the helper sent a frame that is not one")]
pub struct BadFrame;

/// The five bytes before a payload.
pub fn prefix(tag: u8, length: usize) -> [u8; PREFIX] {
    debug_assert!(length <= MAX_FRAME, "frames are cut before they are sent");
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    [tag, a, b, c, d]
}

pub fn data_prefix(length: usize) -> [u8; PREFIX] {
    prefix(DATA, length)
}

pub fn end_frame() -> [u8; PREFIX] {
    prefix(END, 0)
}

/// Takes one complete frame off the front of the buffer, if there is one.
pub fn take_frame(buffer: &mut BytesMut) -> Result<Option<HelperFrame>, BadFrame> {
    let Some((&[tag, a, b, c, d], rest)) = buffer.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).map_err(|_| BadFrame)?;
    if length > MAX_FRAME {
        return Err(BadFrame);
    }
    if rest.len() < length {
        return Ok(None);
    }
    buffer.advance(PREFIX);
    let payload = buffer.split_to(length).freeze();
    Ok(Some(match (tag, length) {
        (HEAD, _) => HelperFrame::Head(payload),
        (DATA, _) => HelperFrame::Data(payload),
        (READY, 0) => HelperFrame::Ready,
        (PROGRESS, 0) => HelperFrame::Progress,
        (END, 0) => HelperFrame::End,
        _ => return Err(BadFrame),
    }))
}

/// Writes the helper's frames. Its errors are errors of the pipe: the runner is gone, and nobody is left to report to.
pub struct ReplyWriter<'a> {
    output: &'a mut dyn Write,
    last_frame: Instant,
}

impl<'a> ReplyWriter<'a> {
    pub fn new(output: &'a mut dyn Write) -> Self {
        Self { output, last_frame: Instant::now() }
    }

    fn frame(&mut self, tag: u8, payload: &[u8]) -> io::Result<()> {
        let prefix = prefix(tag, payload.len());
        let written = self.output.write_vectored(&[IoSlice::new(&prefix), IoSlice::new(payload)])?;
        self.output.write_all(prefix.get(written..).unwrap_or_default())?;
        self.output.write_all(payload.get(written.saturating_sub(PREFIX)..).unwrap_or_default())?;
        self.last_frame = Instant::now();
        Ok(())
    }

    pub fn ready(&mut self) -> io::Result<()> {
        self.frame(READY, &[])
    }

    /// Sends a progress frame if the last frame was long ago. Long work calls it at every step.
    pub fn report_progress(&mut self) -> io::Result<()> {
        if self.last_frame.elapsed() < PROGRESS_INTERVAL { Ok(()) } else { self.frame(PROGRESS, &[]) }
    }

    pub fn outcome(&mut self, outcome: &HelperResult) -> io::Result<()> {
        self.frame(HEAD, &serde_json::to_vec(outcome)?)
    }

    pub fn head(&mut self, status: u16, content: Content, length: Option<u64>) -> io::Result<()> {
        self.outcome(&HelperResult::Done(Head { status, content, length, range: None }))
    }

    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(MAX_FRAME).try_for_each(|chunk| self.frame(DATA, chunk))
    }

    pub fn end(&mut self) -> io::Result<()> {
        self.frame(END, &[])
    }

    /// Sends a whole reply with a small document.
    pub fn json(&mut self, status: u16, value: &impl Serialize) -> io::Result<()> {
        let bytes = serde_json::to_vec(value)?;
        self.head(status, Content::Json, Some(bytes.len() as u64))?;
        self.data(&bytes)?;
        self.end()
    }
}

/// Collects small writes into frames. The last bytes must be flushed.
pub struct DataWriter<'a, 'b> {
    pub reply: &'a mut ReplyWriter<'b>,
    gathered: Vec<u8>,
}

impl<'a, 'b> DataWriter<'a, 'b> {
    pub fn new(reply: &'a mut ReplyWriter<'b>) -> Self {
        Self { reply, gathered: Vec::with_capacity(MAX_FRAME) }
    }
}

impl Write for DataWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(MAX_FRAME - self.gathered.len());
        self.gathered.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        if self.gathered.len() == MAX_FRAME {
            self.flush()?;
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.reply.data(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}

/// Reads the request's body in the helper. The body is complete only if the runner sent an end; a cut body is an
/// `UnexpectedEof`.
pub struct BodyReader<'a> {
    input: &'a mut dyn Read,
    left: usize,
    ended: bool,
}

impl<'a> BodyReader<'a> {
    pub fn new(input: &'a mut dyn Read) -> Self {
        Self { input, left: 0, ended: false }
    }
}

impl Read for BodyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            if self.ended {
                return Ok(0);
            }
            let mut prefix = [0; PREFIX];
            self.input.read_exact(&mut prefix)?;
            let [tag, a, b, c, d] = prefix;
            match tag {
                DATA => self.left = usize::try_from(u32::from_le_bytes([a, b, c, d])).map_err(io::Error::other)?,
                END => self.ended = true,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        let wanted = buffer.len().min(self.left);
        let read = self.input.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        if read == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a client gets of this reply: its head and, if the reply was complete, its data.
    pub fn heard(said: &[u8]) -> (HelperResult, Option<Vec<u8>>) {
        let (mut buffer, mut outcome, mut data) = (BytesMut::from(said), None, Vec::new());
        while let Some(frame) = take_frame(&mut buffer).unwrap() {
            match frame {
                HelperFrame::Head(bytes) if outcome.is_none() => outcome = serde_json::from_slice(&bytes).unwrap(),
                HelperFrame::Head(_) => break,
                HelperFrame::Data(bytes) => data.extend_from_slice(&bytes),
                HelperFrame::End => return (outcome.unwrap(), Some(data)),
                HelperFrame::Ready | HelperFrame::Progress => {}
            }
        }
        (outcome.unwrap(), None)
    }

    /// A body as the runner sends it, in chunks of this size, with or without the end.
    pub fn sent(body: &[u8], chunk: usize, ended: bool) -> Vec<u8> {
        let mut frames = Vec::new();
        for bytes in body.chunks(chunk) {
            frames.extend_from_slice(&data_prefix(bytes.len()));
            frames.extend_from_slice(bytes);
        }
        if ended {
            frames.extend_from_slice(&end_frame());
        }
        frames
    }

    #[test]
    fn a_cut_body_is_never_taken_for_a_whole_one() {
        let whole = sent(b"hello", 2, true);
        for cut in 0..whole.len() {
            let mut pipe = &whole[..cut];
            let error = BodyReader::new(&mut pipe).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut after {cut} bytes");
        }
        let (mut pipe, mut body) = (whole.as_slice(), Vec::new());
        BodyReader::new(&mut pipe).read_to_end(&mut body).unwrap();
        assert_eq!(body, b"hello");
    }

    #[test]
    fn a_frame_that_is_too_long_or_unknown_is_refused_before_it_is_held() {
        let mut long = BytesMut::from(&[DATA, 1, 0, 1, 0][..]);
        assert_eq!(take_frame(&mut long), Err(BadFrame));
        let mut unknown = BytesMut::from(&[b'?', 0, 0, 0, 0][..]);
        assert_eq!(take_frame(&mut unknown), Err(BadFrame));
    }

    proptest! {
        #[test]
        fn an_answer_is_heard_as_it_was_said_however_it_was_written(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 0..40),
        ) {
            let mut said = Vec::new();
            let mut reply = ReplyWriter::new(&mut said);
            reply.head(200, Content::Bytes, None).unwrap();
            let mut writer = DataWriter::new(&mut reply);
            for piece in &pieces {
                writer.write_all(piece).unwrap();
            }
            writer.flush().unwrap();
            reply.end().unwrap();
            prop_assert_eq!(heard(&said).1, Some(pieces.concat()));
        }

        #[test]
        fn any_bytes_from_a_helper_are_frames_or_an_error_and_never_a_panic(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(bytes.as_slice());
            while let Ok(Some(_)) = take_frame(&mut buffer) {}
        }
    }
}
