//! What every runtime gives a sandbox and what it keeps from it, as plain values: each runtime puts them into its own words.

use crate::sys::capability;

/// What a runner needs of root's powers: to become the sandbox's user, to signal and see his processes, and to keep its scratch
/// files out of his hands. Commands have none of them.
pub const RUNNER_CAPABILITIES: [(&str, u8); 9] = [
    ("CHOWN", capability::CHOWN),
    ("DAC_OVERRIDE", capability::DAC_OVERRIDE),
    ("FOWNER", capability::FOWNER),
    ("FSETID", capability::FSETID),
    ("KILL", capability::KILL),
    ("SETGID", capability::SETGID),
    ("SETUID", capability::SETUID),
    ("SETPCAP", capability::SETPCAP),
    ("SYS_PTRACE", capability::SYS_PTRACE),
];

/// The user `sandbox`, as whom commands run.
pub const SANDBOX_USER: u32 = 1000;

/// What the kernel shows there is of the host, not of the sandbox.
pub const MASKED: [&str; 17] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
];

pub const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// Small directories of the root; data goes to the disk.
pub const SMALL_BYTES: u64 = 1 << 20;
pub const SMALL_INODES: u64 = 512;

/// The runner's own: scripts, FIFOs and the saved state of shells. Apart from the disk, so that a full disk does not stop it.
pub const SCRATCH_BYTES: u64 = 64 << 20;
pub const SCRATCH_INODES: u64 = 16_384;
pub const SCRATCH: &str = "/run/cove";

pub const OPEN_FILES: u64 = 16_384;

/// A file for every four kibibytes of disk, and enough to work with on a small one.
const INODES_PER_MB: u64 = 256;
const MIN_INODES: u64 = 16_384;

pub const WORKSPACE: &str = "/workspace";

pub fn disk_inodes(disk_mb: u64) -> u64 {
    disk_mb.saturating_mul(INODES_PER_MB).max(MIN_INODES)
}

/// In billionths of one cpu; what is no number of them is more than any host has, and refused by whoever asked.
pub fn nano_cpus(cpus: f64) -> u64 {
    let billionths = (cpus * 1e9).round();
    if (0.0..1e18).contains(&billionths) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked on the line above")]
        let count = billionths as u64;
        count
    } else {
        u64::MAX
    }
}
