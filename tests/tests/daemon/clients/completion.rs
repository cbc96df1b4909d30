//! The completion scripts, in the shells that they are for.

use std::process::Command;

use e2e::daemon::{Cove, Daemon};
use e2e::skipped;

/// Runs a script in a shell that has `cove` and its daemon. `None` if this host does not have the shell.
fn in_shell(cove: &Cove, shell: &str, script: &str) -> Option<String> {
    let template = cove.command(&["unused"]);
    // The scripts call it `cove`, whatever the binary under test is called.
    let bin = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(template.get_program(), bin.path().join("cove")).expect("our own directory");
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").ok()?);
    let mut command = Command::new(shell);
    command.args(["-c", script]).envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.env("PATH", path).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shell}: {said}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[tokio::test]
async fn every_shell_completes_names_and_ids_of_sessions() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let id = cove.run(&["create", "--name", "webserver"]).await.ok().trim().to_owned();
    let bash = |words: &str| {
        format!(
            "source <(cove completion bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _cove_with_sessions cove \"${{COMP_WORDS[COMP_CWORD]}}\" 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
    };
    let complete = |words: &str| in_shell(&cove, "bash", &bash(words)).expect("bash");
    assert_eq!(complete("cove exec webs"), "webserver\n");
    assert_eq!(complete(&format!("cove rm {}", &id[..4])), format!("{id}\n"));
    assert_eq!(complete("cove snapshot create webs"), "webserver\n");
    assert!(complete("cove exec --que").contains("--queue-timeout"));
    assert!(complete("cove cre").contains("create"));
    let fish = "cove completion fish | source; complete -C 'cove exec webs'";
    match in_shell(&cove, "fish", fish) {
        Some(found) => assert!(found.starts_with("webserver\t"), "{found}"),
        None => skipped("every_shell_completes_names_and_ids_of_sessions", "this host has no fish"),
    }
    // zsh completes only at a terminal. What it would offer is what the function adds.
    let zsh = "compdef() { :; }; compadd() { shift; print -l ${(P)1}; }; source <(cove completion zsh); _cove_sessions";
    match in_shell(&cove, "zsh", zsh) {
        Some(found) => assert_eq!(found, format!("webserver\n{id}\n")),
        None => skipped("every_shell_completes_names_and_ids_of_sessions", "this host has no zsh"),
    }
    daemon.stop().await;
}
