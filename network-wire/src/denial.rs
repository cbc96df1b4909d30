//! What a program is told when a connection is not allowed.

/// The longest text that is put into a reply.
const MAX_TEXT_BYTES: usize = 512;
const MAX_CODE_BYTES: usize = 64;
/// The code of a denial whose own code cannot be a header's value.
const PLAIN_CODE: &str = "denied";

/// Why a connection is denied, for the program that asked for it and for the people who read its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial<'a> {
    /// A stable word, such as `not_allowed`: letters, digits, `_` and `-`.
    pub code: &'a str,
    /// What was denied, as a sentence.
    pub sentence: &'a str,
    /// The rule that would allow it, such as `example.com:443`.
    pub wanted_rule: &'a str,
}

/// A whole HTTP/1.1 response that says what was denied and which rule would allow it.
pub fn denied_page(denial: &Denial<'_>) -> Vec<u8> {
    let (sentence, rule) = (one_line(denial.sentence), one_line(denial.wanted_rule));
    let text = match rule.as_str() {
        "" => format!("{sentence}\n"),
        rule => format!("{sentence}\nThis rule in the sandbox's network allowlist would allow it: {rule}\n"),
    };
    page("403 Forbidden", &[("X-Cove-Network-Denied", code(denial.code))], &text)
}

/// A whole response in plain text that ends the connection. `fields` and `status` are ours; `text` is one or more whole lines.
pub fn page(status: &str, fields: &[(&str, &str)], text: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n");
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    let length = text.len();
    format!("{head}Content-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{text}").into_bytes()
}

/// A code that is safe as the value of a header field.
fn code(code: &str) -> &str {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !code.is_empty() && code.len() <= MAX_CODE_BYTES && code.bytes().all(is_safe) { code } else { PLAIN_CODE }
}

/// Text as a part of one line: control characters, which could start another line or move the cursor, become `?`.
fn one_line(text: &str) -> String {
    let (mut line, mut length) = (String::new(), 0);
    for character in text.chars().map(|character| if is_control(character) { '?' } else { character }) {
        length += character.len_utf8();
        if length > MAX_TEXT_BYTES {
            line.push('…');
            break;
        }
        line.push(character);
    }
    line
}

/// Control characters, the separators of lines, and the marks that reverse the direction of text.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(denial: Denial<'_>) -> String {
        String::from_utf8(denied_page(&denial)).unwrap()
    }

    #[test]
    fn the_page_says_what_was_denied_and_which_rule_would_allow_it() {
        let sentence = "The network policy of this sandbox does not allow example.com on port 80.";
        let page = text(Denial { code: "not_allowed", sentence, wanted_rule: "example.com:80" });
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
        assert!(
            head.contains("\r\nX-Cove-Network-Denied: not_allowed\r\n") && head.ends_with("\r\nConnection: close"),
            "{head}"
        );
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert_eq!(
            body,
            format!("{sentence}\nThis rule in the sandbox's network allowlist would allow it: example.com:80\n")
        );
    }

    #[test]
    fn no_text_adds_a_header_or_a_line() {
        let evil = "a\r\nSet-Cookie: b\u{1b}[2J\0\u{2028}\u{202e}";
        let page = text(Denial { code: evil, sentence: evil, wanted_rule: evil });
        assert!(page.contains("\r\nX-Cove-Network-Denied: denied\r\n"));
        assert_eq!(page.split_once("\r\n\r\n").unwrap().1.lines().count(), 2);
        assert!(!page.contains("\nSet-Cookie") && !page.contains('\u{1b}') && !page.contains('\0'));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let page = text(Denial { code: "x", sentence: &"ä".repeat(9999), wanted_rule: "" });
        assert!(page.len() < 2 * MAX_TEXT_BYTES && page.ends_with("ä…\n"));
    }
}
