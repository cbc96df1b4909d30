//! What is in the files, made from values of the sandbox's cgroup. Lines and columns are those of the kernel.

use std::fmt::Write as _;
use std::time::Duration;

/// The length of the kernel's unit of processor time in `/proc`, the same on every Linux.
const USEC_PER_TICK: u64 = 10_000;

/// Memory of a cgroup in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub limit: u64,
    pub used: u64,
    /// The cache of files, with shared memory and what is in a tmpfs.
    pub cached: u64,
    pub active_anon: u64,
    pub inactive_anon: u64,
    pub active_file: u64,
    pub inactive_file: u64,
    pub unevictable: u64,
    pub anon: u64,
    pub shmem: u64,
    pub mapped: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub slab_reclaimable: u64,
    pub slab_unreclaimable: u64,
    pub kernel_stack: u64,
    pub page_tables: u64,
}

/// `/proc/meminfo` of a sandbox without swap.
pub fn meminfo(memory: &MemoryUse) -> String {
    let free = memory.limit.saturating_sub(memory.used);
    // The kernel takes these back before it kills a program.
    let reclaimable = memory.active_file + memory.inactive_file + memory.slab_reclaimable;
    let available = (free + reclaimable).min(memory.limit);
    let lines = [
        ("MemTotal", memory.limit),
        ("MemFree", free),
        ("MemAvailable", available),
        ("Buffers", 0),
        ("Cached", memory.cached),
        ("SwapCached", 0),
        ("Active", memory.active_anon + memory.active_file),
        ("Inactive", memory.inactive_anon + memory.inactive_file),
        ("Active(anon)", memory.active_anon),
        ("Inactive(anon)", memory.inactive_anon),
        ("Active(file)", memory.active_file),
        ("Inactive(file)", memory.inactive_file),
        ("Unevictable", memory.unevictable),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", memory.dirty),
        ("Writeback", memory.writeback),
        ("AnonPages", memory.anon),
        ("Mapped", memory.mapped),
        ("Shmem", memory.shmem),
        ("KReclaimable", memory.slab_reclaimable),
        ("Slab", memory.slab_reclaimable + memory.slab_unreclaimable),
        ("SReclaimable", memory.slab_reclaimable),
        ("SUnreclaim", memory.slab_unreclaimable),
        ("KernelStack", memory.kernel_stack),
        ("PageTables", memory.page_tables),
    ];
    let mut text = String::new();
    for (name, bytes) in lines {
        let _ = writeln!(text, "{:<16}{:>8} kB", format!("{name}:"), bytes >> 10);
    }
    text
}

/// Processor time of a cgroup since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub user_usec: u64,
    pub system_usec: u64,
    /// The time for which the quota made programs wait.
    pub throttled_usec: u64,
}

/// The processes of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processes {
    pub running: usize,
    /// Processes that wait in the kernel, for a disk for example.
    pub blocked: usize,
    pub total: usize,
    /// The highest number of one.
    pub last: i32,
}

/// What `/proc/stat` shows beside processor times.
#[derive(Debug, Clone, Copy)]
pub struct StatValues {
    pub processors: usize,
    pub time: CpuTime,
    /// The time since the sandbox began.
    pub age: Duration,
    /// When the host was booted, in seconds since 1970. The start times of processes count from there.
    pub boot_time: u64,
    pub processes: Processes,
}

/// `/proc/stat` of a sandbox. A cgroup does not tell which processor was used, so each has the same part. Interrupts and context switches
/// are not counted for a cgroup.
pub fn stat(values: &StatValues) -> String {
    let count = u64::try_from(values.processors.max(1)).unwrap_or(u64::MAX);
    let ticks = |usec: u64| usec / USEC_PER_TICK;
    let age = u64::try_from(values.age.as_micros()).unwrap_or(u64::MAX);
    let (user, system) = (ticks(values.time.user_usec), ticks(values.time.system_usec));
    let idle = ticks(age.saturating_mul(count)).saturating_sub(user + system);
    let line = |user: u64, system: u64, idle: u64| format!("{user} 0 {system} {idle} 0 0 0 0 0 0");
    let mut text = format!("cpu  {}\n", line(user, system, idle));
    for number in 0..count {
        // What cannot be divided belongs to the first ones.
        let part = |total: u64| total / count + u64::from(number < total % count);
        let _ = writeln!(text, "cpu{number} {}", line(part(user), part(system), part(idle)));
    }
    let Processes { running, blocked, last, .. } = values.processes;
    let boot_time = values.boot_time;
    let _ = writeln!(text, "intr 0\nctxt 0\nbtime {boot_time}\nprocesses {last}");
    let _ = writeln!(text, "procs_running {running}\nprocs_blocked {blocked}\nsoftirq 0");
    text
}

