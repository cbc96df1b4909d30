//! What is allowed arrives as it was sent, whatever is spoken: HTTP, TLS, other protocols, and DNS.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use e2e::daemon::{Ability, Daemon, DaemonBuilder, engine, lacks};
use e2e::{DEADLINE, is_root, skipped, wait_until};
use serde_json::json;

use super::{SOMEBODY, World, allow, decisions, give_client, names, prints, put, runs, view};

#[tokio::test]
async fn plain_http_reaches_the_host_that_a_rule_allows() {
    let Some(World { daemon, upstream }) = World::start("plain HTTP under a policy").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let reply = runs(&session, "shown(get('good.example.com'))").await;
    let output = reply["output"].as_str().expect("text");
    assert!(output.contains(&format!("hello from {}", upstream.good())), "{reply}");
    assert!(reply.get("network_denied").is_none_or(|denied| denied == &json!([])), "{reply}");
    // A real client, several requests on one connection.
    let url = "http://good.example.com/";
    let both = session.sh(&format!("curl -s {url} {url}bytes/70000 | wc -c")).await;
    assert_eq!(
        both.trim().parse::<usize>().expect("a number"),
        70_000 + format!("hello from {}\n", upstream.good()).len()
    );
    let view = view(&session).await;
    assert_eq!((&view["is_open"], &view["used"]), (&json!(true), &json!(["good.example.com"])), "{view}");
    assert!(view["bytes_received"].as_u64() > Some(70_000), "{view}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_tls_client_hello_arrives_byte_for_byte() {
    let Some(World { daemon, upstream }) = World::start("TLS by its server name").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let code = "h = hello('good.example.com', session=b'S' * 32)
shown(send('good.example.com', 443, h))
shown(send('good.example.com', 443, h, pieces=[h[:1], h[1:7], h[7:60], h[60:]]))
print(h.hex())";
    let output = prints(&session, code).await;
    let sent = output.lines().last().expect("a line").to_owned();
    assert!(output.matches("seen").count() >= 2, "{output}");
    let seen = upstream.seen_at(upstream.good());
    assert_eq!(seen.len(), 2, "{seen:?}");
    for one in seen {
        assert_eq!(one.dialled.port(), 443);
        assert_eq!(one.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), sent);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_rule_with_a_port_allows_any_protocol_there_also_one_whose_server_speaks_first() {
    let Some(World { daemon, upstream }) = World::start("raw TCP").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com:22", "good.example.com:5432"]) })).await;
    give_client(&session).await;
    let code = "c = dial('good.example.com', 22)
shown(some_of(c))
c.sendall(b'echo one'); shown(some_of(c))
c.sendall(b' two'); c.shutdown(socket.SHUT_WR); shown(all_of(c))
shown(send('good.example.com', 5432, b'echo \\0\\1\\2 binary'))";
    let output = prints(&session, code).await;
    assert_eq!(output, "SSH-2.0-upstream\r\n\necho one\n two\necho \0\u{1}\u{2} binary\n");
    let ports: Vec<u16> = upstream.seen_at(upstream.good()).iter().map(|seen| seen.dialled.port()).collect();
    assert_eq!(ports, [22, 5432]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_rule_for_an_address_range_allows_its_addresses_without_a_name() {
    let Some(World { daemon, upstream }) = World::start("a range of addresses").await else { return };
    let rule = format!("{}/32:6667", upstream.other());
    let session = daemon.create(json!({ "network": allow(&[&rule]) })).await;
    give_client(&session).await;
    let (other, evil) = (upstream.other(), upstream.evil());
    assert_eq!(prints(&session, &format!("shown(send('{other}', 6667, b'echo x'))")).await, "echo x\n");
    let denied =
        runs(&session, &format!("shown(send('{evil}', 6667, b'echo x')); shown(send('{other}', 22, b'x'))")).await;
    assert_eq!(denied["network_denied"], json!([format!("{evil}:6667"), format!("{other}:22")]), "{denied}");
    assert!(upstream.seen_at(evil).is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn ipv6_is_carried_under_the_same_policy() {
    let Some(World { mut daemon, upstream }) = World::start("IPv6").await else { return };
    let (good, evil) = (upstream.good6(), upstream.evil6());
    if std::net::TcpStream::connect((good, 80)).is_err() {
        return skipped("IPv6", "the host has none");
    }
    let mut all = names(&upstream);
    all.extend([("six.example.com", good.into()), ("evil6.example.com", evil.into())]);
    all.extend([("both.example.com", good.into()), ("both.example.com", upstream.good().into())]);
    daemon.set_hosts(&all);
    upstream.forget();
    let session = daemon
        .create(json!({ "network": allow(&["six.example.com", "six.example.com:22", "both.example.com"]) }))
        .await;
    give_client(&session).await;
    let code = "shown(get('six.example.com')); shown(some_of(dial('six.example.com', 22))); print(b'hello' in get('both.example.com'))";
    let output = prints(&session, code).await;
    for part in [&format!("hello from {good}"), "SSH-2.0", "True"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    if Ability::EveryDial.is_there("DNS of IPv6") {
        let code = "print(ask('six.example.com', 28), ask('six.example.com', 1), len(resolve('both.example.com')))";
        assert_eq!(prints(&session, code).await, "(0, 1) (0, 0) 2\n");
    }
    let code = format!(
        "shown(get('{evil}', path='/forbidden', name='six.example.com')); shown(send('{evil}', 22, b'forbidden')); shown(send('{good}', 443, hello('evil6.example.com')))"
    );
    let reply = runs(&session, &code).await;
    assert!(upstream.seen_at(evil).is_empty() && !upstream.saw("evil6"), "{reply} {:?}", upstream.seen());
    let denied = json!([format!("[{evil}]:22"), format!("[{evil}]:80"), "evil6.example.com"]);
    assert_eq!(reply["network_denied"], denied, "{reply}");
    // The rule that it names works.
    put(&session, json!({ "allow": reply["network_denied"] })).await;
    assert!(prints(&session, &format!("shown(send('{evil}', 22, b'x'))")).await.contains("SSH-2.0"));
    daemon.stop().await;
}

/// A program that has the address from elsewhere, such as a file or a cache.
#[tokio::test]
async fn an_address_of_an_allowed_name_is_reached_without_a_question() {
    let Some(World { daemon, upstream }) = World::start("an address without a question").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let good = upstream.good();
    let code =
        format!("shown(get('{good}', name='good.example.com')); shown(send('{good}', 443, hello('good.example.com')))");
    let output = prints(&session, &code).await;
    assert!(output.contains("hello from") && output.contains("seen"), "{output}");
    assert_eq!(view(&session).await["used"], json!(["good.example.com"]));
    daemon.stop().await;
}

/// Names that nobody answers for take a place in the resolver for many seconds.
#[tokio::test]
async fn a_session_whose_names_take_long_does_not_hold_up_the_names_of_others() {
    let story = "names that take long";
    if lacks(story, Ability::EveryDial) {
        return;
    }
    let Some(upstream) = e2e::daemon::Upstream::start(story) else { return };
    // The upstream answers no questions.
    let daemon = Daemon::builder().hosts(&names(&upstream)).name_server(upstream.other().into()).start().await;
    let (slow, quick) =
        (daemon.create(json!({ "network": "full" })).await, daemon.create(json!({ "network": "full" })).await);
    give_client(&slow).await;
    give_client(&quick).await;
    let code = "import threading
def look(i):
    for j in range(20):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(query(f'n{i}-{j}.slow.example.org'), ('192.0.2.53', 53)); s.settimeout(8); some_of(s)
for i in range(100): threading.Thread(target=look, args=(i,), daemon=True).start()
import time; time.sleep(60)";
    let python = super::python(code);
    slow.sh(&format!("(export PYTHONPATH=/workspace; {python} > /tmp/out 2>&1 &)")).await;
    upstream.until_saw("slow").await;
    // The questions wait now, many more than the daemon asks at once.
    let code = "import time
time.sleep(2); start = time.time(); found = resolve('good.example.com'); print(time.time() - start < 4, len(found))";
    assert_eq!(prints(&quick, code).await, "True 1\n");
    slow.destroy().await;
    quick.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_program_that_closes_its_half_still_gets_its_answer() {
    let Some(World { daemon, upstream: _upstream }) = World::start("half-closed connections").await else { return };
    for rule in ["good.example.com", "*"] {
        let session = daemon.create(json!({ "network": allow(&[rule]) })).await;
        give_client(&session).await;
        let output = prints(&session, "shown(get('good.example.com', path='/after-eof'))").await;
        assert!(output.ends_with("after the end\n"), "{output}");
        session.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn names_are_resolved_over_udp_and_tcp_and_a_name_that_is_not_allowed_does_not_exist() {
    if lacks("DNS", Ability::EveryDial) {
        return;
    }
    let Some(World { daemon, upstream: _upstream }) = World::start("DNS").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let code =
        "print(ask('good.example.com'), ask_tcp('good.example.com'), ask('GOOD.example.com.', server='198.18.0.1'))
print(ask('good.example.com', 28), ask('good.example.com', 16), ask_tcp('good.example.com', 255))
print(ask('evil.example.com'), ask_tcp('evil.example.com'), ask('example.com'), ask('www.good.example.com'))";
    let output = prints(&session, code).await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "(0, 1) (0, 1) (0, 1)", "an address: {output}");
    assert_eq!(lines[1], "(0, 0) (0, 0) (0, 0)", "no other records: {output}");
    assert_eq!(lines[2], "(3, 0) (3, 0) (3, 0) (3, 0)", "NXDOMAIN: {output}");
    let reply = session.exec("getent hosts evil.example.com").await;
    assert_eq!((&reply["exit_code"], &reply["network_denied"]), (&json!(2), &json!(["evil.example.com"])), "{reply}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_program_can_use_the_ports_of_the_network_itself() {
    let Some(World { daemon, upstream: _upstream }) = World::start("servers inside").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com:8080"]) })).await;
    give_client(&session).await;
    let code = "import threading
server = socket.create_server(('', 8080))
def serve():
    c, _ = server.accept(); c.sendall(b'mine'); c.close()
threading.Thread(target=serve, daemon=True).start()
shown(all_of(dial('127.0.0.1', 8080)))
shown(get('good.example.com', 8080))";
    let output = prints(&session, code).await;
    assert!(output.starts_with("mine\n") && output.contains("hello from"), "{output}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_name_with_a_dead_address_is_reached_at_its_other_one() {
    let story = "a name with two addresses";
    let Some(World { mut daemon, upstream }) = World::start(story).await else { return };
    let mut all = names(&upstream);
    // The kernel refuses the connection to the first: nobody listens there.
    all.extend([("two.example.com", upstream.host().into()), ("two.example.com", upstream.good().into())]);
    daemon.set_hosts(&all);
    let session = daemon.create(json!({ "network": allow(&["two.example.com"]) })).await;
    give_client(&session).await;
    let output = prints(&session, "shown(get('two.example.com'))").await;
    assert!(output.contains(&format!("hello from {}", upstream.good())), "{output}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_daemon_of_an_ordinary_user_carries_the_same() {
    let story = "the network of an ordinary user's daemon";
    if !is_root() {
        return skipped(story, "needs root to become another user");
    }
    if lacks(story, Ability::OrdinaryUsers) {
        return;
    }
    let Some(World { daemon, upstream }) = World::start_with(story, |builder| builder.as_user(SOMEBODY)).await else {
        return;
    };
    let session = daemon.create(json!({ "network": allow(&["good.example.com", "good.example.com:22"]) })).await;
    give_client(&session).await;
    let code = "shown(get('good.example.com')); shown(some_of(dial('good.example.com', 22)))
shown(send('good.example.com', 443, hello('good.example.com'))); shown(send('good.example.com', 443, hello('evil.example.com')))
print(ask('evil.example.com'), ask_tcp('good.example.com'))
try: print(resolve('evil.example.com'))
except OSError as e: print(type(e).__name__)";
    let reply = runs(&session, code).await;
    let output = reply["output"].as_str().expect("text");
    for part in ["hello from", "SSH-2.0-upstream", "seen", "ConnectionResetError", "(3, 0) (0, 1)", "gaierror"] {
        assert!(output.contains(part), "{part}: {reply}");
    }
    assert_eq!(reply["network_denied"], json!(["evil.example.com"]), "{reply}");
    assert!(!upstream.saw("evil.example.com"));
    put(&session, json!("none")).await;
    let reply = runs(&session, "shown(get('good.example.com'))").await;
    assert_eq!(reply["network_denied"], json!(["good.example.com"]), "{reply}");
    session.destroy().await;
    daemon.stop().await;
}

/// Whoever may use the engine's socket may run a daemon without being root.
#[tokio::test]
async fn a_docker_daemon_that_is_not_root_carries_through_the_proxy() {
    let story = "a docker daemon that is not root";
    let Some(engine) = engine().filter(|_| is_root()) else {
        return skipped(story, "it is about an engine, and needs root to become another user");
    };
    if engine.is_podman() {
        return skipped(story, "what a root Podman asks of its OCI runtime can be checked by root only");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("engine.sock");
    share(engine.socket(), &socket);
    std::os::unix::fs::chown(directory.path(), Some(SOMEBODY), Some(SOMEBODY)).expect("our own directory");
    let as_somebody =
        |builder: DaemonBuilder| builder.as_user(SOMEBODY).env("COVE_DOCKER_SOCKET", &socket.to_string_lossy());
    let Some(World { daemon, upstream }) = World::start_with(story, as_somebody).await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com", "good.example.com:22"]) })).await;
    give_client(&session).await;
    assert_eq!(view(&session).await["proxy"], "http://127.0.0.1:8");
    let code = "shown(get('good.example.com')); shown(some_of(dial('good.example.com', 22)))
shown(send('good.example.com', 443, hello('good.example.com'))); shown(send('good.example.com', 443, hello('evil.example.com')))";
    let reply = runs(&session, code).await;
    let output = reply["output"].as_str().expect("text");
    for part in ["hello from", "SSH-2.0-upstream", "seen", "ConnectionResetError"] {
        assert!(output.contains(part), "{part}: {reply}");
    }
    assert_eq!(reply["network_denied"], json!(["evil.example.com"]), "{reply}");
    assert!(!upstream.saw("evil.example.com"));
    put(&session, json!("none")).await;
    let reply = runs(&session, "shown(get('good.example.com'))").await;
    assert_eq!(reply["network_denied"], json!(["good.example.com"]), "{reply}");
    session.destroy().await;
    daemon.stop().await;
}

/// Carries connections to `path` on to the engine, for a user who may not use the engine's own socket. Threads do that, which end with
/// their connections, because the story's own waits for the daemon.
fn share(engine: &str, path: &Path) {
    let listener = UnixListener::bind(path).expect("a new socket");
    std::os::unix::fs::chown(path, Some(SOMEBODY), Some(SOMEBODY)).expect("our own socket");
    let engine = engine.to_owned();
    let carry = |mut from: UnixStream, mut to: UnixStream| {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&engine) else { continue };
            let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
            carry(client, server);
            carry(server_too, client_too);
        }
    });
}

#[tokio::test]
async fn a_session_ends_with_its_connections() {
    let Some(World { daemon, upstream }) = World::start("a session that ends").await else { return };
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    let code = "c = dial('good.example.com', 80); c.sendall(b'GET /drip HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n')
shown(some_of(c)); import subprocess; subprocess.Popen(['sleep', '1000'], pass_fds=[c.fileno()], start_new_session=True)";
    runs(&session, code).await;
    wait_until("an open connection", DEADLINE, async || (view(&session).await["connections"] == 1).then_some(())).await;
    assert_eq!(upstream.open_at(upstream.good()), 1);
    session.destroy().await;
    wait_until("the upstream's end", DEADLINE, async || (upstream.open_at(upstream.good()) == 0).then_some(())).await;
    let after = daemon.get(&session.path("/network")).await;
    assert!(after.status == 404 || after.ok()["connections"] == 0, "{}", after.text());
    assert_eq!(daemon.put(&session.path("/network"), json!({ "network": "full" })).await.status / 100, 4);
    daemon.stop().await;
}

#[tokio::test]
async fn every_decision_is_in_the_log_with_its_bytes() {
    let Some(World { daemon, upstream }) = World::start("the log").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let mut stream = daemon.events(hyper::Method::GET, &session.path("/network/log?follow=1"), json!(null)).await;
    runs(&session, "get('good.example.com', path='/bytes/5000'); shown(get('evil.example.com'))").await;
    let log = wait_until("three decisions", DEADLINE, async || {
        let log = decisions(&session).await;
        (log.iter().any(|one| one["bytes_received"].is_u64()) && log.iter().any(|one| one["verdict"] == "denied"))
            .then_some(log)
    })
    .await;
    let closed = log.iter().find(|one| one["bytes_received"].is_u64()).expect("a closed connection");
    assert!(closed["bytes_received"].as_u64() > Some(5000) && closed["bytes_sent"].as_u64() > Some(20), "{closed}");
    assert_eq!((&closed["host"], &closed["port"]), (&json!("good.example.com"), &json!(80)));
    assert_eq!(closed["address"], json!(upstream.good().to_string()));
    let denied = log.iter().find(|one| one["verdict"] == "denied").expect("a denial");
    assert_eq!(
        (&denied["wish"], &denied["host"], &denied["reason"], &denied["wanted"]),
        (&json!("resolve"), &json!("evil.example.com"), &json!("name_not_allowed"), &json!("evil.example.com"))
    );
    // The stream has the same, in order, and ends with the session.
    for one in &log {
        let event = stream.next().await.expect("a decision");
        assert_eq!((event.name.as_str(), &event.data), ("decision", one));
        assert_eq!(event.id, one["sequence"].as_u64().map(|number| number.to_string()));
    }
    let after = daemon.get(&session.path("/network/log?after=1")).await.ok();
    assert_eq!(after["decisions"][0]["sequence"], 2, "{after}");
    session.destroy().await;
    while stream.next().await.is_some() {}
    let metrics = daemon.get("/metrics").await.text();
    assert!(metrics.contains("name_not_allowed"), "{metrics}");
    daemon.stop().await;
}

/// A daemon whose sandboxes have the host's network is not one that a policy could hold: it must refuse.
#[tokio::test]
async fn a_policy_is_refused_where_the_protection_is_off() {
    let story = "a policy without the protection";
    if !is_root() || e2e::daemon::is_local_only(story, "no protection can be turned off there") {
        return skipped(story, "needs root, and the local runtime");
    }
    let daemon = Daemon::builder().config("[local]\ndisabled_protections = [\"network\"]\n").start().await;
    let answer = daemon.post("/v1/sessions", json!({ "network": "full" })).await;
    assert!(answer.status >= 400 && answer.status < 500, "{} {}", answer.status, answer.text());
    daemon.stop().await;
}
