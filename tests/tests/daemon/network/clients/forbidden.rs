//! What is not allowed ends quickly, and the reply names the host.

use e2e::daemon::{Daemon, is_local_only};
use e2e::skipped;

use super::{exec, has};

/// A name for the output, the program, and what it does. The host is `NAME.forbidden.example.com`.
const ATTEMPTS: &[(&str, &str, &str)] = &[
    (
        "pip",
        "pip",
        "python3 -m pip install -q --target /tmp/no --index-url https://pip.forbidden.example.com/simple six",
    ),
    (
        "npm",
        "npm",
        "mkdir -p /tmp/no-npm && cd /tmp/no-npm && npm install --no-fund --no-audit --cache /tmp/npm-cache --registry https://npm.forbidden.example.com is-number",
    ),
    ("git", "git", "git clone -q https://git.forbidden.example.com/x.git /tmp/x"),
    ("curl", "curl", "curl -sS https://curl.forbidden.example.com/"),
    ("wget", "wget", "wget -q https://wget.forbidden.example.com/"),
    (
        "node",
        "node",
        "node -e 'fetch(\"https://node.forbidden.example.com/\").catch(e => { console.log(e.cause.code); process.exit(1) })'",
    ),
];

#[tokio::test]
async fn a_client_of_a_forbidden_host_gives_up_soon_and_the_reply_names_the_host() {
    let story = "clients of forbidden hosts";
    if is_local_only(story, "clients in containers have a story of their own") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for (name, program, command) in ATTEMPTS {
        if !has(&session, program).await {
            skipped(name, "it is not in the sandbox");
            continue;
        }
        // On a busy machine most of the time is the client's own, so its processor time is printed beside it.
        let reply = exec(&session, &format!("TIMEFORMAT='%U + %S s'; time {{ {command}; }}")).await;
        assert_ne!(reply["exit_code"], 0, "{name}: {reply}");
        let host = format!("{name}.forbidden.example.com");
        let denied = reply["network_denied"].as_array().cloned().unwrap_or_default();
        assert!(denied.iter().any(|rule| *rule == host), "{name}: {reply}");
        let times = reply["output"].as_str().unwrap_or_default().lines().last().unwrap_or_default().to_owned();
        println!("{name}: refused after {} ms; processor time {times}", reply["duration_ms"]);
    }
    session.destroy().await;
    daemon.stop().await;
}
