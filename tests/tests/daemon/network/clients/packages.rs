//! With `network: "packages"`, the package managers in a default session reach their registries, without any setting and without
//! any proxy variable.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::daemon::{Daemon, Session, is_local_only};
use e2e::{is_root, skipped};
use serde_json::{Value, json};

use super::{exec, has, registries, shown_directory};

/// Where the story's host has its Rust toolchain, if the real one has it in a home directory, which sandboxes do not see.
const RUST_IN_SANDBOX: &str = "/opt/shown";

/// What one client does, and the package manager whose registry it asks.
struct Client {
    name: &'static str,
    tool: &'static str,
    programs: &'static [&'static str],
    command: &'static str,
    /// What the command prints if it worked.
    prints: &'static str,
}

const CLIENTS: &[Client] = &[
    Client {
        name: "pip install",
        tool: "pip",
        programs: &["pip"],
        command: "python3 -m pip install -q --no-cache-dir --target /tmp/pip six && PYTHONPATH=/tmp/pip python3 -c 'import six; print(\"six\", six.__version__)'",
        prints: "six ",
    },
    Client {
        name: "npm install",
        tool: "npm",
        programs: &["npm", "node"],
        command: "mkdir -p /tmp/npm && cd /tmp/npm && npm install --silent --no-fund --no-audit is-number && node -p '\"is-number \" + require(\"is-number\")(5)'",
        prints: "is-number true",
    },
    Client {
        name: "cargo build",
        tool: "cargo",
        programs: &["cargo", "rustc", "cc"],
        command: "mkdir -p /tmp/crate/src && cd /tmp/crate && printf '[package]\\nname = \"tiny\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\nitoa = \"1\"\\n' > Cargo.toml && printf 'fn main() { println!(\"itoa {}\", itoa::Buffer::new().format(128u8)); }' > src/main.rs && cargo run -q",
        prints: "itoa 128",
    },
    Client {
        name: "go mod download",
        tool: "go",
        programs: &["go"],
        command: "mkdir -p /tmp/module && cd /tmp/module && go mod init example.com/tiny 2>&1 && go get rsc.io/quote@v1.5.2 2>&1 && go mod verify",
        prints: "all modules verified",
    },
    Client {
        name: "mvn dependency:get",
        tool: "mvn",
        programs: &["mvn"],
        command: "cd /tmp && mvn -B -q dependency:get -Dartifact=org.slf4j:slf4j-api:2.0.9 -Dtransitive=false && find ~/.m2 -name 'slf4j-api-2.0.9.jar'",
        prints: "slf4j-api-2.0.9.jar",
    },
];

/// Java's own HTTP client, in a program of one file.
const JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;
class Fetch {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
        System.out.println("status " + HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode());
    }
}
"#;

#[tokio::test]
async fn package_managers_in_a_session_reach_their_registries_without_any_setting() {
    let story = "package managers in a sandbox";
    if is_local_only(story, "clients in containers have a story of their own") {
        return;
    }
    let (builder, rust) = match rust_toolchain() {
        Some(Toolchain::Shown(directory)) => (Daemon::builder(), Some(directory)),
        Some(Toolchain::InHome(root)) if is_root() => {
            // The daemon of a story has another home directory, where rustup would look for a toolchain.
            let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").unwrap_or_default());
            let builder = Daemon::builder().shows_in_opt(&root).env("PATH", &path);
            (builder, Some(Path::new(RUST_IN_SANDBOX).join("bin")))
        }
        _ => (Daemon::builder(), None),
    };
    let daemon = builder.start().await;
    let registries = registries(&daemon).await;
    if registries.is_empty() {
        return skipped(story, "no package manager of this host has told its registry");
    }
    let resources = json!({ "memory_mb": 2048, "disk_mb": 1024 });
    let session = daemon.api().patient().create(json!({ "network": "packages", "resources": resources })).await;
    let directories: Vec<PathBuf> = rust.into_iter().chain(shown_directory("go")).collect();
    for directory in directories {
        session.sh(&format!("PATH=$PATH:{}", directory.display())).await;
    }
    let variables = session.sh("env").await;
    assert!(!variables.to_ascii_lowercase().contains("_proxy="), "{variables}");
    for client in CLIENTS {
        let Some(hosts) = registries.get(client.tool) else {
            skipped(client.name, "the daemon knows no registry of it");
            continue;
        };
        if !have_all(&session, client.programs).await {
            skipped(client.name, "it is not in the sandbox");
            continue;
        }
        let reply = exec(&session, client.command).await;
        if is_out_of_reach(&daemon, client, hosts, &reply).await {
            continue;
        }
        let output = reply["output"].as_str().unwrap_or_default();
        assert!(reply["exit_code"] == 0 && output.contains(client.prints), "{}: {reply}", client.name);
        println!("{}: {}, after {} ms", client.name, output.trim(), reply["duration_ms"]);
    }
    let Some(url) = registries.get("npm").or_else(|| registries.get("pip")).map(|hosts| url(&hosts[0])) else {
        return skipped("clients that fetch a page", "neither npm nor pip has told its registry");
    };
    if reaches(&daemon, &url) {
        fetch_a_page(&session, &url).await;
    } else {
        skipped("clients that fetch a page", "this host itself does not get a page of the registry");
    }
    session.destroy().await;
    daemon.stop().await;
}

