//! The system calls that a sandbox may make. For the sandbox, any other call does not exist (`ENOSYS`): a new kernel feature
//! stays closed until somebody has looked at it, and programs fall back as on an older kernel.
//!
//! Excluded on purpose: every call that mounts, enters or makes namespaces, loads code into the kernel, or changes clocks or
//! the machine; `bpf`, `perf_event_open`, `userfaultfd`, `io_uring` and keyrings (large, often broken, of no use to an
//! agent); `open_by_handle_at` (it can leave a mount); `io_setup` and its kin (all sandboxes and the host draw on one counter,
//! `fs.aio-nr`, and programs do without); calls that no program has needed for many years.
//!
//! A program may debug what it starts: `PTRACE_TRACEME` works, and a debugger follows the children of its child. It may not begin
//! to trace a process that runs already, nor access the memory of one (`process_vm_*`, `pidfd_getfd`, `kcmp`). A session can ask
//! for that by a [`Profile`].
//!
//! There is one list for every runtime: numbers for the daemon's own filter, names for a profile that a container engine
//! compiles.

use serde::{Deserialize, Serialize};
use shared_protocol::api::Profile;

/// The error of forbidden calls: "not permitted", as if the capability were missing, because programs can handle that.
pub const NOT_PERMITTED: u32 = libc::EPERM.unsigned_abs();

pub const NO_SUCH_CALL: u32 = libc::ENOSYS.unsigned_abs();

/// The error of sockets of other families, as on a kernel that does not have them.
pub const NO_SUCH_FAMILY: u32 = libc::EAFNOSUPPORT.unsigned_abs();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The name of the call in `libseccomp`.
    pub name: &'static str,
    pub number: libc::c_long,
}

impl Call {
    /// Makes a call from the name of its constant, `SYS_…`.
    fn new(constant: &'static str, number: libc::c_long) -> Self {
        Self { name: constant.strip_prefix("SYS_").unwrap_or(constant), number }
    }
}

/// Flags of `clone` that make namespaces.
pub const CLONE_NAMESPACES: u64 = 0x7e02_0080;

/// The sockets that a program on loopback needs, by family: local, IPv4, IPv6, and netlink. Of netlink's protocols only 0, routes,
/// is allowed, with which libc lists interfaces. Others reach parts of the kernel that know no network namespaces, or tell about
/// devices of the host.
pub const SOCKETS: [Socket; 4] = [
    Socket { family: 1, protocol: None },
    Socket { family: 2, protocol: None },
    Socket { family: 10, protocol: None },
    Socket { family: 16, protocol: Some(0) },
];

/// Sockets of a family, and of one protocol if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    pub family: u64,
    pub protocol: Option<u64>,
}

/// The requests of `ptrace` that begin to trace a process that runs already: `PTRACE_ATTACH` and `PTRACE_SEIZE`.
const ATTACHING: [u64; 2] = [16, 0x4206];

/// Which processes of its own session a program may debug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Debugging {
    /// Those that it starts itself.
    Children,
    /// Also those that run already, by `ptrace`.
    Running,
    /// Also their memory and descriptors, without stopping them.
    Memory,
}

impl Debugging {
    pub const ALL: [Self; 3] = [Self::Children, Self::Running, Self::Memory];

    pub fn of(profiles: &[Profile]) -> Self {
        let level = |profile: &Profile| match profile {
            Profile::Ptrace => Self::Running,
            Profile::Debug => Self::Memory,
        };
        profiles.iter().map(level).max().unwrap_or(Self::Children)
    }
}

/// The requests of `ptrace` that a program may not make.
pub fn forbidden_ptrace(debugging: Debugging) -> &'static [u64] {
    if debugging == Debugging::Children { &ATTACHING } else { &[] }
}

/// The requests that insert input into a terminal as if somebody had typed it, and those that make subvolumes and snapshots on btrfs:
/// a subvolume has limits of its own, and a new one has none.
pub const FORBIDDEN_IOCTLS: [u64; 6] = [0x5412, 0x541c, 0x5000_9401, 0x5000_940e, 0x5000_9417, 0x5000_9418];

