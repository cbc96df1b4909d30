//! grep and rg: the path is written once for the matches of a file. Of a file with many matches the first ones stay.

use super::listing::Listing;
use super::{Reading, View};
use crate::command::Program;
use crate::out::Out;

/// Matches of one file that are shown.
const MAX_MATCHES: u64 = 50;

pub(crate) struct Grep {
    /// `grep -l` prints paths alone.
    paths: Listing,
    path: String,
    matches: u64,
}

impl Default for Grep {
    fn default() -> Self {
        Self { paths: Listing::new(Program::Find), path: String::new(), matches: 0 }
    }
}

impl View for Grep {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        if line == "--" {
            return Reading::Taken;
        }
        let Some((path, rest)) = split(line, &self.path) else {
            self.end_file(out);
            self.path.clear();
            return if line.contains(' ') { Reading::Pass } else { self.paths.line(line, out) };
        };
        if path != self.path {
            self.end_file(out);
            path.clone_into(&mut self.path);
            self.matches = 0;
            out.exact(path);
        }
        self.matches += 1;
        if self.matches <= MAX_MATCHES {
            out.exact(&crate::fold::clamp(rest.trim_ascii_end(), 400));
        }
        Reading::Taken
    }

    fn finish(&mut self, exit_code: Option<i32>, out: &mut Out) {
        self.end_file(out);
        self.paths.finish(exit_code, out);
    }

    fn held_bytes(&self) -> usize {
        self.path.capacity() + self.paths.held_bytes()
    }
}

impl Grep {
    fn end_file(&mut self, out: &mut Out) {
        let more = std::mem::take(&mut self.matches).saturating_sub(MAX_MATCHES);
        if more > 0 {
            out.exact(&format!("… {more} more matches in this file"));
        }
    }
}

/// `path:12:text` and, for lines around a match, `path-12-text`. Without numbers, `path:text` counts if the path has an extension.
fn split<'a>(line: &'a str, last: &str) -> Option<(&'a str, &'a str)> {
    let same = line.strip_prefix(last).filter(|rest| !last.is_empty() && rest.starts_with(['-', ':']));
    if let Some(rest) = same {
        return Some((line.get(..last.len())?, rest.get(1..)?));
    }
    let (path, rest) = line.split_once(':').filter(|(path, _)| is_path(path)).or_else(|| {
        let (at, _) = line.match_indices('-').find(|(at, _)| {
            let after = line.get(at + 1..).unwrap_or_default();
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            digits > 0 && after.as_bytes().get(digits) == Some(&b'-')
        })?;
        Some((line.get(..at)?, line.get(at + 1..)?)).filter(|(path, _)| is_path(path))
    })?;
    (path.len() < 400).then_some((path, rest))
}

fn is_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let has_extension = name.rsplit_once('.').is_some_and(|(_, extension)| {
        (1..6).contains(&extension.len()) && extension.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    !path.is_empty() && !path.contains(' ') && !path.contains("//") && (path.contains('/') || has_extension)
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn the_path_is_written_once() {
        let text = compact("grep -rn x src", "src/a.rs:1:let x\nsrc/a.rs:9:  x + 1\nsrc/b.rs:3:x\n");
        assert_eq!(text, "src/a.rs\n1:let x\n9:  x + 1\nsrc/b.rs\n3:x\n");
    }

    #[test]
    fn what_is_no_match_stays_as_it_is() {
        assert_eq!(
            compact("grep x y", "grep: y: No such file or directory\nplain: text\n"),
            "grep: y: No such file or directory\nplain: text\n"
        );
    }

    #[test]
    fn many_matches_of_a_file_are_counted() {
        let lines: String = (0..80).map(|n| format!("a/b.rs:{n}:x\n")).collect();
        assert!(compact("rg x", &lines).ends_with("49:x\n… 30 more matches in this file\n"));
    }
}
