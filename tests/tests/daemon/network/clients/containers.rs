//! Package managers in containers, which have neither the host's files nor its certificates.

use std::collections::BTreeMap;
use std::process::Command;

use e2e::daemon::{Ability, Daemon, Engine, engine, lacks};
use e2e::skipped;
use serde_json::{Value, json};

use super::{exec, registries};

/// How long a client may take to find out that its host is not allowed. Most of it is the client's own start on a busy machine.
const QUICK_MS: u64 = 10_000;
/// The same with gVisor, where a start takes several times as long.
const QUICK_MS_GVISOR: u64 = 40_000;

/// The certificates that the host's clients trust, where Debian has them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A command, and the package manager that it belongs to. It succeeds if the registry can be reached.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("pip", "pip", "cd /tmp && python3 -m pip download --no-deps --no-cache-dir -q -d /tmp/pip six && ls /tmp/pip"),
    (
        "npm",
        "npm",
        "mkdir -p /tmp/npm && cd /tmp/npm && npm pack --silent --cache /tmp/npm-cache is-number && ls /tmp/npm/*.tgz",
    ),
];

/// The settings of the host's own clients for those in a container, which has neither its files nor its certificates.
fn settings() -> BTreeMap<&'static str, String> {
    let asked = Command::new("npm").args(["config", "get", "registry"]).output().ok();
    let registry = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let own = "/workspace/ca.pem".to_owned();
    let names = ["PIP_CERT", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"];
    let mut all: BTreeMap<&str, String> = names.into_iter().map(|name| (name, own.clone())).collect();
    if !registry.is_empty() {
        all.insert("NPM_CONFIG_REGISTRY", registry);
    }
    all
}

#[tokio::test]
async fn package_managers_in_a_container_reach_their_registries_and_nothing_else() {
    let story = "package managers in a container";
    if engine().is_none() {
        return skipped(story, "on `local`, other stories have them");
    }
    let daemon = Daemon::start().await;
    let registries = registries(&daemon).await;
    if registries.is_empty() {
        return skipped(story, "no package manager of this host has told its registry");
    }
    let session = daemon.api().patient().create(json!({ "network": "packages", "env": settings() })).await;
    session.put("ca.pem", std::fs::read(CERTIFICATES).unwrap_or_default()).await.ok();
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
        // Older versions of Node.js do not look at the variables that name a proxy.
        if tool == "node" && lacks(name, Ability::EveryDial) {
            continue;
        }
        let reply = exec(&session, command).await;
        assert_ne!(reply["exit_code"], 0, "{name}: {reply}");
        let denied = reply["network_denied"].to_string();
        assert!(denied.contains("forbidden.example.com"), "{name}: {reply}");
        println!("{name}: refused after {} ms", reply["duration_ms"]);
        let quick = if engine().is_some_and(Engine::is_gvisor) { QUICK_MS_GVISOR } else { QUICK_MS };
        assert!(reply["duration_ms"].as_u64() < Some(quick), "{name}: {reply}");
    }
    daemon.stop().await;
}
