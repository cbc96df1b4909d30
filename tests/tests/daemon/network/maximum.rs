//! What the operator gives and forbids: the maximum of keys, and extra rules for all sessions.

use e2e::daemon::{Api, Cove, Daemon, Session};
use serde_json::{Value, json};

use super::{World, allow, decisions, give_client, prints, put, runs, view};

const TRY_ALL: &str = "for host in ['good.example.com', 'evil.example.com', 'other.example.com']:
    print(b'hello' in get(host), end=' ')";

/// Makes a key, and returns the API as its holder sees it.
async fn key(daemon: &Daemon, words: &[&str]) -> Api {
    let made = Cove::of(daemon).run(&[&["key", "create"], words].concat()).await;
    daemon.api().with_key(Some(made.ok().trim()))
}

async fn created(api: &Api, network: Value) -> Session {
    let made = api.patient().post("/v1/sessions", json!({ "network": network })).await;
    assert_eq!(made.status, 201, "{network}: {}", made.text());
    let session = Session { api: api.clone(), id: made.json()["id"].as_str().expect("an id").into() };
    give_client(&session).await;
    session
}

#[tokio::test]
async fn a_key_gets_no_more_than_its_maximum_and_is_told_what_that_is() {
    let config =
        "[network]\nmax = \"corp\"\n[network.presets]\ncorp = [\"good.example.com\", \"*.evil.example.com\"]\n";
    let Some(World { daemon, upstream: _upstream }) = World::start_with("a maximum", |b| b.config(config)).await else {
        return;
    };
    let (alice, bob) =
        (key(&daemon, &["alice"]).await, key(&daemon, &["bob", "--max-network", "other.example.com"]).await);
    let ops = key(&daemon, &["ops", "--role", "admin", "--max-network", "corp"]).await;
    let keys = Cove::of(&daemon).run(&["key", "ls", "--json"]).await.json();
    let maxima: Vec<&Value> = keys.as_array().expect("a list").iter().map(|key| &key["max_network"]).collect();
    assert_eq!(maxima, [&Value::Null, &Value::Null, &allow(&["other.example.com"]), &json!("corp")]);
    let own = created(&alice, json!("none")).await;
    let all = json!({ "presets": ["corp"], "allow": ["x.evil.example.com"] });
    // Who asks for what, and the rule that is refused.
    for (who, network, refused) in [
        (&alice, json!("full"), Some("*")),
        (&alice, json!("learn"), Some("*")),
        (&alice, allow(&["good.example.com", "other.example.com"]), Some("other.example.com")),
        (&alice, allow(&["good.example.com:22"]), Some("good.example.com:22")),
        (&alice, all, None),
        (&alice, json!("corp"), None),
        (&bob, json!("corp"), Some("good.example.com")),
        (&bob, allow(&["other.example.com"]), None),
        (&ops, json!("full"), Some("*")),
    ] {
        let answer = who.post("/v1/sessions", json!({ "network": network })).await;
        match refused {
            None => assert_eq!(answer.status, 201, "{network}: {}", answer.text()),
            Some(rule) => {
                assert_eq!((answer.status, &answer.json()["error_code"]), (403, &json!("FORBIDDEN")), "{network}");
                let message = answer.error().message;
                let is_told = message.contains(&format!("{rule:?}")) && message.contains("its maximum is");
                assert!(is_told, "{network}: {message}");
            }
        }
    }
    let refused = alice.put(&own.path("/network"), json!({ "network": "full" })).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(view(&own).await["network"], "none", "nothing has changed");
    put(&own, json!("corp")).await;
    assert_eq!(prints(&own, TRY_ALL).await, "True False False ");
    let shown = Cove::of(&daemon).run(&["network", "show", &own.id]).await.ok();
    assert!(shown.contains("maximum: corp\n"), "{shown}");
    // An admin without a maximum of its own may give a session more.
    let by_admin = daemon.put(&own.path("/network"), json!({ "network": "full" })).await.ok();
    assert_eq!(by_admin.get("max"), None);
    assert_eq!(prints(&own, TRY_ALL).await, "True True True ");
    for wrong in ["nope", "https://example.com/"] {
        let refused = Cove::of(&daemon).run(&["key", "create", "carol", "--max-network", wrong]).await;
        assert_ne!(refused.code, 0, "{refused:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_maximum_holds_for_sessions_of_an_earlier_daemon_with_another_configuration() {
    let presets = "[network.presets]\ncorp = [\"good.example.com\"]\n";
    let Some(World { mut daemon, upstream }) =
        World::start_with("a new maximum", |b| b.keeps_sessions().config(presets)).await
    else {
        return;
    };
    let alice = key(&daemon, &["alice"]).await;
    let (user, admin) = (created(&alice, json!("full")).await, created(daemon.api(), json!("full")).await);
    assert_eq!(prints(&user, TRY_ALL).await, "True True True ", "the control");
    daemon.kill().await;
    daemon.rebuild(|b| b.config(&format!("[network]\nmax = \"corp\"\n{presets}")));
    let mut daemon = daemon.start_again();
    let again = |daemon: &Daemon, session: &Session| Session { api: daemon.api().clone(), id: session.id.clone() };
    let (user, admin) = (again(&daemon, &user), again(&daemon, &admin));
    assert_eq!(prints(&admin, TRY_ALL).await, "True True True ");
    assert_eq!(prints(&user, TRY_ALL).await, "True False False ");
    let seen = view(&user).await;
    assert_eq!((&seen["network"], &seen["max"]), (&json!("full"), &json!("corp")));
    // By an address, by another name at an allowed address, and by name.
    for code in [
        format!("shown(get('{}'))", upstream.evil()),
        "shown(send('good.example.com', 443, hello('evil.example.com')))".into(),
        "shown(send('good.example.com', 22, b'x'))".into(),
        "shown(get('evil.example.com'))".into(),
    ] {
        let reply = runs(&user, &code).await;
        assert_eq!(reply.get("network_denied"), None, "nobody should ask for it: {reply}");
        let last = decisions(&user).await.pop().expect("a decision");
        assert_eq!((&last["verdict"], &last["reason"]), (&json!("denied"), &json!("above_maximum")), "{code}: {last}");
        assert_eq!(last.get("wanted"), None, "{last}");
    }
    // A change by an admin is kept too.
    put(&user, json!({ "allow": ["*"], "deny": ["good.example.com"] })).await;
    daemon.kill().await;
    let daemon = daemon.start_again();
    assert_eq!(prints(&again(&daemon, &user), TRY_ALL).await, "False True True ");
    for session in [&user, &admin] {
        again(&daemon, session).destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn extra_rules_of_the_operator_count_for_every_session() {
    let config =
        "[network]\nmax = [\"good.example.com\"]\nallow = [\"other.example.com\"]\ndeny = [\"evil.example.com\"]\n";
    let Some(World { daemon, upstream: _upstream }) = World::start_with("extra rules", |b| b.config(config)).await
    else {
        return;
    };
    let alice = key(&daemon, &["alice"]).await;
    for (api, network, reached) in [
        (&alice, json!("none"), "False False False "),
        (&alice, allow(&["good.example.com"]), "True False True "),
        (daemon.api(), json!("none"), "False False False "),
        (daemon.api(), json!("full"), "True False True "),
        (daemon.api(), allow(&["evil.example.com"]), "False False True "),
        (daemon.api(), json!({ "deny": ["other.example.com"] }), "False False False "),
    ] {
        let session = created(api, network.clone()).await;
        assert_eq!(prints(&session, TRY_ALL).await, reached, "{network}");
        session.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_default_above_the_maximum_is_an_error_and_one_above_a_keys_own_maximum_is_none() {
    let config = |most: &str| {
        format!("[network]\ndefault = \"corp\"\nmax = {most}\n[network.presets]\ncorp = [\"good.example.com\"]\n")
    };
    let Some(World { mut daemon, upstream: _upstream }) =
        World::start_with("a default and a maximum", |b| b.keeps_sessions().config(&config("\"corp\""))).await
    else {
        return;
    };
    let bob = key(&daemon, &["bob", "--max-network", "other.example.com"]).await;
    for (api, network) in [(daemon.api(), "corp"), (&key(&daemon, &["alice"]).await, "corp"), (&bob, "none")] {
        assert_eq!(api.session().await.view().await["network"], network);
    }
    daemon.kill().await;
    daemon.rebuild(|b| b.config(&config("[\"other.example.com\"]")));
    let (status, said) = daemon.start_in_vain().await;
    assert!(!status.success() && said.contains("network.default is not within network.max"), "{said}");
    daemon.rebuild(|b| b.config(&config("\"full\"")));
    daemon.start_again().stop().await;
}
