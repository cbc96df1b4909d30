//! Printing: text with colours for people, one JSON document for programs.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::exit::Failure;

/// Prints a message on standard error. If that fails, nothing else can be done.
pub fn say(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "cove: {message}");
}

/// Asks a question on standard error, with the cursor after it.
pub fn ask(question: impl Display) {
    let _ = write!(io::stderr().lock(), "cove: {question}");
}

/// Prints the result of a command on standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|e| Failure::stdout(&e))
}

pub fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(document).map_err(|e| Failure::failed(e.to_string()))?;
    text.push('\n');
    print(&text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Green,
    Yellow,
    Red,
    Dim,
    Bold,
}

/// Whether text on standard output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    coloured: bool,
}

impl Style {
    pub fn for_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { coloured: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    #[cfg(test)]
    pub fn plain() -> Self {
        Self { coloured: false }
    }

    pub fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Red => 31,
            Colour::Dim => 2,
            Colour::Bold => 1,
        };
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Makes text from elsewhere safe to print: control characters, which could move the cursor or change the title, become visible.
pub fn escape_control(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_command_the_terminal() {
        assert_eq!(escape_control("a\x1b]0;title\x07é"), "a\\u{1b}]0;title\\u{7}é");
    }
}
