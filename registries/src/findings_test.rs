//! Tests of `findings`.

use super::*;

fn finding(tool: &'static str, url: &str, because: &str, named_by: Option<&str>) -> Finding {
    let url = SourceUrl::parse(url).unwrap();
    Finding { tool, url, because: because.to_owned(), named_by: named_by.map(str::to_owned) }
}

fn places(places: &[(&str, Place)]) -> BTreeMap<String, Place> {
    places.iter().map(|(host, place)| ((*host).to_owned(), *place)).collect()
}

#[test]
fn duplicates_merge_with_all_reasons_and_ports() {
    let findings = [
        finding("pip", "https://a.test/", "one", None),
        finding("pip", "https://a.test:8443/", "two", None),
        finding("pip", "https://a.test/x", "one", Some("b.test")),
        finding("pip", "http://a.test/", "plain", None),
        finding("npm", "https://a.test/", "three", None),
    ];
    let detected = merge(&findings, &[], Vec::new(), &BTreeMap::new());
    let shown: Vec<_> = detected.found.iter().map(|s| (s.tool.as_str(), s.ports.clone(), s.because.as_str())).collect();
    assert_eq!(shown, [("npm", vec![443], "three"), ("pip", vec![80], "plain"), ("pip", vec![443, 8443], "one; two")]);
    let rules = detected.rules();
    assert_eq!((rules.len(), rules[0].ports.clone()), (1, vec![80, 443, 8443]));
}

#[test]
fn a_public_page_cannot_open_a_way_to_a_private_host() {
    let places = places(&[("inner.test", Place::Private), ("mirror.test", Place::Private)]);
    let is_private = |findings: &[Finding]| merge(findings, &[], Vec::new(), &places).found[0].is_private;
    assert!(is_private(&[finding("pip", "https://inner.test/", "pip.conf", None)]));
    assert!(is_private(&[finding("pip", "https://inner.test/", "links", Some("mirror.test"))]));
    let by_public = finding("pip", "https://inner.test/", "links", Some("public.test"));
    assert!(!is_private(std::slice::from_ref(&by_public)));
    let detected = merge(&[by_public], &[], Vec::new(), &places);
    assert_eq!(detected.problems[0].kind, ProblemKind::Note);
    assert!(!detected.rules()[0].is_private);
}

#[test]
fn a_host_that_is_this_machine_itself_is_noted_and_not_private() {
    let places = places(&[("localhost", Place::Unreachable)]);
    let detected = merge(&[finding("npm", "http://localhost:4873/", "npmrc", None)], &[], Vec::new(), &places);
    assert_eq!((detected.found[0].is_private, detected.problems.len()), (false, 1));
}
