//! The policy of all runtimes: what a sandbox gets and what is withheld from it, as plain values. Each runtime translates
//! them into its own form.

use rustix::thread::CapabilitySet;
use shared_protocol::api::ResourcesView;

/// The capabilities that a runner needs: to become the sandbox user, to signal and see that user's processes, and to protect
/// its scratch files from that user. Commands have none of them.
pub const RUNNER_CAPABILITIES: [(&str, CapabilitySet); 9] = [
    ("CHOWN", CapabilitySet::CHOWN),
    ("DAC_OVERRIDE", CapabilitySet::DAC_OVERRIDE),
    ("FOWNER", CapabilitySet::FOWNER),
    ("FSETID", CapabilitySet::FSETID),
    ("KILL", CapabilitySet::KILL),
    ("SETGID", CapabilitySet::SETGID),
    ("SETUID", CapabilitySet::SETUID),
    ("SETPCAP", CapabilitySet::SETPCAP),
    ("SYS_PTRACE", CapabilitySet::SYS_PTRACE),
];

/// The paths that are masked, because the kernel shows the host there and not the sandbox.
pub const MASKED: [&str; 18] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
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

/// Settings of a sandbox's IPC namespace, with which nothing in it holds memory after its processes have ended: a segment of shared
/// memory goes with the last process that uses it, and message queues and semaphores, which have no such rule, stay below 6 MiB.
pub const IPC_SETTINGS: [(&str, &str); 3] =
    [("kernel.shm_rmid_forced", "1"), ("kernel.msgmni", "256"), ("kernel.sem", "250 32000 32 128")];

pub const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// The size of small directories of the root. Data goes to the disk.
pub const SMALL_BYTES: u64 = 1 << 20;
pub const SMALL_INODES: u64 = 512;

/// The largest size of the runner's own directory for scripts, FIFOs and the saved state of shells. It is separate from the disk,
/// so that a full disk does not stop the runner.
pub const SCRATCH_BYTES: u64 = 64 << 20;
pub const SCRATCH_INODES: u64 = 16_384;
pub const SCRATCH: &str = "/run/cove";

/// The directory with the certificate authorities that the programs of a session with injected headers trust: that of the session alone,
/// and a bundle of it with those of the image.
pub const TRUST: &str = "/run/cove-trust";
pub const TRUST_AUTHORITY: &str = "/run/cove-trust/ca.pem";
pub const TRUST_BUNDLE: &str = "/run/cove-trust/bundle.pem";
pub const TRUST_BYTES: u64 = 8 << 20;
/// The largest bundle of an image that is read.
pub const MAX_STORE_BYTES: u64 = 4 << 20;
/// The variables by which programs find certificate authorities. Node and Deno add to their own ones, and
/// Node would not know those of the system otherwise; the others use a bundle instead of theirs.
pub const TRUST_VARIABLES: [(&str, &str); 9] = [
    ("AWS_CA_BUNDLE", TRUST_BUNDLE),
    ("CARGO_HTTP_CAINFO", TRUST_BUNDLE),
    ("CURL_CA_BUNDLE", TRUST_BUNDLE),
    ("DENO_CERT", TRUST_AUTHORITY),
    ("GIT_SSL_CAINFO", TRUST_BUNDLE),
    ("NODE_EXTRA_CA_CERTS", TRUST_BUNDLE),
    ("PIP_CERT", TRUST_BUNDLE),
    ("REQUESTS_CA_BUNDLE", TRUST_BUNDLE),
    ("SSL_CERT_FILE", TRUST_BUNDLE),
];
/// Where distributions keep the bundle of certificate authorities: Debian, Fedora, openSUSE, Alpine.
pub const TRUST_STORES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The directory into which shells write their state. It is separate from the scripts of the runner, so that a shell with much
/// state leaves room for the next command. A state that does not fit is not saved.
pub const STATE: &str = "/run/cove/state";
pub const STATE_INODES: u64 = 1024;
/// The part of the runner's memory for files that states may take.
const STATE_SHARE: u64 = 4;

/// The most files that a runner or one process of a command may have open, and the most that all processes of a session may have open
/// together. The second number lowers the first in a session with many processes, but never below what most programs expect.
pub const MAX_OPEN_FILES: u64 = 16_384;
const SESSION_OPEN_FILES: u64 = 1 << 18;
const MIN_OPEN_FILES: u64 = 1024;

/// The most terminals of one session: its shells, and what programs such as `tmux` and `script` open. The host has 4,096 for all.
pub const MAX_TERMINALS: u32 = 128;

pub const WORKSPACE: &str = "/workspace";

/// The root of all paths in a sandbox that serves the files of a workspace. It has the workspace and nothing else, so a link
/// in the workspace leads to nothing outside of it. To clients the workspace is still `/workspace`.
pub const FILES_ROOT: &str = "/run/cove-files";
pub const FILES_WORKSPACE: &str = "/run/cove-files/workspace";

