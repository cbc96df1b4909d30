//! Package managers that install into the system, as root of a session: through the registries that this host's own are configured for,
//! with the files that a session of root has, and without any setting of the story's own.

use e2e::daemon::{Daemon, Session, is_local_only};
use e2e::{is_root, skipped};
use serde_json::{Value, json};

use super::{exec, has, registries};

/// A small package that Debian and Ubuntu have, with the program in it, and one whose scripts make a user and want to start a service.
const PACKAGE: &str = "hello";
const SERVICE: &str = "cron";

/// A name, the tool, and what it installs and how that is seen.
const INTO_THE_SYSTEM: [(&str, &str, &str); 2] = [
    (
        "pip",
        "pip",
        "python3 -m pip install -q --no-deps --root-user-action=ignore --break-system-packages --ignore-installed --no-cache-dir six \
         && cd / && python3 -c 'import six; print(six.__file__)'",
    ),
    (
        "npm",
        "npm",
        "npm install -g --no-fund --no-audit --cache /tmp/npm-cache is-number && ls $(npm root -g)/is-number/package.json",
    ),
];

async fn installed(session: &Session, name: &str, command: &str) -> Option<Value> {
    let reply = exec(session, command).await;
    assert_eq!(reply["network_denied"], Value::Null, "{name} was denied what `packages` allows: {reply}");
    if reply["exit_code"] == 0 {
        println!("{name}: after {} ms", reply["duration_ms"]);
        return Some(reply);
    }
    None
}

#[tokio::test]
async fn root_installs_packages_into_the_system() {
    let story = "packages that root installs";
    if is_local_only(story, "root is refused there") {
        return;
    }
    if !is_root() {
        return skipped(story, "a writable root needs a root daemon");
    }
    let daemon = Daemon::start().await;
    let registries = registries(&daemon).await;
    let session = daemon.api().patient().create(json!({ "user": "root", "network": "packages" })).await;
    let other = daemon.api().patient().create(json!({ "user": "root" })).await;
    if !registries.contains_key("apt") || !has(&session, "apt-get").await {
        skipped("apt-get install", "apt of this host has told no source, or is not there");
    } else if installed(&session, "apt-get update", "apt-get -q -o APT::Update::Error-Mode=any update").await.is_none()
    {
        skipped("apt-get install", "the sources of this host cannot be reached");
    } else {
        // From here on everything is the sandbox's own.
        let hello = format!("apt-get install -qy {PACKAGE} && {PACKAGE} && dpkg-query -W -f '${{Status}}' {PACKAGE}");
        let reply = exec(&session, &hello).await;
        let output = reply["output"].as_str().expect("text");
        assert_eq!(reply["exit_code"], 0, "{output}");
        assert!(output.contains("Hello, world!") && output.ends_with("install ok installed"), "{output}");
        // apt downloads as an account of its own, which root becomes.
        assert!(!output.contains("can not drop privileges") && !output.contains("unsandboxed"), "{output}");
        let service = format!(
            "apt-get install -qy --no-install-recommends {SERVICE} && dpkg --audit && apt-get purge -qy {PACKAGE} && ! test -e /usr/bin/{PACKAGE}"
        );
        let reply = exec(&session, &service).await;
        assert_eq!(reply["exit_code"], 0, "{}", reply["output"].as_str().unwrap_or_default());
    }
    for (name, tool, command) in INTO_THE_SYSTEM {
        if !registries.contains_key(tool) || !has(&session, tool).await {
            skipped(name, "its registry is not known, or it is not in the sandbox");
            continue;
        }
        match installed(&session, name, command).await {
            Some(reply) => assert!(reply["output"].as_str().is_some_and(|path| path.contains("/usr/")), "{reply}"),
            None => skipped(name, "the registry did not give the package"),
        }
    }
    // Neither another session nor the host has any of it.
    assert_eq!(other.exec(&format!("command -v {PACKAGE}")).await["exit_code"], 1);
    assert!(!std::path::Path::new("/usr/bin").join(PACKAGE).exists());
    daemon.stop().await;
}
