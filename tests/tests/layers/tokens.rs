//! Splits Rust sources into words and signs, without comments and literals. It knows just enough of the language to find
//! paths.

#[derive(Clone)]
pub struct Token {
    /// A word or one sign; `::` is one sign.
    pub text: String,
    pub line: usize,
}

pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let (mut index, mut line, mut found) = (0, 1, Vec::new());
    while index < chars.len() {
        let start = index;
        match at(index) {
            '/' if at(index + 1) == '/' => index = end_of_line(&chars, index),
            '/' if at(index + 1) == '*' => index = end_of_comment(&chars, index),
            '"' => index = end_of_string(&chars, index),
            'r' | 'b' if raw_hashes(&chars, index).is_some() => index = end_of_raw_string(&chars, index),
            '\'' => index = end_of_character(&chars, index),
            first if first.is_alphanumeric() || first == '_' => {
                while at(index).is_alphanumeric() || at(index) == '_' {
                    index += 1;
                }
                found.push(Token { text: chars[start..index].iter().collect(), line });
            }
            ':' if at(index + 1) == ':' => {
                index += 2;
                found.push(Token { text: "::".into(), line });
            }
            other => {
                index += 1;
                if !other.is_whitespace() {
                    found.push(Token { text: other.into(), line });
                }
            }
        }
        line += chars[start..index.min(chars.len())].iter().filter(|char| **char == '\n').count();
    }
    found
}

fn end_of_line(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|char| *char == '\n').map_or(chars.len(), |length| from + length)
}

/// The end of a comment. Comments nest.
fn end_of_comment(chars: &[char], from: usize) -> usize {
    let (mut index, mut depth) = (from, 0);
    while index + 1 < chars.len() {
        match (chars[index], chars[index + 1]) {
            ('/', '*') => (depth, index) = (depth + 1, index + 2),
            ('*', '/') => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], from: usize) -> usize {
    let mut index = from + 1;
    while index < chars.len() && chars[index] != '"' {
        index += if chars[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// The number of `#` before the quote of a raw string that begins here.
fn raw_hashes(chars: &[char], from: usize) -> Option<usize> {
    let rest = &chars[from..];
    let rest = rest.strip_prefix(&['b']).unwrap_or(rest).strip_prefix(&['r'])?;
    let hashes = rest.iter().take_while(|char| **char == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(hashes)
}

fn end_of_raw_string(chars: &[char], from: usize) -> usize {
    let hashes = raw_hashes(chars, from).unwrap_or(0);
    let open = from + chars[from..].iter().position(|char| *char == '"').unwrap_or(0);
    let mut index = open + 1;
    while index < chars.len() {
        if chars[index] == '"' && chars[index + 1..].iter().take(hashes).filter(|char| **char == '#').count() == hashes
        {
            return index + 1 + hashes;
        }
        index += 1;
    }
    chars.len()
}

/// The end of a character literal, or of a lifetime's sign.
fn end_of_character(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => {
            let end = chars[from + 3..].iter().position(|char| *char == '\'');
            end.map_or(chars.len(), |length| from + 3 + length + 1)
        }
        (Some(_), Some('\'')) => from + 3,
        _ => from + 1,
    }
}

/// The tokens without code that only tests compile.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let is_mark =
        |index: usize| MARK.iter().enumerate().all(|(n, text)| tokens.get(index + n).is_some_and(|t| t.text == *text));
    let mut keep = vec![true; tokens.len()];
    let mut index = 0;
    while index < tokens.len() {
        let end = if is_mark(index) { end_of_item(tokens, index + MARK.len()) } else { index };
        keep[index..end].fill(false);
        index = end.max(index + 1);
    }
    tokens.iter().zip(keep).filter(|(_, keep)| *keep).map(|(token, _)| token.clone()).collect()
}

/// The end of an item: after a `;`, a `,` or a block at its own depth, or before the bracket that closes its parent.
fn end_of_item(tokens: &[Token], from: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(from) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return index,
            "}" if depth == 1 => return index + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" | "," if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}
