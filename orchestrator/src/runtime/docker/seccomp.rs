//! The same system calls as on every runtime, as the profile that a container engine compiles.
//!
//! A profile has one action a call and conditions that are joined by "or" where they are about one argument. So "any but
//! these two" is said as the groups of values that are left, and never as an exception from a rule that allows.
//!
//! gVisor answers whatever is denied with "not permitted" and has no other number, so what programs fall back from must be
//! allowed there. Its own kernel is the wall then; the list only makes it thicker.

use serde_json::{Value, json};

use super::kernel::Kernel;
use crate::runtime::syscalls::{
    CLONE_NAMESPACES, FORBIDDEN_IOCTLS, NO_SUCH_CALL, NOT_PERMITTED, PERSONALITIES, SOCKET_FAMILIES, allowed, forbidden,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

/// Named although the default action says the same: engines older than its error number answer "not permitted" by default, and
/// programs fall back from these only where they do not exist.
const MISSING: [&str; 5] =
    ["io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "map_shadow_stack"];

/// Has its flags in memory, where no filter can read them; without it libraries make threads by `clone`, but only if it does not
/// exist.
const CLONE3: &str = "clone3";

/// What an `ioctl` request can be: the kernel looks at no more.
const REQUEST_BITS: u32 = 32;

pub fn profile(kernel: Kernel) -> Value {
    let names = |calls: &mut dyn Iterator<Item = &'static str>| calls.collect::<Vec<_>>();
    let mut rules = vec![
        json!({ "names": names(&mut allowed().map(|call| call.name)), "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": names(&mut forbidden().map(|call| call.name)), "action": "SCMP_ACT_ERRNO", "errnoRet": NOT_PERMITTED }),
        json!({ "names": MISSING, "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_CALL }),
        match kernel {
            Kernel::Host => {
                json!({ "names": [CLONE3], "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_CALL })
            }
            Kernel::Gvisor => json!({ "names": [CLONE3], "action": "SCMP_ACT_ALLOW" }),
        },
        // Threads and processes, but no namespaces.
        allow_if("clone", masked(0, Group { mask: CLONE_NAMESPACES, value: 0 })),
    ];
    rules.extend(SOCKET_FAMILIES.map(|family| allow_if("socket", equal(family))));
    rules.extend(PERSONALITIES.map(|personality| allow_if("personality", equal(personality))));
    rules.extend(all_but(&FORBIDDEN_IOCTLS).into_iter().map(|group| allow_if("ioctl", masked(1, group))));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": NO_SUCH_CALL,
        "architectures": [ARCHITECTURE],
        "syscalls": rules,
    })
}

fn allow_if(name: &str, condition: Value) -> Value {
    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": [condition] })
}

/// Of the first argument, which is an `int`: what is above its 32 bits does not count.
fn equal(value: u64) -> Value {
    masked(0, Group { mask: 0xffff_ffff, value })
}

fn masked(index: u32, group: Group) -> Value {
    json!({ "index": index, "value": group.mask, "valueTwo": group.value, "op": "SCMP_CMP_MASKED_EQ" })
}

/// All values whose bits under the mask are those of `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    mask: u64,
    value: u64,
}

/// Every number of 32 bits but these, in groups that do not overlap.
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
            // The kernel does not look above 32 bits, so neither may the filter.
            assert_eq!(is_in(&groups, request | 1 << 32), 0);
        }
        // TCGETS and TIOCGWINSZ.
        assert_eq!([is_in(&groups, 0x5401), is_in(&groups, 0x5413)], [1, 1]);
    }

    #[test]
    fn the_profile_denies_what_it_does_not_name() {
        let profile = profile(Kernel::Host);
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let unconditional = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW" && rule.get("args").is_none());
        let names: Vec<_> = unconditional.flat_map(|rule| rule["names"].as_array().unwrap()).collect();
        for dangerous in
            ["mount", "unshare", "setns", "bpf", "ioctl", "clone", "clone3", "socket", "personality", "ptracex"]
        {
            assert!(!names.iter().any(|name| *name == dangerous), "{dangerous}");
        }
        assert!(names.iter().any(|name| *name == "read"));
    }

    #[test]
    fn threads_are_made_in_the_way_that_each_kernel_leaves_open() {
        let rule = |kernel| {
            let rules = profile(kernel)["syscalls"].as_array().unwrap().clone();
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
