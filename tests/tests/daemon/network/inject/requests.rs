//! What happens to requests: which header arrives where, and that everything else stays as it is.

use e2e::daemon::{Ability, Session, lacks};
use serde_json::{Value, json};

use super::super::{SOMEBODY, decisions, view};
use super::{SecureWorld, all, bearer, exec, header_of, prints, raw};

/// Clients with their own ways to find certificate authorities; a client that is not there is skipped.
const CLIENTS: &[(&str, &str)] = &[
    ("curl", "curl -sS https://api.example.com/curl"),
    ("wget", "wget -qO- https://api.example.com/wget"),
    (
        "python3",
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://api.example.com/python3\").read())'",
    ),
    (
        "requests",
        "python3 -c 'import requests; r = requests.get(\"https://api.example.com/requests\"); r.raise_for_status()'",
    ),
    (
        "node",
        "node -e 'require(\"https\").get(\"https://api.example.com/node\", r => r.resume()).on(\"error\", e => { throw e })'",
    ),
    ("git", "git ls-remote https://api.example.com/git 2>&1 | grep -v SSL; true"),
];

fn is_there(name: &str) -> String {
    match name {
        "requests" => "python3 -c 'import requests'".to_owned(),
        name => format!("command -v {name}"),
    }
}

async fn clients_send_the_header(world: &SecureWorld, session: &Session) {
    for (name, command) in CLIENTS {
        if session.exec(&is_there(name)).await["exit_code"] != 0 {
            e2e::skipped(name, "it is not in the sandbox");
            continue;
        }
        prints(session, command).await;
        let requests = world.server.seen();
        let of_client =
            |request: &&Value| request["path"].as_str().is_some_and(|path| path.starts_with(&format!("/{name}")));
        let request = requests.iter().find(of_client).unwrap_or_else(|| panic!("{name} sent nothing: {requests:?}"));
        assert_eq!(header_of(request, "authorization"), ["Bearer the-secret-value"], "{name}");
    }
}

#[tokio::test]
async fn an_injected_header_arrives_from_every_client() {
    let Some(world) = SecureWorld::start("injected headers of clients").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    clients_send_the_header(&world, &session).await;
    let log = decisions(&session).await;
    let injected: Vec<&Value> = log.iter().filter(|one| one["injected"] == true).collect();
    assert!(!injected.is_empty() && injected.iter().all(|one| one["host"] == "api.example.com"), "{log:?}");
    assert!(injected.iter().any(|one| one["bytes_sent"].as_u64() > Some(100)), "{injected:?}");
    assert_eq!(view(&session).await["inject"], bearer());
    // The files cannot be changed, also not by a program that has the sandbox's root.
    let denied = exec(&session, "echo x >> /run/cove-trust/bundle.pem || echo x > /run/cove-trust/y").await;
    assert_ne!(denied["exit_code"], 0, "{denied}");
    world.daemon.stop().await;
}

#[tokio::test]
async fn the_daemon_of_an_ordinary_user_injects_headers_too() {
    if lacks("injected headers of an ordinary user", Ability::OrdinaryUsers) {
        return;
    }
    let start = SecureWorld::start_with("injected headers of an ordinary user", |builder| builder.as_user(SOMEBODY));
    let Some(world) = start.await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    clients_send_the_header(&world, &session).await;
    let denied = exec(&session, "echo x >> /run/cove-trust/bundle.pem").await;
    assert_ne!(denied["exit_code"], 0, "{denied}");
    world.daemon.stop().await;
}

/// `full` looks at no names; with an injection, it has to.
#[tokio::test]
async fn a_header_is_injected_under_every_policy_that_allows_the_host() {
    let Some(world) = SecureWorld::start("injected headers under full").await else { return };
    world.set_secret("token", "the-secret-value").await;
    for (number, network) in [json!("full"), json!({ "allow": ["*"], "deny": ["evil.example.com"] })].iter().enumerate()
    {
        let session = world.daemon.create(json!({ "network": network, "inject": bearer() })).await;
        prints(&session, &format!("curl -sS https://api.example.com/n{number}")).await;
        assert_eq!(world.server.header(&format!("/n{number}"), "authorization"), [["Bearer the-secret-value"]]);
        // Another host is untouched: the program sees the server's own certificate.
        let ca = std::fs::read_to_string(&world.ca).expect("ours");
        session.put("story.pem", ca).await.ok();
        let plain = format!("curl -sS --http1.1 --cacert /workspace/story.pem https://plain.example.com/p{number}");
        prints(&session, &plain).await;
        assert_eq!(world.server.header(&format!("/p{number}"), "authorization"), [[""; 0]]);
        // Something else than TLS on the same port passes too.
        if Ability::EveryDial.is_there("another protocol beside an injected header") {
            let session_upstream =
                format!("exec 3<>/dev/tcp/{}/443; printf 'echo hi' >&3; head -c 7 <&3", world.upstream.good());
            assert_eq!(prints(&session, &format!("bash -c \"{session_upstream}\"")).await, "echo hi");
        }
        session.destroy().await;
    }
    world.daemon.stop().await;
}

