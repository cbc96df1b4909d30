//! The changes below a directory, as the runner tells them.
//!
//! A watch is silent as long as nothing changes, so the runner is not doubted meanwhile. Nothing is lost if the caller stops waiting.

use std::io::BufRead as _;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::Method;
use shared_protocol::runner::{ChangeKind, FileChange, MAX_WATCH_LINE_BYTES, WatchFrame};

use super::error::checked;
use super::files::FileCall;
use super::{Depth, FileAnswer, RunnerClient, RunnerError};

impl RunnerClient {
    /// Watches a directory. The answer begins when whatever changes will be told.
    pub async fn watch_files(&self, path: &[u8], depth: Depth) -> Result<WatchStream, RunnerError> {
        let call = FileCall::new(Method::GET, "fs/watch").with("path", path);
        let answer = self.send_file_call(call.with_flag("recursive", depth == Depth::Recursive)).await?;
        Ok(WatchStream { answer, lines: WatchLines::default() })
    }
}

pub struct WatchStream {
    answer: FileAnswer,
    lines: WatchLines,
}

impl WatchStream {
    /// The next frame; `None` after the last one. A watch that breaks off is an error.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<WatchFrame>, RunnerError>> {
        loop {
            if let Some(frame) = self.lines.next()? {
                return Poll::Ready(match frame {
                    WatchFrame::Error(error) => Err(checked(error)),
                    frame => Ok(Some(frame)),
                });
            }
            match std::task::ready!(self.answer.poll_chunk(cx)) {
                Some(chunk) => self.lines.push(chunk?),
                None if self.lines.is_over() => return Poll::Ready(Ok(None)),
                None => return Poll::Ready(Err(RunnerError::Lost("the watch was cut".to_owned()))),
            }
        }
    }
}

/// Splits bytes into lines and checks them. Pure.
#[derive(Debug, Default)]
struct WatchLines {
    chunk: Bytes,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Beginning,
    Ready,
    Over,
}

impl WatchLines {
    /// Adds bytes that were read. Call it only when `next` has returned `None`.
    fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "frames are taken before more is read");
        self.chunk = chunk;
    }

    fn next(&mut self) -> Result<Option<WatchFrame>, RunnerError> {
        if self.chunk.is_empty() {
            return Ok(None);
        }
        let length = (&self.chunk[..]).skip_until(b'\n').unwrap_or(self.chunk.len());
        if self.begun.len() + length > MAX_WATCH_LINE_BYTES {
            return Err(RunnerError::hostile(format!("a line of a watch is longer than {MAX_WATCH_LINE_BYTES} bytes")));
        }
        self.begun.extend_from_slice(&self.chunk[..length]);
        self.chunk.advance(length);
        if self.begun.last() != Some(&b'\n') {
            return Ok(None);
        }
        let frame = serde_json::from_slice(&self.begun)
            .map_err(|error| RunnerError::hostile(format!("a line of a watch cannot be read: {error}")))?;
        self.begun.clear();
        self.state = after(self.state, &frame)
            .ok_or_else(|| RunnerError::hostile("a line of a watch came at the wrong time, or says what cannot be"))?;
        Ok(Some(frame))
    }

    fn is_over(&self) -> bool {
        self.state == State::Over && self.begun.is_empty()
    }
}

/// The state after a frame. `None` if it may not come now, or contradicts itself.
fn after(state: State, frame: &WatchFrame) -> Option<State> {
    match (state, frame) {
        (State::Beginning, WatchFrame::Ready { .. }) => Some(State::Ready),
        (State::Ready, WatchFrame::Change(change)) => is_possible(change).then_some(State::Ready),
        (State::Ready, WatchFrame::Overflow) => Some(State::Ready),
        (State::Ready, WatchFrame::Ended { .. } | WatchFrame::Error(_)) => Some(State::Over),
        _ => None,
    }
}

fn is_possible(change: &FileChange) -> bool {
    let is_move = change.kind == ChangeKind::Moved;
    !change.path.is_empty() && change.from.is_some() == is_move && (is_move || change.from_base64.is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const READY: &str = "{\"event\":\"ready\",\"truncated\":false}\n";
    const CHANGE: &str = "{\"event\":\"change\",\"kind\":\"created\",\"path\":\"a\",\"is_dir\":false}\n";
    const OVERFLOW: &str = "{\"event\":\"overflow\"}\n";
    const ENDED: &str = "{\"event\":\"ended\",\"reason\":\"deleted\"}\n";

    fn read(text: &str, cut: usize) -> Result<(Vec<WatchFrame>, bool), RunnerError> {
        let (mut lines, mut frames) = (WatchLines::default(), Vec::new());
        for piece in text.as_bytes().chunks(cut) {
            lines.push(Bytes::copy_from_slice(piece));
            while let Some(frame) = lines.next()? {
                frames.push(frame);
            }
        }
        Ok((frames, lines.is_over()))
    }

    #[test]
    fn only_what_can_be_true_comes_through() {
        let (frames, is_over) = read(&[READY, CHANGE, OVERFLOW, CHANGE, ENDED].concat(), 7).unwrap();
        assert_eq!((frames.len(), is_over), (5, true));
        assert!(!read(READY, 100).unwrap().1, "a watch without an end was cut");
        let line = |fields: &str| format!("{{\"event\":\"change\",{fields},\"is_dir\":false}}\n");
        for bad in [
            CHANGE.to_owned(),
            [READY, READY].concat(),
            [READY, ENDED, CHANGE].concat(),
            [READY, ENDED, ENDED].concat(),
            format!("{READY}{}", line("\"kind\":\"moved\",\"path\":\"a\"")),
            format!("{READY}{}", line("\"kind\":\"created\",\"path\":\"a\",\"from\":\"b\"")),
            format!("{READY}{}", line("\"kind\":\"created\",\"path\":\"a\",\"from_base64\":\"Yg==\"")),
            format!("{READY}{}", line("\"kind\":\"created\",\"path\":\"\"")),
            format!("{READY}{}", line("\"kind\":\"renamed\",\"path\":\"a\"")),
            "\n".to_owned(),
        ] {
            assert!(matches!(read(&bad, 1000), Err(RunnerError::Hostile(_))), "{bad}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused_before_it_is_stored() {
        let mut lines = WatchLines::default();
        let piece = Bytes::from(vec![b'x'; 10 << 10]);
        let refused = (0..20).any(|_| {
            lines.push(piece.clone());
            lines.next().is_err()
        });
        assert!(refused && lines.begun.len() <= MAX_WATCH_LINE_BYTES);
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_same_comes_out(cut in 1usize..200) {
            let text = [READY, CHANGE, CHANGE, OVERFLOW, ENDED].concat();
            prop_assert_eq!(read(&text, cut).unwrap(), read(&text, text.len()).unwrap());
        }

        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut lines = WatchLines::default();
            lines.push(bytes.into());
            while let Ok(Some(_)) = lines.next() {}
        }
    }
}
