//! A table of text with aligned columns.

use super::output::{Colour, Style};

const GAP: &str = "  ";

pub struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: None }
    }

    pub fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }

    /// The number of characters. Wide and combining characters are rare here, and are not considered.
    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

pub struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| Cell::coloured(*head, Colour::Bold)).collect()] }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub fn render(&self, style: Style) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            let mut padding = 0;
            for (column, cell) in row.iter().enumerate() {
                // Padding is written before the next text and not after this one, so that no line ends with blanks.
                if !cell.text.is_empty() {
                    line.push_str(&" ".repeat(padding));
                    padding = 0;
                    match cell.colour {
                        Some(colour) => line.push_str(&style.paint(colour, &cell.text)),
                        None => line.push_str(&cell.text),
                    }
                }
                padding += widths[column] - cell.width() + GAP.len();
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_blanks() {
        let mut table = Table::new(&["ID", "STATUS", "NOTE"]);
        table.row(vec![Cell::new("7183cb80-d6c"), Cell::coloured("running", Colour::Green), Cell::new("")]);
        table.row(vec![Cell::new("é"), Cell::new(""), Cell::new("last")]);
        let text = table.render(Style::plain());
        let expected = "\
ID            STATUS   NOTE
7183cb80-d6c  running
é                      last
";
        assert_eq!(text, expected);
    }
}
