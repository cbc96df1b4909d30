//! The promises of this crate, for any rules, names and addresses. The universe is small, so that rules and targets often meet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::{HostName, Network, Opening, Policy, Reason, Rule, Side, Spoken, Target, canonical, classify};

const NAMES: &[&str] = &["x", "y.x", "z.y.x", "yx", "a.yx", "com", "a.com", "b.a.com", "xn--bcher-kva.example"];
const PORTS: &[u16] = &[22, 80, 443, 8443];
const HOSTS: &[&str] = &["*", "*.x", "*.y.x", "*.com", "*.yx"];
const NETWORKS: &[&str] = &[
    "0.0.0.0/0",
    "::/0",
    "203.0.113.0/24",
    "10.0.0.0/8",
    "192.0.0.0/8",
    "168.0.0.0/7",
    "fc00::/7",
    "64:ff9b::/96",
    "2002::/16",
    "2001:db8::/32",
    "203.0.113.7",
    "[2001:db8::1]",
];
const ADDRESSES: &[&str] = &[
    "203.0.113.7",
    "203.0.113.8",
    "10.0.0.1",
    "192.168.0.1",
    "127.0.0.1",
    "0.0.0.0",
    "169.254.169.254",
    "169.254.0.9",
    "168.63.129.16",
    "100.100.100.200",
    "224.0.0.1",
    "255.255.255.255",
    "2001:db8::1",
    "2606::1",
    "::1",
    "::",
    "fe80::1",
    "fd00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001::1",
];

fn ports() -> impl Strategy<Value = Vec<u16>> {
    vec(select(PORTS), 0..3)
}

fn rule(side: Side) -> impl Strategy<Value = Rule> {
    let hosts: Vec<&str> = [NAMES, HOSTS, NETWORKS].concat();
    (select(hosts), ports(), any::<bool>()).prop_map(move |(host, ports, is_private)| {
        Rule::from_parts(host, &ports, is_private, side)
            .or_else(|_| Rule::from_parts(host, &ports, false, side))
            .unwrap()
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    (vec(rule(Side::Allow), 0..5), vec(rule(Side::Deny), 0..3)).prop_map(|(a, d)| Policy::new(a, d).unwrap())
}

/// Addresses of every class, and IPv6 addresses that carry them.
fn address() -> impl Strategy<Value = IpAddr> {
    let listed = select(ADDRESSES).prop_map(|text| text.parse::<IpAddr>().unwrap());
    let carrying = (listed.clone(), 0..6_u8).prop_map(|(address, form)| match address {
        IpAddr::V4(v4) => carrier(v4, form).into(),
        v6 => v6,
    });
    prop_oneof![listed, carrying, any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()), any::<IpAddr>()]
}

fn carrier(inner: Ipv4Addr, form: u8) -> Ipv6Addr {
    let bits = u128::from(inner.to_bits());
    Ipv6Addr::from_bits(match form {
        0 => bits | 0xffff << 32,
        1 => bits,
        2 => bits | 0x64_ff9b << 96,
        3 => bits | 0x64_ff9b_0001 << 80,
        4 => 0x2002 << 112 | bits << 80 | 7,
        _ => 0x2606 << 112 | 0x5efe << 32 | bits,
    })
}

#[derive(Debug, Clone)]
struct Asked {
    names: Vec<HostName>,
    address: IpAddr,
    port: u16,
    is_own_host: bool,
    is_daemon: bool,
}

impl Asked {
    fn target(&self) -> Target<'_> {
        let Self { names, address, port, is_own_host, is_daemon } = self;
        Target { names, address: *address, port: *port, is_own_host: *is_own_host, is_daemon: *is_daemon }
    }

    fn named<'a>(&'a self, name: &'a HostName) -> Target<'a> {
        Target { names: std::slice::from_ref(name), ..self.target() }
    }
}

fn name() -> impl Strategy<Value = HostName> {
    select(NAMES).prop_map(|name| HostName::parse(name).unwrap())
}

fn asked() -> impl Strategy<Value = Asked> {
    (vec(name(), 0..3), address(), select(PORTS), prop::bool::weighted(0.2), prop::bool::weighted(0.05)).prop_map(
        |(names, address, port, is_own_host, is_daemon)| Asked { names, address, port, is_own_host, is_daemon },
    )
}

fn spoken() -> impl Strategy<Value = Spoken> {
    prop_oneof![
        prop::option::of(name()).prop_map(Spoken::Tls),
        prop::option::of(name()).prop_map(Spoken::Http),
        Just(Spoken::Other),
    ]
}

