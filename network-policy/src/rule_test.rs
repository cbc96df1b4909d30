//! What rules can be written, and what an author is told about the others.

use super::*;
use crate::rule::{MAX_PORTS, Side};

fn shown(text: &str, side: Side) -> Result<String, String> {
    Rule::parse(text, side).map(|rule| rule.to_string()).map_err(|error| error.to_string())
}

#[test]
fn rules_have_one_canonical_text() {
    for (text, canonical) in [
        ("example.com", "example.com"),
        ("Example.COM.", "example.com"),
        ("bücher.example:22", "xn--bcher-kva.example:22"),
        ("example.com:00443", "example.com:443"),
        ("*.example.com", "*.example.com"),
        ("*.EXAMPLE.com.:8443", "*.example.com:8443"),
        ("203.0.113.0/24:5432", "203.0.113.0/24:5432"),
        ("203.0.113.7:443", "203.0.113.7:443"),
        ("203.0.113.7/32", "203.0.113.7"),
        ("[2001:db8::]/32:443", "[2001:db8::]/32:443"),
        ("2001:db8::/32:443", "[2001:db8::]/32:443"),
        ("[2001:DB8:0::1]:443", "[2001:db8::1]:443"),
        ("2001:db8::/32", "[2001:db8::]/32"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("[::ffff:203.0.113.7]:22", "203.0.113.7:22"),
        ("[::ffff:203.0.113.0]/120", "203.0.113.0/24"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("*", "*"),
        ("*:443", "*:443"),
    ] {
        for side in [Side::Allow, Side::Deny] {
            assert_eq!(shown(text, side), Ok(canonical.to_owned()), "{text}");
            assert_eq!(Rule::parse(canonical, side), Rule::parse(text, side));
        }
    }
}

#[test]
fn a_refused_rule_says_what_to_write_instead() {
    for (text, hint) in [
        ("", "empty"),
        ("a b", "space"),
        ("a\0", "control"),
        ("a\u{a0}b", "space"),
        ("https://user:pw@Example.com:8443/path?q#f", "write example.com:8443"),
        ("https://example.com", "write example.com"),
        ("https://[2001:db8::1]/", "write [2001:db8::1]"),
        ("http://", "URL"),
        ("example.com/path", "write example.com"),
        ("foo.*.com", "*.example.com"),
        ("*example.com", "*.example.com"),
        ("*.*.example.com", "*.example.com"),
        ("**", "*.example.com"),
        ("*.", "empty"),
        ("*.com*", "*.example.com"),
        ("example.com:0", "1 to 65535"),
        ("example.com:65536", "1 to 65535"),
        ("example.com:", "1 to 65535"),
        ("example.com:+80", "1 to 65535"),
        ("example.com:http", "1 to 65535"),
        ("example.com:80,443", "a rule for each port"),
        ("example.com:80-90", "a rule for each port"),
        ("203.0.113.7/24", "write 203.0.113.0/24"),
        ("[2001:db8::1]/32", "write [2001:db8::]/32"),
        ("203.0.113.0/33", "0 to 32"),
        ("203.0.113.0/", "0 to 32"),
        ("2001:db8::/129", "0 to 128"),
        ("[2001:db8::]/256", "0 to 128"),
        ("2001:db8::1:443", "write [2001:db8::1]:443 or [2001:db8::1:443]"),
        ("[2001:db8::1", "[2001:db8::1]:443"),
        ("[2001:db8::1]443", "[2001:db8::1]:443"),
        ("[203.0.113.7]:443", "[2001:db8::1]:443"),
        ("[fe80::1%eth0]:443", "[2001:db8::1]:443"),
        ("127.1", "looks like an address"),
        ("0x7f.1:443", "looks like an address"),
        ("010.0.0.1", "looks like an address"),
        ("*.203.0.113.7", "looks like an address"),
        ("127.0.0.1", "only loopback addresses"),
        ("127.0.0.0/8:80", "only loopback addresses"),
        ("169.254.169.254", "only metadata addresses"),
        ("[fe80::]/64", "only link-local addresses"),
        ("[::ffff:127.0.0.1]", "only loopback addresses"),
        ("[64:ff9b::7f00:1]", "only loopback addresses"),
        ("224.0.0.0/4", "only multicast"),
    ] {
        let error = shown(text, Side::Allow).unwrap_err();
        assert!(error.contains(hint), "{text}: {error}");
        assert!(error.len() < 400, "{error}");
    }
    assert!(shown(&"a".repeat(301), Side::Allow).unwrap_err().contains("300"));
}

#[test]
fn an_allow_rule_without_a_port_is_for_the_web_and_a_deny_rule_for_every_port() {
    for host in ["example.com", "*.example.com", "203.0.113.0/24", "2001:db8::/32"] {
        let (allow, deny) = (Rule::parse(host, Side::Allow).unwrap(), Rule::parse(host, Side::Deny).unwrap());
        for (port, is_web) in [(80, true), (443, true), (22, false), (65535, false)] {
            assert_eq!(allow.ports.contains(port), is_web, "{host} {port}");
            assert!(deny.ports.contains(port), "{host} {port}");
        }
    }
    assert!(Rule::parse("*", Side::Allow).unwrap().ports.contains(22));
}

#[test]
fn a_rule_in_parts_has_several_ports_and_may_be_private() {
    let rule = Rule::from_parts("Mirror.corp", &[8443, 443, 443], true, Side::Allow).unwrap();
    assert_eq!(rule.to_string(), "mirror.corp:443,8443 (private)");
    assert!(rule.may_reach_private());
    let parts = |host: &str, ports: &[u16], is_private, side| Rule::from_parts(host, ports, is_private, side);
    assert_eq!(parts("example.com", &[], false, Side::Allow), Rule::parse("example.com", Side::Allow));
    assert_eq!(parts("2001:db8::/32", &[443], false, Side::Allow), Rule::parse("[2001:db8::]/32:443", Side::Allow));
    assert_eq!(parts("a.example", &[0, 1], false, Side::Allow), Err(RuleError::Port));
    assert_eq!(parts("a.example:80", &[], false, Side::Allow), Err(RuleError::PortInHost));
    assert_eq!(parts("*", &[], true, Side::Allow), Err(RuleError::PrivateNetwork));
    assert_eq!(parts("10.0.0.0/8", &[], true, Side::Allow), Err(RuleError::PrivateNetwork));
    assert_eq!(parts("a.example", &[], true, Side::Deny), Err(RuleError::PrivateDeny));
    let many: Vec<u16> = (1..).take(MAX_PORTS + 1).collect();
    assert_eq!(parts("a.example", &many, false, Side::Allow), Err(RuleError::TooManyPorts));
    assert!(parts("a.example", &many[1..], false, Side::Allow).is_ok());
}

#[test]
fn rules_that_reach_private_addresses_are_told_apart() {
    for (text, is_private) in [
        ("example.com", false),
        ("*", false),
        ("203.0.113.0/24", false),
        ("10.1.2.3", true),
        ("0.0.0.0/0", true),
        ("[fd00::]/8", true),
        ("[2001:db8::]/32", false),
        ("[64:ff9b::a00:0]/104", true),
    ] {
        assert_eq!(Rule::parse(text, Side::Allow).unwrap().may_reach_private(), is_private, "{text}");
    }
}

#[test]
fn a_denylist_may_name_what_is_never_allowed_anyway() {
    assert_eq!(shown("169.254.169.254", Side::Deny), Ok("169.254.169.254".to_owned()));
}
