//! Finds the timestamp at the start of a log line: `2026-01-05 10:00:01,123`, `[2026-01-05T10:00:01Z]`, `Jan  5 10:00:01`, `[   12.345678]`.
//!
//! It says where the timestamp ends and which part of it names the minute. It reads the form, not the meaning: the 99th of a month is a day.

/// A timestamp at the start of a line, as lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The timestamp with the spaces and brackets around it.
    pub(crate) whole: usize,
    /// The part that lines of the same minute share.
    pub(crate) minute: usize,
}

pub(crate) fn find(line: &str) -> Option<Stamp> {
    let bytes = line.as_bytes();
    let open = usize::from(matches!(bytes.first(), Some(b'[' | b'(')));
    let first = bytes.get(open)?;
    let (minute, mut end) = if open == 1 && (first.is_ascii_digit() || *first == b' ') && is_uptime(bytes) {
        // A kernel's clock counts seconds: lines of the same ten seconds share a stamp.
        let dot = bytes.iter().position(|&byte| byte == b'.')?;
        (dot.saturating_sub(1), bytes.iter().position(|&byte| byte == b']')?)
    } else if matches(bytes, open, b"dddd-dd-dd?dd:dd") || matches(bytes, open, b"dddd/dd/dd?dd:dd") {
        (open + 16, open + 16)
    } else if matches(bytes, open, b"aaa ?d dd:dd:dd") {
        (open + 12, open + 12)
    } else if matches(bytes, open, b"dd:dd:dd") {
        (open + 5, open + 5)
    } else {
        return None;
    };
    // Seconds, fractions and the zone.
    while bytes.get(end).is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b',' | b'Z' | b'+')) {
        end += 1;
    }
    if bytes.get(end) == Some(&b' ') && (matches(bytes, end + 1, b"UTC") || matches(bytes, end + 1, b"GMT")) {
        end += 4;
    }
    while bytes.get(end).is_some_and(|byte| matches!(byte, b']' | b')' | b' ')) {
        end += 1;
    }
    (end < bytes.len() && line.is_char_boundary(end)).then_some(Stamp { whole: end, minute })
}

/// `d` is a digit, `a` a letter, `?` anything; the rest stands for itself.
fn matches(bytes: &[u8], at: usize, form: &[u8]) -> bool {
    let Some(text) = bytes.get(at..at + form.len()) else { return false };
    text.iter().zip(form).all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        b'a' => byte.is_ascii_alphabetic(),
        b'?' => true,
        b'U' | b'T' | b'C' | b'G' | b'M' => byte == form,
        _ => byte == form,
    })
}

fn is_uptime(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().take(24).position(|&byte| byte == b']') else { return false };
    let Some(inside) = bytes.get(1..end) else { return false };
    let number = inside.trim_ascii_start();
    let dot = number.iter().position(|&byte| byte == b'.');
    dot.is_some_and(|dot| dot > 0)
        && number.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && number.len() > 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_timestamps_are_found() {
        for (line, rest, minute) in [
            ("2026-01-05 10:00:01,123 INFO x", "INFO x", "2026-01-05 10:00"),
            ("[2026-01-05T10:00:01.5Z] x", "x", "[2026-01-05T10:00"),
            ("2026-01-05 10:00:01.5 UTC [7] x", "[7] x", "2026-01-05 10:00"),
            ("Jan  5 10:00:01 host x", "host x", "Jan  5 10:00"),
            ("[   12.345678] usb x", "usb x", "[   1"),
            ("10:00:01 x", "x", "10:00"),
        ] {
            let stamp = find(line).unwrap();
            assert_eq!((&line[stamp.whole..], &line[..stamp.minute]), (rest, minute));
        }
    }

    #[test]
    fn numbers_and_versions_are_no_timestamps() {
        for line in ["1.2.3 x", "[1.2] x", "2026 x", "12:30", "[error] x", "", "[", "10:00:01"] {
            assert_eq!(find(line), None, "{line}");
        }
    }
}
