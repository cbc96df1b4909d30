//! Explains why a text was not found: where the most similar lines are, and how they differ.
//!
//! First it looks for the same text with other white space, case or quotes, then for the lines that have most in common with it. The
//! work is linear in the file.

use crate::difference;
use crate::output::{count, counted};
use crate::shown::is_unseen;
use crate::text::Text;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Only the start of a longer text is looked for.
const MAX_OLD_BYTES: usize = 16 << 10;
/// Lines of the file beyond this number are not compared.
const MAX_FILE_LINES: usize = 1_000_000;
/// Lines of the small diff.
const MAX_DIFF_LINES: usize = 24;
const MAX_DIFF_BYTES: usize = 3 << 10;
/// A line must have this much in common with one of the file, in percent.
const MIN_SIMILARITY: usize = 40;
/// Shorter lines, such as a closing brace, say nothing about a place.
const MIN_LINE_BYTES: usize = 4;
const MAX_COMPARED_BYTES: usize = 1000;

/// Says what is in the file instead of `old`. Both have LF at the ends of lines.
pub(super) fn explain(text: &str, old: &str) -> String {
    let end = (0..=old.len().min(MAX_OLD_BYTES)).rev().find(|end| old.is_char_boundary(*end)).unwrap_or(0);
    let old = &old[..end];
    if let Some(bare) = without_line_numbers(old)
        && text.contains(bare.trim_end_matches('\n'))
    {
        return "It starts its lines with the line numbers that read shows; leave out the numbers and the tab after them.".into();
    }
    if old.contains("<U+") && text.chars().any(|c| !matches!(c, '\n' | '\r' | '\t') && is_unseen(c)) {
        return "A text such as <U+001B> is how read shows a character that cannot be seen; give the character itself, or edit with a program such as sed.".into();
    }
    let file = Squeezed::of(text);
    let wanted = Squeezed::of(old.strip_suffix('\n').unwrap_or(old));
    if wanted.text.is_empty() {
        return "It is only white space; give a line of text with it.".into();
    }
    let lines: Vec<&str> = text.split('\n').take(MAX_FILE_LINES).collect();
    let old_lines: Vec<&str> = old.strip_suffix('\n').unwrap_or(old).split('\n').collect();
    if let Some(at) = memchr::memmem::find(file.text.as_bytes(), wanted.text.as_bytes()) {
        let (first, last) = (file.line_at(at), file.line_at(at + wanted.text.len() - 1));
        if let Some(region) = lines.get(first..=last) {
            let differences = differences(&old_lines, region).join("; ");
            return format!(
                "{} is the same but for this: {differences}.\n{}",
                place(first, region),
                small_diff(old, region)
            );
        }
    }
    match similar_window(&file, &wanted, lines.len()) {
        Some(start) => {
            let region = &lines[start..(start + old_lines.len()).min(lines.len())];
            format!("The most similar is {}:\n{}", place(start, region), small_diff(old, region))
        }
        None => {
            format!("Nothing in its {} is similar; read the file again.", counted(count(text.lines().count()), "line"))
        }
    }
}

fn place(first: usize, region: &[&str]) -> String {
    match region.len() {
        0 | 1 => format!("line {}", first + 1),
        len => format!("lines {} to {}", first + 1, first + len),
    }
}

/// A text without white space, in lower case and with one kind of quotes and dashes, which still knows its lines.
struct Squeezed {
    text: String,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl Squeezed {
    fn of(text: &str) -> Self {
        let mut squeezed = Self { text: String::with_capacity(text.len()), starts: vec![0] };
        for c in text.chars() {
            match c {
                '\n' => squeezed.starts.push(squeezed.text.len()),
                c if c.is_whitespace() => {}
                c => squeezed.text.push(plain(c)),
            }
        }
        squeezed
    }

    /// The line of an offset.
    fn line_at(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).copied().chain([self.text.len()]);
        self.starts.iter().zip(ends).map(|(start, end)| &self.text.as_bytes()[*start..end])
    }
}

