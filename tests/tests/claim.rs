//! A runner that was started in advance is claimed for a session, once, with the session's variables and workspace.

use std::collections::BTreeMap;

use e2e::{Ask as _, DEADLINE, Runner, ask, run, wait_until};
use hyper::Method;
use shared_protocol::runner::{ClaimRequest, OpenShellRequest, ShellState};
use shared_protocol::{ErrorCode, ShellName};

const SECRET: &str = "a 'quoted' $secret\nin two lines";

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn claim(runner: &Runner, pairs: &[(&str, &str)]) {
    let _: serde_json::Value =
        runner.post("/v1/claim", &ClaimRequest { env: env(pairs) }).await.expect("the claim is taken");
}

/// A runner whose main shell waits at its prompt, as in a pooled sandbox.
async fn idle() -> Runner {
    let runner = Runner::start().await;
    until_idle(&runner).await;
    runner
}

async fn until_idle(runner: &Runner) {
    wait_until("main is up", DEADLINE, async || (runner.shell("main").await.state == ShellState::Idle).then_some(()))
        .await;
}

#[tokio::test]
async fn main_and_every_later_shell_and_run_have_the_variables() {
    let runner = idle().await;
    claim(&runner, &[("TOKEN", SECRET)]).await;
    let expected = format!("{SECRET}\n");
    assert_eq!(runner.output_of("echo \"$TOKEN\"").await, expected);
    assert_eq!(runner.output_of("sh -c 'echo \"$TOKEN\"'").await, expected, "it is exported");
    assert_eq!(runner.run(run(["printenv", "TOKEN"])).await.stdout_text(), expected);
    runner.open("second").await;
    assert_eq!(runner.exec(ask("printenv TOKEN").in_shell("second")).await.text(), expected);
}

#[tokio::test]
async fn login_files_do_not_override_the_path_of_a_claim() {
    let runner = idle().await;
    let path = "/of-the-session:/usr/local/bin:/usr/bin:/bin";
    claim(&runner, &[("PATH", path)]).await;
    assert_eq!(runner.output_of("echo $PATH").await.trim(), path);
    runner.reset_shell("main").await;
    assert_eq!(runner.output_of("echo $PATH").await.trim(), path, "in a new login shell");
    runner.open("second").await;
    assert_eq!(runner.exec(ask("echo $PATH").in_shell("second")).await.text().trim(), path);
}

#[tokio::test]
async fn a_copy_of_main_that_is_asked_for_at_once_has_the_variables_too() {
    let runner = idle().await;
    claim(&runner, &[("TOKEN", SECRET)]).await;
    let name = ShellName::new("copy").unwrap();
    let copy = OpenShellRequest { name: Some(name), from: Some(ShellName::main()), ..OpenShellRequest::default() };
    runner.open_shell(&copy).await;
    assert_eq!(runner.exec(ask("printenv TOKEN").in_shell("copy")).await.text(), format!("{SECRET}\n"));
}

#[tokio::test]
async fn a_shell_that_is_still_coming_up_takes_a_claim() {
    let runner = Runner::start().await;
    claim(&runner, &[("TOKEN", SECRET)]).await;
    runner.sh("kill -9 $$").await;
    assert_eq!(
        runner.output_of("printenv TOKEN").await,
        format!("{SECRET}\n"),
        "the next has the state of before the claim"
    );
    assert_eq!(runner.output_of("printenv TOKEN").await, format!("{SECRET}\n"));
}

#[tokio::test]
async fn nothing_of_the_claim_shows() {
    let look = "echo $?; compgen -v __cove | wc -l; set -o; shopt; alias; trap -p; umask; pwd; declare -F; jobs";
    let unclaimed = Runner::start().await.sh(&format!("cd /; {look}")).await;
    let runner = idle().await;
    claim(&runner, &[("TOKEN", "t")]).await;
    let first = runner.sh(&format!("cd /; {look}")).await;
    assert_eq!(first.text(), unclaimed.text());
    assert!(!first.outcome.shell_restarted);
    assert_eq!(runner.execs().await.len(), 1, "the claim is no command");
    assert_eq!(runner.shell("main").await.restarts, 0);
    let left = runner.output_of(&format!("grep -rls 'export TOKEN' {} | wc -l", runner.scratch().display())).await;
    assert_eq!(left, "0\n", "what bash was told lies around");
}

