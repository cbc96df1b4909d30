//! A model of the reaper's registry: in any order of forks, ends, receptions and drops, each watch sees the end of its own child,
//! once, and no watch touches a child that has its pid after it.
//!
//! The registry belongs to one thread, so there is no interleaving within a call for a tool such as loom to try. What can differ is
//! the order of calls, and the kernel may give a pid away again as soon as a child is collected.

use proptest::prelude::*;

use super::*;

/// Few pids, so that they are used again soon. They are only keys here: no test sends a signal.
const PIDS: i32 = 3;

#[derive(Debug, Clone)]
enum Step {
    /// A child starts, with this pid if no uncollected child has it.
    Fork(i32),
    Stop(i32),
    /// The child is collected, with this code.
    End(i32, i32),
    /// The watch with this number receives what has come.
    Receive(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let pid = || 2..2 + PIDS;
    prop_oneof![
        pid().prop_map(Step::Fork),
        pid().prop_map(Step::Stop),
        (pid(), 0..256).prop_map(|(pid, code)| Step::End(pid, code)),
        (0..8_usize).prop_map(Step::Receive),
        (0..8_usize).prop_map(Step::Drop),
    ]
}

/// A watch, and what it has to see.
struct Watched {
    watch: Watch,
    expected: Vec<ChildEvent>,
    is_alive: bool,
}

impl Watched {
    fn receives_what_came(&mut self) {
        let mut came = Vec::new();
        while let Ok(event) = self.watch.events.try_recv() {
            came.push(event);
        }
        assert_eq!(came, std::mem::take(&mut self.expected), "pid {}", self.watch.pid);
    }
}

proptest! {
    #[test]
    fn each_watch_sees_the_end_of_its_own_child_and_of_no_other(steps in proptest::collection::vec(step(), 0..60)) {
        let reaper = Reaper::default();
        let mut watched: Vec<Watched> = Vec::new();
        for step in steps {
            match step {
                Step::Fork(pid) if !watched.iter().any(|w| w.is_alive && w.watch.pid == pid) => {
                    watched.push(Watched { watch: reaper.watch(pid), expected: Vec::new(), is_alive: true });
                }
                Step::Fork(_) => {}
                Step::Stop(pid) => {
                    reaper.stopped(pid);
                    watched.iter_mut().filter(|w| w.is_alive && w.watch.pid == pid).for_each(|w| w.expected.push(ChildEvent::Stopped));
                }
                Step::End(pid, code) => {
                    reaper.ended(pid, Exit::Code(code));
                    for watch in watched.iter_mut().filter(|w| w.is_alive && w.watch.pid == pid) {
                        watch.is_alive = false;
                        watch.expected.push(ChildEvent::Exited(Exit::Code(code)));
                    }
                }
                Step::Receive(number) => {
                    let count = watched.len().max(1);
                    if let Some(watch) = watched.get_mut(number % count) {
                        watch.receives_what_came();
                    }
                }
                Step::Drop(number) => {
                    // The child of a dropped watch is still collected; then its pid is free.
                    if let Some(at) = number.checked_rem(watched.len()) {
                        let Watched { watch, is_alive, .. } = watched.remove(at);
                        let pid = watch.pid;
                        drop(watch);
                        if is_alive {
                            reaper.ended(pid, Exit::Code(0));
                        }
                    }
                }
            }
            for w in &watched {
                prop_assert_eq!(w.watch.is_uncollected(), w.is_alive, "pid {}", w.watch.pid);
            }
        }
        watched.iter_mut().for_each(Watched::receives_what_came);
    }
}
