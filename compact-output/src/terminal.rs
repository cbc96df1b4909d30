//! The first filter: bytes of a terminal become the lines that its screen shows at the end.
//!
//! Promises: control sequences are gone; what a carriage return, a backspace or a cursor movement wrote over is gone; the result does not
//! depend on how the bytes were split; invalid UTF-8 becomes U+FFFD. Refuses to lose text: a cleared screen stays as lines, because
//! programs that watch files clear the screen between reports, and a sequence that never ends is text after `MAX_SEQUENCE_BYTES`.
//!
//! ```text
//! Text ──ESC──▶ Escape ──[──▶ Csi ──final byte──▶ Text
//!                  └────]──▶ Osc ──BEL, ESC \, newline──▶ Text
//! ```
//!
//! The last `MAX_ROWS` rows can still change; older ones have left the screen and go on to the next filter. The screen has no right edge.

use std::collections::VecDeque;

use crate::row::{MAX_CELLS, Row};

/// The rows that a cursor can still reach.
pub(crate) const MAX_ROWS: usize = 64;
/// A longer control sequence is no control sequence.
const MAX_SEQUENCE_BYTES: usize = 4096;
/// Text waits in this much memory for the rest of its last character.
const MAX_RUN_BYTES: usize = MAX_CELLS;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    Escape,
    /// `ESC (` and its like: one more byte belongs to it.
    Charset,
    Csi,
    Osc {
        after_escape: bool,
    },
}

