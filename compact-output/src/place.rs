//! Reads places in source files at the start of a line: `src/a.c:10:5: error: …`, `order.ts(5,3): error …`.

/// A line of a compiler: where, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a str,
    /// The path with line and column, as written.
    pub(crate) at: &'a str,
    /// What follows, without the colon.
    pub(crate) message: &'a str,
}

impl<'a> Place<'a> {
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        if line.starts_with([' ', '\t']) {
            return None;
        }
        let (path_end, end) = parenthesized(line).or_else(|| with_colons(line))?;
        let rest = line.get(end..)?;
        let message = rest.strip_prefix(':').or_else(|| rest.strip_prefix(" -"))?;
        Some(Self { path: line.get(..path_end)?, at: line.get(..end)?, message: message.trim_ascii_start() })
    }
}

/// `path(5,3)`
fn parenthesized(line: &str) -> Option<(usize, usize)> {
    let open = line.find('(')?;
    let numbers = line.get(open + 1..)?;
    let close = numbers.find(')')?;
    let is_place =
        numbers.get(..close)?.split(',').all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    (open > 0 && is_place && !line.get(..open)?.contains(' ')).then_some((open, open + close + 2))
}

/// `path:5`, `path:5:3`
fn with_colons(line: &str) -> Option<(usize, usize)> {
    let path = line.find(':')?;
    let digits = |from: usize| line.get(from..).map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    let first = digits(path + 1);
    if path == 0 || first == 0 || line.get(..path)?.contains("  ") {
        return None;
    }
    let end = path + 1 + first;
    let second = if line.as_bytes().get(end) == Some(&b':') { digits(end + 1) } else { 0 };
    Some((path, if second > 0 { end + 1 + second } else { end }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_compilers_are_read() {
        for (line, path, at, message) in [
            ("a.c:10:5: error: no", "a.c", "a.c:10:5", "error: no"),
            ("a.py:7: error: no", "a.py", "a.py:7", "error: no"),
            ("a.ts(5,3): error TS1: no", "a.ts", "a.ts(5,3)", "error TS1: no"),
            ("a.ts:5:3 - error TS1: no", "a.ts", "a.ts:5:3", "error TS1: no"),
        ] {
            assert_eq!(Place::parse(line), Some(Place { path, at, message }));
        }
    }

    #[test]
    fn other_lines_have_no_place() {
        for line in ["error: no", "  a.c:1: x", "http://x:80/", "12:30", "f(x): y", ":1: x", "(1): x"] {
            assert_eq!(Place::parse(line), None, "{line}");
        }
    }
}
