//! An interrupt that reached bash while it was starting a program, and that the program may not have got.
//!
//! Bash forks, and it is the child that makes itself a group and takes the terminal. There are two ways in which an interrupt is lost
//! around that:
//!
//! - It comes after the fork. Bash waits for the child already and leaves interrupts to it; the child has no terminal yet, or is
//!   still bash and forgets it by becoming its program.
//! - It comes just before. Bash forks nevertheless, drops the command, reads on, and waits for the child behind the very next thing
//!   that it does: the tail, which then says nothing.
//!
//! A person presses the key again. This is who does it for a client: once, when the program is in front. Where a command has a trap and
//! bash goes on with it, nothing is sent: then the child is a later one, and the tail is unread.

use std::time::Duration;

use tokio::time::Instant;

use super::super::bash::Bash;
use super::super::script::Mark;

/// First and longest interval of looking whether such a program is in front, and for how long. A program can take that long to
/// start, on a machine that does too much.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

/// After what time a child counts as a subshell, where the kernel does not tell whether it still loses interrupts.
const SUBSHELL_AFTER: Duration = Duration::from_millis(100);

pub(super) struct Unheard {
    number: i32,
    /// The children that bash had before.
    known: Vec<i32>,
    /// Those on which it may have been lost: still bash then, or forked since.
    young: Vec<i32>,
    /// What bash had not read before: the tail. It has one more line to read since.
    unread: usize,
    since: Instant,
    /// When to look next, and the interval.
    look: (Instant, Duration),
}

impl Unheard {
    /// Before a signal is sent: whether bash may be the one that gets it.
    pub(super) fn before(number: i32, bash: &Bash) -> Option<Self> {
        let is_key = matches!(number, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP);
        if !is_key || !bash.may_lose_interrupts() {
            return None;
        }
        let known = bash.children();
        let young = known.iter().copied().filter(|child| bash.loses_interrupts(*child) != Some(false)).collect();
        let now = Instant::now();
        Some(Self { number, known, young, unread: bash.unread(), since: now, look: (now + FIRST_LOOK, FIRST_LOOK) })
    }

    /// Behind it.
    pub(super) fn sent(mut self, bash: &Bash) -> Self {
        self.young.extend(bash.children().into_iter().filter(|child| !self.known.contains(child)));
        self
    }

    /// When to look.
    pub(super) fn at(&self) -> Instant {
        self.look.0
    }

    /// Looks, and sends the signal again where it was lost; gives whether there is nothing more to do.
    pub(super) fn is_settled(&mut self, bash: &Bash, mark: &Mark) -> bool {
        let missed = bash.in_front().filter(|job| *job != bash.pid()).filter(|job| self.was_lost_on(*job, bash));
        if missed.is_some() {
            let _ = bash.signal_foreground(self.number);
            bash.feed_tail(mark);
            return true;
        }
        let interval = (self.look.1 * 2).min(LONGEST_LOOK);
        self.look = (Instant::now() + interval, interval);
        self.since.elapsed() > PATIENCE
    }

    fn was_lost_on(&self, job: i32, bash: &Bash) -> bool {
        // Where it would be lost again, it is not time yet.
        let is_ready = match bash.loses_interrupts(job) {
            Some(loses) => !loses,
            None => self.since.elapsed() > SUBSHELL_AFTER,
        };
        is_ready && (self.young.contains(&job) || (1..=self.unread).contains(&bash.unread()))
    }
}
