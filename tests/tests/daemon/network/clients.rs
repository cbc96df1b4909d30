//! Real clients through the registries that this host's package managers use. No registry's name stands here: the daemon tells
//! them at run time.

use std::collections::BTreeMap;

use e2e::daemon::{Api, Daemon, Session, is_local_only};
use e2e::skipped;
use serde_json::{Value, json};

/// A command, and the package manager that it belongs to. It succeeds if the registry can be reached.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("pip", "pip", "cd /tmp && HOME=/tmp python3 -m pip download --no-deps --no-cache-dir -q -d /tmp/pip six && ls /tmp/pip"),
    ("npm", "npm", "mkdir -p /tmp/npm && cd /tmp/npm && HOME=/tmp npm pack --silent --cache /tmp/npm-cache is-number && ls /tmp/npm/*.tgz"),
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

/// The variables and files that tell this host's clients their registries. A sandbox has neither, so a story hands them on.
fn settings() -> BTreeMap<String, String> {
    let is_setting = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["pip_", "npm_config_", "uv_", "goproxy", "cargo_registries", "yarn_"].iter().any(|start| name.starts_with(start))
    };
    std::env::vars().filter(|(name, _)| is_setting(name)).collect()
}

async fn give_settings(session: &Session) {
    for (from, to) in [
        ("/etc/pip.conf", "/home/sandbox/.config/pip/pip.conf"),
        ("/root/.config/pip/pip.conf", "/home/sandbox/.config/pip/pip.conf"),
        ("/root/.pip/pip.conf", "/home/sandbox/.config/pip/pip.conf"),
        ("/root/.npmrc", "/home/sandbox/.npmrc"),
    ] {
        if let Ok(text) = std::fs::read(from) {
            session.put(&format!("settings{}", to.replace('/', "_")), text).await.ok();
            let copied = format!("mkdir -p $(dirname {to}) && cp /workspace/settings{} {to}", to.replace('/', "_"));
            session.exec(&copied).await;
        }
    }
}

async fn create(api: &Api, network: Value) -> Session {
    let session = api.patient().create(json!({ "network": network, "env": settings() })).await;
    give_settings(&session).await;
    session
}

async fn exec(session: &Session, cmd: &str) -> Value {
    let request = json!({ "cmd": cmd.replace("HOME=/tmp ", ""), "timeout_ms": 120_000 });
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
    let session = create(daemon.api(), json!("packages")).await;
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
            let is_denied = reply["network_denied"].as_array().is_some_and(|denied| !denied.is_empty());
            assert!(!is_denied, "{name} was denied what `packages` allows: {reply}");
            skipped(name, "the registry did not give the package");
            println!("{name}: {reply}");
            continue;
        }
        println!("{name}: {}", reply["output"].as_str().unwrap_or_default().trim());
        // Any client reaches the host, and no other one.
        let host = hosts[0]["host"].as_str().expect("a host");
        let scheme = if hosts[0]["ports"].as_array().is_some_and(|ports| ports.contains(&json!(443))) { "https" } else { "http" };
        for client in ["curl -sSk -o /dev/null", "wget -q --no-check-certificate -O /dev/null"] {
            let reply = session.exec(&format!("{client} {scheme}://{host}/; echo $?")).await;
            let denied = reply["network_denied"].as_array().map_or(0, Vec::len);
            assert_eq!(denied, 0, "{client}: {}", reply["network_denied"]);
        }
    }
    // What is not allowed ends quickly, and the reply names the host.
    for (name, tool, command) in [
        ("pip", "pip", "python3 -m pip download --retries 0 -q -d /tmp/no --index-url https://index.forbidden.example.com/simple six"),
        ("npm", "npm", "cd /tmp && npm pack --silent --cache /tmp/npm-cache --registry https://registry.forbidden.example.com is-number"),
        ("git", "git", "git clone -q https://git.forbidden.example.com/x.git /tmp/x"),
        ("curl", "curl", "curl -sS https://curl.forbidden.example.com/"),
        ("wget", "wget", "wget -q https://wget.forbidden.example.com/"),
        ("node", "node", "node -e 'fetch(\"https://node.forbidden.example.com/\").catch(e => { console.log(e.cause.code); process.exit(1) })'"),
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
        // The daemon answers at once; how long a client tries again is its own affair.
        assert!(reply["duration_ms"].as_u64() < Some(20_000), "{name}: {reply}");
    }
    daemon.stop().await;
}
