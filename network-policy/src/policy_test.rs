//! What policies decide, example by example.

use std::net::IpAddr;

use crate::{Denial, HostName, MAX_RULES, Opening, Policy, PolicyError, Reason, Rule, Side, Spoken, Target};

fn rules(texts: &str, side: Side) -> Vec<Rule> {
    texts.split_whitespace().map(|text| Rule::parse(text, side).unwrap()).collect()
}

fn policy(allow: &str, deny: &str) -> Policy {
    Policy::new(rules(allow, Side::Allow), rules(deny, Side::Deny)).unwrap()
}

fn names(texts: &str) -> Vec<HostName> {
    texts.split_whitespace().map(|text| HostName::parse(text).unwrap()).collect()
}

fn name(text: &str) -> Option<HostName> {
    Some(HostName::parse(text).unwrap())
}

fn target<'a>(names: &'a [HostName], address: &str, port: u16) -> Target<'a> {
    let address: IpAddr = address.parse().unwrap();
    Target { names, address, port, is_own_host: false, is_daemon: false }
}

/// The opening in lower case, or the code and the wanted rule of the denial.
fn shown(result: Result<Opening, Denial>) -> String {
    match result {
        Ok(opening) => format!("{opening:?}").to_lowercase(),
        Err(denial) => format!("{} {}", denial.reason.as_str(), denial.wanted),
    }
}

#[test]
fn connections_are_decided_as_in_the_table() {
    // Allowed, denied; the names, the address and the port; the answer.
    for (allow, deny, resolved, address, port, expected) in [
        ("", "", "", "203.0.113.7", 443, "address_not_allowed 203.0.113.7:443"),
        ("", "", "a.com", "203.0.113.7", 443, "name_not_allowed a.com"),
        ("", "", "a.com", "203.0.113.7", 22, "name_not_allowed a.com:22"),
        ("a.com", "", "a.com", "203.0.113.7", 443, "named"),
        ("a.com", "", "a.com", "::ffff:203.0.113.7", 80, "named"),
        ("a.com", "", "a.com", "203.0.113.7", 22, "port_not_allowed a.com:22"),
        ("a.com:22", "", "a.com", "203.0.113.7", 22, "any"),
        ("a.com:22", "", "a.com", "203.0.113.7", 443, "port_not_allowed a.com"),
        ("a.com a.com:443", "", "a.com", "203.0.113.7", 443, "any"),
        ("a.com", "", "b.com a.com", "203.0.113.7", 443, "named"),
        ("*.a.com", "", "a.com", "203.0.113.7", 443, "name_not_allowed a.com"),
        ("*.a.com", "", "c.b.a.com", "203.0.113.7", 443, "named"),
        ("*.a.com", "", "ba.com", "203.0.113.7", 443, "name_not_allowed ba.com"),
        ("*.a.com:22", "", "b.a.com", "203.0.113.7", 22, "any"),
        // Nobody resolved it: the first bytes must tell the name.
        ("a.com", "", "", "203.0.113.7", 443, "unnamed"),
        ("*.a.com:22", "", "", "203.0.113.7", 22, "unnamed"),
        ("a.com", "", "", "203.0.113.7", 22, "address_not_allowed 203.0.113.7:22"),
        ("a.com", "", "", "10.0.0.1", 443, "private_address 10.0.0.1:443"),
        ("a.com 203.0.113.7:443", "", "", "203.0.113.7", 443, "free"),
        // A name does not make a private address reachable.
        ("a.com", "", "a.com", "10.0.0.1", 443, "private_address 10.0.0.1:443"),
        ("a.com", "", "a.com", "64:ff9b::10.0.0.1", 443, "private_address [64:ff9b::a00:1]:443"),
        ("*", "", "", "10.0.0.1", 443, "private_address 10.0.0.1:443"),
        ("*", "", "", "203.0.113.7", 22, "free"),
        ("*", "", "a.com", "2606::1", 22, "free"),
        ("*:443", "", "", "203.0.113.7", 443, "free"),
        ("*:443", "", "", "203.0.113.7", 80, "port_not_allowed 203.0.113.7:80"),
        ("10.0.0.0/8:5432", "", "", "10.1.2.3", 5432, "free"),
        ("10.0.0.0/8:5432", "", "db.corp", "10.1.2.3", 5432, "free"),
        ("10.0.0.0/8:5432", "", "", "10.1.2.3", 22, "port_not_allowed 10.1.2.3:22"),
        ("10.0.0.0/8", "", "", "::ffff:10.1.2.3", 443, "free"),
        ("10.0.0.0/8", "", "", "64:ff9b::10.1.2.3", 443, "private_address [64:ff9b::a01:203]:443"),
        ("[2001:db8::]/32:443", "", "", "2001:db8::9", 443, "free"),
        // Whatever the rules say.
        ("* 0.0.0.0/0:80 a.com", "", "a.com", "127.0.0.1", 80, "loopback_address 127.0.0.1:80"),
        ("* 0.0.0.0/0:80", "", "", "0.0.0.0", 80, "loopback_address 0.0.0.0:80"),
        ("* [::]/0:80", "", "", "::ffff:127.0.0.1", 80, "loopback_address 127.0.0.1:80"),
        ("* 0.0.0.0/0:80", "", "", "169.254.169.254", 80, "metadata_address 169.254.169.254:80"),
        ("* 168.0.0.0/8:80", "", "", "168.63.129.16", 80, "metadata_address 168.63.129.16:80"),
        ("* [fd00::]/8:80", "", "", "fd00:ec2::254", 80, "metadata_address [fd00:ec2::254]:80"),
        ("* [::]/0:80", "", "", "fe80::1", 80, "link_local_address [fe80::1]:80"),
        ("* 0.0.0.0/0:80", "", "", "224.0.0.1", 80, "multicast_address 224.0.0.1:80"),
        // A deny rule wins.
        ("*", "a.com", "a.com", "203.0.113.7", 443, "denied_by_rule a.com"),
        ("*", "a.com", "b.com a.com", "203.0.113.7", 9, "denied_by_rule b.com:9"),
        ("*", "a.com:22", "a.com", "203.0.113.7", 443, "any"),
        ("*", "*.a.com", "a.com", "203.0.113.7", 443, "any"),
        ("* a.com", "203.0.113.0/24", "a.com", "203.0.113.7", 443, "denied_by_rule a.com"),
        ("*", "203.0.113.0/24", "", "::ffff:203.0.113.7", 443, "denied_by_rule 203.0.113.7:443"),
        ("*", "203.0.113.0/24", "", "64:ff9b::203.0.113.7", 443, "denied_by_rule [64:ff9b::cb00:7107]:443"),
        ("*", "203.0.113.0/24", "", "2002:cb00:7107::1", 443, "denied_by_rule [2002:cb00:7107::1]:443"),
        ("10.0.0.0/8", "*:443", "", "10.0.0.1", 443, "denied_by_rule 10.0.0.1:443"),
        ("10.0.0.0/8", "*:443", "", "10.0.0.1", 80, "any"),
    ] {
        let resolved = names(resolved);
        let answer = policy(allow, deny).connect(&target(&resolved, address, port));
        assert_eq!(shown(answer), expected, "+{allow} -{deny} {resolved:?} {address} {port}");
    }
}