#[tokio::test]
async fn hosts_without_an_injection_are_untouched() {
    let Some(world) = SecureWorld::start("hosts without an injection").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    session.put("story.pem", std::fs::read_to_string(&world.ca).expect("ours")).await.ok();
    // The server offers HTTP/2, which a program may choose here, and which the daemon never chooses for it.
    let offered = prints(&session, "curl -sSv --cacert story.pem https://plain.example.com/h2 2>&1 || true").await;
    assert!(offered.contains("server accepted h2"), "{offered}");
    let seen = prints(&session, "curl -sSv --http1.1 --cacert story.pem https://plain.example.com/x 2>&1").await;
    assert!(seen.contains("issuer: CN=Story CA"), "{seen}");
    assert_eq!(world.server.header("/x", "authorization"), [[""; 0]]);
    // The session's own authority does not vouch for that host, and the story's not for the injected one.
    assert_eq!(exec(&session, "curl -sS https://plain.example.com/y").await["exit_code"], 60);
    assert_eq!(exec(&session, "curl -sS --cacert story.pem https://api.example.com/y").await["exit_code"], 60);
    assert!(world.server.header("/y", "host").is_empty());
    world.daemon.stop().await;
}

#[tokio::test]
async fn the_programs_own_header_is_replaced_however_it_is_written() {
    let Some(world) = SecureWorld::start("a header of the program's own").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    let curl =
        "curl -sS -H 'AUTHORIZATION: mine' -H 'authorization: mine2' -H 'X-Other: stays' https://api.example.com/own";
    prints(&session, curl).await;
    assert_eq!(world.server.header("/own", "authorization"), [["Bearer the-secret-value"]]);
    assert_eq!(world.server.header("/own", "x-other"), [["stays"]]);
    world.daemon.stop().await;
}

