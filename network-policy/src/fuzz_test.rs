//! What the fuzzer of this crate asserts; see `fuzz/`. The test replays its inputs.
//!
//! An input is a policy and questions, one in each line: `+rule` allows, `-rule` denies, `?name` resolves and speaks, and
//! `@address port` connects.

use std::net::IpAddr;

use crate::{HostName, NameError, Opening, Policy, Rule, RuleError, Side, Spoken, Target, classify};

/// The most questions of each kind: more take long and show nothing new.
const MOST: usize = 16;

/// Any lines give rules, names and addresses, or short errors; and what a policy promises holds for them.
pub fn policy(bytes: &[u8]) {
    let (mut allow, mut deny, mut names, mut addresses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for line in bytes.split(|&byte| byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else { continue };
        let text = String::from_utf8_lossy(rest);
        match kind {
            b'+' => allow.extend(rule(&text, Side::Allow)),
            b'-' => deny.extend(rule(&text, Side::Deny)),
            b'?' => names.extend(name(rest)),
            b'@' => addresses.extend(address(&text)),
            _ => {}
        }
    }
    names.truncate(MOST);
    addresses.truncate(MOST);
    let (Ok(without_deny), Ok(policy)) = (Policy::new(allow.clone(), Vec::new()), Policy::new(allow, deny)) else {
        return;
    };
    for name in &names {
        assert!(policy.may_resolve(name).is_err() || without_deny.may_resolve(name).is_ok(), "{name}");
    }
    for &(address, port) in &addresses {
        let target = Target { names: &names, address, port, is_own_host: false, is_daemon: false };
        let own = Target { is_own_host: true, ..target };
        for target in [target, own, Target { names: &[], ..target }] {
            check(&policy, &without_deny, &target, &names);
        }
        assert!(policy.connect(&own).is_err() || policy.connect(&target).is_ok(), "{own:?}");
        assert!(policy.connect(&Target { is_daemon: true, ..target }).is_err());
    }
}

fn check(policy: &Policy, without_deny: &Policy, target: &Target<'_>, names: &[HostName]) {
    let opening = policy.connect(target);
    assert!(opening.is_err() || !classify(target.address).is_never_allowed(), "{target:?}");
    if let Ok(opening) = &opening {
        // Without deny rules, what an address rule allows is not looked at.
        let freer = without_deny.connect(target);
        assert!(
            freer == Ok(*opening) || (*opening == Opening::Any && freer == Ok(Opening::Free)),
            "{freer:?} {target:?}"
        );
    }
    for name in names {
        let named = Target { names: std::slice::from_ref(name), ..*target };
        if policy.spoken(target, &Spoken::Tls(Some(name.clone()))).is_ok() {
            assert!(opening.is_ok() && policy.connect(&named).is_ok(), "{name} {target:?}");
        }
    }
    assert!(policy.spoken(target, &Spoken::Other).is_err() || opening.is_ok());
}

fn rule(text: &str, side: Side) -> Option<Rule> {
    const LONGEST_ERROR: usize = 1024;
    let rule = match Rule::parse(text, side) {
        Ok(rule) => rule,
        Err(error) => {
            assert!(error.to_string().len() < LONGEST_ERROR, "{error}");
            // What an error suggests is a rule.
            if let RuleError::Url { host: Some(host) } = error {
                let again = Rule::parse(&host, Side::Deny);
                assert!(again.is_ok(), "{host}: {again:?}");
            }
            return None;
        }
    };
    assert_eq!(Rule::parse(&rule.to_string(), side).as_ref(), Ok(&rule));
    Some(rule)
}

fn name(bytes: &[u8]) -> Result<HostName, NameError> {
    let wire = HostName::from_bytes(bytes);
    let name = HostName::parse(&String::from_utf8_lossy(bytes))?;
    assert!(!bytes.is_ascii() || wire.as_ref() == Ok(&name));
    assert_eq!(HostName::parse(name.as_str()).as_ref(), Ok(&name));
    assert_eq!(HostName::parse(&format!("{}.", name.as_str().to_uppercase())).as_ref(), Ok(&name));
    assert!(name.as_str().parse::<IpAddr>().is_err());
    Ok(name)
}

fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(' ')?;
    Some((address.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("policy", policy);
    }
}
