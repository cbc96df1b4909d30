//! A row of a terminal without an edge: text that later writes can replace.
//!
//! A row holds at most `MAX_CELLS` characters from its start and `MAX_TAIL_CELLS` from its end, and counts what is between them. Each
//! character counts as one cell, also the wide ones of East Asian scripts: a progress bar that mixes both may keep a stale end.

use std::collections::VecDeque;

/// The characters of a row that later writes can replace.
pub(crate) const MAX_CELLS: usize = 4096;
/// The last characters of a longer row.
pub(crate) const MAX_TAIL_CELLS: usize = 512;

#[derive(Default)]
pub(crate) struct Row {
    text: String,
    /// The number of characters in `text`.
    cells: usize,
    /// The last characters after the first `MAX_CELLS`.
    tail: VecDeque<char>,
    /// Bytes that were in `tail` and had to leave it.
    lost_bytes: u64,
}

impl Row {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.cells = 0;
        self.tail.clear();
        self.lost_bytes = 0;
    }

    /// The number of characters that a write can replace.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }

    /// Writes `text` from the given column on, and returns the column after it.
    pub(crate) fn write(&mut self, column: usize, text: &str) -> usize {
        if column >= MAX_CELLS {
            text.chars().for_each(|c| self.push_tail(c));
            return MAX_CELLS;
        }
        let count = if text.is_ascii() { text.len() } else { text.chars().count() };
        let room = MAX_CELLS - column;
        let (fits, rest) = if count <= room { (text, "") } else { split_at_char(text, room) };
        let fits_count = count.min(room);
        while self.cells < column {
            self.text.push(' ');
            self.cells += 1;
        }
        if column == self.cells {
            self.text.push_str(fits);
            self.cells += fits_count;
        } else {
            let end = self.cells.min(column + fits_count);
            let (from, to) = (self.byte_of(column), self.byte_of(end));
            self.text.replace_range(from..to, fits);
            self.cells = self.cells.max(column + fits_count);
        }
        rest.chars().for_each(|c| self.push_tail(c));
        column + fits_count
    }

    fn push_tail(&mut self, c: char) {
        if self.tail.len() == MAX_TAIL_CELLS
            && let Some(lost) = self.tail.pop_front()
        {
            self.lost_bytes += lost.len_utf8() as u64;
        }
        self.tail.push_back(c);
    }

    fn byte_of(&self, column: usize) -> usize {
        if self.text.is_ascii() {
            return column.min(self.text.len());
        }
        self.text.char_indices().nth(column).map_or(self.text.len(), |(at, _)| at)
    }

    /// Erases from the column to the end.
    pub(crate) fn truncate(&mut self, column: usize) {
        if column < self.cells {
            self.text.truncate(self.byte_of(column));
            self.cells = column;
        }
        self.tail.clear();
        self.lost_bytes = 0;
    }

    /// Replaces everything before the column with spaces.
    pub(crate) fn blank_before(&mut self, column: usize) {
        let end = column.min(self.cells);
        let at = self.byte_of(end);
        self.text.replace_range(..at, &" ".repeat(end));
    }

    /// Removes `count` characters at the column; the rest moves left.
    pub(crate) fn delete(&mut self, column: usize, count: usize) {
        let (from, to) = (self.byte_of(column), self.byte_of(column.saturating_add(count)));
        self.cells -= count.min(self.cells.saturating_sub(column));
        self.text.replace_range(from..to, "");
    }

    /// Gives the text, without spaces at its end, to `emit`.
    pub(crate) fn show(&mut self, emit: &mut dyn FnMut(&str)) {
        if !self.tail.is_empty() {
            if self.lost_bytes > 0 {
                self.text.push_str(&format!(" …[{} bytes left out]… ", self.lost_bytes));
            }
            self.text.extend(self.tail.iter());
        }
        emit(self.text.trim_end());
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.text.capacity() + self.tail.capacity() * size_of::<char>()
    }
}

fn split_at_char(text: &str, count: usize) -> (&str, &str) {
    text.char_indices().nth(count).map_or((text, ""), |(at, _)| text.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(row: &mut Row) -> String {
        let mut out = String::new();
        row.show(&mut |text| out = text.to_owned());
        out
    }

    #[test]
    fn a_shorter_write_leaves_the_end_of_the_longer_one() {
        let mut row = Row::default();
        assert_eq!(row.write(0, "100 %"), 5);
        assert_eq!(row.write(0, "✓ "), 2);
        assert_eq!(shown(&mut row), "✓ 0 %");
    }

    #[test]
    fn a_write_behind_the_end_fills_the_gap_with_spaces() {
        let mut row = Row::default();
        row.write(3, "é");
        row.write(5, "x");
        assert_eq!(shown(&mut row), "   é x");
    }

    #[test]
    fn a_row_of_any_length_keeps_its_start_and_its_end() {
        let mut row = Row::default();
        let mut column = row.write(0, "start");
        for _ in 0..1000 {
            column = row.write(column, &"x".repeat(999));
        }
        row.write(column, "end");
        assert!(row.held_bytes() < 4 * (MAX_CELLS + MAX_TAIL_CELLS) + 1024, "{} bytes", row.held_bytes());
        let text = shown(&mut row);
        assert!(text.starts_with("startx") && text.ends_with("xend"), "{text}");
        assert!(text.contains(&format!("[{} bytes left out]", 5 + 999_000 + 3 - MAX_CELLS - MAX_TAIL_CELLS)), "{text}");
    }

    #[test]
    fn erasing_and_deleting_count_in_characters() {
        let mut row = Row::default();
        row.write(0, "äbcdef");
        row.delete(1, 2);
        row.blank_before(1);
        assert_eq!(shown(&mut row), " def");
        row.truncate(2);
        assert_eq!(shown(&mut row), " d");
        assert_eq!(row.cells(), 2);
    }
}
