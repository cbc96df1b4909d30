//! Collects the output of one command for a reply: all of it, or a head and a tail of half the limit each, and the number of
//! omitted bytes between them.

use std::collections::VecDeque;

use super::ansi::clean;
use super::splitter::unfinished;

/// Takes output piece by piece and keeps the part that goes into the reply.
#[derive(Debug)]
pub struct Collector {
    head: Vec<u8>,
    head_limit: usize,
    /// Whether the head takes no more, because it is full or a gap followed it.
    is_head_closed: bool,
    tail: VecDeque<u8>,
    tail_limit: usize,
    omitted: u64,
}

/// Whether escape sequences stay in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendering {
    AsItCame,
    WithoutSequences,
}

/// Output as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    /// The exact bytes, if they are not valid UTF-8 and `text` shows them only approximately.
    pub exact: Option<Vec<u8>>,
    /// The number of omitted bytes.
    pub omitted: u64,
}

impl Collector {
    pub fn new(limit: usize) -> Self {
        let tail_limit = limit / 2;
        Self {
            head: Vec::new(),
            head_limit: limit - tail_limit,
            is_head_closed: false,
            tail: VecDeque::new(),
            tail_limit,
            omitted: 0,
        }
    }

    pub fn push(&mut self, mut bytes: &[u8]) {
        if !self.is_head_closed {
            let (fits, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
            self.head.extend_from_slice(fits);
            self.is_head_closed = self.head.len() == self.head_limit;
            bytes = rest;
        }
        let (too_much, kept) = bytes.split_at(bytes.len().saturating_sub(self.tail_limit));
        let excess = (self.tail.len() + kept.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
        self.tail.extend(kept);
        self.omitted += (too_much.len() + excess) as u64;
    }

    /// Counts lost bytes.
    pub fn skip(&mut self, bytes: u64) {
        // The tail restarts after the gap, so that output is missing in one place only.
        self.omitted = self.omitted.saturating_add(bytes + self.tail.len() as u64);
        self.tail.clear();
        self.is_head_closed = true;
    }

    pub fn render(self, rendering: Rendering) -> Rendered {
        let Self { mut head, mut tail, mut omitted, .. } = self;
        let finish = |bytes: &[u8]| match rendering {
            Rendering::AsItCame => bytes.to_vec(),
            Rendering::WithoutSequences => clean(bytes),
        };
        if omitted == 0 {
            head.extend(tail);
            return rendered(if rendering == Rendering::AsItCame { head } else { finish(&head) }, 0);
        }
        // A character that the limit cuts in two is omitted as a whole.
        let cut = unfinished(&head);
        head.truncate(head.len() - cut);
        let continued = tail.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
        tail.drain(..continued);
        omitted += (cut + continued) as u64;
        let mut whole = finish(&head);
        whole.extend_from_slice(format!("\n[{omitted} bytes left out]\n").as_bytes());
        whole.extend(finish(tail.make_contiguous()));
        rendered(whole, omitted)
    }
}

fn rendered(bytes: Vec<u8>, omitted: u64) -> Rendered {
    match String::from_utf8(bytes) {
        Ok(text) => Rendered { text, exact: None, omitted },
        Err(error) => {
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            Rendered { text, exact: Some(error.into_bytes()), omitted }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collected(limit: usize, pieces: &[&str]) -> Rendered {
        let mut collector = Collector::new(limit);
        for piece in pieces {
            collector.push(piece.as_bytes());
        }
        collector.render(Rendering::AsItCame)
    }

    #[test]
    fn what_fits_is_whole() {
        assert_eq!(collected(6, &["abc", "", "def"]), Rendered { text: "abcdef".into(), exact: None, omitted: 0 });
        assert_eq!(collected(0, &[]).text, "");
    }

    #[test]
    fn what_does_not_has_a_head_a_tail_and_a_number() {
        let rendered = collected(4, &["abc", "defg", "h"]);
        assert_eq!(rendered.text, "ab\n[4 bytes left out]\ngh");
        assert_eq!(rendered.omitted, 4);
        assert_eq!(collected(0, &["abc"]).text, "\n[3 bytes left out]\n");
    }

    #[test]
    fn a_character_is_not_cut() {
        let rendered = collected(6, &["aäéüöb"]);
        assert_eq!((rendered.text.as_str(), rendered.exact), ("aä\n[4 bytes left out]\nöb", None));
        let rendered = collected(4, &["aäéüöb"]);
        assert_eq!((rendered.text.as_str(), rendered.omitted), ("a\n[8 bytes left out]\nb", 8));
    }

    #[test]
    fn bytes_that_are_no_text_come_exactly_beside_it() {
        let mut collector = Collector::new(10);
        collector.push(b"a\xffb");
        let rendered = collector.render(Rendering::AsItCame);
        assert_eq!(rendered.text, "a\u{fffd}b");
        assert_eq!(rendered.exact.as_deref(), Some(&b"a\xffb"[..]));
    }

    #[test]
    fn a_hole_counts_as_left_out() {
        let mut collector = Collector::new(100);
        collector.push(b"one");
        collector.skip(10);
        collector.push(b"two");
        collector.skip(5);
        collector.push(b"three");
        let rendered = collector.render(Rendering::AsItCame);
        assert_eq!(rendered.text, "one\n[18 bytes left out]\nthree");
    }

    #[test]
    fn sequences_are_taken_out_where_it_is_asked_for() {
        let mut collector = Collector::new(100);
        collector.push(b"\x1b[1mbold\x1b[0m\r\n");
        assert_eq!(collector.render(Rendering::WithoutSequences).text, "bold\n");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_uncounted_and_memory_is_bounded(
            limit in 0usize..50,
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10),
        ) {
            let mut collector = Collector::new(limit);
            let mut all = Vec::new();
            for piece in &pieces {
                collector.push(piece);
                all.extend_from_slice(piece);
                prop_assert!(collector.head.len() + collector.tail.len() <= limit);
            }
            let (head, tail): (Vec<u8>, Vec<u8>) = (collector.head.clone(), collector.tail.iter().copied().collect());
            prop_assert!(all.starts_with(&head) && all.ends_with(&tail));
            prop_assert_eq!((head.len() + tail.len()) as u64 + collector.omitted, all.len() as u64);
            if all.len() <= limit {
                prop_assert_eq!(collector.omitted, 0);
            }
            let _ = collector.render(Rendering::AsItCame);
        }
    }
}
