//! The compact view of a command's output: what failed is first, the whole output stays where the reply says, and a request that
//! cannot have the view is refused before anything runs.

use e2e::daemon::Daemon;
use hyper::Method;
use serde_json::json;
use shared_protocol::ErrorCode::InvalidRequest;

#[tokio::test]
async fn a_compact_reply_has_what_matters_and_says_where_the_whole_output_is() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let cmd =
        r"for i in $(seq 2000); do echo compiling part $i; done; echo 'src/main.c:12:5: error: expected ;' >&2; exit 2";
    let body = json!({ "cmd": cmd, "view": "compact" });
    let reply = session.ask(body).await.ok();
    assert_eq!(reply["exit_code"], 2);
    let output = reply["output"].as_str().expect("a text");
    assert!(output.contains("src/main.c:12:5: error: expected ;"), "{output}");
    assert!(output.len() < 1000, "{output}");
    assert_eq!(reply["truncated"], true);
    let facts = &reply["compact"];
    assert_eq!(facts["original_bytes"], reply["output_bytes"]);
    assert!(facts["tokens"].as_u64() < facts["original_tokens"].as_u64(), "{facts}");
    let whole = daemon.get(facts["whole_output"].as_str().expect("a path")).await;
    assert!(whole.text().contains("compiling part 1234"), "{}", whole.text());
}

#[tokio::test]
async fn output_that_is_short_already_is_whole_and_the_reply_says_so() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let reply = session.ask(json!({ "cmd": "echo one; echo two", "view": "compact" })).await.ok();
    assert_eq!((&reply["output"], &reply["truncated"]), (&json!("one\ntwo\n"), &json!(false)));
    let full = session.ask(json!({ "cmd": "echo one", "view": "full" })).await.ok();
    assert_eq!((&full["output"], full.get("compact")), (&json!("one\n"), None));
}

#[tokio::test]
async fn a_limit_of_tokens_is_kept_and_told() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    // Lines that differ in numbers only would be folded.
    let cmd = "seq 1000 4000 | tr 0-9 a-j";
    let reply = session.ask(json!({ "cmd": cmd, "view": "compact", "max_tokens": 200 })).await.ok();
    assert_eq!(reply["compact"]["is_cut"], true);
    assert!(reply["compact"]["tokens"].as_u64() <= Some(200), "{}", reply["compact"]);
}

#[tokio::test]
async fn a_request_that_cannot_have_the_view_is_refused_and_runs_nothing() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for (path, options) in [
        ("/exec", json!({ "view": "compact", "detach": true })),
        ("/exec", json!({ "view": "compact", "raw_output": true })),
        ("/exec", json!({ "view": "compact", "streams": "split" })),
        ("/exec", json!({ "view": "compact", "max_tokens": 5 })),
        ("/exec", json!({ "max_tokens": 500 })),
        ("/exec", json!({ "view": "short" })),
        ("/exec/stream", json!({ "view": "compact" })),
    ] {
        let mut body = options.clone();
        body["cmd"] = json!("touch /workspace/ran");
        let refused = daemon.send(Method::POST, &session.path(path), body.to_string()).await;
        assert_eq!(refused.refused(), InvalidRequest, "{options}: {}", refused.text());
    }
    assert_eq!(session.sh("ls /workspace").await, "");
}
