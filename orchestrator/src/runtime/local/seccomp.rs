//! The system calls that a sandbox may make, as filters that the kernel takes. Which they are is decided in
//! [`syscalls`](crate::runtime::syscalls), for every runtime the same.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::runtime::syscalls::{
    CLONE_NAMESPACES, FORBIDDEN_IOCTLS, NO_SUCH_CALL, NOT_PERMITTED, PERSONALITIES, SOCKET_FAMILIES, allowed, forbidden,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// The filter as the kernel takes it. Two of them: the kernel combines filters by the stricter answer, so calls that are
/// "not permitted" by name are those of the second, which lets everything else through.
pub fn filters() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    // What is forbidden too, so that the first filter does not answer "no such call" before the second says why.
    let mut allowed: Rules = allowed().chain(forbidden()).map(|call| (call.number, Vec::new())).collect();
    let condition =
        |argument, operator, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
    // Threads and processes, but no namespaces. The newer form hides its flags behind a pointer, so it does not exist here.
    let plain_clone = condition(0, SeccompCmpOp::MaskedEq(CLONE_NAMESPACES), 0)?;
    allowed.insert(libc::SYS_clone, vec![SeccompRule::new(vec![plain_clone])?]);
    allowed.insert(libc::SYS_socket, one_of(0, &SOCKET_FAMILIES)?);
    allowed.insert(libc::SYS_personality, one_of(0, &PERSONALITIES)?);
    allowed.insert(libc::SYS_ioctl, Vec::new());
    let allow = SeccompFilter::new(allowed, SeccompAction::Errno(NO_SUCH_CALL), SeccompAction::Allow, ARCHITECTURE)?;

    let mut forbidden: Rules = forbidden().map(|call| (call.number, Vec::new())).collect();
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
}
