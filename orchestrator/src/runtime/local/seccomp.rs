//! The system calls that a sandbox may make. What is not named does not exist for it (`ENOSYS`), so that a kernel's next
//! feature is closed until someone looked at it, and programs fall back as they do on an older kernel.
//!
//! Left out on purpose: everything that mounts, enters or makes namespaces, loads code into the kernel, changes clocks or the
//! machine; `bpf`, `perf_event_open`, `userfaultfd`, `io_uring`, keyrings (large, often broken, of no use to an agent);
//! `open_by_handle_at` (walks out of a mount); `process_vm_*` and `pidfd_getfd` (reach into other processes without the stop
//! that `ptrace` makes). `ptrace` itself stays: debuggers are an agent's tools, and it reaches only the sandbox's own.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Refused with "not permitted", as without the capability: programs know how to say that.
const NOT_PERMITTED: u32 = libc::EPERM.unsigned_abs();

const NO_SUCH_CALL: u32 = libc::ENOSYS.unsigned_abs();

/// Flags of `clone` that make namespaces.
const CLONE_NAMESPACES: u64 = 0x7e02_0080;

/// Sockets that a program on loopback needs: local, IPv4, IPv6, and netlink, which libc asks for interfaces.
const SOCKET_FAMILIES: [u64; 4] = [1, 2, 10, 16];

/// Terminal controls that put words into another's mouth.
const FORBIDDEN_IOCTLS: [u64; 2] = [0x5412, 0x541c];

/// Personalities that programs ask for: none, 32-bit addresses, no randomization (debuggers), and the question.
const PERSONALITIES: [u64; 5] = [0, 8, 0x0004_0000, 0x0004_0008, 0xffff_ffff];

/// Never by a filter's list, always by name of what it is: not permitted.
const FORBIDDEN: [libc::c_long; 27] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
];

macro_rules! calls {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

/// On every architecture.
fn common() -> impl Iterator<Item = libc::c_long> {
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
    // Newer than the list of libc: cachestat, fchmodat2, futex_wake, futex_wait, futex_requeue, futex_waitv.
    .chain([451, 452, 454, 455, 456, 449])
}

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
fn older() -> impl Iterator<Item = libc::c_long> {
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
fn older() -> impl Iterator<Item = libc::c_long> {
    std::iter::empty()
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// The filter as the kernel takes it. Two of them: the kernel combines filters by the stricter answer, so calls that are
/// "not permitted" by name are those of the second, which lets everything else through.
pub fn filters() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let mut allowed: Rules = common().chain(older()).map(|call| (call, Vec::new())).collect();
    for call in FORBIDDEN {
        // So that the first filter does not answer "no such call" before the second says why.
        allowed.insert(call, Vec::new());
    }
    let condition =
        |argument, operator, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
    // Threads and processes, but no namespaces. The newer form hides its flags behind a pointer, so it does not exist here.
    let plain_clone = condition(0, SeccompCmpOp::MaskedEq(CLONE_NAMESPACES), 0)?;
    allowed.insert(libc::SYS_clone, vec![SeccompRule::new(vec![plain_clone])?]);
    allowed.insert(libc::SYS_socket, one_of(0, &SOCKET_FAMILIES)?);
    allowed.insert(libc::SYS_personality, one_of(0, &PERSONALITIES)?);
    allowed.insert(libc::SYS_ioctl, Vec::new());
    let allow = SeccompFilter::new(allowed, SeccompAction::Errno(NO_SUCH_CALL), SeccompAction::Allow, ARCHITECTURE)?;

    let mut forbidden: Rules = FORBIDDEN.into_iter().map(|call| (call, Vec::new())).collect();
    forbidden.insert(libc::SYS_ioctl, one_of(1, &FORBIDDEN_IOCTLS)?);
    let forbid =
        SeccompFilter::new(forbidden, SeccompAction::Allow, SeccompAction::Errno(NOT_PERMITTED), ARCHITECTURE)?;
    Ok([BpfProgram::try_from(allow)?, BpfProgram::try_from(forbid)?])
}

fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values
        .iter()
        .map(|value| {
            let equal = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value)?;
            SeccompRule::new(vec![equal])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile_and_fit_into_the_kernel() {
        for filter in filters().unwrap() {
            assert!((1..=4096).contains(&filter.len()), "{} instructions", filter.len());
        }
    }

    #[test]
    fn nothing_forbidden_is_also_listed_as_allowed() {
        let listed: Vec<_> = common().chain(older()).collect();
        for call in FORBIDDEN {
            assert!(!listed.contains(&call), "{call}");
        }
        for call in
            [libc::SYS_io_uring_setup, libc::SYS_clone3, libc::SYS_swapon, libc::SYS_settimeofday, libc::SYS_acct]
        {
            assert!(!listed.contains(&call), "{call}");
        }
    }
}