#[test]
fn a_private_rule_allows_its_name_at_private_addresses_and_on_this_host() {
    let rule = Rule::from_parts("mirror.corp", &[], true, Side::Allow).unwrap();
    let policy = Policy::new(vec![rule], Vec::new()).unwrap();
    let mirror = names("mirror.corp");
    let private = target(&mirror, "10.0.0.1", 443);
    assert_eq!(policy.connect(&private), Ok(Opening::Named));
    assert_eq!(policy.connect(&Target { is_own_host: true, ..private }), Ok(Opening::Named));
    assert_eq!(policy.connect(&Target { names: &[], ..private }), Ok(Opening::Unnamed));
    let other = names("other.corp");
    assert_eq!(policy.connect(&Target { names: &other, ..private }).unwrap_err().reason, Reason::NameNotAllowed);
    for address in ["127.0.0.1", "169.254.169.254", "fe80::1"] {
        assert!(policy.connect(&target(&mirror, address, 443)).is_err(), "{address}");
    }
}

#[test]
fn this_host_is_reached_only_by_a_rule_for_its_address() {
    let a = names("a.com");
    let own = Target { is_own_host: true, ..target(&a, "203.0.113.7", 443) };
    for (allow, expected) in [
        ("*", "own_address 203.0.113.7:443"),
        ("a.com", "own_address 203.0.113.7:443"),
        ("a.com:443", "own_address 203.0.113.7:443"),
        ("203.0.113.7:443", "free"),
    ] {
        assert_eq!(shown(policy(allow, "").connect(&own)), expected, "{allow}");
    }
    let daemon = Target { is_daemon: true, ..own };
    assert_eq!(policy("* 203.0.113.7:443", "").connect(&daemon).unwrap_err().reason, Reason::OwnAddress);
}

