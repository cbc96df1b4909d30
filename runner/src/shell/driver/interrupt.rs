//! Detects an interrupt that reached bash while it was starting a program, so that the program may not have got it.
//!
//! Bash forks, and the child makes itself a process group and takes the terminal. Around that, an interrupt can be lost in
//! two ways:
//!
//! - It arrives after the fork. Bash already waits for the child and leaves interrupts to it. The child does not have the
//!   terminal yet, or is still bash and forgets the interrupt when it becomes its program.
//! - It arrives just before the fork. Bash still forks, drops the command, reads on, and waits for the child in the next
//!   line that it runs: the tail, which then reports nothing.
//!
//! A person would press the key again. The runner does that for a client, once, when the program is in the foreground. If a
//! command has a trap and bash continues with it, nothing is sent: then the child is a later one, and the tail is unread.
//!
//! The machine decides when to check and for how long. This file only looks.

use std::time::Duration;

use super::super::bash::Bash;

/// The age of an interrupt after which a child counts as a subshell, if the kernel does not tell whether it still loses
/// interrupts.
const SUBSHELL_AFTER: Duration = Duration::from_millis(100);

/// The observations around a signal that may have been lost.
pub(super) struct SentInterrupt {
    pub(super) number: i32,
    /// The children that bash had before the signal.
    known: Vec<i32>,
    /// The children that may have lost it: they were still bash at that time, or were forked since.
    young: Vec<i32>,
    /// How much bash had not read before the signal: the tail. One more line was sent since.
    unread: usize,
}

impl SentInterrupt {
    /// Looks before a signal is sent. `None` if the signal cannot go to bash.
    pub(super) fn before(number: i32, bash: &Bash) -> Option<Self> {
        let is_key = matches!(number, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP);
        if !is_key || !bash.may_lose_interrupts() {
            return None;
        }
        let known = bash.children();
        let young = known.iter().copied().filter(|child| bash.loses_interrupts(*child) != Some(false)).collect();
        Some(Self { number, known, young, unread: bash.unread() })
    }

    /// Looks again after the signal and the tail were sent.
    pub(super) fn after(mut self, bash: &Bash) -> Self {
        self.young.extend(bash.children().into_iter().filter(|child| !self.known.contains(child)));
        self
    }

    /// Whether the foreground program did not get the signal, and would get it now.
    pub(super) fn was_lost(&self, age: Duration, bash: &Bash) -> bool {
        bash.in_front().filter(|job| *job != bash.pid()).is_some_and(|job| self.was_lost_on(job, age, bash))
    }

    fn was_lost_on(&self, job: i32, age: Duration, bash: &Bash) -> bool {
        // If the program would lose it again, it is too early.
        let is_ready = match bash.loses_interrupts(job) {
            Some(loses) => !loses,
            None => age > SUBSHELL_AFTER,
        };
        is_ready && (self.young.contains(&job) || (1..=self.unread).contains(&bash.unread()))
    }
}
