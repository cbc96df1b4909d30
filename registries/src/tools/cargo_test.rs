//! Tests of `cargo`, on a machine and a network that are made of maps.

use proptest::prelude::*;

use super::*;
use crate::testing::{Asked, FakeMachine, FakeNetwork};

const CONFIG: &str = "/home/ann/.cargo/config.toml";
const REFUSED: &str =
    "error: download failed\n\nCaused by:\n  failed to download from `https://index.example.com/config.json`\n";

fn with_config(config: &str) -> Asked {
    FakeMachine::new().file(CONFIG, config).output("cargo search", 101, "", REFUSED).ask(ask)
}

#[test]
fn the_built_in_registry_is_in_the_message_of_a_search_that_cannot_connect() {
    let machine =
        FakeMachine::new().output("cargo search", 101, "", REFUSED).command("cargo --version", "cargo 9.9.0 (x)");
    let index = r#"{"dl": "https://files.test/{crate}/{version}.crate", "api": "https://api.test"}"#;
    let network = FakeNetwork::default()
        .page("https://index.example.com/config.json", index)
        .page(
            "https://index.example.com/it/oa/itoa",
            "{\"vers\":\"0.1.0\",\"cksum\":\"00\"}\n{\"vers\":\"1.0.0\",\"cksum\":\"ff\"}\n",
        )
        .redirect("https://files.test/itoa/1.0.0.crate", &["https://storage.test/x"]);
    let asked = machine.ask_with(ask, &network);
    assert_eq!(asked.hosts(), ["index.example.com:443", "files.test:443", "api.test:443", "storage.test:443"]);
    assert_eq!(asked.because("index.example.com:443"), ["built into cargo 9.9.0"]);
    let runs = machine.runs.lock().unwrap();
    assert_eq!(runs[0].scratch_variable.as_deref(), Some("CARGO_HOME"));
    assert!(runs[0].variables.contains(&("CARGO_HTTP_PROXY".to_owned(), NO_PROXY_AT_ALL.to_owned())));
}

#[test]
fn a_chain_of_replacements_is_followed_to_its_end() {
    let asked = with_config(
        "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"b\"\n\
         [source.b]\nregistry = \"sparse+https://ann:secret@mirror.test/index/\"\n[source.unused]\nregistry = \"https://unused.test\"\n",
    );
    assert_eq!(asked.hosts(), ["mirror.test:443"]);
    asked.assert_hides("secret");
}

#[test]
fn a_replacement_may_name_a_registry() {
    let asked = with_config(
        "[source.crates-io]\nreplace-with = \"corp\"\n[registries.corp]\nindex = \"sparse+https://corp.test/\"\n",
    );
    assert_eq!(asked.because("corp.test:443"), ["cargo's source replacement", "cargo's registry corp"]);
}

#[test]
fn registries_are_found_beside_the_built_in_one_in_files_and_variables() {
    let machine = FakeMachine::new()
        .file(CONFIG, "[registries]\none = { index = \"sparse+https://one.test/\" }\ntwo = { index = \"ssh://git@two.test/index\" }\n")
        .variable("CARGO_REGISTRIES_ONE_INDEX", "sparse+https://variable.test/")
        .output("cargo search", 101, "", REFUSED);
    let asked = machine.ask(ask);
    assert_eq!(asked.hosts(), ["index.example.com:443", "variable.test:443", "two.test:22"]);
    assert_eq!(asked.kinds(), [ProblemKind::Note]);
}

#[test]
fn vendored_sources_need_no_host() {
    let asked = with_config("[source.crates-io]\nreplace-with = \"v\"\n[source.v]\ndirectory = \"vendor\"\n");
    assert_eq!(asked.hosts(), [""; 0]);
    assert_eq!(asked.kinds(), []);
}

#[test]
fn a_loop_of_replacements_ends_and_is_a_problem() {
    let asked = with_config("[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"crates-io\"\n");
    assert_eq!(asked.kinds(), [ProblemKind::Configuration]);
    assert!(asked.problems[0].message.contains("loop"));
}

#[test]
fn a_file_that_is_not_toml_is_a_problem_and_the_built_in_registry_is_found() {
    let asked = with_config("[source\u{1}\nsecret");
    assert_eq!(asked.hosts(), ["index.example.com:443"]);
    assert_eq!(asked.kinds(), [ProblemKind::Configuration]);
    asked.assert_hides("secret");
}

#[test]
fn a_binary_file_is_a_problem() {
    let asked = FakeMachine::new().unreadable(CONFIG).output("cargo search", 101, "", REFUSED).ask(ask);
    assert_eq!(asked.kinds(), [ProblemKind::Configuration]);
}

#[test]
fn a_cargo_that_says_something_else_is_a_problem() {
    assert_eq!(FakeMachine::new().output("cargo search", 0, "itoa", "").ask(ask).kinds(), [ProblemKind::ToolFailed]);
}

proptest! {
    #[test]
    fn every_chain_of_replacements_ends(links in proptest::collection::vec(0..8usize, 8)) {
        let names = |i: usize| if i == 0 { DEFAULT.to_owned() } else { format!("s{i}") };
        let mut config = Config::default();
        for (i, to) in links.into_iter().enumerate() {
            config.sources.insert(names(i), SourceTable { replace_with: Some(names(to)), ..SourceTable::default() });
        }
        prop_assert!(config.end_of(DEFAULT).is_err());
    }
}

#[test]
fn sandboxes_get_registries_with_a_name_and_a_note_about_a_replaced_source() {
    let asked = FakeMachine::new()
        .file(
            "/home/ann/.cargo/config.toml",
            "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+https://m.test/\"\n\
             [registries.my-team]\nindex = \"sparse+https://ann:secret@team.test/index/\"\n",
        )
        .ask(ask);
    assert_eq!(asked.variable("CARGO_REGISTRIES_MY_TEAM_INDEX"), Some("sparse+https://team.test/index/"));
    assert_eq!(asked.variables.len(), 1);
    assert!(asked.problems.iter().any(|problem| problem.message.contains("[source] tables")), "{:?}", asked.problems);
    asked.assert_hides("secret");
}