/// The runner's arguments for such a sandbox.
pub const FILES_ARGUMENTS: [&str; 4] = ["--files-root", FILES_ROOT, "--workspace", FILES_WORKSPACE];

/// The daemon's own `oom_score_adj`, if it may set it: when the host's memory runs out, the kernel kills others first.
pub const DAEMON_OOM_SCORE_ADJ: i32 = -500;
/// How far the runners are above the daemon, and their least value. Commands are above their runner.
const SANDBOX_OOM_SCORE_ADJ: i32 = 100;
const MAX_OOM_SCORE_ADJ: i32 = 1000;

/// The `oom_score_adj` of a runner, above that of its daemon.
pub fn sandbox_oom_score_adj(daemon: i32) -> i32 {
    (daemon.max(0) + SANDBOX_OOM_SCORE_ADJ).min(MAX_OOM_SCORE_ADJ)
}

/// The memory that a runner may use beside the `memory_mb` of its session, where the runtime can keep the two apart: its tables,
/// the output that it keeps, and the file operations that only read or delete.
pub const RUNNER_BYTES: u64 = 64 << 20;
/// The processes that a runner may have beside the `pids` of its session: itself and its file operations, 64 at most.
pub const RUNNER_PIDS: u64 = 80;

/// The files that each process of a command, in a session with this many processes may have open.
pub fn open_files(pids: u64) -> u64 {
    (SESSION_OPEN_FILES / pids.max(1)).clamp(MIN_OPEN_FILES, MAX_OPEN_FILES)
}

/// The part of the host's processes that all sandboxes together leave to it.
const HOST_PIDS_SHARE: u64 = 8;

/// The most processes of all sandboxes together.
pub fn total_pids(host_pids: u64) -> u64 {
    host_pids - host_pids / HOST_PIDS_SHARE
}

/// The part of a session's memory that its files cannot fill. Files in memory cannot be reclaimed, so this is what the shell, a new
/// shell and `rm` have to run in when the disk is full.
const PROGRAM_SHARE: u64 = 8;
const MIN_PROGRAM_BYTES: u64 = 16 << 20;

/// The runner's directory may take this part of a session's memory. Commands can write to some files in it.
const SCRATCH_SHARE: u64 = 8;

/// The part of the memory for files that is kept for their inodes, if the disk asks for all of it.
const INODE_SHARE: u64 = 16;
/// The kernel memory of one file without content: inode, directory entry, and a long name.
const INODE_BYTES: u64 = 1280;

/// The number of files for each MiB of disk (one for every four KiB); a small disk gets at least the minimum below. Both are
/// lowered to what fits into the memory.
const INODES_PER_MB: u64 = 256;
const MIN_INODES: u64 = 16_384;

/// The size of one tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSize {
    pub bytes: u64,
    pub inodes: u64,
}

/// The memory for the runner's own files.
fn runner_files_bytes(memory_mb: u64) -> u64 {
    (mebibytes(memory_mb) / SCRATCH_SHARE).min(SCRATCH_BYTES)
}

pub fn state_bytes(memory_mb: u64) -> u64 {
    runner_files_bytes(memory_mb) / STATE_SHARE
}

pub fn scratch_bytes(memory_mb: u64) -> u64 {
    runner_files_bytes(memory_mb) - state_bytes(memory_mb)
}

/// The memory that the files of a session may take, with their inodes.
fn files_bytes(memory_mb: u64) -> u64 {
    let memory = mebibytes(memory_mb);
    let programs = (memory / PROGRAM_SHARE).max(MIN_PROGRAM_BYTES);
    memory.saturating_sub(programs).saturating_sub(runner_files_bytes(memory_mb))
}

/// The part of [`files_bytes`] that content may take.
fn content_bytes(memory_mb: u64) -> u64 {
    let files = files_bytes(memory_mb);
    files - files / INODE_SHARE
}

/// The largest disk that a session with this memory can have.
pub fn max_disk_mb(memory_mb: u64) -> u64 {
    (content_bytes(memory_mb) >> 20).max(1)
}

/// The sizes of several tmpfs that are a session's disk, one for each weight. None is larger than `disk_mb`. Filled to the last
/// byte and the last file, all of them together leave memory for programs and for the runner's directory. Where not every one can
/// have `disk_mb`, the weights divide what there is.
pub fn disks(resources: &ResourcesView, weights: &[u64]) -> Vec<DiskSize> {
    let most = mebibytes(resources.disk_mb);
    let mut bytes: Vec<Option<u64>> = vec![None; weights.len()];
    let mut left = content_bytes(resources.memory_mb);
    // Each round gives `disk_mb` to those whose share is at least that much; what they leave makes the other shares larger.
    loop {
        let open: u64 = weights.iter().zip(&bytes).filter(|(_, given)| given.is_none()).map(|(weight, _)| weight).sum();
        let share = |weight: u64| part(left, weight, open);
        let satisfied: Vec<usize> =
            (0..weights.len()).filter(|n| bytes[*n].is_none() && share(weights[*n]) >= most).collect();
        if satisfied.is_empty() {
            let sizes: Vec<u64> =
                bytes.iter().zip(weights).map(|(given, weight)| given.unwrap_or(share(*weight))).collect();
            let content = sizes.iter().sum();
            return sizes.into_iter().map(|bytes| with_inodes(bytes, content, resources.memory_mb)).collect();
        }
        for n in satisfied {
            bytes[n] = Some(most);
            left -= most;
        }
    }
}