/// Clients that are no package managers reach the host of a registry too, and say what it answered.
async fn fetch_a_page(session: &Session, url: &str) {
    session.put("Fetch.java", JAVA).await.ok();
    let clients = [
        ("curl", format!("curl -sS -o /dev/null -w 'status %{{http_code}}' {url}")),
        ("wget", format!("wget -S -O /dev/null {url} 2>&1 | sed -n 's/^ *HTTP[^ ]*/status/p'")),
        ("node", format!("node -e 'fetch(\"{url}\").then(r => console.log(\"status\", r.status))'")),
        ("javac", format!("java /workspace/Fetch.java {url}")),
        ("python3", format!("python3 -c 'import urllib.request as u; print(\"status\", u.urlopen(\"{url}\").status)'")),
    ];
    for (program, command) in clients {
        if !has(session, program).await {
            skipped(program, "it is not in the sandbox");
            continue;
        }
        let reply = exec(session, &command).await;
        let output = reply["output"].as_str().unwrap_or_default();
        assert!(output.contains("status 200"), "{program}: {reply}");
        println!("{program}: {}, after {} ms", output.trim(), reply["duration_ms"]);
    }
}

async fn have_all(session: &Session, programs: &[&str]) -> bool {
    for program in programs {
        if !has(session, program).await {
            return false;
        }
    }
    true
}

/// Whether a client failed although nothing was denied, because this host itself does not reach the registry. Prints the skip.
async fn is_out_of_reach(daemon: &Daemon, client: &Client, hosts: &[Value], reply: &Value) -> bool {
    let is_denied = reply["network_denied"].as_array().is_some_and(|denied| !denied.is_empty());
    let is_reached = || hosts.iter().any(|host| reaches(daemon, &url(host)));
    let is_out = reply["exit_code"] != 0 && !is_denied && !is_reached();
    if is_out {
        skipped(client.name, "this host itself does not reach the registry");
    }
    is_out
}

fn url(host: &Value) -> String {
    let name = host["host"].as_str().expect("a host");
    match host["ports"].as_array().and_then(|ports| ports.first()).and_then(Value::as_u64) {
        Some(443) | None => format!("https://{name}/"),
        Some(port) => format!("http://{name}:{port}/"),
    }
}

/// Whether this host gets a page without any sandbox.
fn reaches(daemon: &Daemon, url: &str) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-f", "-o", "/dev/null", "--max-time", "20", url]).env("HOME", daemon.directory());
    curl.status().is_ok_and(|status| status.success())
}

/// The Rust toolchain of this host: its programs if sandboxes see it, or else its root.
enum Toolchain {
    Shown(PathBuf),
    InHome(PathBuf),
}

fn rust_toolchain() -> Option<Toolchain> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let root = Path::new(String::from_utf8_lossy(&sysroot.stdout).trim()).canonicalize().ok()?;
    let is_shown = ["/usr", "/opt"].iter().any(|top| root.starts_with(top));
    Some(if is_shown { Toolchain::Shown(root.join("bin")) } else { Toolchain::InHome(root) })
}
