//! The network `learn`: what was used, and the command that finds it out.

use e2e::daemon::{Cove, finished};
use e2e::{DEADLINE, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{World, allow, give_client, prints, put, python, runs, view};

#[tokio::test]
async fn learn_tells_what_was_used_as_rules_that_allow_it_again() {
    let Some(World { daemon, upstream }) = World::start("learn").await else { return };
    let session = daemon.create(json!({ "network": "learn" })).await;
    give_client(&session).await;
    let work = format!(
        "print(b'hello' in get('good.example.com'), send('good.example.com', 443, hello('good.example.com')), send('other.example.com', 5432, b'echo x'), send('{}', 8080, b'echo y'))",
        upstream.evil()
    );
    let first = prints(&session, &work).await;
    assert!(!first.contains("Error"), "{first}");
    let used = view(&session).await["used"].clone();
    let again = daemon.create(json!({ "network": { "allow": used } })).await;
    give_client(&again).await;
    assert_eq!(prints(&again, &work).await, first, "with {used}");
    let reply = runs(&again, "shown(get('evil.example.com'))").await;
    assert_eq!(reply["network_denied"], json!(["evil.example.com"]), "{used}: {reply}");
    let told = Cove::of(&daemon).run(&["network", "learn", &session.id]).await.ok();
    assert!(told.contains("good.example.com") && told.contains("other.example.com:5432"), "{told}");
    daemon.stop().await;
}

/// Several names have the same address, and the program says which one it means.
#[tokio::test]
async fn what_is_learned_is_the_name_that_was_spoken() {
    let Some(World { daemon, upstream: _upstream }) = World::start("spoken names").await else { return };
    let session = daemon.create(json!({ "network": "learn" })).await;
    give_client(&session).await;
    let code = "for name in ['good.example.com', 'www.good.example.com', 'twin.example.com']: resolve(name)
print(send('good.example.com', 443, hello('good.example.com')), end='')
resolve('twin.example.com')
c = dial(resolve('good.example.com')[0], 80); resolve('twin.example.com')
c.sendall(b'GET / HTTP/1.1\\r\\nHost: www.good.example.com\\r\\n\\r\\n'); print(b'hello' in some_of(c))";
    prints(&session, code).await;
    assert_eq!(view(&session).await["used"], json!(["good.example.com", "www.good.example.com"]));
    put(&session, json!("learn")).await;
    assert_eq!(view(&session).await["used"], json!([]), "a new list has begun");
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_is_learned_and_the_old_network_comes_back() {
    let Some(World { daemon, upstream: _upstream }) = World::start("cove network learn -- CMD").await else { return };
    let cove = Cove::of(&daemon);
    let rules = allow(&["other.example.com"]);
    let session = daemon.create(json!({ "network": rules })).await;
    give_client(&session).await;
    prints(&session, "get('other.example.com')").await;
    session.sh("export PYTHONPATH=/workspace").await;
    let line = python("print(b'hello' in get('good.example.com')); sys.exit(7)");
    let learned = cove.run(&["network", "learn", &session.id, "--", &line]).await;
    assert_eq!((learned.code, learned.text().as_str()), (7, "good.example.com\n"), "{learned:?}");
    assert!(learned.stderr.contains("True"), "the command's output: {learned:?}");
    assert_eq!(view(&session).await["network"], rules);
    let learned = cove.run(&["network", "learn", &session.id, "--json", "--", "true"]).await;
    assert_eq!(learned.json(), json!({ "allow": [] }));

    // Ctrl-C ends the command, and the old network comes back.
    let child = cove.spawn(&["network", "learn", &session.id, "--", "echo begun; sleep 1000"]);
    let is = async |network: &serde_json::Value| (view(&session).await["network"] == *network).then_some(());
    wait_until("learn", DEADLINE, async || is(&json!("learn")).await).await;
    wait_until("the command runs", DEADLINE, async || {
        (session.run(&["pgrep", "-x", "sleep"]).await["exit_code"] == 0).then_some(())
    })
    .await;
    e2e::procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGTERM);
    let ended = finished(child).await;
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!(view(&session).await["network"], rules);
    daemon.stop().await;
}

#[tokio::test]
async fn a_key_that_cannot_put_the_network_back_does_not_take_it_away() {
    let config = "[network]\nmax = [\"*\"]\n";
    let Some(World { daemon, upstream: _upstream }) = World::start_with("learn and keys", |b| b.config(config)).await
    else {
        return;
    };
    let made = Cove::of(&daemon).run(&["key", "create", "alice"]).await;
    let limited = Cove::of(&daemon).run(&["key", "create", "bob", "--max-network", "good.example.com"]).await;
    for (secret, by_admin, part) in
        [(made, allow(&["10.0.0.5:5432"]), "private"), (limited, allow(&["good.example.com"]), "maximum")]
    {
        let api = daemon.api().with_key(Some(secret.ok().trim()));
        let session = api.session().await;
        daemon.put(&session.path("/network"), json!({ "network": by_admin })).await.ok();
        let cove = Cove::of(&daemon).env("COVE_API_KEY", secret.text().trim());
        let refused = cove.run(&["network", "learn", &session.id, "--", "touch", "/tmp/ran"]).await;
        assert!(refused.code == 1 && refused.stderr.contains(part), "{refused:?}");
        assert_eq!(view(&session).await["network"], by_admin);
        assert_ne!(session.exec("test -e /tmp/ran").await["exit_code"], 0, "the command did not run");
    }
    daemon.stop().await;
}
