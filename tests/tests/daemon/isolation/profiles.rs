//! Profiles: what a session's programs may do to each other beyond the usual, if it was asked for and the operator allows it.

use e2e::daemon::{Daemon, engine};
use serde_json::json;
use shared_protocol::ErrorCode::InvalidRequest;

use super::probe::{failed_here, probe};

#[tokio::test]
async fn a_session_that_asks_for_it_may_trace_what_runs_already() {
    if engine().is_some_and(|engine| !engine.has_filter()) {
        return e2e::skipped("profiles", "gVisor has no --oci-seccomp in its runtimeArgs");
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "profiles": ["ptrace", "ptrace"] })).await;
    assert_eq!(session.view().await["profiles"], json!(["ptrace"]));
    let facts = probe(&daemon, &session).await;
    assert_eq!(facts["tracing"], json!({ "attach": 0, "seize": 0, "traceme": 0 }), "{facts:#}");
    assert_ne!(facts["system_calls"]["process_vm_readv"], 0, "{facts:#}");
    assert_eq!(failed_here(&facts), ["no tracing of what runs already"], "{facts:#}");
    daemon.stop().await;
}

#[tokio::test]
async fn only_profiles_that_the_operator_allows_can_be_asked_for() {
    let daemon = Daemon::builder().config("[sessions]\nallowed_profiles = [\"debug\"]\n").start().await;
    assert_eq!(daemon.post("/v1/sessions", json!({ "profiles": ["ptrace"] })).await.refused(), InvalidRequest);
    assert_eq!(daemon.post("/v1/sessions", json!({ "profiles": ["everything"] })).await.refused(), InvalidRequest);
    let session = daemon.create(json!({ "profiles": ["debug"] })).await;
    let facts = probe(&daemon, &session).await;
    assert_eq!(facts["tracing"]["attach"], 0, "{facts:#}");
    assert_eq!(facts["system_calls"]["process_vm_readv"], 0, "{facts:#}");
    daemon.stop().await;
}
