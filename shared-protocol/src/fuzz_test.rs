//! What the fuzzers of this crate assert; see `fuzz/`. The tests replay their inputs.

use crate::query::{Grammar, Plus, Query, Repeats};
use crate::runner::{Frame, Stream, encode_output, parse_frame};

/// Any line gives a frame or an error, and any bytes of output come out of their frame as they went in.
pub fn frame(bytes: &[u8]) {
    if let Ok(frame) = parse_frame(bytes) {
        assert_eq!(parse_frame(&frame.to_line()).expect("a frame is read again"), frame);
    }
    let mut line = Vec::new();
    encode_output(Stream::Merged, 7, 0, bytes, &mut line);
    match parse_frame(&line) {
        Ok(Frame::Output { offset: 7, payload, .. }) => assert_eq!(payload.into_bytes().expect("valid"), bytes),
        other => panic!("{other:?}"),
    }
}

/// Any query gives parameters or an error that is short. What was read is the same when it is escaped and read again.
pub fn query(bytes: &[u8]) {
    const LONGEST_ERROR: usize = 512;
    let text = String::from_utf8_lossy(bytes);
    for (plus, repeats) in [(Plus::Space, Repeats::Refused), (Plus::Plus, Repeats::Allowed)] {
        let grammar = Grammar { known: &["path", "mode", "from", "recursive"], plus, repeats };
        match Query::parse(&text, grammar) {
            Err(error) => assert!(error.to_string().len() < LONGEST_ERROR, "{error}"),
            Ok(query) => {
                let escape = |value: &[u8]| value.iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
                let pairs = query.pairs().map(|(name, value)| format!("{name}={}", escape(value)));
                let again = pairs.collect::<Vec<_>>().join("&");
                assert_eq!(Query::parse(&again, grammar).as_ref(), Ok(&query));
                assert!(!query.path("path").is_ok_and(|path| path.is_empty() || path.contains(&0)));
                assert!(!query.mode("mode").is_ok_and(|mode| mode.is_some_and(|mode| mode > 0o777)));
                let _ = (query.number("from"), query.flag("recursive"), query.text("path"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("frame", frame);
        corpus::replay("query", query);
    }
}