#[test]
fn what_is_spoken_is_decided_as_in_the_table() {
    use Spoken::{Http, Other, Tls};
    for (allow, deny, resolved, spoken, expected) in [
        // Named: the name is needed, and it must be allowed.
        ("a.com", "", "a.com", Tls(name("a.com")), "ok"),
        ("a.com b.com", "", "a.com", Tls(name("b.com")), "ok"),
        ("a.com", "", "a.com", Tls(name("b.com")), "server_name_not_allowed b.com"),
        ("a.com", "", "a.com", Http(name("b.com")), "host_not_allowed b.com"),
        ("a.com b.com:22", "", "a.com", Http(name("b.com")), "host_not_allowed b.com"),
        ("a.com", "", "a.com", Tls(None), "server_name_missing a.com:443"),
        ("a.com", "", "a.com", Http(None), "host_missing a.com:443"),
        ("a.com", "", "a.com", Other, "protocol_not_allowed a.com:443"),
        ("a.com *.c.com", "x.c.com", "a.com", Tls(name("x.c.com")), "denied_by_rule x.c.com"),
        // Unnamed: the same.
        ("a.com", "", "", Tls(name("a.com")), "ok"),
        ("a.com", "", "", Tls(name("b.com")), "server_name_not_allowed b.com"),
        ("a.com:443", "", "", Other, "protocol_not_allowed 203.0.113.7:443"),
        // A listed port: a name that is there must be allowed.
        ("a.com:443", "", "a.com", Other, "ok"),
        ("a.com:443", "", "a.com", Tls(None), "ok"),
        ("a.com:443", "", "a.com", Tls(name("a.com")), "ok"),
        ("a.com:443", "", "a.com", Tls(name("b.com")), "server_name_not_allowed b.com"),
        // By address: only deny rules count.
        ("*", "", "", Other, "ok"),
        ("*", "", "a.com", Tls(name("b.com")), "ok"),
        ("*", "b.com", "a.com", Tls(name("b.com")), "denied_by_rule b.com"),
        ("203.0.113.7:443", "*.b.com:443", "", Http(name("x.b.com")), "denied_by_rule x.b.com"),
        ("203.0.113.7:443", "b.com:22", "", Http(name("b.com")), "ok"),
        // What may not be opened may not be spoken either.
        ("", "", "a.com", Other, "name_not_allowed a.com"),
        ("*", "a.com", "a.com", Tls(name("b.com")), "denied_by_rule a.com"),
    ] {
        let resolved = names(resolved);
        let answer = policy(allow, deny).spoken(&target(&resolved, "203.0.113.7", 443), &spoken);
        let shown = answer.map_or_else(|d| format!("{} {}", d.reason.as_str(), d.wanted), |()| "ok".to_owned());
        assert_eq!(shown, expected, "+{allow} -{deny} {resolved:?} {spoken:?}");
    }
}

#[test]
fn names_are_resolved_as_in_the_table() {
    for (allow, deny, asked, expected) in [
        ("", "", "a.com", Some(Reason::NameNotAllowed)),
        ("a.com", "", "A.com.", None),
        ("a.com:22", "", "a.com", None),
        ("*.a.com", "", "a.com", Some(Reason::NameNotAllowed)),
        ("*.a.com", "", "b.a.com", None),
        ("*", "", "a.com", None),
        ("*:443", "", "a.com", None),
        ("203.0.113.0/24 0.0.0.0/0", "", "a.com", Some(Reason::NameNotAllowed)),
        ("*", "a.com", "a.com", Some(Reason::DeniedByRule)),
        ("*", "a.com:22", "a.com", None),
        ("*", "*.a.com", "b.a.com", Some(Reason::DeniedByRule)),
        ("a.com", "*", "a.com", Some(Reason::DeniedByRule)),
        ("a.com", "0.0.0.0/0", "a.com", None),
    ] {
        let answer = policy(allow, deny).may_resolve(&HostName::parse(asked).unwrap());
        assert_eq!(answer.err().map(|denial| denial.reason), expected, "+{allow} -{deny} {asked}");
    }
}

#[test]
fn an_alias_is_denied_by_a_rule_for_what_it_stands_for() {
    let (alias, other) = (HostName::parse("a.com").unwrap(), HostName::parse("b.net").unwrap());
    for (deny, port, expected) in [
        ("", Some(80), None),
        ("a.com", Some(80), None),
        ("b.net", None, Some(Reason::DeniedByRule)),
        ("b.net", Some(80), Some(Reason::DeniedByRule)),
        ("*.net", None, Some(Reason::DeniedByRule)),
        ("b.net:22", None, None),
        ("b.net:22", Some(80), None),
        ("b.net:22", Some(22), Some(Reason::DeniedByRule)),
    ] {
        let answer = policy("a.com", deny).may_be_alias(&alias, &other, port);
        assert_eq!(answer.err().map(|denial| denial.reason), expected, "-{deny} {port:?}");
        let below = policy("a.com", "").under(&policy("*", deny)).may_be_alias(&alias, &other, port);
        let expected = expected.map(|_| Reason::AboveMaximum);
        assert_eq!(below.err().map(|denial| denial.reason), expected, "maximum -{deny} {port:?}");
    }
}

#[test]
fn a_policy_has_bounded_rules_each_in_its_list() {
    let (allow, deny) = (rules("a.com", Side::Allow), rules("a.com", Side::Deny));
    assert!(matches!(Policy::new(deny.clone(), Vec::new()), Err(PolicyError::WrongSide { .. })));
    assert!(matches!(Policy::new(Vec::new(), allow.clone()), Err(PolicyError::WrongSide { .. })));
    let most = vec![allow[0].clone(); MAX_RULES];
    assert_eq!(Policy::new(most.clone(), deny), Err(PolicyError::TooManyRules { count: MAX_RULES + 1 }));
    assert!(Policy::new(most, Vec::new()).is_ok());
    assert_eq!(Policy::none(), policy("", ""));
    assert_eq!(Policy::full(), policy("*", ""));
}
