//! What a session can ask for, who may ask for it, and what it then has.

use e2e::daemon::{Ability, Cove, Daemon};
use e2e::{LONG_DEADLINE, wait_until};
use serde_json::{Value, json};

use super::{World, allow, give_client, prints, put, view};

const TRY_ALL: &str = "for host in ['good.example.com', 'evil.example.com', 'other.example.com']:
    print(b'hello' in get(host), end=' ')";

#[tokio::test]
async fn presets_and_rules_work_in_create_and_in_put() {
    let config = "[network.presets]\ncorp = [\"good.example.com\", \"*.good.example.com\"]\n[network.presets.most]\nallow = [\"*\"]\ndeny = [\"evil.example.com\"]\n";
    let Some(World { daemon, upstream: _upstream }) =
        World::start_with("presets", |builder| builder.config(config)).await
    else {
        return;
    };
    let table = [
        (json!("none"), "False False False "),
        (json!("full"), "True True True "),
        (json!("learn"), "True True True "),
        (json!("corp"), "True False False "),
        (json!("most"), "True False True "),
        (allow(&["*.example.com"]), "True True True "),
        (allow(&["*.good.example.com"]), "False False False "),
        (json!({ "allow": ["*"], "deny": ["*.example.com"] }), "False False False "),
        (json!({ "allow": ["*.example.com"], "deny": ["evil.example.com"] }), "True False True "),
        (json!({ "allow": [{ "host": "evil.example.com", "ports": [80] }] }), "False True False "),
        (json!({ "deny": ["good.example.com"] }), "False False False "),
        (json!({}), "False False False "),
    ];
    let changed = daemon.session().await;
    give_client(&changed).await;
    assert_eq!(view(&changed).await["network"], "none");
    for (network, reached) in table {
        let session = daemon.create(json!({ "network": network })).await;
        give_client(&session).await;
        assert_eq!(session.view().await["network"], network);
        assert_eq!(prints(&session, TRY_ALL).await, reached, "created with {network}");
        session.destroy().await;
        let told = put(&changed, network.clone()).await;
        assert_eq!((&told["network"], &view(&changed).await["network"]), (&network, &network));
        assert_eq!(prints(&changed, TRY_ALL).await, reached, "changed to {network}");
        assert_eq!(changed.view().await["network"], network);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn the_operators_default_is_what_a_session_gets_that_asks_for_nothing() {
    let config = "[network]\ndefault = \"corp\"\n[network.presets]\ncorp = [\"good.example.com\"]\n";
    let Some(World { daemon, upstream: _upstream }) =
        World::start_with("a default", |builder| builder.config(config)).await
    else {
        return;
    };
    let session = daemon.session().await;
    give_client(&session).await;
    assert_eq!(prints(&session, TRY_ALL).await, "True False False ");
    let none = daemon.create(json!({ "network": "none" })).await;
    give_client(&none).await;
    assert_eq!(prints(&none, TRY_ALL).await, "False False False ");
    daemon.stop().await;
}

#[tokio::test]
async fn a_wrong_network_is_refused_by_name_and_nothing_is_created_or_changed() {
    let Some(World { daemon, upstream: _upstream }) = World::start("wrong rules").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    let before = view(&session).await;
    for (network, part) in [
        (json!("ful"), "ful"),
        (allow(&["good.example.com", "https://evil.example.com/x"]), "https://evil.example.com/x"),
        (allow(&["a b"]), "a b"),
        (allow(&["example.com:0"]), "example.com:0"),
        (allow(&["example.com:99999"]), "example.com:99999"),
        (allow(&["127.0.0.1"]), "127.0.0.1"),
        (allow(&["127.0.0.0/8:80"]), "127.0.0.0/8"),
        (allow(&["169.254.169.254:80"]), "169.254.169.254"),
        (allow(&["[::1]:80"]), "[::1]:80"),
        (allow(&["2130706433"]), "2130706433"),
        (allow(&["0x7f.1"]), "0x7f.1"),
        (allow(&["*.*.example.com"]), "*.*.example.com"),
        (allow(&["exa*mple.com"]), "exa*mple.com"),
        (json!({ "allow": [{ "host": "x.example.com", "port": 1 }] }), "port"),
        (json!({ "alow": [] }), "alow"),
        (json!({ "deny": ["b\u{0}d.example.com"] }), "d.example.com"),
        (json!(5), "preset"),
    ] {
        let created = daemon.post("/v1/sessions", json!({ "network": network })).await;
        assert_eq!(created.status, 400, "{network}: {}", created.text());
        assert!(created.error().message.contains(part), "{network}: {}", created.text());
        let changed = daemon.put(&session.path("/network"), json!({ "network": network })).await;
        assert_eq!(changed.status, 400, "{network}: {}", changed.text());
    }
    let after = view(&session).await;
    assert_eq!((&after["network"], &after["allow"]), (&before["network"], &before["allow"]));
    assert_eq!(daemon.get("/v1/sessions").await.ok().as_array().map(Vec::len), Some(1));
    daemon.stop().await;
}

#[tokio::test]
async fn only_an_admin_may_use_rules_that_reach_private_addresses() {
    let config = "[network.presets]\nmirror = [{ host = \"private.example.com\", private = true }]\n";
    let Some(World { mut daemon, upstream }) =
        World::start_with("private rules", |builder| builder.config(config)).await
    else {
        return;
    };
    let mut names = super::names(&upstream);
    names.push(("private.example.com", [10, 9, 8, 7].into()));
    daemon.set_hosts(&names);
    let made = Cove::of(&daemon).run(&["key", "create", "alice"]).await;
    let alice = daemon.api().with_key(Some(made.ok().trim()));
    let own = alice.session().await;
    for network in [
        json!({ "allow": [{ "host": "private.example.com", "private": true }] }),
        allow(&["10.0.0.0/8:80"]),
        allow(&["[fd00::]/8:80"]),
        allow(&["0.0.0.0/0:80"]),
        allow(&["good.example.com", "192.168.1.1:22"]),
    ] {
        let refused = alice.post("/v1/sessions", json!({ "network": network })).await;
        assert_eq!(refused.status, 403, "{network}: {}", refused.text());
        let refused = alice.put(&own.path("/network"), json!({ "network": network })).await;
        assert_eq!(refused.status, 403, "{network}: {}", refused.text());
        let session = daemon.create(json!({ "network": network })).await;
        session.destroy().await;
    }
    assert_eq!(view(&own).await["network"], "none");
    // A preset of the operator may have such a rule, and anybody may use it.
    put(&own, json!("mirror")).await;
    if Ability::EveryDial.is_there("the private address of a name") {
        assert_eq!(own.sh("getent hosts private.example.com | cut -d' ' -f1").await, "10.9.8.7\n");
    } else {
        give_client(&own).await;
        assert_eq!(prints(&own, "print(resolve('private.example.com'))").await, "['private.example.com']\n");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_pooled_sandbox_gets_the_policy_of_its_session() {
    let Some(World { daemon, upstream: _upstream }) =
        World::start_with("pooled", |b| b.config("[pool]\nbase = 2\n")).await
    else {
        return;
    };
    let until_idle = async || {
        wait_until("a filled pool", LONG_DEADLINE, async || {
            let view: Value = daemon.get("/v1/pools").await.ok()[0].clone();
            (view["idle"] == 2 && view["starting"] == 0).then_some(())
        })
        .await;
    };
    for (network, reached) in [
        (allow(&["good.example.com"]), "True False False "),
        (json!("none"), "False False False "),
        (json!("full"), "True True True "),
    ] {
        until_idle().await;
        let session = daemon.create(json!({ "network": network })).await;
        assert_eq!(session.view().await["acquire_source"], "pool", "{network}");
        give_client(&session).await;
        assert_eq!(prints(&session, TRY_ALL).await, reached, "{network}");
        session.destroy().await;
    }
    daemon.stop().await;
}

/// A file of an earlier daemon that was cut off, or that somebody wrote: the daemon starts, and `packages` is not everything.
#[tokio::test]
async fn a_broken_file_of_registries_does_not_open_anything() {
    let Some(World { mut daemon, upstream: _upstream }) =
        World::start_with("packages.json", |builder| builder.keeps_sessions()).await
    else {
        return;
    };
    let whole = r#"{"found":[{"tool":"x","host":"good.example.com","ports":[80],"url_scheme":"http","because":"y","is_private":false}],"problems":[]}"#;
    let pieces = ["", "{", &whole[..whole.len() / 2], "null", "[]", "\0\0\0\0", r#"{"found":[{"host":"*"}]}"#];
    for text in pieces {
        daemon.kill().await;
        std::fs::write(daemon.data_dir().join("packages.json"), text).expect("our own directory");
        daemon = daemon.start_again();
        let session = daemon.api().patient().post("/v1/sessions", json!({ "network": "packages" })).await;
        if session.status != 201 {
            println!("{text:?}: {}", session.text());
            continue;
        }
        let session = e2e::daemon::Session {
            api: daemon.api().clone(),
            id: session.json()["id"].as_str().expect("an id").into(),
        };
        give_client(&session).await;
        assert_eq!(prints(&session, TRY_ALL).await, "False False False ", "{text:?}");
        session.destroy().await;
    }
    // The control: a whole file is believed.
    daemon.kill().await;
    std::fs::write(daemon.data_dir().join("packages.json"), whole).expect("our own directory");
    daemon = daemon.start_again();
    let session = daemon.create(json!({ "network": "packages" })).await;
    give_client(&session).await;
    assert_eq!(prints(&session, TRY_ALL).await, "True False False ");
    session.destroy().await;
    daemon.stop().await;
}

/// Nobody has asked for a network, and none is there.
#[tokio::test]
async fn a_session_reaches_nothing_by_default() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    assert_eq!(session.view().await["network"], "none");
    let reply = session.exec("curl -sSf --max-time 10 http://198.51.100.250/").await;
    assert_ne!(reply["exit_code"], 0, "{reply}");
    daemon.stop().await;
}
