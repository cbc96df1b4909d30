//! Secrets and injections as clients manage them: who has which, what is refused, and what a change does.

use e2e::daemon::{Api, Cove, Daemon, Session};
use e2e::{DEADLINE, wait_until};
use serde_json::{Value, json};

use super::super::{decisions, put, view};
use super::{SecureWorld, all, bearer, exec, prints, raw};

/// What another key answers and what creates answer, as status and message.
async fn refusal(daemon: &Api, request: Value) -> (u16, String) {
    let answer = daemon.post("/v1/sessions", request).await;
    (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_secret_belongs_to_its_key_and_is_never_shown() {
    let daemon = Daemon::start().await;
    let made = daemon.post("/v1/keys", json!({ "name": "alice" })).await.json();
    let alice = daemon.with_key(Some(made["secret"].as_str().expect("a secret")));
    let set = daemon.put("/v1/secrets/token", json!({ "value": "of-the-admin", "hosts": ["API.example.com"] })).await;
    assert_eq!(set.json()["hosts"], json!(["api.example.com"]));
    assert!(!set.text().contains("of-the-admin"));
    assert_eq!(alice.get("/v1/secrets").await.json(), json!({ "secrets": [] }));
    assert_eq!(alice.delete("/v1/secrets/token").await.status, 404);
    let asked = json!({ "network": "full", "inject": bearer() });
    assert_eq!(refusal(&alice, asked.clone()).await.0, 404, "another's secret does not exist");
    alice.put("/v1/secrets/token", json!({ "value": "of-alice" })).await.ok();
    let all = daemon.get("/v1/secrets").await;
    assert!(!all.text().contains("of-alice") && !all.text().contains("of-the-admin"), "{}", all.text());
    let all = all.json();
    let owners: Vec<&Value> = all["secrets"].as_array().expect("a list").iter().map(|one| &one["owner"]).collect();
    assert_eq!(owners, [&json!("alice"), &json!("default")]);
    assert_eq!(alice.get("/v1/secrets").await.json()["secrets"].as_array().map(Vec::len), Some(1));
    let session = alice.create(asked).await;
    session.destroy().await;
    for bad in ["", " x", "a\nb", "ä", &"x".repeat(9000)] {
        let answer = daemon.put("/v1/secrets/bad", json!({ "value": bad })).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(bad.len() < 3 || !answer.text().contains(bad), "{}", answer.text());
    }
    assert_eq!(daemon.delete("/v1/secrets/token").await.status, 200);
    assert_eq!(daemon.delete("/v1/secrets/token").await.status, 404);
    daemon.stop().await;
}

#[tokio::test]
async fn an_injection_that_cannot_work_is_refused_before_anything_is_made() {
    let daemon = Daemon::start().await;
    daemon.put("/v1/secrets/token", json!({ "value": "x", "hosts": ["api.example.com"] })).await.ok();
    let one = |field: &str, value: &str| {
        let mut injection = bearer()[0].clone();
        injection[field] = json!(value);
        json!({ "network": "full", "inject": [injection] })
    };
    for (request, status, word) in [
        (json!({ "network": "none", "inject": bearer() }), 400, "does not allow api.example.com"),
        (
            json!({ "network": { "allow": ["api.example.com:80"] }, "inject": bearer() }),
            400,
            "does not allow api.example.com",
        ),
        (one("host", "*.example.com"), 400, "wildcard"),
        (one("host", "203.0.113.9"), 400, "address"),
        (one("host", "other.example.com"), 400, "may not be sent to other.example.com"),
        (one("header", "Host"), 400, "cannot be injected"),
        (one("header", "transfer-encoding"), 400, "cannot be injected"),
        (one("header", "a b"), 400, "name of a header"),
        (one("value_from", "env:TOKEN"), 400, "secret:NAME"),
        (one("value_from", "secret:nope"), 404, "cove secret set nope"),
        (one("format", "Bearer"), 400, "Bearer {}"),
    ] {
        let (got, message) = refusal(daemon.api(), request.clone()).await;
        assert!(got == status && message.contains(word), "{request}: {got} {message}");
    }
    assert_eq!(daemon.get("/v1/sessions").await.json(), json!([]));
    let session = daemon.create(json!({ "network": "full" })).await;
    let later = session.api.put(&session.path("/network"), json!({ "network": "full", "inject": bearer() })).await;
    assert_eq!(later.status, 409, "{}", later.text());
    assert!(later.text().contains("create the session with `inject`"), "{}", later.text());
    daemon.stop().await;
}

#[tokio::test]
async fn a_new_value_counts_from_the_next_request_on() {
    let Some(world) = SecureWorld::start("a secret that is replaced").await else { return };
    world.set_secret("token", "first-value").await;
    let session = world.session().await;
    // One connection, and a request whenever the story says so.
    let code = "import os, time
for number in range(3):
    while not os.path.exists(f'/tmp/go{number}'): time.sleep(0.01)
    c.sendall(f'GET /n{number} HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n'.encode()); print(answer(), flush=True)";
    session.sh(&format!(": > /tmp/out; ({}) > /tmp/out 2>&1 &", raw(code))).await;
    let answered = async |lines: usize| {
        wait_until("an answer", DEADLINE, async || {
            let text = session.sh("cat /tmp/out").await;
            (text.lines().count() >= lines).then_some(text)
        })
        .await
    };
    session.sh("touch /tmp/go0").await;
    answered(1).await;
    world.set_secret("token", "second-value").await;
    session.sh("touch /tmp/go1").await;
    answered(2).await;
    world.daemon.delete("/v1/secrets/token").await.ok();
    session.sh("touch /tmp/go2").await;
    let text = answered(3).await;
    assert!(text.lines().nth(2).is_some_and(|line| line.contains(" 502 ")), "{text}");
    assert_eq!(world.server.header("/n0", "authorization"), [["Bearer first-value"]]);
    assert_eq!(world.server.header("/n1", "authorization"), [["Bearer second-value"]]);
    assert!(world.server.header("/n2", "host").is_empty(), "without the secret, nothing is sent");
    let connections: std::collections::BTreeSet<u64> =
        world.server.seen().iter().filter_map(|request| request["connection"].as_u64()).collect();
    assert_eq!(connections.len(), 1, "the same connection");
    world.daemon.stop().await;
}

#[tokio::test]
async fn injections_change_with_the_network_and_stay_if_it_says_nothing_of_them() {
    let Some(world) = SecureWorld::start("PUT and injections").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.daemon.create(json!({ "network": all(), "inject": [] })).await;
    let change = async |inject: Value| {
        session.api.put(&session.path("/network"), json!({ "network": all(), "inject": inject })).await.ok()
    };
    assert_eq!(
        exec(&session, "curl -sS https://api.example.com/before").await["exit_code"],
        60,
        "nothing is injected yet"
    );
    change(bearer()).await;
    prints(&session, "curl -sSf https://api.example.com/with").await;
    put(&session, json!({ "allow": ["api.example.com"] })).await;
    assert_eq!(view(&session).await["inject"], bearer(), "an absent `inject` keeps them");
    prints(&session, "curl -sSf https://api.example.com/kept").await;
    // The network can always be taken away, and given back.
    put(&session, json!("none")).await;
    assert_ne!(exec(&session, "curl -sS https://api.example.com/none").await["exit_code"], 0);
    put(&session, all()).await;
    prints(&session, "curl -sSf https://api.example.com/again").await;
    // An open connection ends when its injection does.
    session
        .sh(&format!(": > /tmp/out; ({}) > /tmp/out 2>&1 &", raw("print(\"open\", flush=True)\nprint(answer())")))
        .await;
    // It is open when the program has the daemon's certificate.
    wait_until("a connection", DEADLINE, async || (session.sh("cat /tmp/out").await == "open\n").then_some(())).await;
    assert_eq!(view(&session).await["connections"], 1);
    change(json!([])).await;
    wait_until("it is cut", DEADLINE, async || (view(&session).await["connections"] == 0).then_some(())).await;
    let log = decisions(&session).await;
    let last = log.last().expect("a decision");
    assert_eq!(
        (&last["verdict"], &last["reason"], &last["injected"]),
        (&json!("cut"), &json!("policy_changed"), &json!(true))
    );
    assert_eq!(exec(&session, "curl -sS https://api.example.com/after").await["exit_code"], 60);
    for path in ["/with", "/kept", "/again"] {
        assert_eq!(world.server.header(path, "authorization"), [["Bearer the-secret-value"]]);
    }
    world.daemon.stop().await;
}

#[tokio::test]
async fn injections_survive_a_killed_daemon_and_leave_nothing_after_the_session() {
    let start = SecureWorld::start_with("kill -9 and injections", |builder| builder.keeps_sessions());
    let Some(mut world) = start.await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    prints(&session, "curl -sSf https://api.example.com/one").await;
    let (authorities, secrets) = (world.daemon.data_dir().join("authorities"), world.daemon.data_dir().join("secrets"));
    let file = authorities.join(format!("{}.json", session.id));
    assert!(file.exists());
    world.daemon.kill().await;
    // What a crash in the middle of a write leaves.
    std::fs::write(secrets.join("default/half.json.new"), "{\"value\":\"hal").expect("our own directory");
    std::fs::write(authorities.join("0badcafe-000.json"), "{}").expect("our own directory");
    world.daemon = world.daemon.start_again();
    let session = Session { api: world.daemon.api().clone(), ..session };
    assert_eq!(view(&session).await["inject"], bearer());
    prints(&session, "curl -sSf https://api.example.com/two").await;
    assert_eq!(world.server.header("/two", "authorization"), [["Bearer the-secret-value"]]);
    let names = world.daemon.get("/v1/secrets").await.json();
    assert_eq!(names["secrets"].as_array().map(Vec::len), Some(1), "{names}");
    assert!(!secrets.join("default/half.json.new").exists() && !authorities.join("0badcafe-000.json").exists());
    session.destroy().await;
    assert!(!file.exists(), "the session's authority ends with it");
    world.daemon.stop().await;
}

#[tokio::test]
async fn people_manage_secrets_by_commands() {
    let Some(world) = SecureWorld::start("cove secret").await else { return };
    let (daemon, cove) = (&world.daemon, Cove::of(&world.daemon));
    let set = cove.run_with_stdin(&["secret", "set", "token", "--host", "api.example.com"], "the-secret-value\n").await;
    assert_eq!(set.ok(), "token\n");
    let listed = cove.run(&["secret", "ls"]).await.ok();
    assert!(listed.contains("api.example.com") && !listed.contains("the-secret-value"), "{listed}");
    let inject = "api.example.com:Authorization=Bearer secret:token";
    let run = [
        "run",
        "--network",
        "api.example.com",
        "--inject",
        inject,
        "--",
        "curl",
        "-sSf",
        "https://api.example.com/cli",
    ];
    cove.run(&run).await.ok();
    assert_eq!(world.server.header("/cli", "authorization"), [["Bearer the-secret-value"]]);
    let session = daemon.create(json!({ "network": all(), "inject": bearer() })).await;
    let shown = cove.run(&["network", "show", &session.id]).await.ok();
    assert!(shown.contains(&format!("inject:  {inject}")), "{shown}");
    assert_eq!(cove.run(&["secret", "rm", "token"]).await.ok(), "token\n");
    world.daemon.stop().await;
}
