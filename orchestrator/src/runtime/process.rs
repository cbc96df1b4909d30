//! The state of a process, as `/proc/PID/stat` shows it.

use std::time::Duration;

/// The clock ticks of a second in `/proc`: `USER_HZ`, which is 100 on every architecture that Cove runs on.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, or could run if it had a processor.
    Runnable,
    Sleeping,
    /// It waits in the kernel and reacts to no signal.
    Blocked,
    /// A signal has stopped it.
    Stopped,
    /// A debugger has stopped it.
    Traced,
    Ended,
}

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSample {
    pub state: ProcessState,
    /// The processor time that it has used so far.
    pub cpu: Duration,
    /// How often it was given a processor so far. Zero where the kernel does not tell.
    pub turns: u64,
}

impl ProcessSample {
    /// Looks at the process with this number. The caller knows that the number is still that process's.
    pub fn of(pid: i64) -> Option<Self> {
        let sample = Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        Some(Self { turns: turns(&status), ..sample })
    }

    /// Takes the fields 3 (state), 14 and 15 (ticks in user and kernel mode). Field 2 is a name in parentheses that may
    /// contain anything, so fields are counted after it.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let state = match *fields.first()? {
            "R" => ProcessState::Runnable,
            "D" => ProcessState::Blocked,
            "T" => ProcessState::Stopped,
            "t" => ProcessState::Traced,
            "Z" | "X" => ProcessState::Ended,
            _ => ProcessState::Sleeping,
        };
        let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = ticks(11)?.checked_add(ticks(12)?)?;
        Some(Self { state, cpu: Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND)), turns: 0 })
    }
}

/// The switches away from a process, by itself or by the kernel. Its first thread is all of it, for a runner.
fn turns(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_shift_the_fields() {
        let stat = "12 (a) R 1) D 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 4711 20 21";
        let sample = ProcessSample { state: ProcessState::Blocked, cpu: Duration::from_secs(2), turns: 0 };
        assert_eq!(ProcessSample::parse(stat), Some(sample));
        assert_eq!(ProcessSample::parse("12 (a"), None);
        assert_eq!(ProcessSample::parse("12 (a) R 1 2"), None);
    }

    #[test]
    fn this_process_runs() {
        let own = ProcessSample::of(std::process::id().into()).unwrap();
        assert!(matches!(own.state, ProcessState::Runnable | ProcessState::Sleeping), "{own:?}");
        assert_eq!(turns("State:\tS\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n"), 42);
    }
}
