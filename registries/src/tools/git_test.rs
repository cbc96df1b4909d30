//! Tests of `git`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::FakeMachine;

fn with_settings(settings: &str) -> FakeMachine {
    FakeMachine::new().command("git config --null --get-regexp", settings)
}

#[test]
fn the_places_that_urls_are_rewritten_to_are_found() {
    let settings = "url.https://ann:secret@git.test/mirror/.insteadof\nhttps://example.com/\0\
                    url.git@ssh.test:.insteadof\nhttps://example.net/\0remote.corp.url\nssh://git@corp.test:2222/x\0\
                    url./srv/git/.insteadof\nhttps://example.org/\0";
    let asked = with_settings(settings).ask(ask);
    assert_eq!(asked.hosts(), ["git.test:443", "ssh.test:22", "corp.test:2222"]);
    assert_eq!(asked.kinds(), []);
    asked.assert_hides("secret");
}

#[test]
fn no_such_setting_is_no_problem() {
    let asked = FakeMachine::new().output("git config", NO_MATCH, "", "").ask(ask);
    assert!(asked.found.is_empty() && asked.problems.is_empty());
}

#[test]
fn a_git_that_hangs_is_a_problem() {
    assert_eq!(FakeMachine::new().hanging("git").ask(ask).kinds(), [ProblemKind::ToolFailed]);
}
