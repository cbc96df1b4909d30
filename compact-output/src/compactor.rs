//! The pipeline: owns the filters and passes lines from one to the next.

use crate::budget::{self, Cost};
use crate::command::CommandHint;
use crate::out::Out;
use crate::terminal::Terminal;
use crate::tokens::TokenCount;
use crate::view::Views;

/// A compactor holds less than this, whatever it is given.
pub const MAX_HELD_BYTES: usize = 8 * 1024 * 1024;

/// Limits of the result. Without them it has at most about 2.5 MiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The most tokens of the result, by estimate. Less than 128 count as 128.
    pub max_tokens: Option<usize>,
    /// The most bytes of the result. Less than 1,024 count as 1,024.
    pub max_bytes: Option<usize>,
}

/// The compact view of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    /// Failures, then the summary, then the rest. Ends with a newline unless it is empty.
    pub text: String,
    pub original_bytes: u64,
    pub kept_bytes: u64,
    pub estimated_tokens_original: u64,
    pub estimated_tokens_kept: u64,
    /// The text differs from the original by more than control sequences.
    pub is_changed: bool,
    /// A limit left out lines that the views and filters wanted to keep.
    pub is_cut: bool,
}

/// Reads the output of a command piece by piece.
pub struct Compactor {
    options: Options,
    terminal: Terminal,
    views: Views,
    out: Out,
    original_bytes: u64,
    original_tokens: TokenCount,
    /// A hash and a length of the lines that the screen showed, to tell whether the result is another text.
    shown: (u64, u64),
}

impl Compactor {
    pub fn new(hint: CommandHint, options: Options) -> Self {
        let views = Views::new(&hint);
        Self {
            options,
            terminal: Terminal::new(),
            out: Out::new(views.run_lines()),
            views,
            original_bytes: 0,
            original_tokens: TokenCount::new(),
            shown: (0, 0),
        }
    }

    /// Takes the next bytes. However the output is split, the result is the same.
    pub fn push(&mut self, bytes: &[u8]) {
        self.original_bytes += bytes.len() as u64;
        self.original_tokens.push(bytes);
        let Self { terminal, views, out, shown, .. } = self;
        terminal.push(bytes, &mut |line| {
            add_line(shown, line);
            views.line(line, out);
        });
    }

    /// Ends the output. If the program failed and no view saw a failure, nothing is taken for a success.
    pub fn finish(mut self, exit_code: Option<i32>) -> Compact {
        let Self { terminal, views, out, shown, .. } = &mut self;
        terminal.finish(&mut |line| {
            add_line(shown, line);
            views.line(line, out);
        });
        views.finish(exit_code, out);
        let wide = |limit: Option<usize>| limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(u64::MAX / 8);
        let is_limited = self.options.max_tokens.is_some() || self.options.max_bytes.is_some();
        let limit =
            is_limited.then(|| Cost { tokens: wide(self.options.max_tokens), bytes: wide(self.options.max_bytes) });
        let text = budget::fit(self.out.finish(), limit);
        let mut kept = (0, 0);
        text.text.lines().for_each(|line| add_line(&mut kept, line));
        Compact {
            kept_bytes: text.text.len() as u64,
            text: text.text,
            original_bytes: self.original_bytes,
            estimated_tokens_original: self.original_tokens.tokens(),
            estimated_tokens_kept: text.tokens,
            is_changed: kept != self.shown,
            is_cut: text.lost_lines > 0,
        }
    }

    /// The memory that the compactor's buffers hold now.
    pub fn held_bytes(&self) -> usize {
        self.terminal.held_bytes() + self.views.held_bytes() + self.out.held_bytes()
    }
}

fn add_line(sum: &mut (u64, u64), line: &str) {
    // Enough to notice a change; nobody gains by a collision.
    let hash = line.as_bytes().chunks(8).fold(sum.0, |hash, chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    *sum = (hash, sum.1 + line.len() as u64 + 1);
}