/// The personalities that programs use: the default, 32-bit addresses, no address randomization (for debuggers), and the
/// query.
pub const PERSONALITIES: [u64; 5] = [0, 8, 0x0004_0000, 0x0004_0008, 0xffff_ffff];

/// Calls that are newer than libc's list.
const NEWER: [Call; 6] = [
    Call { name: "futex_waitv", number: 449 },
    Call { name: "cachestat", number: 451 },
    Call { name: "fchmodat2", number: 452 },
    Call { name: "futex_wake", number: 454 },
    Call { name: "futex_wait", number: 455 },
    Call { name: "futex_requeue", number: 456 },
];

macro_rules! calls {
    ($($name:ident)*) => { [$(Call::new(stringify!($name), libc::$name)),*] };
}

/// The calls that are allowed without conditions. `clone`, `socket`, `personality`, `ioctl` and
/// `ptrace` have conditions, which each runtime adds in its own form.
pub fn allowed(debugging: Debugging) -> impl Iterator<Item = Call> {
    let accesses = (debugging == Debugging::Memory).then(accesses);
    groups().into_iter().flat_map(|(_, calls)| calls).chain(accesses.into_iter().flatten())
}

/// The calls that are refused with "not permitted" instead of "no such call".
pub fn forbidden(debugging: Debugging) -> impl Iterator<Item = Call> {
    let accesses = (debugging != Debugging::Memory).then(accesses);
    calls!(
        SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen
        SYS_fsmount SYS_fspick SYS_mount_setattr SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_keyctl SYS_add_key
        SYS_request_key SYS_open_by_handle_at SYS_init_module SYS_finit_module SYS_kexec_load SYS_reboot SYS_syslog
    )
    .into_iter()
    .chain(accesses.into_iter().flatten())
}

/// Calls that access another process without the stop that `ptrace` makes: profilers and debuggers of running programs use them.
fn accesses() -> [Call; 4] {
    calls!(SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp)
}

/// The allowed calls, each group with the reason why programs need it.
fn groups() -> Vec<(&'static str, Vec<Call>)> {
    vec![
        (
            "reading, writing and managing the files that the sandbox sees; the kernel checks paths and permissions as for anybody",
            calls!(
                SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
                SYS_pwritev2 SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_lseek SYS_fstat SYS_newfstatat SYS_statx
                SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2 SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir
                SYS_mkdirat SYS_mknodat SYS_unlinkat SYS_symlinkat SYS_linkat SYS_renameat SYS_renameat2 SYS_readlinkat
                SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat SYS_truncate SYS_ftruncate SYS_fallocate
                SYS_umask SYS_flock SYS_dup SYS_dup3 SYS_fcntl SYS_pipe2 SYS_memfd_create
            )
            .into(),
        ),
        (
            "data that reaches the disk, or moves without a copy: databases, `cp`, `tar`, web servers",
            calls!(
                SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range SYS_fadvise64 SYS_readahead
                SYS_copy_file_range SYS_sendfile SYS_splice SYS_tee
            )
            .into(),
        ),
        (
            "attributes of files: `cp -a`, `tar --xattrs`, build tools",
            calls!(
                SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr
                SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
            )
            .into(),
        ),
        (
            "watching files: development servers, editors, `tail -f`",
            calls!(SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch).into(),
        ),
        (
            "waiting: every event loop",
            calls!(
                SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
                SYS_signalfd4 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
            )
            .into(),
        ),
        (
            "memory of the process itself: allocators, just-in-time compilers, garbage collectors, NUMA-aware runtimes",
            calls!(
                SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_msync SYS_mincore SYS_mlock SYS_mlock2
                SYS_mlockall SYS_munlock SYS_munlockall SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
                SYS_get_mempolicy SYS_set_mempolicy SYS_mbind
            )
            .into(),
        ),
        (
            "processes and threads: they reach only what is in the sandbox's own pid namespace",
            calls!(
                SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill SYS_tgkill
                SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid SYS_gettid SYS_set_tid_address SYS_setpgid
                SYS_getpgid SYS_setsid SYS_getsid SYS_prctl SYS_rseq SYS_set_robust_list SYS_restart_syscall SYS_futex
            )
            .into(),
        ),
        (
            "walls that a program builds around itself: browsers and package managers. They only take rights away",
            calls!(
                SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
            )
            .into(),
        ),
        (
            "user and group ids: the kernel allows only what the process already has",
            calls!(
                SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid
                SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget
                SYS_capset
            )
            .into(),
        ),
        (
            "signals",
            calls!(
                SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigsuspend
                SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack
            )
            .into(),
        ),
        (
            "reading clocks, and timers of the process itself",
            calls!(
                SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_times SYS_getitimer
                SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
            )
            .into(),
        ),
        (
            "priorities, which can only be lowered, and limits: runtimes size themselves by them, `nice`, `ionice`, `taskset`",
            calls!(
                SYS_sched_yield SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam
                SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
                SYS_sched_rr_get_interval SYS_sched_getattr SYS_sched_setattr SYS_getpriority SYS_setpriority SYS_ioprio_get
                SYS_ioprio_set SYS_getrlimit SYS_setrlimit SYS_prlimit64 SYS_getrusage
            )
            .into(),
        ),
        ("what machine this is, and random numbers", calls!(SYS_getcpu SYS_sysinfo SYS_uname SYS_getrandom).into()),
        (
            "sockets of the families in `SOCKETS`, in the sandbox's own network namespace",
            calls!(
                SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername
                SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown SYS_setsockopt
                SYS_getsockopt
            )
            .into(),
        ),
        (
            "System V and POSIX queues, in the sandbox's own ipc namespace: PostgreSQL, Python's `multiprocessing`",
            calls!(
                SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl SYS_msgget SYS_msgsnd
                SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
                SYS_mq_getsetattr
            )
            .into(),
        ),
        ("newer forms of calls above", NEWER.into()),
        ("older forms of calls above, which C libraries still make", older()),
    ]
}

