//! Words that tell of a failure or a warning, wherever they stand in a line.
//!
//! A word counts at the start of a word or of a part in camel case, in any case of letters: `Error`, `KeyError`, `EXT4-fs error`. A count
//! of zero beside it takes it back: `0 failed`, `errors=0`. The list is wide on purpose: a line too many is cheap, a lost failure is not.

const FAILURES: &[&str] = &[
    "abort",
    "assert",
    "cannot",
    "conflict",
    "corrupt",
    "could not",
    "couldn",
    "crash",
    "critical",
    "deadlock",
    "denied",
    "does not exist",
    "doesn",
    "err!",
    "error",
    "exceeded",
    "exception",
    "exited with",
    "fail",
    "fatal",
    "forbidden",
    "invalid",
    "kill",
    "mismatch",
    "missing",
    "must ",
    "no such",
    "not found",
    "not permitted",
    "oom",
    "out of ",
    "overflow",
    "panic",
    "refused",
    "reject",
    "segfault",
    "segmentation",
    "severe",
    "timed out",
    "timeout",
    "traceback",
    "unable",
    "unauthorized",
    "undefined",
    "unexpected",
    "unhandled",
    "unknown",
    "unrecognized",
    "unreachable",
    "unsatisfiable",
    "violat",
    "wrong",
];

const WARNINGS: &[&str] = &["caution", "deprecated", "retry", "slow ", "warn"];

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    Plain,
    Warning,
    Failure,
}

pub(crate) fn weight_of(line: &str) -> Weight {
    weigh(line).0
}

/// The weight, and whether the line has none of the words at all, not even with a count of zero.
pub(crate) fn weigh(line: &str) -> (Weight, bool) {
    let bytes = line.as_bytes();
    let mut weight = Weight::Plain;
    let mut has_none = true;
    let mut last = b' ';
    for (at, &byte) in bytes.iter().enumerate() {
        let is_start = byte.is_ascii_alphabetic()
            && (!last.is_ascii_alphabetic() || (byte.is_ascii_uppercase() && last.is_ascii_lowercase()));
        last = byte;
        if !is_start || !IS_FIRST[usize::from(byte.to_ascii_lowercase())] {
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        if let Some(word) = find(FAILURES, rest) {
            has_none = false;
            if !is_zero(bytes, at, word.len()) {
                return (Weight::Failure, has_none);
            }
        }
        if let Some(word) = find(WARNINGS, rest) {
            has_none = false;
            if !is_zero(bytes, at, word.len()) {
                weight = Weight::Warning;
            }
        }
    }
    (weight, has_none)
}

/// The letters that some word starts with.
const IS_FIRST: [bool; 256] = {
    let mut first = [false; 256];
    let mut list = 0;
    while list < 2 {
        let words = if list == 0 { FAILURES } else { WARNINGS };
        let mut at = 0;
        while at < words.len() {
            first[words[at].as_bytes()[0] as usize] = true;
            at += 1;
        }
        list += 1;
    }
    first
};

fn find(words: &'static [&'static str], rest: &[u8]) -> Option<&'static str> {
    let starts = |word: &&&str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    words.iter().find(starts).copied()
}

/// `0 failed`, `failed: 0`, `errors=0`, `failed":0`.
fn is_zero(line: &[u8], at: usize, length: usize) -> bool {
    let before = line.get(..at).unwrap_or_default().trim_ascii_end();
    if let Some(before) = before.strip_suffix(b"0") {
        return !before.last().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.' || *byte == b'x');
    }
    let after = line.get(at + length..).unwrap_or_default();
    let word_end = after.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(after.len());
    let after = after.get(word_end..).unwrap_or_default();
    let value = after.trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let Some(value) = value.strip_prefix(b":").or_else(|| value.strip_prefix(b"=")) else { return false };
    matches!(value.trim_ascii_start(), [b'0', rest @ ..] if !rest.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_in_any_case_and_inside_names() {
        for line in [
            "ERROR x",
            "KeyError: 'a'",
            "thread panicked at",
            "[E] fatal: no",
            "ls: cannot access 'x'",
            "x: No such file",
            "10 failed",
        ] {
            assert_eq!(weight_of(line), Weight::Failure, "{line}");
        }
    }

    #[test]
    fn a_count_of_zero_is_no_failure() {
        for line in ["0 failed", "errors=0", "failures: 0, x", "{\"failed\": 0}", "GET /terror 200", "all is well"] {
            assert_eq!(weight_of(line), Weight::Plain, "{line}");
        }
        assert_eq!(weight_of("20 failed, errors: 05"), Weight::Failure);
    }

    #[test]
    fn warnings_are_less_than_failures() {
        assert_eq!(weight_of("npm warn deprecated x"), Weight::Warning);
        assert_eq!(weight_of("warning: error in x"), Weight::Failure);
    }
}
