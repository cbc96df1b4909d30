//! The two forms that every list has besides its table: a JSON array, and the names alone.

use clap::Args;
use serde::Serialize;

use super::exit::Failure;
use super::output::{Style, print, print_json};

#[derive(Args, Debug, Clone, Copy, Default)]
pub struct ListForm {
    /// Print a JSON array
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print only the ids or names
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl ListForm {
    pub fn is_table(self) -> bool {
        !self.json && !self.quiet
    }

    pub fn show<T: Serialize>(
        self,
        items: &[T],
        name: impl Fn(&T) -> String,
        table: impl FnOnce(&[T], Style) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            print_json(&items)
        } else if self.quiet {
            print(&items.iter().map(|item| name(item) + "\n").collect::<String>())
        } else {
            print(&table(items, Style::for_stdout()))
        }
    }
}
