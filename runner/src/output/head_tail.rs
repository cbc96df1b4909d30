//! Decides which parts of an output are sent to a client that wants only its head and its tail. Pure.

/// The first and the last bytes of an output.
#[derive(Debug, Clone, Copy)]
pub struct HeadTail {
    head: u64,
    tail: u64,
}

/// What to do next with the output after the client's position.
#[derive(Debug, PartialEq, Eq)]
pub enum NextPart {
    /// Send at most this many bytes.
    Take(u64),
    /// Omit this many bytes.
    Skip(u64),
    /// Wait: the tail is known only when the command has ended.
    Wait,
}

impl HeadTail {
    /// Makes a head and a tail of half of `bytes` each.
    pub fn of(bytes: u64) -> Self {
        Self { head: bytes - bytes / 2, tail: bytes / 2 }
    }

    /// The next part for a client at offset `at`. The output has `end` bytes so far, or in total if the command `is_over`.
    pub fn next_part(self, at: u64, end: u64, is_over: bool) -> NextPart {
        if at < self.head {
            return NextPart::Take(self.head - at);
        }
        let left = end.saturating_sub(at);
        match is_over {
            false => NextPart::Wait,
            true if left > self.tail => NextPart::Skip(left - self.tail),
            true => NextPart::Take(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However the output grows, the client gets the head, one gap and the tail, or all of a short output.
        #[test]
        fn head_and_tail_are_sent_and_nothing_between(
            limit in 0u64..100,
            growth in proptest::collection::vec(0u64..40, 0..20),
        ) {
            let head_tail = HeadTail::of(limit);
            let (mut at, mut end, mut taken, mut holes) = (0, 0, 0, Vec::new());
            for (i, more) in growth.iter().enumerate() {
                end += more;
                let is_over = i + 1 == growth.len();
                loop {
                    match head_tail.next_part(at, end, is_over) {
                        NextPart::Wait => break,
                        NextPart::Take(_) if at == end => break,
                        NextPart::Take(most) => {
                            let count = most.min(end - at);
                            (at, taken) = (at + count, taken + count);
                        }
                        NextPart::Skip(count) => {
                            holes.push((at, count));
                            at += count;
                        }
                    }
                }
            }
            prop_assert_eq!(at, end);
            if end <= limit {
                prop_assert_eq!((taken, holes.len()), (end, 0));
            } else {
                prop_assert_eq!(taken, limit);
                prop_assert_eq!(holes, vec![(limit - limit / 2, end - limit)]);
            }
        }
    }
}
