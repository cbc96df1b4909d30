//! The system calls that a sandbox may make. What is not named does not exist for it (`ENOSYS`), so that a kernel's next
//! feature is closed until someone looked at it, and programs fall back as they do on an older kernel.
//!
//! Left out on purpose: everything that mounts, enters or makes namespaces, loads code into the kernel, changes clocks or the
//! machine; `bpf`, `perf_event_open`, `userfaultfd`, `io_uring`, keyrings (large, often broken, of no use to an agent);
//! `open_by_handle_at` (walks out of a mount); `process_vm_*` and `pidfd_getfd` (reach into other processes without the stop
//! that `ptrace` makes). `ptrace` itself stays: debuggers are an agent's tools, and it reaches only the sandbox's own.
//!
//! One list for every runtime: numbers for a filter of our own, names for a profile that a container engine compiles.

/// Refused with "not permitted", as without the capability: programs know how to say that.
pub const NOT_PERMITTED: u32 = libc::EPERM.unsigned_abs();

pub const NO_SUCH_CALL: u32 = libc::ENOSYS.unsigned_abs();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// As `libseccomp` has it.
    pub name: &'static str,
    pub number: libc::c_long,
}

impl Call {
    /// From the name of the constant, `SYS_…`.
    fn new(constant: &'static str, number: libc::c_long) -> Self {
        Self { name: constant.strip_prefix("SYS_").unwrap_or(constant), number }
    }
}

/// Flags of `clone` that make namespaces.
pub const CLONE_NAMESPACES: u64 = 0x7e02_0080;

/// Sockets that a program on loopback needs: local, IPv4, IPv6, and netlink, which libc asks for interfaces.
pub const SOCKET_FAMILIES: [u64; 4] = [1, 2, 10, 16];

/// Terminal controls that put words into another's mouth.
pub const FORBIDDEN_IOCTLS: [u64; 2] = [0x5412, 0x541c];

/// Personalities that programs ask for: none, 32-bit addresses, no randomization (debuggers), and the question.
pub const PERSONALITIES: [u64; 5] = [0, 8, 0x0004_0000, 0x0004_0008, 0xffff_ffff];

/// Newer than the list of libc.
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

/// Without conditions. `clone`, `socket`, `personality` and `ioctl` come with some and are each runtime's to put into words.
pub fn allowed() -> impl Iterator<Item = Call> {
    common().chain(older())
}

/// Never by a filter's list, always by name of what it is: not permitted.
pub fn forbidden() -> impl Iterator<Item = Call> {
    calls!(
        SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen
        SYS_fsmount SYS_fspick SYS_mount_setattr SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_keyctl SYS_add_key
        SYS_request_key SYS_open_by_handle_at SYS_init_module SYS_finit_module SYS_kexec_load SYS_reboot SYS_syslog
        SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd
    )
    .into_iter()
}

/// On every architecture.
fn common() -> impl Iterator<Item = Call> {
    calls!(
        // Files and directories.
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
        SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_lseek SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs
        SYS_faccessat SYS_faccessat2 SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_mkdirat SYS_mknodat SYS_unlinkat
        SYS_symlinkat SYS_linkat SYS_renameat SYS_renameat2 SYS_readlinkat SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat
        SYS_utimensat SYS_truncate SYS_ftruncate SYS_fallocate SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range
        SYS_fadvise64 SYS_readahead SYS_copy_file_range SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_umask SYS_flock
        SYS_dup SYS_dup3 SYS_fcntl SYS_pipe2 SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr
        SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
        SYS_name_to_handle_at SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_memfd_create
        // Waiting.
        SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_signalfd4
        SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel
        SYS_io_getevents
        // Memory.
        SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_msync SYS_mincore SYS_mlock SYS_mlock2
        SYS_mlockall SYS_munlock SYS_munlockall SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
        SYS_get_mempolicy SYS_set_mempolicy SYS_mbind SYS_process_madvise SYS_process_mrelease SYS_remap_file_pages
        // Processes.
        SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill SYS_tgkill SYS_ptrace
        SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid SYS_gettid SYS_set_tid_address SYS_setpgid SYS_getpgid
        SYS_setsid SYS_getsid SYS_prctl SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule
        SYS_landlock_restrict_self SYS_rseq SYS_set_robust_list SYS_get_robust_list SYS_kcmp SYS_restart_syscall
        // Who one is.
        SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid
        SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget SYS_capset
        // Signals, time, scheduling, limits.
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigsuspend
        SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep
        SYS_nanosleep SYS_gettimeofday SYS_times SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime
        SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_adjtimex SYS_sched_yield SYS_sched_getaffinity
        SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam SYS_sched_getscheduler SYS_sched_setscheduler
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_sched_getattr
        SYS_sched_setattr SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_getrlimit SYS_setrlimit
        SYS_prlimit64 SYS_getrusage SYS_getcpu SYS_futex SYS_sysinfo SYS_uname SYS_getrandom
        // Sockets and System V.
        SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername SYS_sendto
        SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown SYS_setsockopt SYS_getsockopt
        SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl SYS_msgget SYS_msgsnd
        SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
        SYS_mq_getsetattr
    )
    .into_iter()
    .chain(NEWER)
}

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
fn older() -> impl Iterator<Item = Call> {
    calls!(
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_poll SYS_select SYS_pipe SYS_dup2 SYS_fork SYS_vfork
        SYS_getdents SYS_rename SYS_mkdir SYS_rmdir SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_chmod SYS_chown
        SYS_lchown SYS_mknod SYS_utime SYS_utimes SYS_futimesat SYS_epoll_create SYS_epoll_wait
        SYS_inotify_init SYS_signalfd SYS_eventfd SYS_alarm SYS_pause SYS_time SYS_getpgrp SYS_arch_prctl
        SYS_get_thread_area SYS_set_thread_area
    )
    .into_iter()
}

#[cfg(not(target_arch = "x86_64"))]
fn older() -> impl Iterator<Item = Call> {
    std::iter::empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_forbidden_is_also_listed_as_allowed() {
        let listed: Vec<_> = allowed().map(|call| call.number).collect();
        for call in forbidden() {
            assert!(!listed.contains(&call.number), "{}", call.name);
        }
        for call in
            [libc::SYS_io_uring_setup, libc::SYS_clone3, libc::SYS_swapon, libc::SYS_settimeofday, libc::SYS_acct]
        {
            assert!(!listed.contains(&call), "{call}");
        }
    }

    #[test]
    fn names_are_those_of_the_kernel_and_each_is_there_once() {
        let mut names: Vec<_> = allowed().chain(forbidden()).map(|call| call.name).collect();
        assert!(names.contains(&"read") && names.contains(&"mount"));
        assert!(names.iter().all(|name| !name.starts_with("SYS_")));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
