//! Tests of `uv`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::FakeMachine;

const HELP: &str = "      --default-index <DEFAULT_INDEX>
          The default package index (by default: <https://index.example.com/simple>) [env: UV_DEFAULT_INDEX]
  -i, --index-url <INDEX_URL>";

fn machine() -> FakeMachine {
    FakeMachine::new().command("uv pip install --help", HELP).command("uv --version", "uv 9.9.9")
}

#[test]
fn the_built_in_index_is_asked_from_uv() {
    assert_eq!(machine().ask(ask).found, [("index.example.com:443".to_owned(), "built into uv 9.9.9".to_owned())]);
}

#[test]
fn a_default_index_replaces_the_built_in_one_and_others_do_not() {
    let machine = machine().variable("UV_INDEX", "corp=https://ann:secret@corp.test/simple https://two.test/");
    let asked = machine.ask(ask);
    assert_eq!(asked.hosts(), ["corp.test:443", "two.test:443", "index.example.com:443"]);
    asked.assert_hides("secret");
    assert_eq!(
        machine.variable("UV_DEFAULT_INDEX", "https://d.test/").ask(ask).hosts(),
        ["d.test:443", "corp.test:443", "two.test:443"]
    );
}

#[test]
fn files_name_indexes_and_the_users_default_wins() {
    let machine = machine()
        .file(
            "/home/ann/.config/uv/uv.toml",
            "index-url = \"https://ann.test/\"\n[pip]\nextra-index-url = [\"https://x.test/\"]",
        )
        .file("/etc/uv/uv.toml", "index-url = \"https://etc.test/\"\n[[index]]\nurl = \"https://named.test/\"\n");
    assert_eq!(machine.ask(ask).hosts(), ["ann.test:443", "x.test:443", "named.test:443"]);
}

#[test]
fn a_file_that_is_not_toml_is_a_problem() {
    let asked = machine().file("/etc/uv/uv.toml", "= secret").ask(ask);
    assert_eq!(asked.kinds(), [ProblemKind::Configuration]);
    asked.assert_hides("secret");
}

#[test]
fn sandboxes_get_what_is_configured_and_nothing_built_in() {
    assert_eq!(machine().ask(ask).variables, []);
    let asked = machine()
        .variable("UV_INDEX", "corp=https://ann:secret@corp.test/simple https://two.test/")
        .variable("UV_FIND_LINKS", "https://links.test/")
        .file("/etc/uv/uv.toml", "[[index]]\nurl = \"https://d.test/\"\ndefault = true\n")
        .ask(ask);
    assert_eq!(asked.variable("UV_DEFAULT_INDEX"), Some("https://d.test/"));
    assert_eq!(asked.variable("UV_INDEX"), Some("https://corp.test/simple https://two.test/"));
    asked.assert_hides("secret");
}