pub(crate) struct Terminal {
    state: State,
    /// Bytes of the current control sequence.
    sequence_bytes: usize,
    parameters: [usize; 2],
    parameter: usize,
    is_private: bool,
    /// Text that is not in a row yet.
    run: Vec<u8>,
    rows: VecDeque<Row>,
    current: usize,
    column: usize,
    saved: Option<(usize, usize)>,
    /// The screen was cleared, so the first row is its top.
    has_origin: bool,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Text,
            sequence_bytes: 0,
            parameters: [0; 2],
            parameter: 0,
            is_private: false,
            run: Vec::new(),
            rows: VecDeque::from([Row::default()]),
            current: 0,
            column: 0,
            saved: None,
            has_origin: false,
        }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8], emit: &mut dyn FnMut(&str)) {
        while let Some(&first) = bytes.first() {
            if self.state != State::Text {
                bytes = bytes.get(1..).unwrap_or_default();
                self.sequence(first, emit);
                continue;
            }
            let text = bytes.iter().position(|&byte| is_control(byte)).unwrap_or(bytes.len());
            let (run, rest) = bytes.split_at(text);
            self.text(run);
            bytes = rest;
            if let Some((&control, rest)) = bytes.split_first() {
                bytes = rest;
                self.control(control, emit);
            }
        }
    }

    /// Shows the rows that are still on the screen, without the empty ones at its end.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(&str)) {
        self.flush(true);
        while self.rows.back().is_some_and(|row| row.cells() == 0) {
            self.rows.pop_back();
        }
        self.commit_all(emit);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.run.capacity() + self.rows.iter().map(Row::held_bytes).sum::<usize>()
    }

    fn text(&mut self, mut run: &[u8]) {
        while !run.is_empty() {
            let (now, later) = run.split_at(run.len().min(MAX_RUN_BYTES - self.run.len()));
            self.run.extend_from_slice(now);
            run = later;
            if self.run.len() == MAX_RUN_BYTES {
                self.flush(false);
            }
        }
    }

    /// Writes the waiting text into the current row; an incomplete last character waits on, unless the text ends here.
    fn flush(&mut self, is_end: bool) {
        if self.run.is_empty() {
            return;
        }
        let Some(row) = self.rows.get_mut(self.current) else { return };
        if let Ok(text) = std::str::from_utf8(&self.run) {
            self.column = row.write(self.column, text);
            self.run.clear();
            return;
        }
        let mut at = 0;
        for chunk in self.run.utf8_chunks() {
            self.column = row.write(self.column, chunk.valid());
            at += chunk.valid().len();
            let invalid = chunk.invalid();
            if at + invalid.len() == self.run.len() && !is_end && is_incomplete(invalid) {
                break;
            }
            if !invalid.is_empty() {
                self.column = row.write(self.column, "\u{fffd}");
            }
            at += invalid.len();
        }
        self.run.drain(..at);
    }

    fn control(&mut self, byte: u8, emit: &mut dyn FnMut(&str)) {
        self.flush(true);
        match byte {
            b'\n' => self.down(emit),
            b'\r' => self.column = 0,
            0x08 => self.column = self.column.saturating_sub(1),
            0x1b => (self.state, self.sequence_bytes) = (State::Escape, 0),
            _ => {}
        }
    }

    fn sequence(&mut self, byte: u8, emit: &mut dyn FnMut(&str)) {
        self.sequence_bytes += 1;
        if self.sequence_bytes > MAX_SEQUENCE_BYTES || (byte == b'\n' && self.state != State::Text) {
            self.state = State::Text;
            return if is_control(byte) { self.control(byte, emit) } else { self.text(&[byte]) };
        }
        self.state = match (self.state, byte) {
            (State::Escape, b'[') => {
                (self.parameters, self.parameter, self.is_private) = ([0; 2], 0, false);
                State::Csi
            }
            (State::Escape, b']' | b'P' | b'_' | b'^' | b'X') => State::Osc { after_escape: false },
            (State::Escape, b'(' | b')' | b'*' | b'+' | b'#' | b'%' | b' ') => State::Charset,
            (State::Escape, b'7') => self.save(),
            (State::Escape, b'8') => self.restore(),
            (State::Escape, b'M') => self.up(1),
            (State::Csi, b'0'..=b'9') => {
                if let Some(number) = self.parameters.get_mut(self.parameter) {
                    *number = (*number * 10 + usize::from(byte - b'0')).min(9999);
                }
                State::Csi
            }
            (State::Csi, b';' | b':') => {
                self.parameter += 1;
                State::Csi
            }
            (State::Csi, b'<'..=b'?') => {
                self.is_private = true;
                State::Csi
            }
            (State::Csi, b' '..=b'/') => State::Csi,
            (State::Csi, b'@'..=b'~') => self.command(byte, emit),
            (State::Csi, 0x1b) => State::Escape,
            (State::Csi, _) => return self.interrupt(byte, emit),
            (State::Osc { .. }, 0x07) | (State::Osc { after_escape: true }, b'\\') => State::Text,
            (State::Osc { .. }, _) => State::Osc { after_escape: byte == 0x1b },
            _ => State::Text,
        };
    }

    /// A control byte ends a sequence that it stands in.
    fn interrupt(&mut self, byte: u8, emit: &mut dyn FnMut(&str)) {
        self.state = State::Text;
        if is_control(byte) {
            self.control(byte, emit);
        } else {
            self.text(&[byte]);
        }
    }

    fn command(&mut self, byte: u8, emit: &mut dyn FnMut(&str)) -> State {
        let [first, second] = self.parameters;
        let count = first.max(1);
        if self.is_private {
            return State::Text;
        }
        match byte {
            b'A' | b'F' => {
                self.up(count);
                self.column = if byte == b'F' { 0 } else { self.column };
            }
            b'B' | b'E' => {
                let column = self.column;
                (0..count.min(MAX_ROWS)).for_each(|_| self.down(emit));
                self.column = if byte == b'E' { 0 } else { column };
            }
            b'C' => self.column = (self.column + count).min(MAX_CELLS),
            b'D' => self.column = self.column.saturating_sub(count),
            b'G' => self.column = (count - 1).min(MAX_CELLS),
            b'H' | b'f' => self.place(count - 1, second.max(1) - 1, emit),
            b'J' => self.erase_screen(first, emit),
            b'K' => self.erase_row(first),
            b'P' => self.with_row(|row, column| row.delete(column, count)),
            b's' => return self.save(),
            b'u' => return self.restore(),
            _ => {}
        }
        State::Text
    }

    fn with_row(&mut self, change: impl FnOnce(&mut Row, usize)) {
        if let Some(row) = self.rows.get_mut(self.current) {
            change(row, self.column);
        }
    }

    fn erase_row(&mut self, how: usize) {
        self.with_row(|row, column| match how {
            0 => row.truncate(column),
            1 => row.blank_before(column + 1),
            _ => row.clear(),
        });
    }

    fn erase_screen(&mut self, how: usize, emit: &mut dyn FnMut(&str)) {
        if how == 0 {
            self.erase_row(0);
            self.rows.truncate(self.current + 1);
        } else if how > 1 {
            self.commit_all(emit);
            self.has_origin = true;
        }
    }

    /// Only a cleared screen has a known top. Elsewhere the text goes to a row of its own.
    fn place(&mut self, row: usize, column: usize, emit: &mut dyn FnMut(&str)) {
        if self.has_origin {
            self.current = 0;
            (0..row.min(MAX_ROWS - 1)).for_each(|_| self.down(emit));
        } else if self.rows.get(self.current).is_some_and(|row| row.cells() > 0) {
            self.current = self.rows.len() - 1;
            self.down(emit);
        }
        self.column = column.min(MAX_CELLS);
    }

    fn up(&mut self, count: usize) -> State {
        self.current = self.current.saturating_sub(count);
        State::Text
    }

    fn down(&mut self, emit: &mut dyn FnMut(&str)) {
        self.column = 0;
        self.current += 1;
        if self.current < self.rows.len() {
            return;
        }
        let mut fresh = Row::default();
        if self.rows.len() == MAX_ROWS
            && let Some(mut oldest) = self.rows.pop_front()
        {
            oldest.show(emit);
            oldest.clear();
            fresh = oldest;
        }
        self.rows.push_back(fresh);
        self.current = self.rows.len() - 1;
    }

    fn commit_all(&mut self, emit: &mut dyn FnMut(&str)) {
        while let Some(mut row) = self.rows.pop_front() {
            row.show(emit);
        }
        self.rows.push_back(Row::default());
        (self.current, self.column) = (0, 0);
    }

    fn save(&mut self) -> State {
        self.saved = Some((self.rows.len() - self.current, self.column));
        State::Text
    }

    fn restore(&mut self) -> State {
        if let Some((from_end, column)) = self.saved {
            self.current = self.rows.len().saturating_sub(from_end);
            self.column = column;
        }
        State::Text
    }
}

fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}

/// Whether the bytes can be the start of a longer character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
#[path = "terminal_test.rs"]
mod tests;
