//! Tests of `pip`, on a machine and a network that are made of maps.

use super::*;
use crate::detected::ProblemKind;
use crate::testing::FakeMachine;

/// The help of `--index-url`, as pip prints it.
const HELP: &str = "
  -i, --index-url <url>       Base URL of the Python Package Index (default https://index.example.com/simple). This should
                              point to a repository
  --extra-index-url <url>     Extra URLs";

fn with_list(list: &str) -> FakeMachine {
    FakeMachine::new().command("pip --version", "pip 99.1 from /usr/lib").command("pip config list", list)
}

#[test]
fn the_built_in_index_is_asked_from_pip() {
    let machine = with_list("").command("pip install --help", HELP);
    let asked = machine.ask(ask);
    assert_eq!(asked.found, [("index.example.com:443".to_owned(), "built into pip 99.1".to_owned())]);
}

#[test]
fn a_configured_index_replaces_the_built_in_one() {
    let list = "global.index-url='https://user:secret@mirror.test:8443/simple'\nglobal.cert='/etc/ca.crt'\n";
    let machine = with_list(list).command("pip install --help", HELP);
    let asked = machine.ask(ask);
    assert_eq!(asked.hosts(), ["mirror.test:8443"]);
    assert_eq!(asked.because("mirror.test:8443"), ["pip's setting global.index-url"]);
    asked.assert_hides("secret");
}

#[test]
fn variables_override_files_and_several_indexes_are_all_found() {
    let list = "global.index-url='https://file.test/simple'\n:env:.index-url='https://variable.test/simple'\n\
                global.extra-index-url='\\nhttps://one.test/simple\\nhttp://two.test:8080/simple'\n";
    let asked = with_list(list).ask(ask);
    assert_eq!(asked.hosts(), ["variable.test:443", "one.test:443", "two.test:8080"]);
}

#[test]
fn local_links_are_ignored_and_remote_ones_are_found() {
    let list = "global.no-index='true'\n:env:.find-links='/opt/wheels https://wheels.test/all.html file:///srv'\n";
    assert_eq!(with_list(list).ask(ask).hosts(), ["wheels.test:443"]);
}

#[test]
fn without_pip_its_files_are_read_and_the_users_file_wins() {
    let machine =
        FakeMachine::new().file("/etc/xdg/pip/pip.conf", "[global]\nindex-url = https://xdg.test/simple\n").file(
            "/etc/pip.conf",
            "[global]\nindex_url: https://etc.test/simple\nextra-index-url =\n  https://a.test/\n  https://b.test/\n",
        );
    let asked = machine.ask(ask);
    assert_eq!(asked.hosts(), ["etc.test:443", "a.test:443", "b.test:443"]);
    assert_eq!(asked.kinds(), [ProblemKind::NotInstalled]);
    let machine =
        machine.file("/home/ann/.config/pip/pip.conf", "# mine\n[global]\nindex-url=https://ann.test/simple\n");
    assert_eq!(machine.ask(ask).hosts()[0], "ann.test:443");
    let machine = machine.variable("PIP_INDEX_URL", "https://variable.test/");
    assert_eq!(machine.ask(ask).hosts()[0], "variable.test:443");
}

#[test]
fn another_command_for_pip_is_tried() {
    let machine = FakeMachine::new()
        .command("python3 -m pip --version", "pip 99.1")
        .command("python3 -m pip config list", "global.index-url='https://module.test/'");
    assert_eq!(machine.ask(ask).hosts(), ["module.test:443"]);
}

#[test]
fn a_help_without_the_default_is_a_problem() {
    let machine = with_list("").command("pip install --help", "usage: \0\u{fffd}");
    assert_eq!(machine.ask(ask).kinds(), [ProblemKind::ToolFailed]);
}

#[test]
fn a_pip_that_cannot_list_its_settings_is_reported_and_its_files_are_read() {
    let machine = FakeMachine::new()
        .command("pip --version", "pip 9.0")
        .output("pip config list", 2, "", "unknown command")
        .file("/etc/pip.conf", "[global]\nindex-url = https://etc.test/simple\n");
    let asked = machine.ask(ask);
    assert_eq!(asked.hosts(), ["etc.test:443"]);
    assert_eq!(asked.kinds(), [ProblemKind::ToolFailed]);
}

#[test]
fn sandboxes_get_what_is_configured_for_an_install_and_nothing_built_in() {
    let list = "download.index-url='https://download.test/simple'\nglobal.index-url='https://global.test/simple'\n\
                install.index-url='https://ann:secret@install.test/simple'\nglobal.trusted-host='one.test two.test:8080'\n\
                global.extra-index-url='https://a.test/simple /local https://b.test/simple'\n";
    let asked = with_list(list).ask(ask);
    assert_eq!(asked.variable("PIP_INDEX_URL"), Some("https://install.test/simple"));
    assert_eq!(asked.variable("PIP_EXTRA_INDEX_URL"), Some("https://a.test/simple https://b.test/simple"));
    assert_eq!(asked.variable("PIP_TRUSTED_HOST"), Some("one.test two.test:8080"));
    asked.assert_hides("secret");
    let asked = with_list("").command("pip install --help", HELP).ask(ask);
    assert_eq!(asked.variables, []);
}