/// `/proc/loadavg` of a sandbox.
pub fn loadavg(averages: [f64; 3], processes: Processes) -> String {
    let [one, five, fifteen] = averages;
    let Processes { running, total, last, .. } = processes;
    format!("{one:.2} {five:.2} {fifteen:.2} {running}/{total} {last}\n")
}

/// The first `count` processors of the host's `/proc/cpuinfo`, and what it says about all of them together.
pub fn cpuinfo(host: &str, count: usize) -> String {
    let number = |paragraph: &str| -> Option<usize> {
        let (name, value) = paragraph.lines().next()?.split_once(':')?;
        (name.trim_end() == "processor").then(|| value.trim().parse().ok())?
    };
    let mut kept = 0;
    let mut text = String::new();
    for paragraph in host.split("\n\n").map(|paragraph| paragraph.trim_matches('\n')) {
        if paragraph.is_empty() {
            continue;
        }
        if number(paragraph).is_none() {
            let _ = write!(text, "{paragraph}\n\n");
        } else if kept < count {
            // The numbers of a host may have gaps where a processor is off.
            let rest = paragraph.split_once('\n').map_or("", |(_, rest)| rest);
            let _ = write!(text, "processor\t: {kept}\n{rest}\n\n");
            kept += 1;
        }
    }
    text
}

/// The list of `count` processors, as `/sys/devices/system/cpu/online` has it.
pub fn processor_list(count: usize) -> String {
    match count {
        0 | 1 => "0\n".to_owned(),
        _ => format!("0-{}\n", count - 1),
    }
}

/// `/proc/swaps` without swap.
pub const NO_SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn value(meminfo: &str, name: &str) -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    #[test]
    fn what_the_kernel_can_take_back_is_available() {
        let memory = MemoryUse {
            limit: 100 << 20,
            used: 80 << 20,
            cached: 50 << 20,
            inactive_file: 30 << 20,
            active_file: 10 << 20,
            shmem: 10 << 20,
            ..MemoryUse::default()
        };
        let text = meminfo(&memory);
        assert_eq!(value(&text, "MemTotal"), 100 << 10);
        assert_eq!(value(&text, "MemFree"), 20 << 10);
        assert_eq!(value(&text, "MemAvailable"), 60 << 10, "shared memory cannot be taken back");
        assert_eq!(value(&text, "SwapTotal"), 0);
        assert!(text.starts_with("MemTotal:         102400 kB\nMemFree:           20480 kB\n"), "{text}");
    }

    #[test]
    fn more_use_than_the_limit_is_nothing_free() {
        let text = meminfo(&MemoryUse { limit: 1 << 20, used: 2 << 20, ..MemoryUse::default() });
        assert_eq!((value(&text, "MemFree"), value(&text, "MemAvailable")), (0, 0));
    }

    #[test]
    fn processors_share_the_time_and_sum_up_to_the_first_line() {
        let values = StatValues {
            processors: 3,
            time: CpuTime { user_usec: 1_000_000, system_usec: 70_000, throttled_usec: 0 },
            age: Duration::from_secs(10),
            boot_time: 7,
            processes: Processes { running: 1, blocked: 0, total: 5, last: 9 },
        };
        let text = stat(&values);
        let numbers = |line: &str| -> Vec<u64> {
            line.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect()
        };
        let mut lines = text.lines();
        let all = numbers(lines.next().unwrap());
        assert_eq!(all, [100, 0, 7, 2893, 0, 0, 0, 0, 0, 0]);
        let each: Vec<Vec<u64>> = lines.take(3).map(numbers).collect();
        for (column, total) in all.iter().enumerate() {
            assert_eq!(each.iter().map(|line| line[column]).sum::<u64>(), *total);
        }
        assert!(text.contains("\nbtime 7\n") && text.contains("\nprocs_running 1\n"));
    }

    #[test]
    fn a_load_average_has_five_fields() {
        let processes = Processes { running: 2, blocked: 0, total: 31, last: 77 };
        assert_eq!(loadavg([1.0, 0.126, 0.0], processes), "1.00 0.13 0.00 2/31 77\n");
    }

    #[test]
    fn the_first_processors_are_shown_with_numbers_from_zero() {
        let host = "processor\t: 1\nmodel\t\t: a\n\nprocessor\t: 3\nmodel\t\t: b\n\nprocessor\t: 4\nmodel\t\t: c\n\n";
        let two = "processor\t: 0\nmodel\t\t: a\n\nprocessor\t: 1\nmodel\t\t: b\n\n";
        assert_eq!(cpuinfo(host, 2), two);
        assert_eq!(cpuinfo(&format!("{host}Hardware\t: board\n"), 0), "Hardware\t: board\n\n");
        assert_eq!(cpuinfo("", 2), "");
    }

    #[test]
    fn a_list_of_one_processor_has_no_range() {
        assert_eq!((processor_list(1), processor_list(4)), ("0\n".to_owned(), "0-3\n".to_owned()));
    }
}
