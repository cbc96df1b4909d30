//! The system call filter of a sandbox, in the form that the kernel takes. [`syscalls`](crate::runtime::syscalls) decides which
//! calls are allowed, for every runtime.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::runtime::syscalls::{
    CLONE_NAMESPACES, Debugging, FORBIDDEN_IOCTLS, NO_SUCH_CALL, NOT_PERMITTED, PERSONALITIES, SOCKETS, allowed,
    forbidden, forbidden_ptrace,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// The two filters of a sandbox. The kernel uses the stricter answer of the two. The first answers "no such call" to every
/// call that is not allowed. The second answers "not permitted" to the calls that are forbidden by name, and allows
/// everything else.
pub fn filters(debugging: Debugging) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    // The first filter also allows the forbidden calls, so that the second filter's answer counts for them.
    let mut allowed: Rules =
        allowed(debugging).chain(forbidden(debugging)).map(|call| (call.number, Vec::new())).collect();
    let condition =
        |argument, operator, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
    // Threads and processes are allowed, new namespaces are not. `clone3` has its flags in memory, where a filter cannot
    // read them, so it is not allowed.
    let plain_clone = condition(0, SeccompCmpOp::MaskedEq(CLONE_NAMESPACES), 0)?;
    allowed.insert(libc::SYS_clone, vec![SeccompRule::new(vec![plain_clone])?]);
    let sockets = SOCKETS.iter().map(|socket| {
        let family = condition(0, SeccompCmpOp::Eq, socket.family);
        let protocol = socket.protocol.map(|protocol| condition(2, SeccompCmpOp::Eq, protocol));
        SeccompRule::new([family].into_iter().chain(protocol).collect::<Result<_, _>>()?)
    });
    allowed.insert(libc::SYS_socket, sockets.collect::<Result<_, _>>()?);
    allowed.insert(libc::SYS_personality, one_of(0, &PERSONALITIES)?);
    allowed.insert(libc::SYS_ioctl, Vec::new());
    allowed.insert(libc::SYS_ptrace, Vec::new());
    let allow = SeccompFilter::new(allowed, SeccompAction::Errno(NO_SUCH_CALL), SeccompAction::Allow, ARCHITECTURE)?;

    let mut forbidden: Rules = forbidden(debugging).map(|call| (call.number, Vec::new())).collect();
    forbidden.insert(libc::SYS_ioctl, one_of(1, &FORBIDDEN_IOCTLS)?);
    // A call without rules would always be forbidden.
    if !forbidden_ptrace(debugging).is_empty() {
        forbidden.insert(libc::SYS_ptrace, one_of(0, forbidden_ptrace(debugging))?);
    }
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
        for debugging in Debugging::ALL {
            for filter in filters(debugging).unwrap() {
                assert!((1..=4096).contains(&filter.len()), "{} instructions", filter.len());
            }
        }
    }
}
