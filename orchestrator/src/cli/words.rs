//! Turns the arguments of a command line into one line of bash.

/// A line of bash for these words: one word is a line of bash already, several words are quoted.
pub fn command(words: &[String]) -> String {
    match words {
        [source] => source.clone(),
        words => quoted(words),
    }
}

/// The words, each quoted where bash would change it.
pub fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b':' | b',' | b'+' | b'@' | b'%');
    // An assignment is not quoted as a whole, so that `export A=1` and `A=1 make` work as typed.
    let head = word.split_once('=').filter(|(name, _)| is_name(name));
    match head {
        Some((name, value)) if value.bytes().all(plain) => format!("{name}={value}"),
        Some((name, value)) => format!("{name}={}", single(value)),
        None if !word.is_empty() && word.bytes().all(plain) => word.to_owned(),
        None => single(word),
    }
}

fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn single(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_word_is_source_and_several_are_words() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(command(&words(&["cd /tmp && ls"])), "cd /tmp && ls");
        assert_eq!(command(&words(&["echo", "$HOME", "it's"])), r"echo '$HOME' 'it'\''s'");
        assert_eq!(command(&words(&["export", "A=b c"])), "export A='b c'");
        assert_eq!(command(&words(&["ls", ""])), "ls ''");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn bash_reads_back_the_words_that_went_in(words in proptest::collection::vec("[ -~é\\n]{0,12}", 1..4)) {
            let line = format!("printf '%s\\0' {}", quoted(&words));
            let output = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
            let read: Vec<_> = String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect();
            prop_assert_eq!(read, words, "{}", line);
        }
    }
}
