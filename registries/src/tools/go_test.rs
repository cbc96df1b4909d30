//! Tests of `go`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::{Asked, FakeMachine, FakeNetwork};

fn with_settings(settings: &str) -> Asked {
    FakeMachine::new().command("go env -json", settings).ask(ask)
}

#[test]
fn every_proxy_of_the_list_is_found_and_words_are_not_hosts() {
    let asked =
        with_settings(r#"{"GOPROXY": "https://a.test|http://ann:secret@b.test:8081/go,file:///srv/go,direct,off"}"#);
    assert_eq!(asked.hosts(), ["a.test:443", "b.test:8081"]);
    asked.assert_hides("secret");
}

#[test]
fn the_checksum_database_is_a_name_or_a_url() {
    assert_eq!(with_settings(r#"{"GOSUMDB": "sum.test"}"#).hosts(), ["sum.test:443"]);
    assert_eq!(with_settings(r#"{"GOSUMDB": "sum.test+0a1b+Key=="}"#).hosts(), ["sum.test:443"]);
    assert_eq!(with_settings(r#"{"GOSUMDB": "sum.test+0a1b+Key https://proxy.test/sum"}"#).hosts(), ["proxy.test:443"]);
    assert_eq!(with_settings(r#"{"GOSUMDB": "off"}"#).hosts(), [""; 0]);
}

#[test]
fn private_modules_name_hosts_and_a_wildcard_is_noted() {
    let asked = with_settings(r#"{"GOPRIVATE": "git.corp.test/team/*,*.corp.test", "GONOPROXY": "none"}"#);
    assert_eq!(asked.hosts(), ["git.corp.test:443"]);
    assert_eq!(asked.kinds(), [ProblemKind::Note]);
}

#[test]
fn a_proxy_is_asked_for_a_module_that_go_itself_holds() {
    let machine = FakeMachine::new()
        .command("go env -json", r#"{"GOPROXY": "https://proxy.test", "GOROOT": "/go"}"#)
        .file("/go/src/vendor/modules.txt", "# example.com/Net v1.2.3\n## explicit\nexample.com/Net/x\n");
    let url = "https://proxy.test/example.com/!net/@v/v1.2.3.zip";
    let network = FakeNetwork::default().redirect(url, &["https://storage.test/x"]);
    assert_eq!(machine.ask_with(ask, &network).hosts(), ["proxy.test:443", "storage.test:443"]);
}

#[test]
fn without_go_its_variables_win_over_its_file() {
    let machine = FakeMachine::new().file("/home/ann/.config/go/env", "GOPROXY=https://file.test\nGOSUMDB=off\n");
    assert_eq!(machine.ask(ask).hosts(), ["file.test:443"]);
    assert_eq!(machine.variable("GOPROXY", "https://v.test").ask(ask).hosts(), ["v.test:443"]);
}

#[test]
fn sandboxes_get_what_is_configured_and_nothing_built_in() {
    let effective = r#"{"GOPROXY": "https://ann:secret@b.test:8081/go,direct", "GOSUMDB": "sum.test"}"#;
    let machine = FakeMachine::new().command("go env -json", effective);
    assert_eq!(machine.ask(ask).variables, []);
    let asked = machine
        .file("/home/ann/.config/go/env", "GOPROXY=https://ann:secret@b.test:8081/go|direct\nGOFLAGS=-x\n")
        .variable("GOSUMDB", "sum.test+0a1b+Key https://ann:secret@proxy.test/sum")
        .variable("GOPRIVATE", "git.corp.test/team/*,*.corp.test")
        .variable("GONOPROXY", "ann:secret@corp.test")
        .ask(ask);
    assert_eq!(asked.variable("GOPROXY"), Some("https://b.test:8081/go|direct"));
    assert_eq!(asked.variable("GOSUMDB"), Some("sum.test+0a1b+Key https://proxy.test/sum"));
    assert_eq!(asked.variable("GOPRIVATE"), Some("git.corp.test/team/*,*.corp.test"));
    assert_eq!(asked.variables.len(), 3, "{:?}", asked.variables);
    asked.assert_hides("secret");
}