fn plain(c: char) -> char {
    match c {
        '"' | '`' | '‘' | '’' | '‛' | '′' | '“' | '”' => '\'',
        '‐' | '‑' | '–' | '—' | '−' => '-',
        c => c.to_ascii_lowercase(),
    }
}

/// Where the lines start that have most in common with the wanted ones.
fn similar_window(file: &Squeezed, wanted: &Squeezed, line_count: usize) -> Option<usize> {
    window_of_equal_lines(file, wanted, line_count).or_else(|| line_of_similar_text(file, wanted, line_count))
}

/// Finds the window with the most lines that are equal to wanted ones.
fn window_of_equal_lines(file: &Squeezed, wanted: &Squeezed, line_count: usize) -> Option<usize> {
    let number = |line: &[u8]| {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        (line.len() >= MIN_LINE_BYTES).then(|| hasher.finish())
    };
    // For each wanted line: how often it is wanted, and how often it is in the window.
    let mut lines: HashMap<u64, (usize, usize)> = HashMap::new();
    wanted.lines().filter_map(number).for_each(|line| lines.entry(line).or_default().0 += 1);
    let len = wanted.starts.len();
    let numbers: Vec<Option<u64>> =
        file.lines().take(line_count).map(|line| number(line).filter(|line| lines.contains_key(line))).collect();
    let (mut score, mut best) = (0usize, (0, 0));
    for at in 0..numbers.len() {
        if let Some((is_wanted, is_there)) = numbers[at].and_then(|line| lines.get_mut(&line)) {
            *is_there += 1;
            score += usize::from(*is_there <= *is_wanted);
        }
        let start = (at + 1).saturating_sub(len);
        if score > best.0 {
            best = (score, start);
        }
        if at + 1 >= len
            && let Some((is_wanted, is_there)) = numbers[start].and_then(|line| lines.get_mut(&line))
        {
            score -= usize::from(*is_there <= *is_wanted);
            *is_there -= 1;
        }
    }
    // The window may start anywhere around the equal lines; the first of them says where the text would start.
    let (at, line) = (best.1..).zip(&numbers[best.1..]).find_map(|(at, line)| Some((at, (*line)?)))?;
    let offset = wanted.lines().position(|wanted| number(wanted) == Some(line))?;
    Some(at.saturating_sub(offset))
}

/// The line that has the most groups of three bytes in common with the longest wanted line.
fn line_of_similar_text(file: &Squeezed, wanted: &Squeezed, line_count: usize) -> Option<usize> {
    let (offset, longest) = wanted.lines().enumerate().max_by_key(|(_, line)| line.len())?;
    let longest = &longest[..longest.len().min(MAX_COMPARED_BYTES)];
    let mut groups = vec![false; 1 << 16];
    longest.windows(3).for_each(|group| groups[number_of(group)] = true);
    let (mut best, mut best_line) = (0, None);
    for (at, line) in file.lines().take(line_count).enumerate() {
        let line = &line[..line.len().min(MAX_COMPARED_BYTES)];
        let common = line.windows(3).filter(|group| groups[number_of(group)]).count();
        let similarity = 200 * common.min(longest.len()) / (line.len() + longest.len()).max(1);
        if similarity > best {
            (best, best_line) = (similarity, Some(at));
        }
    }
    best_line.filter(|_| best >= MIN_SIMILARITY).map(|line| line.saturating_sub(offset))
}

fn number_of(group: &[u8]) -> usize {
    group.iter().fold(0, |number, byte| (number * 41 + usize::from(*byte)) & 0xffff)
}

