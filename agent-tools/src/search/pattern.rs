//! Compiles the pattern of a search, and says what is wrong with one that does not compile.
//!
//! The regular expressions are ripgrep's: linear time, no look-around, no backreferences. The compiled pattern has a bound.

use super::SearchOptions;
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ParserBuilder;

/// A longer pattern is refused.
pub const MAX_PATTERN_BYTES: usize = 4096;
/// Bytes of a compiled pattern, and of the tables that are made while searching.
const MAX_COMPILED_BYTES: usize = 2 << 20;
/// Groups within groups.
const MAX_NESTING: u32 = 100;
/// An error message shows the pattern, so it is cut.
const MAX_MESSAGE_CHARS: usize = 2000;

/// The pattern cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PatternError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern has {bytes} bytes, and at most {MAX_PATTERN_BYTES} are allowed")]
    TooLong { bytes: usize },
    #[error("the pattern is too large when compiled; use smaller numbers of repetitions, or search for a part of it")]
    TooLarge,
    #[error(
        "look-around ((?=…), (?!…), (?<=…), (?<!…)) is not supported; match the text around it too, or search for a simpler pattern and read the lines"
    )]
    LookAround,
    #[error(
        "backreferences (\\1, \\k<name>) are not supported; write out the repeated part, or search for a simpler pattern and read the lines"
    )]
    Backreference,
    #[error("the pattern contains a line break, and a match is within a line; set multiline for matches across lines")]
    LineBreak,
    #[error(
        "{message}\nTo search for this text as it is, set fixed_string; or escape special characters with a backslash."
    )]
    Syntax { message: String },
}

/// Compiles the pattern of the options.
pub(super) fn compile(options: &SearchOptions) -> Result<RegexMatcher, PatternError> {
    let pattern = options.pattern.as_str();
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(PatternError::TooLong { bytes: pattern.len() });
    }
    if options.fixed_string && !options.multiline && pattern.contains('\n') {
        return Err(PatternError::LineBreak);
    }
    if !options.fixed_string {
        // The matcher puts a group around the pattern, which would move the place of an error, and give `a)|(b` a meaning.
        let parsed = ParserBuilder::new().utf8(false).nest_limit(MAX_NESTING).build().parse(pattern);
        parsed.map_err(|error| explained(&error.to_string()))?;
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(options.fixed_string)
        .case_insensitive(options.ignore_case)
        .case_smart(options.smart_case)
        .word(options.whole_word)
        // `^` and `$` are the ends of lines, whether they end with LF or CRLF.
        .multi_line(true)
        .crlf(true)
        // A line feed is never part of a match, unless that was asked for.
        .line_terminator((!options.multiline).then_some(b'\n'))
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_NESTING);
    builder.build(pattern).map_err(|error| match error.kind() {
        ErrorKind::NotAllowed(_) => PatternError::LineBreak,
        _ => explained(&error.to_string()),
    })
}

fn explained(message: &str) -> PatternError {
    if message.contains("look-around") {
        PatternError::LookAround
    } else if message.contains("backreferences") {
        PatternError::Backreference
    } else if message.contains("size limit") {
        PatternError::TooLarge
    } else {
        PatternError::Syntax { message: message.chars().take(MAX_MESSAGE_CHARS).collect() }
    }
}
