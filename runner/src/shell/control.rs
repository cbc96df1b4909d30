//! Parses the reports of bash: tokens that end with a NUL byte.
//!
//! ```text
//! \0B VARIABLE\0                            the command with this variable begins
//! \0D NONCE STATUS\0CWD\0                   a command is over
//! \0S NONCE SHELLOPTS BASHOPTS\0            the state after the command is complete in its file
//! \0S NONCE\0                               the state could not be written
//! ```
//!
//! `B` comes on another socket than the others: nobody waits for it, and it must not wake the runner.
//!
//! A command's own code runs in bash too and may write to the socket. So every record begins with a NUL that ends whatever
//! came before, a record counts only if it has the nonce of the latest request to bash, and the length of a token is
//! bounded.

/// The longest token; a longer one is ignored. A path has at most 4096 bytes, and the names of all options have fewer.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Begun { variable: String },
    Done { nonce: String, status: i32, cwd: Vec<u8> },
    State { nonce: String, shellopts: String, bashopts: String },
    NoState { nonce: String },
}

#[derive(Debug, Default)]
pub struct Parser {
    token: Vec<u8>,
    /// Whether the token is too long, so that the rest of it is skipped.
    overlong: bool,
    /// The header of a `D` record. The next token is its directory.
    done: Option<(String, i32)>,
}

impl Parser {
    /// Takes bytes as they arrive and calls `found` with each complete record.
    pub fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(Record)) {
        let mut parts = bytes.split(|b| *b == 0);
        if let Some(first) = parts.next() {
            self.extend(first);
        }
        for part in parts {
            let token = std::mem::take(&mut self.token);
            if !std::mem::take(&mut self.overlong)
                && let Some(record) = self.token_ends(token)
            {
                found(record);
            }
            self.extend(part);
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.token.len() + bytes.len() > MAX_TOKEN_BYTES {
            self.overlong = true;
            self.token = Vec::new();
            self.done = None;
        } else if !self.overlong {
            self.token.extend_from_slice(bytes);
        }
    }

    fn token_ends(&mut self, token: Vec<u8>) -> Option<Record> {
        if let Some((nonce, status)) = self.done.take() {
            return Some(Record::Done { nonce, status, cwd: token });
        }
        let header = String::from_utf8(token).ok()?;
        let words: Vec<&str> = header.split(' ').collect();
        match words.as_slice() {
            ["B", variable] => Some(Record::Begun { variable: (*variable).to_owned() }),
            ["D", nonce, status] => {
                self.done = Some(((*nonce).to_owned(), status.parse().ok()?));
                None
            }
            ["S", nonce, shellopts, bashopts] => Some(Record::State {
                nonce: (*nonce).to_owned(),
                shellopts: (*shellopts).to_owned(),
                bashopts: (*bashopts).to_owned(),
            }),
            ["S", nonce] => Some(Record::NoState { nonce: (*nonce).to_owned() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: &[u8] = b"\0B v1\0\0D n1 3\0/tmp/a b\0\0S n1 braceexpand:emacs cdspell\0";

    fn parse(chunks: &[&[u8]]) -> Vec<Record> {
        let mut parser = Parser::default();
        let mut records = Vec::new();
        for chunk in chunks {
            parser.feed(chunk, |r| records.push(r));
        }
        records
    }

    fn expected() -> Vec<Record> {
        vec![
            Record::Begun { variable: "v1".into() },
            Record::Done { nonce: "n1".into(), status: 3, cwd: b"/tmp/a b".to_vec() },
            Record::State { nonce: "n1".into(), shellopts: "braceexpand:emacs".into(), bashopts: "cdspell".into() },
        ]
    }

    #[test]
    fn records_are_found_however_they_are_cut() {
        assert_eq!(parse(&[SESSION]), expected());
        for at in 0..SESSION.len() {
            assert_eq!(parse(&[&SESSION[..at], &SESSION[at..]]), expected(), "cut at {at}");
        }
    }

    #[test]
    fn garbage_before_a_record_does_not_hide_it() {
        assert_eq!(parse(&[b"D n1", SESSION]), expected());
        assert_eq!(parse(&[b"\0S n9 a b c\0half a record", SESSION]), expected());
    }

    #[test]
    fn a_token_without_end_is_not_kept() {
        let mut parser = Parser::default();
        for _ in 0..64 {
            parser.feed(&[b'x'; 65536], |_| panic!("no record in it"));
        }
        assert!(parser.token.capacity() <= 2 * MAX_TOKEN_BYTES);
        let mut records = Vec::new();
        parser.feed(SESSION, |r| records.push(r));
        assert_eq!(records, expected());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..20)) {
            let mut parser = Parser::default();
            for chunk in &chunks {
                parser.feed(chunk, |_| {});
            }
        }
    }
}
