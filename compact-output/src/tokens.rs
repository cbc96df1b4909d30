//! An estimate of how many tokens a language model sees, from classes of bytes and lengths of runs.
//!
//! It needs no vocabulary and no memory. Over the corpus it is within a fifth of a real tokenizer (a test compares them); a single line
//! can be further off. It is for budgets and for figures, not for bills.

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Newline,
    Letter,
    Digit,
    Sign,
    Control,
    Wide,
}

/// Counts tokens in text that comes in pieces.
#[derive(Clone, Copy)]
pub(crate) struct TokenCount {
    /// Tokens in eighths, so that runs can count as fractions.
    eighths: u64,
    last: Class,
    last_byte: u8,
    run: u32,
}

impl TokenCount {
    pub(crate) const fn new() -> Self {
        Self { eighths: 0, last: Class::Newline, last_byte: b'\n', run: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Every byte of every output comes here, so the state is in locals and the classes are in a table.
        let Self { mut eighths, mut last, mut last_byte, mut run } = *self;
        for &byte in bytes {
            let class = CLASSES[usize::from(byte)];
            if class != last {
                run = 0;
                last = class;
                eighths += match class {
                    Class::Letter | Class::Digit | Class::Control => 8,
                    Class::Sign => 6,
                    Class::Newline => 5,
                    Class::Wide => 4,
                    Class::Space => 0,
                };
            } else {
                run = run.wrapping_add(1);
                eighths += match class {
                    Class::Letter if run.is_multiple_of(6) => 4,
                    Class::Letter if byte < b'a' && last_byte >= b'a' => 6,
                    Class::Digit if run.is_multiple_of(3) => 8,
                    Class::Space if run == 1 => 6,
                    Class::Sign if byte == last_byte => u64::from(run.is_multiple_of(8)),
                    Class::Sign => 6,
                    Class::Control => 8,
                    Class::Wide => 4,
                    _ => 0,
                };
            }
            last_byte = byte;
        }
        *self = Self { eighths, last, last_byte, run };
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.eighths.div_ceil(8)
    }
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Sign; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let class = class_of(byte as u8);
        classes[byte] = class;
        byte += 1;
    }
    classes
};

const fn class_of(byte: u8) -> Class {
    match byte {
        b'\n' => Class::Newline,
        b' ' | b'\t' => Class::Space,
        b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        0x80.. => Class::Wide,
        0..0x20 | 0x7f => Class::Control,
        _ => Class::Sign,
    }
}

/// Estimates the tokens of a line with its newline. The sum over the lines of a text is the estimate of the text.
pub(crate) fn of_line(line: &str) -> u64 {
    let mut count = TokenCount::new();
    count.push(line.as_bytes());
    count.tokens() + 1
}

/// Estimates how many tokens a language model sees in the text.
pub fn estimate_tokens(text: &str) -> u64 {
    text.lines().map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_words_and_numbers_have_more_tokens() {
        assert!(estimate_tokens("a") < estimate_tokens("internationalization"));
        assert!(estimate_tokens("12") < estimate_tokens("1234567890"));
    }

    #[test]
    fn a_long_rule_of_one_sign_is_cheap() {
        assert!(estimate_tokens(&"=".repeat(80)) < 6);
    }

    #[test]
    fn pieces_count_like_the_whole() {
        let text = "error[E0425]: cannot find value `xyz` in this scope, 1234 times\n\n  naïve";
        let mut pieces = TokenCount::new();
        text.as_bytes().chunks(3).for_each(|piece| pieces.push(piece));
        let mut whole = TokenCount::new();
        whole.push(text.as_bytes());
        assert_eq!(pieces.tokens(), whole.tokens());
    }
}