#[tokio::test]
async fn a_sandbox_is_claimed_once() {
    let runner = idle().await;
    assert!(!runner.health().await.claimed);
    claim(&runner, &[("OWNER", "first")]).await;
    assert!(runner.health().await.claimed);
    let body = serde_json::to_string(&ClaimRequest { env: env(&[("OWNER", "second")]) }).unwrap();
    let second = runner.raw(Method::POST, "/v1/claim", body).await.refused();
    assert_eq!(second, ErrorCode::Conflict);
    assert_eq!(runner.output_of("echo $OWNER").await, "first\n");
}

#[tokio::test]
async fn what_is_refused_claims_nothing() {
    let runner = idle().await;
    for body in [r#"{"env":{"1A":"x"}}"#, r#"{"env":{"A":"\u0000"}}"#, r#"{"envs":{}}"#] {
        let refused = runner.raw(Method::POST, "/v1/claim", body).await.refused();
        assert_eq!(refused, ErrorCode::InvalidRequest, "{body}");
    }
    claim(&runner, &[("OWNER", "me")]).await;
    assert_eq!(runner.output_of("echo $OWNER").await, "me\n");
}

#[tokio::test]
async fn the_variables_outlive_the_bash_that_was_told_them() {
    let runner = idle().await;
    claim(&runner, &[("TOKEN", "t")]).await;
    runner.sh("kill -9 $$").await;
    assert_eq!(runner.output_of("printenv TOKEN").await, "t\n");
    runner.reset_shell("main").await;
    assert_eq!(runner.output_of("printenv TOKEN").await, "t\n");
}

#[tokio::test]
async fn a_first_command_that_ends_its_bash_is_followed_by_a_login_with_the_variables() {
    const BEFORE_LOGIN: &str = "/bin:/usr/bin";
    let start = || Runner::builder().env("PATH", BEFORE_LOGIN).start();
    let login = start().await.output_of("echo $PATH").await;
    assert_ne!(login.trim(), BEFORE_LOGIN, "/etc/profile sets it, or else this shows nothing");
    let runner = start().await;
    until_idle(&runner).await;
    claim(&runner, &[("TOKEN", "t")]).await;
    assert_eq!(runner.sh("export LOST=with-it; kill -9 $$").await.outcome.exit_code, 137);
    assert_eq!(runner.output_of("echo $PATH").await, login);
    // From the first command on there is a saved state again, and the next shell starts with it.
    runner.sh("export KEPT=kept PATH=/bin:/kept").await;
    runner.sh("kill -9 $$").await;
    assert_eq!(runner.output_of("echo $TOKEN $PATH $KEPT ${LOST-none}").await, "t /bin:/kept kept none\n");
}

#[tokio::test]
async fn variables_that_would_disturb_a_shell_do_not() {
    let runner = idle().await;
    let hostile = [
        ("TMOUT", "1"),
        ("PROMPT_COMMAND", "echo prompt"),
        ("PS1", "$(echo prompt)"),
        ("HOME", "/root"),
        ("SHLVL", "77"),
        ("UID", "0"),
        ("BASHOPTS", "x"),
        ("IFS", "x"),
        ("POSIXLY_CORRECT", "1"),
        ("LAST", "it came this far"),
    ];
    claim(&runner, &hostile).await;
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
    assert_eq!(
        runner.output_of("echo \"$LAST\" ${TMOUT-none} ${PROMPT_COMMAND-none}").await,
        "it came this far none none\n"
    );
    assert_ne!(runner.output_of("echo $HOME").await, "/root\n");
    assert_eq!(runner.shell("main").await.restarts, 0);
}

#[tokio::test]
async fn main_goes_to_the_workspace_that_lies_over_the_one_it_began_in() {
    let runner = idle().await;
    let workspace = runner.workspace();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&workspace).unwrap());
    std::fs::rename(&workspace, workspace.with_extension("old")).unwrap();
    std::fs::create_dir(&workspace).unwrap();
    std::os::unix::fs::chown(&workspace, Some(owner), None).unwrap();
    std::fs::write(workspace.join("found"), "").unwrap();
    claim(&runner, &[]).await;
    let answer = runner.sh("ls; cd -P . && pwd").await;
    assert_eq!(answer.text(), format!("found\n{}\n", workspace.display()));
}
