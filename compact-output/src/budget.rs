//! The last filter: the sections become one text within a number of tokens and bytes.
//!
//! Promises: the text is within the limit; a line says what is left out; failures get room before the rest, and the lines that matter
//! before others of their section. Refuses to make room below `MIN_TOKENS`, because the lines that say what is missing need it.

use crate::section::{Content, Line};
use crate::tokens;

/// A smaller limit counts as this one.
pub(crate) const MIN_TOKENS: u64 = 128;
/// A smaller limit counts as this one.
pub(crate) const MIN_BYTES: u64 = 1024;
/// What the line about the missing ones costs at most.
const GAP: Cost = Cost { tokens: 24, bytes: 160 };

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
}

impl Cost {
    fn of(line: &str) -> Self {
        Self { tokens: tokens::of_line(line), bytes: line.len() as u64 + 1 }
    }

    fn share(self, part: u64, of: u64) -> Self {
        Self { tokens: self.tokens / of * part, bytes: self.bytes / of * part }
    }

    /// Takes the cost of a line away, if it is there.
    fn take(&mut self, cost: Self) -> bool {
        match (self.tokens.checked_sub(cost.tokens), self.bytes.checked_sub(cost.bytes)) {
            (Some(tokens), Some(bytes)) => {
                *self = Self { tokens, bytes };
                true
            }
            _ => false,
        }
    }
}

pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) tokens: u64,
    /// Lines that the limits left out.
    pub(crate) lost_lines: u64,
}

/// Puts failures, summary and rest together.
pub(crate) fn fit(sections: [Content; 3], limit: Option<Cost>) -> Text {
    let unlimited = Cost { tokens: u64::MAX / 8, bytes: u64::MAX / 8 };
    let mut left = limit
        .map_or(unlimited, |limit| Cost { tokens: limit.tokens.max(MIN_TOKENS), bytes: limit.bytes.max(MIN_BYTES) });
    let mut text = Text { text: String::new(), tokens: 0, lost_lines: 0 };
    let [failures, summary, rest] = sections;
    // The summary stands after the failures, and is small; it must not be what is cut.
    let mut summary_text = Text { text: String::new(), tokens: 0, lost_lines: 0 };
    add(&mut summary_text, summary, &mut left, 1, 4);
    add(&mut text, failures, &mut left, 3, 4);
    text.text.push_str(&summary_text.text);
    text.tokens += summary_text.tokens;
    text.lost_lines += summary_text.lost_lines;
    add(&mut text, rest, &mut left, 1, 1);
    text
}

/// Adds a section with at most the given share of what is left.
fn add(text: &mut Text, content: Content, left: &mut Cost, part: u64, of: u64) {
    let mut share = left.share(part, of);
    let before = share;
    let Content { head, middle, tail, lost_lines, lost_bytes } = content;
    let all: Vec<(Line, Cost)> = head
        .into_iter()
        .chain(middle)
        .chain(tail)
        .map(|line| (Cost::of(&line.text), line))
        .map(|(cost, line)| (line, cost))
        .collect();
    let keeps = choose(&all, &mut share, lost_lines > 0);
    let (mut gap_lines, mut gap_bytes) = (lost_lines, lost_bytes);
    let last_gap = keeps.iter().rposition(|keep| !keep).unwrap_or(all.len() / 2);
    for (at, ((line, cost), keep)) in all.iter().zip(&keeps).enumerate() {
        if *keep {
            text.text.push_str(&line.text);
            text.text.push('\n');
            text.tokens += cost.tokens;
        } else {
            gap_lines += 1;
            gap_bytes += cost.bytes;
        }
        if at == last_gap && gap_lines > 0 {
            let gap = format!("… {gap_lines} lines ({gap_bytes} bytes) left out");
            text.tokens += tokens::of_line(&gap);
            text.text.push_str(&gap);
            text.text.push('\n');
            text.lost_lines += gap_lines;
        }
    }
    left.tokens -= before.tokens - share.tokens;
    left.bytes -= before.bytes - share.bytes;
}

/// Which lines stay: all of them if they fit; otherwise the ones that matter from the whole, then a start and an end.
fn choose(all: &[(Line, Cost)], share: &mut Cost, has_gap: bool) -> Vec<bool> {
    let mut keeps = vec![true; all.len()];
    let whole = *share;
    if (!has_gap || share.take(GAP)) && all.iter().all(|(_, cost)| share.take(*cost)) {
        return keeps;
    }
    *share = whole;
    keeps.fill(false);
    if !share.take(GAP) {
        return keeps;
    }
    let mut take = |wanted: &mut dyn Iterator<Item = usize>, part: u64| {
        let mut room = share.share(part, 8);
        let before = room;
        for at in wanted {
            let (Some(keep), Some((_, cost))) = (keeps.get_mut(at), all.get(at)) else { continue };
            if *keep {
                continue;
            }
            if !room.take(*cost) {
                break;
            }
            *keep = true;
        }
        share.tokens -= before.tokens - room.tokens;
        share.bytes -= before.bytes - room.bytes;
    };
    take(&mut (0..all.len()).take(3), 2);
    take(&mut (0..all.len()).rev().take(3), 2);
    take(&mut all.iter().enumerate().filter(|(_, (line, _))| line.is_important).map(|(at, _)| at), 6);
    take(&mut (0..all.len()).rev(), 3);
    take(&mut (0..all.len()), 8);
    keeps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Section;

    fn content(lines: &[(&str, bool)], times: usize) -> Content {
        let mut section = Section::new(1 << 20);
        for _ in 0..times {
            lines.iter().for_each(|(line, is_important)| section.push(line, *is_important));
        }
        section.into_content()
    }

    fn limit(tokens: u64) -> Option<Cost> {
        Some(Cost { tokens, bytes: 1 << 20 })
    }

    #[test]
    fn a_text_within_the_limit_stays_whole() {
        let text = fit(
            [content(&[("bad", true)], 1), content(&[("1 failed", true)], 1), content(&[("x", false)], 1)],
            limit(200),
        );
        assert_eq!((text.text.as_str(), text.lost_lines), ("bad\n1 failed\nx\n", 0));
    }

    #[test]
    fn a_cut_keeps_both_ends_and_the_failures_between_them() {
        let mut section = Section::new(1 << 20);
        (0..5000).for_each(|n| section.push(&format!("row {n} of many"), n == 2345));
        let text = fit([content(&[], 0), content(&[], 0), section.into_content()], limit(400));
        for part in ["row 0 of", "row 2345 of", "row 4999 of", "left out"] {
            assert!(text.text.contains(part), "{part} is missing in {}", text.text);
        }
        assert_eq!(text.text.lines().count() as u64 - 1 + text.lost_lines, 5000);
    }

    #[test]
    fn the_limit_holds_however_small_it_is() {
        for tokens in [0, 1, 128, 300, 1000] {
            let many = || content(&[("error: something is wrong here", true), ("plain text of a line", false)], 900);
            let text = fit([many(), many(), many()], limit(tokens));
            assert!(text.tokens <= tokens.max(MIN_TOKENS), "{} of {tokens}", text.tokens);
            assert_eq!(text.tokens, tokens::estimate_tokens(&text.text));
        }
    }

    #[test]
    fn bytes_have_a_limit_too() {
        let many = content(&[("plain text of a line", false)], 9000);
        let text = fit([content(&[], 0), content(&[], 0), many], Some(Cost { tokens: 1 << 40, bytes: 4096 }));
        assert!(text.text.len() <= 4096 && text.text.len() > 2000, "{}", text.text.len());
    }
}
