//! Tests of `node`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::{FakeMachine, FakeNetwork};

const LIST: &str = "npm config ls -l --json";

#[test]
fn npm_tells_its_registry_and_the_registry_tells_the_host_of_files() {
    let machine = FakeMachine::new().command(LIST, r#"{"registry": "https://registry.test/npm/", "long": true}"#);
    let network = FakeNetwork::default()
        .page("https://registry.test/npm/wrappy/latest", r#"{"dist": {"tarball": "https://files.test/wrappy.tgz"}}"#)
        .redirect("https://files.test/wrappy.tgz", &["https://storage.test/x?signature=secret"]);
    let asked = machine.ask_with(ask_npm, &network);
    assert_eq!(asked.hosts(), ["registry.test:443", "files.test:443", "storage.test:443"]);
    asked.assert_hides("secret");
}

#[test]
fn scoped_registries_are_found_in_settings_and_in_files_and_tokens_are_not() {
    let settings =
        r#"{"registry": "https://registry.test/", "@team:registry": "https://team.test/", "userconfig": "/u/rc"}"#;
    let rc = "@corp:registry=https://ann:secret@corp.test:4873/\n//corp.test:4873/:_authToken=secret\n; @no:registry=https://no.test\n";
    let asked = FakeMachine::new().command(LIST, settings).file("/u/rc", rc).ask(ask_npm);
    assert_eq!(asked.hosts(), ["registry.test:443", "team.test:443", "corp.test:4873"]);
    asked.assert_hides("secret");
}

#[test]
fn a_registry_with_a_password_which_npm_leaves_out_is_found_in_the_file() {
    let machine =
        FakeMachine::new().command(LIST, "{}").file("/home/ann/.npmrc", "registry = https://ann:secret@corp.test/\n");
    let asked = machine.ask(ask_npm);
    assert_eq!(asked.because("corp.test:443"), ["/home/ann/.npmrc registry"]);
    asked.assert_hides("secret");
}

#[test]
fn without_npm_a_variable_wins_over_the_file_and_variables_in_files_are_filled_in() {
    let machine = FakeMachine::new()
        .variable("MIRROR", "mirror.test")
        .file("/home/ann/.npmrc", "registry=\"https://${MIRROR}/\"");
    let asked = machine.ask(ask_npm);
    assert_eq!(asked.hosts(), ["mirror.test:443"]);
    assert_eq!(asked.kinds(), [ProblemKind::NotInstalled]);
    assert_eq!(machine.variable("npm_config_registry", "http://v.test").ask(ask_npm).hosts(), ["v.test:80"]);
}

#[test]
fn a_variable_that_is_not_set_makes_the_setting_unusable() {
    let asked = FakeMachine::new().file("/home/ann/.npmrc", "registry=https://${NONE}/\n").ask(ask_npm);
    assert_eq!(asked.hosts(), [""; 0]);
    assert_eq!(asked.kinds(), [ProblemKind::Configuration, ProblemKind::NotInstalled]);
}

#[test]
fn settings_that_are_not_json_are_a_problem() {
    let asked = FakeMachine::new().command(LIST, "\u{1}garbage").ask(ask_npm);
    assert_eq!(asked.kinds(), [ProblemKind::ToolFailed]);
}

#[test]
fn both_generations_of_yarn_are_asked_in_their_own_words() {
    let one = FakeMachine::new()
        .command("yarn --version", "1.22.0\n")
        .command("yarn config get registry", "https://one.test\n");
    assert_eq!(one.ask(ask_yarn).hosts(), ["one.test:443"]);
    let four = FakeMachine::new()
        .command("yarn --version", "4.1.0\n")
        .command("yarn config get npmRegistryServer", "https://four.test\n")
        .command(
            "yarn config get npmScopes",
            r#"{"team": {"npmRegistryServer": "https://team.test", "npmAuthToken": "secret"}}"#,
        );
    let asked = four.ask(ask_yarn);
    assert_eq!(asked.hosts(), ["four.test:443", "team.test:443"]);
    asked.assert_hides("secret");
}

#[test]
fn pnpm_tells_its_registry() {
    let machine = FakeMachine::new().command("pnpm config list --json", r#"{"registry": "https://p.test/"}"#);
    assert_eq!(machine.ask(ask_pnpm).hosts(), ["p.test:443"]);
}

#[test]
fn sandboxes_get_a_configured_registry_and_not_the_built_in_one() {
    let machine = || FakeMachine::new().command(LIST, r#"{"registry": "https://r.test/npm/", "userconfig": "/u/rc"}"#);
    assert_eq!(machine().ask(ask_npm).variables, []);
    assert_eq!(machine().file("/u/rc", "@team:registry=https://team.test/\n").ask(ask_npm).variables, []);
    for configured in [
        machine().file("/u/rc", "registry=https://r.test/npm/\n"),
        machine().variable("npm_config_registry", "https://r.test/npm/"),
        FakeMachine::new().command(LIST, "{}").file("/home/ann/.npmrc", "registry = https://ann:secret@r.test/npm/\n"),
    ] {
        let asked = configured.ask(ask_npm);
        assert_eq!(asked.variable("NPM_CONFIG_REGISTRY"), Some("https://r.test/npm/"));
        asked.assert_hides("secret");
    }
}
