//! Egress under policy: what sandboxes reach over the network, what they do not, and what they are told about it.
//!
//! The servers are the story's own (`Upstream`), and names have the addresses that a story gives them (`DaemonBuilder::hosts`). With
//! gVisor programs use the proxy (`Ability::EveryDial`): `client.py` does that by itself.

mod around;
mod carrying;
mod changes;
mod clients;
mod denials;
mod inject;
mod learning;
mod maximum;
mod presets;

use std::net::IpAddr;

use e2e::daemon::{Daemon, DaemonBuilder, Session, Upstream};
use serde_json::{Value, json};

/// An ordinary user.
const SOMEBODY: u32 = 1000;

/// Functions for programs in sandboxes, and for the same programs outside.
const CLIENT: &str = include_str!("client.py");

/// A daemon and the servers around it.
struct World {
    daemon: Daemon,
    upstream: Upstream,
}

impl World {
    /// `good`, `evil` and `other` of `example.com` are the upstream's addresses. `None` if this host cannot have it.
    async fn start(story: &str) -> Option<Self> {
        Self::start_with(story, |builder| builder).await
    }

    async fn start_with(story: &str, change: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Option<Self> {
        let upstream = Upstream::start(story)?;
        let daemon = change(Daemon::builder().hosts(&names(&upstream))).start().await;
        Some(Self { daemon, upstream })
    }
}

async fn give_client(session: &Session) {
    session.put("client.py", CLIENT).await.ok();
}

/// The names that every story has.
fn names(upstream: &Upstream) -> Vec<(&'static str, IpAddr)> {
    let (good, evil, other) = (upstream.good().into(), upstream.evil().into(), upstream.other().into());
    vec![
        ("localhost", IpAddr::from([127, 0, 0, 1])),
        ("good.example.com", good),
        ("www.good.example.com", good),
        ("evil.example.com", evil),
        ("other.example.com", other),
        ("twin.example.com", good),
    ]
}

/// A command that runs Python code with all functions of `client.py`.
fn python(code: &str) -> String {
    format!("python3 -c {}", quoted(&format!("from client import *\n{code}")))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Runs Python code in a session, and returns the reply.
async fn runs(session: &Session, code: &str) -> Value {
    let request = json!({ "cmd": format!("export PYTHONPATH=/workspace; {}", python(code)), "timeout_ms": 60_000 });
    session.api.patient().post(&session.path("/exec"), request).await.ok()
}

/// Runs Python code that must succeed, and returns its output.
async fn prints(session: &Session, code: &str) -> String {
    let reply = runs(session, code).await;
    assert_eq!(reply["exit_code"], 0, "{code}: {reply}");
    reply["output"].as_str().expect("text").to_owned()
}

async fn put(session: &Session, network: Value) -> Value {
    session.api.put(&session.path("/network"), json!({ "network": network })).await.ok()
}

async fn view(session: &Session) -> Value {
    session.api.get(&session.path("/network")).await.ok()
}

async fn decisions(session: &Session) -> Vec<Value> {
    let log = session.api.get(&session.path("/network/log")).await.ok();
    log["decisions"].as_array().expect("a list").clone()
}

fn allow(rules: &[&str]) -> Value {
    json!({ "allow": rules })
}