/// In words, how lines differ that are the same when squeezed.
fn differences(old: &[&str], file: &[&str]) -> Vec<String> {
    let mut said = Vec::new();
    let bare = |lines: &[&str]| lines.concat().chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (old_bare, file_bare) = (bare(old), bare(file));
    if !file_bare.contains(&old_bare) {
        if file_bare.to_ascii_lowercase().contains(&old_bare.to_ascii_lowercase()) {
            said.push("upper and lower case".to_owned());
        } else {
            said.push("other quotes, dashes or case".to_owned());
        }
    }
    if old.len() != file.len() {
        said.push(format!("{} instead of {}", counted(count(file.len()), "line"), old.len()));
        return said;
    }
    let pairs =
        || old.iter().zip(file).filter(|(old, file)| old.trim() != "" && bare(&[old]).len() == bare(&[file]).len());
    let indent = |line: &str| line[..line.len() - line.trim_start().len()].to_owned();
    if let Some((old, file)) = pairs().find(|(old, file)| indent(old) != indent(file)) {
        said.push(format!("the indentation is {}, not {}", white(&indent(file)), white(&indent(old))));
    }
    let trailing = |line: &str| line[line.trim_end().len()..].to_owned();
    if let Some((old, file)) = pairs().find(|(old, file)| trailing(old) != trailing(file)) {
        let (old, file) = (trailing(old), trailing(file));
        let lines =
            if old.contains('\r') || file.contains('\r') { "line endings" } else { "white space at the end of a line" };
        said.push(format!("{lines}: {}, not {}", white(&file), white(&old)));
    }
    let inner = |line: &str| line.trim().split(|c: char| !c.is_whitespace()).map(str::to_owned).collect::<Vec<_>>();
    if pairs().any(|(old, file)| inner(old) != inner(file)) {
        said.push("white space within a line".to_owned());
    }
    if old.iter().zip(file).any(|(old, file)| old.trim() == "" && file.trim() == "" && old != file) {
        said.push("white space in a blank line".to_owned());
    }
    if said.is_empty() {
        said.push("white space".to_owned());
    }
    said
}

/// White space in words: `4 spaces`, `1 tab`.
fn white(space: &str) -> String {
    let mut runs: Vec<(char, u64)> = Vec::new();
    for c in space.chars() {
        match runs.last_mut() {
            Some((last, len)) if *last == c => *len += 1,
            _ => runs.push((c, 1)),
        }
    }
    let words = runs.iter().take(4).map(|(c, len)| match c {
        ' ' => counted(*len, "space"),
        '\t' => counted(*len, "tab"),
        '\r' => counted(*len, "carriage return"),
        c => counted(*len, &format!("U+{:04X}", u32::from(*c))),
    });
    if space.is_empty() { "none".to_owned() } else { words.collect::<Vec<_>>().join(" and ") }
}

/// The lines that were given (`-`) and those of the file (`+`).
fn small_diff(old: &str, region: &[&str]) -> String {
    let options = difference::DiffOptions { path: b"", max_lines: MAX_DIFF_LINES, max_bytes: MAX_DIFF_BYTES };
    let old = old.strip_suffix('\n').unwrap_or(old);
    let (Ok(old), Ok(new)) =
        (Text::decode(format!("{old}\n").as_bytes()), Text::decode(format!("{}\n", region.join("\n")).as_bytes()))
    else {
        return String::new();
    };
    let diff = difference::of_texts(&old, &new, &options).text;
    let lines: Vec<&str> = diff.lines().skip(2).filter(|line| !line.starts_with("@@")).collect();
    format!("(- is the text to replace, + is the file)\n{}", lines.join("\n"))
}

/// The text without the numbers that the view puts before lines. `None` if a line has none.
fn without_line_numbers(old: &str) -> Option<String> {
    let bare: Option<Vec<&str>> = old
        .strip_suffix('\n')
        .unwrap_or(old)
        .split('\n')
        .map(|line| {
            let (number, rest) = line.split_once('\t')?;
            let number = number.trim_start();
            (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
        })
        .collect();
    bare.map(|lines| lines.join("\n"))
}
