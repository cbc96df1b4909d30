//! Text from a sandbox, made short enough to keep and to send. Pure.

/// The sign at the end of text that was cut.
const MARK: char = '…';

/// At most `most` bytes of `text`, and a mark if some are missing. A character is not cut.
pub fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push(MARK);
    }
    text
}

/// At most `most` bytes as readable text, and a mark if some are missing. Bytes that are not UTF-8 are replaced.
pub fn shown(bytes: &[u8], most: usize) -> String {
    match bytes.get(..most) {
        Some(start) if bytes.len() > most => format!("{}{MARK}", String::from_utf8_lossy(start)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The length of `text` as the inside of a JSON string: a control character takes up to six bytes.
pub fn json_length(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_cut_between_characters_and_only_if_it_is_too_long(text: String, most in 0usize..40) {
            let short = cut(text.clone(), most);
            prop_assert!(short.len() <= most.max(text.len().min(most)) + MARK.len_utf8());
            prop_assert!(short == text || text.starts_with(short.strip_suffix(MARK).unwrap()));
            prop_assert_eq!(short == text, text.len() <= most);
        }

        #[test]
        fn bytes_of_any_kind_become_short_text(bytes in proptest::collection::vec(any::<u8>(), 0..80), most in 0usize..40) {
            let text = shown(&bytes, most);
            // A byte that is not UTF-8 becomes a character of three bytes.
            prop_assert!(text.len() <= most * 3 + MARK.len_utf8());
        }

        #[test]
        fn the_length_in_json_is_what_serde_writes(text: String, control in "[\\x00-\\x7f]{0,60}") {
            for text in [text, control] {
                prop_assert_eq!(json_length(&text) + 2, serde_json::to_string(&text).unwrap().len());
            }
        }
    }
}
