//! Tests of `detect`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::{FakeMachine, FakeNetwork};

#[test]
fn a_machine_without_tools_has_no_sources_and_each_tool_is_reported() {
    let detected = detect(&FakeMachine::new(), &FakeNetwork::default());
    assert_eq!(detected.found, []);
    let missing: Vec<&str> = detected.problems.iter().map(|p| p.tool.as_str()).collect();
    assert_eq!(missing, ALL.map(|(tool, _)| tool));
    assert!(detected.problems.iter().all(|p| p.kind == ProblemKind::NotInstalled));
}

#[test]
fn a_mirror_with_a_private_address_is_marked_and_the_answer_survives_json() {
    let machine = FakeMachine::new()
        .command("pip --version", "pip 99.1")
        .command("pip config list", "global.index-url='https://ann:secret@mirror.corp.test/simple'")
        .command("npm config ls", r#"{"registry": "http://10.1.2.3:4873/"}"#)
        .command("go env", r#"{"GOPROXY": "https://public.test"}"#)
        .name("mirror.corp.test", &["10.0.0.9"])
        .name("public.test", &["203.0.113.1"]);
    let page = r#"<a href="../../six.whl">six</a>"#;
    let network = FakeNetwork::default().page("https://ann:secret@mirror.corp.test/simple/six/", page);
    let detected = detect(&machine, &network);
    let rules: Vec<_> = detected.rules().into_iter().map(|r| (r.host, r.ports, r.is_private)).collect();
    let expected = [("10.1.2.3", 4873, true), ("mirror.corp.test", 443, true), ("public.test", 443, false)];
    assert_eq!(rules, expected.map(|(host, port, is_private)| (host.to_owned(), vec![port], is_private)));
    let json = serde_json::to_string(&detected).unwrap();
    assert!(!json.contains("secret"), "{json}");
    assert_eq!(serde_json::from_str::<Detected>(&json).unwrap(), detected);
}

#[test]
fn one_tool_that_hangs_does_not_hide_the_others() {
    let machine = FakeMachine::new().hanging("npm").command("go env", r#"{"GOSUMDB": "sum.test"}"#);
    let detected = detect(&machine, &FakeNetwork::default());
    assert_eq!(detected.found.len(), 1);
    assert!(detected.problems.iter().any(|p| p.tool == "npm" && p.kind == ProblemKind::ToolFailed));
}