/// Whether the first opening checks at least as much as the second one.
fn at_most(opening: Opening, other: Opening) -> bool {
    let rank = |opening| match opening {
        Opening::Unnamed => 0,
        Opening::Named => 1,
        Opening::Any => 2,
        Opening::Free => 3,
    };
    rank(opening) <= rank(other)
}

/// Changes the case of letters and adds a trailing dot.
fn respelled(name: &str, seed: u64) -> String {
    let cased =
        name.chars().enumerate().map(|(at, c)| if seed >> (at % 60) & 1 == 1 { c.to_ascii_uppercase() } else { c });
    let text: String = cased.collect();
    if seed >> 63 == 1 { text + "." } else { text }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_policy_reaches_the_daemon_nor_an_address_that_is_never_allowed(
        policy in policy(),
        asked in asked(),
        spoken in spoken(),
    ) {
        if asked.is_daemon || classify(asked.address).is_never_allowed() {
            prop_assert!(policy.connect(&asked.target()).is_err());
            prop_assert!(policy.spoken(&asked.target(), &spoken).is_err());
        }
    }

    #[test]
    fn an_address_that_carries_a_forbidden_one_is_forbidden(
        policy in policy(),
        inner in select(ADDRESSES),
        form in 0..6_u8,
        port in select(PORTS),
    ) {
        if let Ok(inner) = inner.parse::<Ipv4Addr>() && classify(inner.into()).is_never_allowed() {
            let target = Target { names: &[], address: carrier(inner, form).into(), port, is_own_host: false, is_daemon: false };
            prop_assert!(policy.connect(&target).is_err(), "{}", target.address);
        }
    }

    #[test]
    fn full_allows_only_public_addresses_of_others(asked in asked()) {
        let is_public = classify(asked.address) == crate::AddressClass::Public;
        let expected = is_public && !asked.is_own_host && !asked.is_daemon;
        prop_assert_eq!(Policy::full().connect(&asked.target()).is_ok(), expected);
        prop_assert!(Policy::none().connect(&asked.target()).is_err());
    }

    #[test]
    fn another_deny_rule_allows_nothing_new(
        policy in policy(),
        rule in rule(Side::Deny),
        asked in asked(),
        spoken in spoken(),
        name in name(),
    ) {
        let mut deny = policy.deny().to_vec();
        deny.push(rule);
        let stricter = Policy::new(policy.allow().to_vec(), deny).unwrap();
        if let Ok(opening) = stricter.connect(&asked.target()) {
            // Without deny rules, what an address rule allows is not looked at.
            let freer = policy.connect(&asked.target());
            prop_assert!(freer == Ok(opening) || (opening == Opening::Any && freer == Ok(Opening::Free)), "{:?}", freer);
        }
        prop_assert!(stricter.spoken(&asked.target(), &spoken).is_err() || policy.spoken(&asked.target(), &spoken).is_ok());
        prop_assert!(stricter.may_resolve(&name).is_err() || policy.may_resolve(&name).is_ok());
    }

    #[test]
    fn another_allow_rule_denies_nothing(
        policy in policy(),
        rule in rule(Side::Allow),
        asked in asked(),
        spoken in spoken(),
        name in name(),
    ) {
        let mut allow = policy.allow().to_vec();
        allow.push(rule);
        let looser = Policy::new(allow, policy.deny().to_vec()).unwrap();
        prop_assert!(policy.connect(&asked.target()).is_err() || looser.connect(&asked.target()).is_ok());
        prop_assert!(policy.spoken(&asked.target(), &spoken).is_err() || looser.spoken(&asked.target(), &spoken).is_ok());
        prop_assert!(policy.may_resolve(&name).is_err() || looser.may_resolve(&name).is_ok());
    }

    #[test]
    fn a_matching_deny_rule_wins_over_any_allow_rules(policy in policy(), asked in asked(), name in name()) {
        let deny = vec![Rule::parse(name.as_str(), Side::Deny).unwrap()];
        let denied = Policy::new(policy.allow().to_vec(), deny).unwrap();
        prop_assert!(denied.may_resolve(&name).is_err());
        prop_assert!(denied.connect(&asked.named(&name)).is_err());
        prop_assert!(denied.spoken(&asked.target(), &Spoken::Tls(Some(name))).is_err());
    }

    #[test]
    fn a_spoken_name_that_is_allowed_may_also_be_connected_to(policy in policy(), asked in asked(), name in name()) {
        for spoken in [Spoken::Tls(Some(name.clone())), Spoken::Http(Some(name.clone()))] {
            if policy.spoken(&asked.target(), &spoken).is_ok() {
                prop_assert!(policy.connect(&asked.target()).is_ok());
                prop_assert!(policy.connect(&asked.named(&name)).is_ok());
            }
        }
    }

    #[test]
    fn the_order_of_rules_and_names_does_not_matter(policy in policy(), asked in asked(), spoken in spoken()) {
        let reversed = |rules: &[Rule]| rules.iter().rev().cloned().collect::<Vec<_>>();
        let other = Policy::new(reversed(policy.allow()), reversed(policy.deny())).unwrap();
        prop_assert_eq!(other.connect(&asked.target()), policy.connect(&asked.target()));
        prop_assert_eq!(other.spoken(&asked.target(), &spoken), policy.spoken(&asked.target(), &spoken));
        let names: Vec<HostName> = asked.names.iter().rev().cloned().collect();
        let turned = policy.connect(&Target { names: &names, ..asked.target() });
        prop_assert_eq!(turned.map_err(|denial| denial.reason), policy.connect(&asked.target()).map_err(|denial| denial.reason));
    }

    #[test]
    fn every_spelling_of_an_address_is_decided_alike(policy in policy(), asked in asked(), spoken in spoken()) {
        let other = match canonical(asked.address) {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            v6 => v6,
        };
        let mapped = Target { address: other, ..asked.target() };
        prop_assert_eq!(policy.connect(&mapped), policy.connect(&asked.target()));
        prop_assert_eq!(policy.spoken(&mapped, &spoken), policy.spoken(&asked.target(), &spoken));
        prop_assert_eq!(classify(other), classify(asked.address));
    }

    #[test]
    fn the_wanted_rule_allows_what_was_denied(policy in policy(), asked in asked(), spoken in spoken()) {
        use Reason::{AddressNotAllowed, DeniedByRule, NameNotAllowed, OwnAddress, PortNotAllowed, PrivateAddress};
        const BY_RULES: [Reason; 5] = [NameNotAllowed, AddressNotAllowed, PortNotAllowed, PrivateAddress, OwnAddress];
        let with = |wanted: &str| {
            let mut allow = policy.allow().to_vec();
            allow.push(Rule::parse(wanted, Side::Allow).unwrap());
            Policy::new(allow, policy.deny().to_vec()).unwrap()
        };
        match policy.connect(&asked.target()) {
            Err(denial) if BY_RULES.contains(&denial.reason) => {
                prop_assert!(asked.is_daemon || with(&denial.wanted).connect(&asked.target()).is_ok(), "{}", denial);
            }
            Err(_) => {}
            Ok(_) => match policy.spoken(&asked.target(), &spoken) {
                Err(denial) if denial.reason != DeniedByRule => {
                    prop_assert!(with(&denial.wanted).spoken(&asked.target(), &spoken).is_ok(), "{}", denial);
                }
                _ => {}
            },
        }
    }

    #[test]
    fn under_a_maximum_both_policies_allow_whatever_is_allowed(
        own in policy(),
        most in policy(),
        asked in asked(),
        spoken in spoken(),
        name in name(),
    ) {
        let (policy, target) = (own.under(&most), asked.target());
        let both = [&own, &most];
        if policy.may_resolve(&name).is_ok() {
            prop_assert!(both.iter().all(|policy| policy.may_resolve(&name).is_ok()));
        }
        if policy.may_reach(&target).is_ok() {
            let is_reached = |policy: &Policy| PORTS.iter().any(|port| policy.connect(&Target { port: *port, ..target }).is_ok());
            prop_assert!(both.iter().all(|policy| is_reached(policy)));
        }
        if policy.spoken(&target, &spoken).is_ok() {
            prop_assert!(both.iter().all(|policy| policy.spoken(&target, &spoken).is_ok()));
        }
        if let Ok(opening) = policy.connect(&target) {
            let openings: Vec<_> = both.iter().map(|policy| policy.connect(&target).unwrap()).collect();
            prop_assert!(openings.iter().all(|other| at_most(opening, *other)), "{:?} of {:?}", opening, openings);
            // The two allow it for the same name.
            let is_same = |name: &HostName| both.iter().all(|policy| policy.connect(&asked.named(name)).is_ok());
            prop_assert!(asked.names.is_empty() || asked.names.iter().any(is_same));
        } else if asked.names.len() < 2 {
            prop_assert!(both.iter().any(|policy| policy.connect(&target).is_err()));
        }
    }

    #[test]
    fn what_is_within_a_maximum_is_not_narrowed_by_its_allow_rules(
        own in policy(),
        most in vec(rule(Side::Allow), 0..5),
        asked in asked(),
        spoken in spoken(),
    ) {
        let most = Policy::new(most, Vec::new()).unwrap();
        prop_assert!(own.rule_above(&own).is_none(), "a policy is within itself");
        // A network may contain an address of this host, which no other rule allows.
        if own.rule_above(&most).is_none() && !asked.is_own_host {
            let (target, policy) = (asked.target(), own.under(&most));
            prop_assert_eq!(policy.connect(&target).ok(), own.connect(&target).ok());
            prop_assert_eq!(policy.spoken(&target, &spoken).is_ok(), own.spoken(&target, &spoken).is_ok());
        }
    }

    #[test]
    fn nobody_is_told_to_ask_for_what_the_maximum_forbids(own in policy(), most in policy(), asked in asked(), name in name()) {
        let policy = own.under(&most);
        let is_askable = |denied: Option<crate::Denial>| denied.is_some_and(|denial| denial.reason.can_be_allowed());
        if is_askable(policy.connect(&asked.target()).err()) {
            prop_assert!(most.connect(&asked.target()).is_ok());
        }
        if is_askable(policy.may_resolve(&name).err()) {
            prop_assert!(most.may_resolve(&name).is_ok());
        }
    }

    #[test]
    fn a_wildcard_matches_only_what_is_below_it(
        parent in "[a-z]{1,4}(\\.[a-z]{1,4}){0,2}",
        label in "[a-z0-9_-]{1,4}",
    ) {
        let policy = Policy::new(vec![Rule::parse(&format!("*.{parent}"), Side::Allow).unwrap()], Vec::new()).unwrap();
        let may = |text: &str| policy.may_resolve(&HostName::parse(text).unwrap()).is_ok();
        let (below, joined, after) = (format!("{label}.{parent}"), format!("{label}{parent}"), format!("{parent}.{label}z"));
        let deeper = format!("q.{below}");
        prop_assert!(may(&below) && may(&deeper));
        prop_assert!(!may(&parent) && !may(&joined));
        prop_assert_eq!(may(&after), after.ends_with(&format!(".{parent}")));
    }

    #[test]
    fn every_spelling_of_a_name_is_the_same_name(name in select(NAMES), seed: u64) {
        prop_assert_eq!(HostName::parse(&respelled(name, seed)), HostName::parse(name));
    }

    #[test]
    fn any_text_is_a_canonical_name_or_an_error(text in "\\PC{0,20}(\\.\\PC{0,5})?|[0-9a-fx.]{1,12}|.{0,10}") {
        if let Ok(name) = HostName::parse(&text) {
            prop_assert_eq!(HostName::parse(name.as_str()), Ok(name.clone()));
            prop_assert!(name.as_str().parse::<IpAddr>().is_err());
            prop_assert!(name.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
        }
    }

    #[test]
    fn the_text_of_a_rule_is_read_as_the_same_rule(
        allow in rule(Side::Allow),
        deny in rule(Side::Deny),
        noise in "\\PC{0,24}|[*.:/\\[\\]0-9a-f]{0,16}",
    ) {
        let noisy = [Side::Allow, Side::Deny].map(|side| Rule::parse(&noise, side).ok());
        for rule in noisy.into_iter().flatten().chain([allow, deny]) {
            let text = rule.to_string();
            if !text.contains([',', ' ']) {
                prop_assert_eq!(Rule::parse(&text, rule.side()), Ok(rule), "{}", text);
            }
        }
    }

    #[test]
    fn a_network_rule_is_for_exactly_its_addresses(address in address(), prefix in 0..=128_u8, other in address()) {
        if let Err(crate::NetworkError::HostBits { meant }) = Network::new(canonical(address), prefix) {
            prop_assert!(meant.contains(address));
            prop_assert_eq!(Network::new(meant.address(), meant.prefix()), Ok(meant));
            let policy = Rule::parse(&meant.to_string(), Side::Allow).map(|rule| Policy::new(vec![rule], Vec::new()).unwrap());
            if let Ok(policy) = policy {
                let target = Target { names: &[], address: other, port: 443, is_own_host: true, is_daemon: false };
                let expected = meant.contains(other) && !classify(other).is_never_allowed();
                prop_assert_eq!(policy.connect(&target).is_ok(), expected);
            }
        }
    }

    #[test]
    fn a_rule_that_is_not_private_reaches_no_private_address(rule in rule(Side::Allow), asked in asked()) {
        if !rule.may_reach_private() && classify(asked.address) == crate::AddressClass::Private {
            prop_assert!(Policy::new(vec![rule], Vec::new()).unwrap().connect(&asked.target()).is_err());
        }
    }
}
