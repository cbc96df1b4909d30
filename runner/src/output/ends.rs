//! Which parts of an output a client is sent that wants its ends only. Pure.

/// The first and the last bytes of an output.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    head: u64,
    tail: u64,
}

/// What is to be done with the output from where the client is.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes at most are for it.
    Take(u64),
    /// So many are not.
    Skip(u64),
    /// What is for it will be known at the end.
    Wait,
}

impl Ends {
    /// Half of `bytes` each.
    pub fn of(bytes: u64) -> Self {
        Self { head: bytes - bytes / 2, tail: bytes / 2 }
    }

    /// For a client that is at `at` in an output of `end` bytes so far, or in all if the command `is_over`.
    pub fn step(self, at: u64, end: u64, is_over: bool) -> Step {
        if at < self.head {
            return Step::Take(self.head - at);
        }
        let left = end.saturating_sub(at);
        match is_over {
            false => Step::Wait,
            true if left > self.tail => Step::Skip(left - self.tail),
            true => Step::Take(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whenever the client looks while the output grows: the head, one hole, the tail, and nothing missing of little.
        #[test]
        fn the_ends_are_sent_and_nothing_between(
            limit in 0u64..100,
            growth in proptest::collection::vec(0u64..40, 0..20),
        ) {
            let ends = Ends::of(limit);
            let (mut at, mut end, mut taken, mut holes) = (0, 0, 0, Vec::new());
            for (i, more) in growth.iter().enumerate() {
                end += more;
                let is_over = i + 1 == growth.len();
                loop {
                    match ends.step(at, end, is_over) {
                        Step::Wait => break,
                        Step::Take(_) if at == end => break,
                        Step::Take(most) => {
                            let count = most.min(end - at);
                            (at, taken) = (at + count, taken + count);
                        }
                        Step::Skip(count) => {
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
