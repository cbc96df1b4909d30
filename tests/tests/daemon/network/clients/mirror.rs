//! A company's mirror: if the host's package managers are configured for one, those in a session use it without any setting, and
//! get no credentials.

use std::net::IpAddr;
use std::path::Path;

use e2e::daemon::{Daemon, Session, Upstream, is_local_only};
use e2e::skipped;
use serde_json::json;

use super::{Server, exec, has, shown_directory};

const SERVER: &str = include_str!("mirror.py");
const NAME: &str = "mirror.example.com";
/// A port on which the upstream has no server of its own.
const PORT: u16 = 8081;
/// The password in the host's settings.
const SECRET: &str = "hunter2";

/// What package managers do in the session, and what they print.
const CLIENTS: &[(&str, &str, &str)] = &[
    (
        "pip",
        "python3 -m pip install -q --no-cache-dir --target /tmp/pip demo && PYTHONPATH=/tmp/pip python3 -c 'import demo; print(demo.where)'",
        "the mirror",
    ),
    (
        "npm",
        "mkdir -p /tmp/npm && cd /tmp/npm && npm install --silent --no-fund --no-audit demo && node -p 'require(\"demo\")'",
        "the mirror",
    ),
    (
        "go",
        "mkdir -p /tmp/go && cd /tmp/go && go mod init example.com/tiny 2>&1 && go get example.com/demo 2>&1 && go list -m all",
        "example.com/demo v1.0.0",
    ),
];

/// Starts the mirror behind the upstream's first address.
fn start_mirror(upstream: &Upstream, directory: &Path) -> Server {
    let mut command = upstream.command("python3");
    command.args(["-c", SERVER]).arg(directory).arg(upstream.good().to_string());
    command.arg(PORT.to_string()).arg(format!("http://{NAME}:{PORT}"));
    Server::start(command)
}

async fn variable(session: &Session, name: &str) -> String {
    session.sh(&format!("echo ${name}")).await.trim().to_owned()
}

#[tokio::test]
async fn a_companys_mirror_just_works_and_its_password_stays_outside() {
    let story = "a company's mirror";
    if is_local_only(story, "clients in containers have a story of their own") {
        return;
    }
    let Some(upstream) = Upstream::start(story) else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let _server = start_mirror(&upstream, directory.path());
    let mirror = |path: &str| format!("http://ann:{SECRET}@{NAME}:{PORT}/{path}");
    let names = [("localhost", IpAddr::from([127, 0, 0, 1])), (NAME, upstream.good().into())];
    let builder = Daemon::builder()
        .hosts(&names)
        .env("PIP_INDEX_URL", &mirror("simple"))
        .env("PIP_TRUSTED_HOST", NAME)
        .env("NPM_CONFIG_REGISTRY", &mirror("npm/"))
        .env("GOPROXY", &mirror("go"))
        .env("GOSUMDB", "off")
        .config("[pool]\nbase = 1\n");
    let daemon = builder.start().await;
    let api = daemon.api().patient();
    let session = api.create(json!({ "network": "packages" })).await;
    if let Some(directory) = shown_directory("go") {
        session.sh(&format!("PATH=$PATH:{}", directory.display())).await;
    }
    assert_eq!(variable(&session, "PIP_INDEX_URL").await, format!("http://{NAME}:{PORT}/simple"));
    for (program, command, prints) in CLIENTS {
        if !has(&session, program).await {
            skipped(program, "it is not in the sandbox");
            continue;
        }
        let reply = exec(&session, command).await;
        let output = reply["output"].as_str().unwrap_or_default();
        assert!(reply["exit_code"] == 0 && output.contains(prints), "{program}: {reply}");
        println!("{program} through the mirror: after {} ms", reply["duration_ms"]);
    }
    let told = api.get("/v1/network/packages").await.ok().to_string();
    let seen = [session.sh("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'").await, told, daemon.log()];
    assert!(seen.iter().all(|text| !text.contains(SECRET)), "the password is inside, or in the log");
    session.destroy().await;

    // A session that may not reach the mirror is not sent there, and what a client names itself wins, in any case of its letters.
    let none = api.create(json!({})).await;
    assert_eq!(variable(&none, "PIP_INDEX_URL").await, "");
    none.destroy().await;
    let env = json!({ "PIP_INDEX_URL": "https://own.example.com/", "npm_config_registry": "https://own.example.com/" });
    let own = api.create(json!({ "network": { "presets": ["packages"] }, "env": env })).await;
    assert_eq!(variable(&own, "PIP_INDEX_URL").await, "https://own.example.com/");
    assert_eq!(variable(&own, "NPM_CONFIG_REGISTRY").await, "");
    assert_eq!(variable(&own, "GOSUMDB").await, "off");
    own.destroy().await;
    daemon.stop().await;
}
