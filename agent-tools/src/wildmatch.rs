//! Matches a path against a pattern of a `.gitignore` file, as git's `wildmatch` does: byte by byte, with `*`, `?`, `[…]` and `**`.
//!
//! Promises: the work is at most the length of the pattern times the length of the path. git's own matcher goes back and tries again, which a
//! hostile pattern makes exponential; this one keeps the set of all places in the pattern that the path may have reached.

/// A part of a pattern.
#[derive(Clone, Debug)]
enum Part {
    Byte(u8),
    /// `?`: any byte but a slash.
    Any,
    /// `[…]`: one of these bytes, and never a slash.
    Class(Box<[bool; 256]>),
    /// `*`: any bytes but slashes.
    Star,
    /// `**` between slashes: any bytes. With `may_skip`, it and the slash after it may match nothing.
    Stars {
        may_skip: bool,
    },
}

/// A pattern, ready for matching.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    parts: Vec<Part>,
    /// The bytes with which every match ends. Most paths do not, and are refused by this alone.
    end: Vec<u8>,
}

impl Pattern {
    /// Reads a pattern. `None` if it is one that matches nothing: a class that does not end, or a backslash at the end.
    pub(crate) fn parse(pattern: &[u8]) -> Option<Self> {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(&byte) = pattern.get(at) {
            at += 1;
            parts.push(match byte {
                b'\\' => {
                    at += 1;
                    Part::Byte(*pattern.get(at - 1)?)
                }
                b'?' => Part::Any,
                b'[' => Part::Class(class(pattern, &mut at)?),
                b'*' => {
                    let start = at - 1;
                    while pattern.get(at) == Some(&b'*') {
                        at += 1;
                    }
                    let rest = &pattern[at..];
                    let is_whole = (start == 0 || pattern[start - 1] == b'/')
                        && (rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/"));
                    if at - start > 1 && is_whole {
                        Part::Stars { may_skip: rest.starts_with(b"/") }
                    } else {
                        Part::Star
                    }
                }
                byte => Part::Byte(byte),
            });
        }
        let end = literal_end(&parts);
        Some(Self { parts, end })
    }

    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let Some(start) = path.strip_suffix(&self.end[..]) else { return false };
        if let [Part::Star, rest @ ..] = &self.parts[..]
            && rest.len() == self.end.len()
        {
            return !start.contains(&b'/');
        }
        let mut places = vec![false; self.parts.len() + 1];
        let mut next = places.clone();
        self.reach(&mut places, 0);
        for &byte in path {
            next.fill(false);
            let mut is_alive = false;
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| places[*at]) {
                let to = match part {
                    Part::Byte(wanted) if *wanted == byte => at + 1,
                    Part::Any if byte != b'/' => at + 1,
                    Part::Class(class) if byte != b'/' && class[usize::from(byte)] => at + 1,
                    Part::Star if byte != b'/' => at,
                    Part::Stars { .. } => at,
                    _ => continue,
                };
                // A skip of `**/` is possible only where `**` starts, so a place that was held is not reached again.
                if to == at {
                    next[at] = true;
                    self.reach(&mut next, at + 1);
                } else {
                    self.reach(&mut next, to);
                }
                is_alive = true;
            }
            if !is_alive {
                return false;
            }
            std::mem::swap(&mut places, &mut next);
        }
        places[self.parts.len()]
    }

    /// Marks a place, and the places that are reached from it without a byte.
    fn reach(&self, places: &mut [bool], mut at: usize) {
        loop {
            // Whoever marked it has marked what follows.
            if places[at] {
                return;
            }
            places[at] = true;
            match self.parts.get(at) {
                Some(Part::Star) => at += 1,
                Some(Part::Stars { may_skip }) => {
                    if *may_skip {
                        self.reach_after_skip(places, at + 2);
                    }
                    at += 1;
                }
                _ => return,
            }
        }
    }

    /// The same for the place after `**/`. A pattern may have many of them in a row, so this does not call itself.
    fn reach_after_skip(&self, places: &mut [bool], mut at: usize) {
        loop {
            if places[at] {
                return;
            }
            places[at] = true;
            match self.parts.get(at) {
                Some(Part::Star) => at += 1,
                Some(Part::Stars { may_skip }) => {
                    places[at + 1] = true;
                    if !may_skip {
                        return;
                    }
                    at += 2;
                }
                _ => return,
            }
        }
    }
}