#[tokio::test]
async fn a_connection_carries_many_requests_and_each_must_be_for_the_host() {
    let Some(world) = SecureWorld::start("many requests").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    let output = prints(&session, "curl -sS 'https://api.example.com/k[1-20]' -o /dev/null -w '%{num_connects}'").await;
    assert_eq!(output.matches('1').count(), 1, "one connection for all: {output}");
    let numbers: Vec<Value> = world.server.seen().iter().map(|request| request["connection"].clone()).collect();
    assert!(numbers.len() == 20 && numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    assert!(
        world.server.seen().iter().all(|request| header_of(request, "authorization") == ["Bearer the-secret-value"])
    );
    for (index, (second, status)) in [
        ("GET /h{} HTTP/1.1\\r\\nHost: plain.example.com\\r\\n\\r\\n", "421"),
        ("GET /h{} HTTP/1.1\\r\\nHost: evil.example.com\\r\\n\\r\\n", "421"),
        ("GET /h{} HTTP/1.1\\r\\nHost: api.example.com\\r\\nHost: evil.example.com\\r\\n\\r\\n", "421"),
        ("GET https://evil.example.com/h{} HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n", "421"),
        ("GET /h{} HTTP/1.1\\r\\n\\r\\n", "421"),
        ("CONNECT evil.example.com:443 HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n", "405"),
        ("GET /h{} HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n", "200"),
        ("GET https://api.example.com/h{} HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n", "200"),
    ]
    .iter()
    .enumerate()
    {
        let second = second.replace("{}", &index.to_string());
        let code = format!(
            "c.sendall(b'GET /first HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n'); print(answer())
c.sendall(b'{second}'); print(answer())"
        );
        let output = prints(&session, &raw(&code)).await;
        let lines: Vec<&str> = output.lines().collect();
        assert!(lines[0].contains(" 200 ") && lines[1].contains(status), "{second}: {output}");
        let arrived = world.server.seen().iter().any(|request| request["path"] == format!("/h{index}"));
        assert_eq!(arrived, *status == "200", "{second}");
    }
    world.daemon.stop().await;
}

#[tokio::test]
async fn large_bodies_are_exact_both_ways() {
    const BYTES: u64 = 48 << 20;
    let Some(world) = SecureWorld::start("large bodies").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    let made = "python3 -c 'import sys
p = bytes((at * 7 + at // 251) % 251 for at in range(65536))
for _ in range(768): sys.stdout.buffer.write(p)' > /tmp/body; sha256sum < /tmp/body | cut -d\" \" -f1";
    let digest = prints(&session, made).await.trim().to_owned();
    let down = format!("curl -sS https://api.example.com/bytes/{BYTES} | sha256sum | cut -d' ' -f1");
    assert_eq!(prints(&session, &down).await.trim(), digest);
    for (path, how) in
        [("/up", ""), ("/up-chunked", "-H 'Transfer-Encoding: chunked'"), ("/up-100", "-H 'Expect: 100-continue'")]
    {
        let up = format!("curl -sS --data-binary @/tmp/body {how} https://api.example.com{path} -o /dev/null");
        prints(&session, &up).await;
        let request = world.server.seen().into_iter().find(|request| request["path"] == path).expect("it came");
        assert_eq!((request["length"].as_u64(), request["sha256"].as_str()), (Some(BYTES), Some(digest.as_str())));
    }
    let chunked = prints(&session, "curl -sS https://api.example.com/chunked | wc -c").await;
    assert_eq!(chunked.trim(), "300000");
    let head = prints(&session, "curl -sSI https://api.example.com/head").await;
    assert!(head.to_lowercase().contains("content-length: 1234"), "{head}");
    let network = view(&session).await;
    assert!(network["bytes_received"].as_u64() > Some(BYTES) && network["bytes_sent"].as_u64() > Some(3 * BYTES));
    world.daemon.stop().await;
}

#[tokio::test]
async fn after_an_upgrade_bytes_pass_as_they_are() {
    let Some(world) = SecureWorld::start("an upgrade").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    let code = "c.sendall(b'GET /raw HTTP/1.1\\r\\nHost: api.example.com\\r\\nConnection: Upgrade\\r\\nUpgrade: raw\\r\\n\\r\\n')
print(answer())
for word in [b'hello', b'GET / HTTP/1.1\\r\\nHost: evil\\r\\n\\r\\n', b'x' * 100000]:
    c.sendall(word); got = b''
    while len(got) < len(word): got += c.recv(65536)
    print(got == word.upper())";
    let output = prints(&session, &raw(code)).await;
    assert!(output.contains(" 101 ") && output.matches("True").count() == 3, "{output}");
    assert_eq!(world.server.header("/raw", "authorization"), [["Bearer the-secret-value"]]);
    world.daemon.stop().await;
}

#[tokio::test]
async fn a_server_with_a_wrong_certificate_gets_nothing() {
    let Some(world) = SecureWorld::start("a wrong certificate").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let inject = json!([{ "host": "wrong.example.com", "header": "X-Key", "value_from": "secret:token" }]);
    let session = world.daemon.create(json!({ "network": all(), "inject": inject })).await;
    let output = prints(&session, "curl -sSi https://wrong.example.com/wrong").await;
    assert!(output.contains(" 502 ") && output.contains("x-cove-inject: upstream"), "{output}");
    assert!(output.contains("certificate"), "it says why: {output}");
    assert!(world.server.seen().is_empty(), "{:?}", world.server.seen());
    // The control: under its own name, the same server is trusted.
    let inject = json!([{ "host": "api.example.com", "header": "X-Key", "value_from": "secret:token" }]);
    let put = json!({ "network": all(), "inject": inject });
    session.api.put(&session.path("/network"), put).await.ok();
    prints(&session, "curl -sSf https://api.example.com/right").await;
    assert_eq!(world.server.header("/right", "x-key"), [["the-secret-value"]]);
    world.daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_closes_is_connected_to_again() {
    let Some(world) = SecureWorld::start("a server that closes").await else { return };
    world.set_secret("token", "the-secret-value").await;
    let session = world.session().await;
    let output = prints(&session, "curl -sSf https://api.example.com/close https://api.example.com/close").await;
    assert_eq!(output.matches("the-secret-value").count(), 2, "{output}");
    let numbers: Vec<u64> = world.server.seen().iter().filter_map(|request| request["connection"].as_u64()).collect();
    assert!(numbers.len() == 2 && numbers[0] != numbers[1], "{numbers:?}");
    // If the server just closes, the program sees that, as it would without the daemon.
    let code = "c.settimeout(20)
c.sendall(b'GET /hang-up HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n'); print(answer()); print(c.recv(1))";
    let output = prints(&session, &raw(code)).await;
    assert!(output.contains(" 200 ") && output.ends_with("b''\n"), "{output}");
    world.daemon.stop().await;
}
