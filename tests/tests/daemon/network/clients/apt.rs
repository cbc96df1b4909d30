//! apt's own HTTP client, as an ordinary user in a default session: it updates its lists and downloads a package, with directories
//! of its own. To install it would take root.

use std::path::PathBuf;

use e2e::daemon::{Daemon, is_local_only};
use e2e::skipped;
use serde_json::json;

use super::{exec, has, registries};

/// A small package that Debian and Ubuntu have, and the program in it.
const PACKAGE: &str = "hello";

/// apt with all its directories below `/tmp/apt`, and without root. It takes its sources from the file that the story uploads.
const OPTIONS: &str = "-o Dir::State=/tmp/apt/state -o Dir::State::status=/tmp/apt/status -o Dir::Cache=/tmp/apt/cache \
    -o Dir::Etc=/tmp/apt/etc -o Dir::Etc::trustedparts=/usr/share/keyrings -o APT::Sandbox::User= -o Acquire::Retries=0 \
    -o APT::Update::Error-Mode=any";

#[tokio::test]
async fn apt_updates_its_lists_and_downloads_a_package() {
    let story = "apt in a sandbox";
    if is_local_only(story, "clients in containers have a story of their own") {
        return;
    }
    let daemon = Daemon::start().await;
    let registries = registries(&daemon).await;
    let Some(hosts) = registries.get("apt") else {
        return skipped(story, "apt of this host has told no source");
    };
    let session = daemon.api().patient().create(json!({ "network": "packages" })).await;
    if !has(&session, "apt-get").await {
        return skipped(story, "it is not in the sandbox");
    }
    let mut is_done = false;
    for (name, text) in sources() {
        if is_done || !hosts.iter().any(|host| text.contains(host["host"].as_str().expect("a host"))) {
            continue;
        }
        session.sh("rm -rf /tmp/apt && mkdir -p /tmp/apt/state/lists/partial /tmp/apt/cache/archives/partial /tmp/apt/etc/sources.list.d && touch /tmp/apt/status").await;
        session.put(&name, text).await.ok();
        session.sh(&format!("mv /workspace/{name} /tmp/apt/etc/sources.list.d/")).await;
        let command = format!(
            "cd /tmp/apt && apt-get {OPTIONS} -q update && apt-get {OPTIONS} -q download {PACKAGE} && dpkg-deb -x {PACKAGE}_*.deb x && x/usr/bin/{PACKAGE}"
        );
        let reply = exec(&session, &command).await;
        assert_eq!(reply["network_denied"], serde_json::Value::Null, "apt was denied what `packages` allows: {reply}");
        is_done = reply["exit_code"] == 0;
        if is_done {
            assert!(reply["output"].as_str().is_some_and(|output| output.contains("Hello, world!")), "{reply}");
            println!("apt-get update and download: after {} ms", reply["duration_ms"]);
        }
    }
    if !is_done {
        skipped(story, &format!("no source of this host has the package {PACKAGE}"));
    }
    session.destroy().await;
    daemon.stop().await;
}

/// The files with sources of this host, with their names.
fn sources() -> Vec<(String, String)> {
    let parts = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let paths = [PathBuf::from("/etc/apt/sources.list")].into_iter().chain(parts);
    let is_list = |path: &PathBuf| path.extension().is_some_and(|end| end == "list" || end == "sources");
    let name = |path: &PathBuf| path.file_name().expect("a file").to_string_lossy().into_owned();
    paths.filter(is_list).filter_map(|path| Some((name(&path), std::fs::read_to_string(&path).ok()?))).collect()
}