/// The size of a disk that is one tmpfs.
pub fn disk(resources: &ResourcesView) -> DiskSize {
    let bytes = mebibytes(resources.disk_mb).min(content_bytes(resources.memory_mb));
    with_inodes(bytes, bytes, resources.memory_mb)
}

/// The size of `/dev/shm` if it is not a part of the disk: as elsewhere, half of the memory.
pub fn shm(resources: &ResourcesView) -> DiskSize {
    disk(&ResourcesView { disk_mb: (resources.memory_mb / 2).max(1), ..*resources })
}

/// A tmpfs of this size, with its part of the memory that the `content` of all of them leaves to inodes.
fn with_inodes(bytes: u64, content: u64, memory_mb: u64) -> DiskSize {
    let wanted = ((bytes >> 20).saturating_mul(INODES_PER_MB)).max(MIN_INODES);
    let affordable = part(files_bytes(memory_mb).saturating_sub(content), bytes, content) / INODE_BYTES;
    // For a tmpfs, 0 means no limit.
    DiskSize { bytes: bytes.max(1), inodes: wanted.min(affordable).max(1) }
}

/// `whole` × `share` / `of`, rounded down.
fn part(whole: u64, share: u64, of: u64) -> u64 {
    let product = u128::from(whole) * u128::from(share) / u128::from(of.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

fn mebibytes(count: u64) -> u64 {
    count.saturating_mul(1 << 20)
}

/// Converts CPUs to billionths of a CPU. An invalid number becomes more than any host has, so that the caller refuses it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resources(memory_mb: u64, disk_mb: u64) -> ResourcesView {
        ResourcesView { cpus: 1.0, memory_mb, pids: 64, disk_mb }
    }

    #[test]
    fn many_processes_may_have_fewer_files_open_each() {
        assert_eq!([16, 64, 256, 512, 32_768].map(open_files), [16_384, 4096, 1024, 1024, 1024]);
    }

    #[test]
    fn a_runner_is_above_its_daemon_whatever_the_daemon_has() {
        assert_eq!([-1000, -500, 0, 300, 950].map(sandbox_oom_score_adj), [100, 100, 100, 400, 1000]);
    }

    #[test]
    fn a_disk_that_fits_has_the_size_that_was_asked_for() {
        assert_eq!(disk(&resources(1024, 512)), DiskSize { bytes: 512 << 20, inodes: 512 * 256 });
        assert_eq!(disk(&resources(128, 64)), DiskSize { bytes: 64 << 20, inodes: 16_384 });
    }

    #[test]
    fn a_disk_as_large_as_the_memory_leaves_an_eighth_to_programs() {
        let disk = disk(&resources(1024, 1024));
        assert_eq!(disk.bytes >> 20, max_disk_mb(1024));
        assert!(disk.bytes + disk.inodes * INODE_BYTES <= (1024 - 1024 / 8 - 64) << 20, "{disk:?}");
        assert_eq!(max_disk_mb(1024), 780);
    }

    #[test]
    fn what_one_disk_does_not_need_goes_to_the_others() {
        let sizes = disks(&resources(1024, 200), &[4, 1]);
        assert_eq!(sizes.iter().map(|disk| disk.bytes >> 20).collect::<Vec<_>>(), [200, 200]);
        let sizes = disks(&resources(1024, 600), &[4, 1]);
        assert_eq!(sizes.iter().map(|disk| disk.bytes >> 20).collect::<Vec<_>>(), [600, 180]);
    }

    proptest! {
        #[test]
        fn full_disks_leave_memory_for_programs_and_the_runner(
            memory_mb in 32u64..1 << 30, disk_mb in 1u64..1 << 30, weights in prop::collection::vec(1u64..16, 1..9),
        ) {
            let sizes = disks(&resources(memory_mb, disk_mb), &weights);
            prop_assert_eq!(sizes.len(), weights.len());
            prop_assert_eq!(disks(&resources(memory_mb, disk_mb), &[3]), vec![disk(&resources(memory_mb, disk_mb))]);
            let full: u64 = sizes.iter().map(|disk| disk.bytes + disk.inodes * INODE_BYTES).sum();
            let left = (memory_mb << 20) - full;
            prop_assert!(left >= MIN_PROGRAM_BYTES + scratch_bytes(memory_mb) + state_bytes(memory_mb), "{} left of {} MiB: {:?}", left, memory_mb, sizes);
            for disk in sizes {
                prop_assert!(disk.bytes > 0 && disk.bytes <= disk_mb << 20 && disk.inodes > 0);
            }
        }
    }
}