/// The bytes at the end of a pattern, without a slash that may be skipped together with the `**` before it.
fn literal_end(parts: &[Part]) -> Vec<u8> {
    let byte = |part: &Part| if let Part::Byte(byte) = part { Some(*byte) } else { None };
    let mut end: Vec<u8> = parts.iter().rev().map_while(byte).collect();
    if let Some(Part::Stars { may_skip: true }) = parts[..parts.len() - end.len()].last() {
        end.pop();
    }
    end.reverse();
    end
}

/// Reads a class from behind its `[` to behind its `]`.
fn class(pattern: &[u8], at: &mut usize) -> Option<Box<[bool; 256]>> {
    let mut set = Box::new([false; 256]);
    let is_negated = matches!(pattern.get(*at)?, b'!' | b'^');
    *at += usize::from(is_negated);
    let mut previous = None;
    let mut is_first = true;
    loop {
        let byte = *pattern.get(*at)?;
        *at += 1;
        if byte == b']' && !is_first {
            break;
        }
        is_first = false;
        match (byte, previous) {
            (b'\\', _) => {
                let byte = *pattern.get(*at)?;
                *at += 1;
                set[usize::from(byte)] = true;
                previous = Some(byte);
            }
            (b'-', Some(from)) if pattern.get(*at).is_some_and(|next| *next != b']') => {
                let mut to = *pattern.get(*at)?;
                *at += 1;
                if to == b'\\' {
                    to = *pattern.get(*at)?;
                    *at += 1;
                }
                (from..=to).for_each(|byte| set[usize::from(byte)] = true);
                previous = None;
            }
            (b'[', _) if pattern.get(*at) == Some(&b':') => {
                let start = *at + 1;
                let end = start + pattern.get(start..)?.iter().position(|byte| *byte == b']')?;
                if end > start && pattern[end - 1] == b':' {
                    let holds = named_class(&pattern[start..end - 1])?;
                    (0..=255u8).filter(holds).for_each(|byte| set[usize::from(byte)] = true);
                    *at = end + 1;
                    previous = None;
                } else {
                    set[usize::from(b'[')] = true;
                    previous = Some(b'[');
                }
            }
            (byte, _) => {
                set[usize::from(byte)] = true;
                previous = Some(byte);
            }
        }
    }
    if is_negated {
        set.iter_mut().for_each(|is_in| *is_in = !*is_in);
    }
    Some(set)
}

fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern.as_bytes()).is_some_and(|pattern| pattern.matches(path.as_bytes()))
    }

    #[test]
    fn patterns_match_as_in_git() {
        for (pattern, path, is_match) in [
            ("foo", "foo", true),
            ("*f", "foof", true),
            ("*f", "a/f", false),
            ("f?o", "f/o", false),
            ("**/foo", "foo", true),
            ("**/foo", "a/b/foo", true),
            ("**/foo", "xfoo", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "axb", false),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a**b", "axb", true),
            ("a**b", "a/b", false),
            ("**/**/**/x", "x", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]-]x", "-x", true),
            ("[[:digit:]_]", "7", true),
            ("[[:nonsense:]]", "7", false),
            ("[ab", "[ab", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_costs_no_more_than_its_length_times_the_path() {
        // git's way would try this for longer than the age of the universe.
        assert!(!matches(&format!("{}c", "**/*a*".repeat(100)), &"a/".repeat(1000)));
    }
}