/// Older forms of calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
fn older() -> Vec<Call> {
    calls!(
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_poll SYS_select SYS_pipe SYS_dup2 SYS_fork SYS_vfork
        SYS_getdents SYS_rename SYS_mkdir SYS_rmdir SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_chmod SYS_chown
        SYS_lchown SYS_mknod SYS_utime SYS_utimes SYS_futimesat SYS_epoll_create SYS_epoll_wait
        SYS_inotify_init SYS_signalfd SYS_eventfd SYS_alarm SYS_pause SYS_time SYS_getpgrp SYS_arch_prctl
    )
    .into()
}

#[cfg(not(target_arch = "x86_64"))]
fn older() -> Vec<Call> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_forbidden_is_also_listed_as_allowed() {
        for debugging in Debugging::ALL {
            let listed: Vec<_> = allowed(debugging).map(|call| call.number).collect();
            for call in forbidden(debugging) {
                assert!(!listed.contains(&call.number), "{}", call.name);
            }
            for call in [
                libc::SYS_io_uring_setup,
                libc::SYS_io_setup,
                libc::SYS_clone3,
                libc::SYS_swapon,
                libc::SYS_settimeofday,
                libc::SYS_acct,
                libc::SYS_ptrace,
                libc::SYS_socket,
                libc::SYS_ioctl,
            ] {
                assert!(!listed.contains(&call), "{call}");
            }
        }
    }

    #[test]
    fn names_are_those_of_the_kernel_and_each_is_there_once() {
        for debugging in Debugging::ALL {
            let mut names: Vec<_> = allowed(debugging).chain(forbidden(debugging)).map(|call| call.name).collect();
            assert!(names.contains(&"read") && names.contains(&"mount"));
            assert!(names.iter().all(|name| !name.starts_with("SYS_")));
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn only_a_session_that_asked_may_trace_what_runs_already_or_read_its_memory() {
        let choices: [&[Profile]; 4] = [&[], &[Profile::Ptrace], &[Profile::Debug], &[Profile::Debug, Profile::Ptrace]];
        let reads = |debugging| allowed(debugging).any(|call| call.name == "process_vm_readv");
        assert_eq!(choices.map(|profiles| reads(Debugging::of(profiles))), [false, false, true, true]);
        assert_eq!(choices.map(|profiles| forbidden_ptrace(Debugging::of(profiles)).len()), [2, 0, 0, 0]);
    }
}
