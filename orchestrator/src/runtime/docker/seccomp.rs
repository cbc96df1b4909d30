//! The system call filter of every runtime, as a profile that a container engine compiles.
//!
//! A profile has one action for each call. Conditions on the same argument are joined by "or". So "any value except these two" is
//! written as the groups of values that are left, and never as an exception to a rule that allows.
//!
//! gVisor answers every denied call with "not permitted" and knows no other error. So calls that programs fall back from must be
//! allowed there. Then gVisor's own kernel is what protects the host, and the filter is a second protection.

use serde_json::{Value, json};

use super::kernel::Kernel;
use crate::runtime::syscalls::{
    CLONE_NAMESPACES, Debugging, FORBIDDEN_IOCTLS, NO_SUCH_CALL, NOT_PERMITTED, PERSONALITIES, SOCKETS, allowed,
    forbidden, forbidden_ptrace,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

/// Calls that must not seem to exist, so that programs fall back from them. They are named although the default action says the
/// same, because older engines ignore its error number and answer "not permitted".
const MISSING: [&str; 6] =
    ["io_setup", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "map_shadow_stack"];

/// `clone3` has its flags in memory, where no filter can read them. Libraries use `clone` instead if it does not exist.
const CLONE3: &str = "clone3";

/// The number of significant bits of an `ioctl` request, whose higher bits the kernel ignores, and of a `ptrace` request, which the
/// kernel does not know if it has higher bits.
const REQUEST_BITS: u32 = 32;

pub fn profile(kernel: Kernel, debugging: Debugging) -> Value {
    let names = |calls: &mut dyn Iterator<Item = &'static str>| calls.collect::<Vec<_>>();
    let mut rules = vec![
        json!({ "names": names(&mut allowed(debugging).map(|call| call.name)), "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": names(&mut forbidden(debugging).map(|call| call.name)), "action": "SCMP_ACT_ERRNO", "errnoRet": NOT_PERMITTED }),
        json!({ "names": MISSING, "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_CALL }),
        match kernel {
            Kernel::Host => {
                json!({ "names": [CLONE3], "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_CALL })
            }
            Kernel::Gvisor => json!({ "names": [CLONE3], "action": "SCMP_ACT_ALLOW" }),
        },
        // Threads and processes are allowed, new namespaces are not.
        allow_if("clone", vec![masked(0, Group { mask: CLONE_NAMESPACES, value: 0 })]),
    ];
    rules.extend(SOCKETS.map(|socket| {
        let protocol = socket.protocol.map(|protocol| equal(2, protocol));
        allow_if("socket", [equal(0, socket.family)].into_iter().chain(protocol).collect())
    }));
    rules.extend(PERSONALITIES.map(|personality| allow_if("personality", vec![equal(0, personality)])));
    let groups = |call, argument, forbidden: &[u64]| {
        let groups = all_but(forbidden).into_iter();
        groups.map(move |group| allow_if(call, vec![masked(argument, group)])).collect::<Vec<_>>()
    };
    rules.extend(groups("ioctl", 1, &FORBIDDEN_IOCTLS));
    match forbidden_ptrace(debugging) {
        [] => rules.push(json!({ "names": ["ptrace"], "action": "SCMP_ACT_ALLOW" })),
        forbidden => rules.extend(groups("ptrace", 0, forbidden)),
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": NO_SUCH_CALL,
        "architectures": [ARCHITECTURE],
        "syscalls": rules,
    })
}

/// A rule: the call is allowed if all conditions hold, each of which is about another argument.
fn allow_if(name: &str, conditions: Vec<Value>) -> Value {
    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": conditions })
}

/// A condition: the argument equals `value`. The argument is an `int`, so higher bits do not count.
fn equal(index: u32, value: u64) -> Value {
    masked(index, Group { mask: 0xffff_ffff, value })
}

fn masked(index: u32, group: Group) -> Value {
    json!({ "index": index, "value": group.mask, "valueTwo": group.value, "op": "SCMP_CMP_MASKED_EQ" })
}

/// All values whose masked bits are those of `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    mask: u64,
    value: u64,
}

/// Every 32-bit number except these, as groups that do not overlap.
fn all_but(values: &[u64]) -> Vec<Group> {
    fn split(group: Group, bit: u32, values: &[u64], groups: &mut Vec<Group>) {
        if !values.iter().any(|value| value & group.mask == group.value) {
            return groups.push(group);
        }
        let Some(next) = bit.checked_sub(1) else { return };
        let mask = group.mask | 1 << next;
        for value in [group.value, group.value | 1 << next] {
            split(Group { mask, value }, next, values, groups);
        }
    }
    let mut groups = Vec::new();
    split(Group { mask: 0, value: 0 }, REQUEST_BITS, values, &mut groups);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_in(groups: &[Group], value: u64) -> usize {
        groups.iter().filter(|group| value & group.mask == group.value).count()
    }

    #[test]
    fn typing_at_anothers_terminal_is_in_no_group() {
        let groups = all_but(&FORBIDDEN_IOCTLS);
        for request in FORBIDDEN_IOCTLS {
            assert_eq!(is_in(&groups, request), 0);
            // The kernel ignores the bits above 32, so the filter must ignore them too.
            assert_eq!(is_in(&groups, request | 1 << 32), 0);
        }
        // These are TCGETS and TIOCGWINSZ.
        assert_eq!([is_in(&groups, 0x5401), is_in(&groups, 0x5413)], [1, 1]);
    }

    #[test]
    fn the_profile_denies_what_it_does_not_name() {
        let profile = profile(Kernel::Host, Debugging::Children);
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let unconditional = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW" && rule.get("args").is_none());
        let names: Vec<_> = unconditional.flat_map(|rule| rule["names"].as_array().unwrap()).collect();
        for dangerous in
            ["mount", "unshare", "setns", "bpf", "ioctl", "clone", "clone3", "socket", "personality", "ptrace"]
        {
            assert!(!names.iter().any(|name| *name == dangerous), "{dangerous}");
        }
        assert!(names.iter().any(|name| *name == "read"));
    }

    #[test]
    fn threads_are_made_in_the_way_that_each_kernel_leaves_open() {
        let rule = |kernel| {
            let rules = profile(kernel, Debugging::Children)["syscalls"].as_array().unwrap().clone();
            let about: Vec<_> =
                rules.into_iter().filter(|rule| rule["names"].as_array().unwrap().contains(&CLONE3.into())).collect();
            assert_eq!(about.len(), 1, "{about:?}");
            about[0].clone()
        };
        assert_eq!(rule(Kernel::Host)["errnoRet"], NO_SUCH_CALL);
        assert_eq!(rule(Kernel::Gvisor)["action"], "SCMP_ACT_ALLOW");
    }

    proptest! {
        #[test]
        fn all_but_some_values_is_every_other_value_once(values in prop::collection::vec(any::<u32>(), 0..4), probe: u32) {
            let values: Vec<u64> = values.into_iter().map(u64::from).collect();
            let groups = all_but(&values);
            let expected = usize::from(!values.contains(&probe.into()));
            prop_assert_eq!(is_in(&groups, probe.into()), expected);
            for value in values {
                prop_assert_eq!(is_in(&groups, value), 0);
            }
        }
    }
}
