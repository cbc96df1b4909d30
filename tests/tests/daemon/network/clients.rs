//! Real clients through the registries that this host's package managers use. No registry's name stands here: the daemon tells
//! them at run time.

use std::collections::BTreeMap;

use e2e::daemon::{Daemon, Session, is_local_only};
use e2e::skipped;
use serde_json::{Value, json};

/// How long a client may take to find out that its host is not allowed. Most of it is the client's own start on a busy machine.
const QUICK_MS: u64 = 10_000;

/// A command, and the package manager that it belongs to. It succeeds if the registry can be reached.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("pip", "pip", "cd /tmp && python3 -m pip download --no-deps --no-cache-dir -q -d /tmp/pip six && ls /tmp/pip"),
    (
        "npm",
        "npm",
        "mkdir -p /tmp/npm && cd /tmp/npm && npm pack --silent --cache /tmp/npm-cache is-number && ls /tmp/npm/*.tgz",
    ),
];

/// The tools that the daemon could find registries of, with their hosts.
async fn registries(daemon: &Daemon) -> BTreeMap<String, Vec<Value>> {
    let told = daemon.api().patient().get("/v1/network/packages").await.ok();
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for one in told["found"].as_array().expect("a list") {
        all.entry(one["tool"].as_str().expect("a name").to_owned()).or_default().push(one.clone());
    }
    all
}

async fn exec(session: &Session, cmd: &str) -> Value {
    let request = json!({ "cmd": cmd, "timeout_ms": 120_000 });
    session.api.patient().post(&session.path("/exec"), request).await.ok()
}

#[tokio::test]
async fn package_managers_reach_their_registries_and_nothing_else() {
    let story = "package managers in a sandbox";
    if is_local_only(story, "the way out is built on the local runtime first") {
        return;
    }
    let daemon = Daemon::start().await;
    let registries = registries(&daemon).await;
    if registries.is_empty() {
        return skipped(story, "no package manager of this host has told its registry");
    }
    let session = daemon.api().patient().create(json!({ "network": "packages" })).await;
    for (name, tool, command) in COMMANDS {
        let Some(hosts) = registries.get(*tool) else {
            skipped(name, "the daemon knows no registry of it");
            continue;
        };
        if session.exec(&format!("command -v {tool} || python3 -m {tool} --version")).await["exit_code"] != 0 {
            skipped(name, "it is not in the sandbox");
            continue;
        }
        let reply = exec(&session, command).await;
        if reply["exit_code"] != 0 {
            // The host's client may be configured for a mirror, which the client in the sandbox does not know.
            let denied = reply["network_denied"].as_array().cloned().unwrap_or_default();
            let is_ours = |rule: &Value| hosts.iter().any(|one| one["host"] == *rule);
            assert!(!denied.iter().any(is_ours), "{name} was denied what `packages` allows");
            skipped(name, "the registry did not give the package");
            continue;
        }
        println!("{name}: {}", reply["output"].as_str().unwrap_or_default().trim());
        // Any client reaches the host, and no other one.
        let host = hosts[0]["host"].as_str().expect("a host");
        let scheme = if hosts[0]["ports"].as_array().is_some_and(|ports| ports.contains(&json!(443))) {
            "https"
        } else {
            "http"
        };
        for client in ["curl -sSk -o /dev/null", "wget -q --no-check-certificate -O /dev/null"] {
            let reply = session.exec(&format!("{client} {scheme}://{host}/; echo $?")).await;
            let denied = reply["network_denied"].as_array().map_or(0, Vec::len);
            assert_eq!(denied, 0, "{client}: {}", reply["network_denied"]);
        }
    }
    // What is not allowed ends quickly, and the reply names the host.
    for (name, tool, command) in [
        (
            "pip",
            "pip",
            "python3 -m pip download -q -d /tmp/no --index-url https://index.forbidden.example.com/simple six",
        ),
        (
            "npm",
            "npm",
            "cd /tmp && npm pack --silent --cache /tmp/npm-cache --registry https://registry.forbidden.example.com is-number",
        ),
        ("git", "git", "git clone -q https://git.forbidden.example.com/x.git /tmp/x"),
        ("curl", "curl", "curl -sS https://curl.forbidden.example.com/"),
        ("wget", "wget", "wget -q https://wget.forbidden.example.com/"),
        (
            "node",
            "node",
            "node -e 'fetch(\"https://node.forbidden.example.com/\").catch(e => { console.log(e.cause.code); process.exit(1) })'",
        ),
    ] {
        if session.exec(&format!("command -v {tool} || python3 -m {tool} --version")).await["exit_code"] != 0 {
            skipped(name, "it is not in the sandbox");
            continue;
        }
        let reply = exec(&session, command).await;
        assert_ne!(reply["exit_code"], 0, "{name}: {reply}");
        let denied = reply["network_denied"].to_string();
        assert!(denied.contains("forbidden.example.com"), "{name}: {reply}");
        println!("{name}: refused after {} ms", reply["duration_ms"]);
        assert!(reply["duration_ms"].as_u64() < Some(QUICK_MS), "{name}: {reply}");
    }
    daemon.stop().await;
}
