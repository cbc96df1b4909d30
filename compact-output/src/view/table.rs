//! Tables of psql, sqlite3, kubectl, docker and ps: cells stay, the lines between them and their padding go.
//!
//! Of a long table the first rows and the last one stay. A line is a row if it has columns: cells between bars, or gaps of two spaces. Other lines are passed on.

use super::{Reading, View};
use crate::out::Out;
use crate::words::{Weight, weight_of};

/// Rows of a table that are shown, besides its last one.
const MAX_ROWS: u64 = 100;

#[derive(Default)]
pub(crate) struct Table {
    rows: u64,
    /// The last row that was left out.
    last: String,
}

impl View for Table {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii();
        let is_rule = text.len() > 2 && text.chars().all(|c| "-+=|─┼┬┴├┤╭╮╰╯│┌┐└┘═".contains(c));
        if is_rule {
            return Reading::Taken;
        }
        let bars = text.contains(" | ") || text.ends_with(" |") || text.starts_with('│');
        if !bars && !text.contains("  ") {
            self.end_table(out);
            return Reading::Pass;
        }
        let row = if bars {
            let cells = text.trim_matches('│').split(['|', '│']).map(|cell| cell.trim_ascii());
            cells.collect::<Vec<_>>().join(" | ").trim_ascii_end().to_owned()
        } else {
            text.split("  ").map(str::trim_ascii).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("  ")
        };
        self.rows += 1;
        if self.rows > MAX_ROWS && weight_of(&row) == Weight::Plain {
            crate::fold::clamp(&row, 2000).as_ref().clone_into(&mut self.last);
        } else {
            out.line(&row);
        }
        Reading::Taken
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        self.end_table(out);
    }

    fn held_bytes(&self) -> usize {
        self.last.capacity()
    }
}

impl Table {
    fn end_table(&mut self, out: &mut Out) {
        let more = std::mem::take(&mut self.rows).saturating_sub(MAX_ROWS);
        if !self.last.is_empty() {
            out.exact(&format!("… about {more} more rows, the last:"));
            out.exact(&std::mem::take(&mut self.last));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn cells_stay_and_padding_goes() {
        let text =
            compact("psql -c x", " id |   name   \n----+----------\n  1 | a b      \n  2 |          \n(2 rows)\n");
        assert_eq!(text, "id | name\n1 | a b\n2 |\n(2 rows)\n");
        let text = compact("kubectl get pods", "NAME      READY   STATUS\nweb-1     1/1     CrashLoopBackOff\n");
        assert_eq!(text, "NAME  READY  STATUS\nweb-1  1/1  CrashLoopBackOff\n");
    }

    #[test]
    fn a_long_table_keeps_its_first_rows_and_its_last_one() {
        let rows: String =
            (0..400).map(|n| format!(" {n} | {} \n", if n % 2 == 0 { "Oslo" } else { "Rome" })).collect();
        let text = compact("psql -c x", &format!("{rows}(400 rows)\n"));
        assert!(text.contains("99 | Rome\n… about 300 more rows, the last:\n399 | Rome\n(400 rows)\n"), "{text}");
    }
}
