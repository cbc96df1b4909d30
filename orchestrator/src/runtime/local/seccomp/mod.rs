//! The system call filter of a sandbox, in the form that the kernel takes. [`syscalls`](crate::runtime::syscalls) decides which
//! calls are allowed, for every runtime.

mod program;
#[cfg(test)]
mod program_test;

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use seccompiler::BpfProgram;

use crate::runtime::syscalls::{
    CLONE_NAMESPACES, Debugging, FORBIDDEN_IOCTLS, NO_SUCH_CALL, NO_SUCH_FAMILY, NOT_PERMITTED, PERSONALITIES, SOCKETS,
    allowed, forbidden, forbidden_ptrace,
};
pub use program::ProgramError;
use program::{Answer, Condition, Rule};

/// The flag of `setns` that means a user namespace.
const NEW_USER: u32 = 0x1000_0000;

/// The requests that make two files share what is on the disk: `FICLONE`, `FICLONERANGE` and `FIDEDUPERANGE`. Simple quotas count it for
/// the file that had it first, so a session could put any amount of its own disk into a workspace. `copy_file_range` does the same, and
/// is not allowed here either. Programs copy when they are refused.
const SHARING_IOCTLS: [u64; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];

/// The filter of a sandbox. A call that is not allowed is answered with "no such call", one that is forbidden by name or argument with
/// "not permitted". Sockets of other families are "no such family": programs that would like to write to the audit log, such as `useradd`,
/// go on without after this answer, and end after any other.
///
/// With `commands_namespace`, the runner's children may enter the user namespace under this number. A command gains nothing by that: the
/// call needs rights over a namespace that no command has.
pub fn filter(debugging: Debugging, commands_namespace: Option<RawFd>) -> Result<BpfProgram, ProgramError> {
    program::compile(&rules(debugging, commands_namespace), Answer::Errno(NO_SUCH_CALL))
}

fn rules(debugging: Debugging, commands_namespace: Option<RawFd>) -> BTreeMap<u32, Rule> {
    let mut rules: BTreeMap<u32, Rule> =
        allowed(debugging).map(|call| (number(call.number), Rule::always(Answer::Allow))).collect();
    rules.remove(&number(libc::SYS_copy_file_range));
    rules.extend(forbidden(debugging).map(|call| (number(call.number), Rule::always(Answer::Errno(NOT_PERMITTED)))));
    let mut insert = |call: libc::c_long, rule: Rule| rules.insert(number(call), rule);

    // Threads and processes are allowed, new namespaces are not. `clone3` has its flags in memory, where a filter cannot
    // read them, so it is not allowed.
    let plain = Condition::masked(0, low(CLONE_NAMESPACES), 0);
    insert(libc::SYS_clone, Rule::always(Answer::Errno(NO_SUCH_CALL)).unless(vec![plain], Answer::Allow));
    let sockets = SOCKETS.iter().map(|socket| {
        let protocol = socket.protocol.map(|protocol| Condition::equal(2, low(protocol)));
        [Condition::equal(0, low(socket.family))].into_iter().chain(protocol).collect()
    });
    insert(
        libc::SYS_socket,
        sockets.fold(Rule::always(Answer::Errno(NO_SUCH_FAMILY)), |rule, socket| rule.unless(socket, Answer::Allow)),
    );
    insert(libc::SYS_personality, one_of(0, &PERSONALITIES, Answer::Allow, Answer::Errno(NO_SUCH_CALL)));
    let ioctls = [&FORBIDDEN_IOCTLS[..], &SHARING_IOCTLS[..]].concat();
    insert(libc::SYS_ioctl, one_of(1, &ioctls, Answer::Errno(NOT_PERMITTED), Answer::Allow));
    insert(libc::SYS_ptrace, one_of(0, forbidden_ptrace(debugging), Answer::Errno(NOT_PERMITTED), Answer::Allow));
    if let Some(namespace) = commands_namespace {
        let own = vec![Condition::equal(0, namespace.unsigned_abs()), Condition::equal(1, NEW_USER)];
        insert(libc::SYS_setns, Rule::always(Answer::Errno(NOT_PERMITTED)).unless(own, Answer::Allow));
    }
    rules
}

/// A rule that answers `answer` if an argument has one of these values, and `otherwise` if not.
fn one_of(argument: u8, values: &[u64], answer: Answer, otherwise: Answer) -> Rule {
    values
        .iter()
        .fold(Rule::always(otherwise), |rule, value| rule.unless(vec![Condition::equal(argument, low(*value))], answer))
}

/// The kernel numbers calls from 0 on.
fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// The half of an argument that a filter compares. All compared arguments are 32-bit values for the kernel.
fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
