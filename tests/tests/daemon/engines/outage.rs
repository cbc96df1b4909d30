//! An engine that stops under running sessions and comes back. Each story has its own engine.

use std::time::Duration;

use e2e::daemon::{Ability, Daemon, EventStream, PrivateEngine, Session, engine, lacks};
use e2e::{DEADLINE, skipped, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

/// The longest time until every session works again or is known to be lost.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

async fn daemon_on(private: &PrivateEngine) -> Daemon {
    private
        .engine
        .variables()
        .iter()
        .fold(Daemon::builder(), |builder, (name, value)| builder.env(name, value))
        .start()
        .await
}

async fn is_crashed(session: &Session) {
    wait_until("the session is known to be lost", NOTICED_WITHIN, async || {
        (session.view().await["status"] == "crashed").then_some(())
    })
    .await;
    assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), shared_protocol::ErrorCode::SandboxLost);
}

/// Checks that a stream was cut off. An engine asks a container to end before it kills it, so the runner may still report
/// that a signal ended the command.
async fn is_cut_off(stream: EventStream) {
    let (_, last) = stream.finish().await;
    let is_lost = last.name == "error" && last.data["error_code"] == "SANDBOX_LOST";
    let is_ended = last.name == "done" && last.data["exit_code"].as_i64() > Some(128);
    assert!(is_lost || is_ended, "{last:?}");
}

/// Creates a session, with retries, because an engine that has just come back may refuse for a moment.
async fn created_within_time(daemon: &Daemon) -> Session {
    wait_until("a session can be made", NOTICED_WITHIN, async || {
        let answer = daemon.post("/v1/sessions", json!({})).await;
        (answer.status == 201)
            .then(|| Session { api: daemon.api().clone(), id: answer.ok()["id"].as_str().expect("an id").into() })
    })
    .await
}

async fn nothing_is_left(private: &PrivateEngine, daemon: Daemon) {
    let data_dir = daemon.data_dir();
    wait_until("no container and no directory is left", DEADLINE, async || {
        let directories = std::fs::read_dir(data_dir.join("containers")).map_or(0, Iterator::count);
        (directories == 0 && private.engine.docker(&["ps", "-aq"]).is_empty()).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn sessions_end_with_an_engine_that_takes_its_containers_along() {
    let Some(engine) = engine() else { return skipped("an engine that stops", "the stories run on local") };
    if lacks("an engine that stops", Ability::EndsWithEngine) {
        return;
    }
    let mut private = PrivateEngine::start(engine, false).await;
    let daemon = daemon_on(&private).await;
    let (busy, idle) = (daemon.session().await, daemon.session().await);
    let mut stream = busy.stream(json!({ "cmd": "echo begun; sleep 1000" })).await;
    stream.until("chunk").await;
    private.stop(Signal::SIGTERM).await;
    is_cut_off(stream).await;
    is_crashed(&busy).await;
    is_crashed(&idle).await;
    // The create is refused at once, with the reason.
    let refused = daemon.post("/v1/sessions", json!({})).await;
    assert!(refused.status >= 500 && refused.text().contains("engine"), "{} {}", refused.status, refused.text());
    private.start_again().await;
    let after = created_within_time(&daemon).await;
    assert_eq!(after.sh("echo again").await, "again\n");
    after.destroy().await;
    nothing_is_left(&private, daemon).await;
}

/// A killed engine had no time to end its containers, so they run until it is back and ends them.
#[tokio::test]
async fn sessions_of_an_engine_that_is_killed_end_when_it_is_back() {
    let Some(engine) = engine() else { return skipped("an engine that is killed", "the stories run on local") };
    if lacks("an engine that is killed", Ability::EndsWithEngine) {
        return;
    }
    let mut private = PrivateEngine::start(engine, false).await;
    let daemon = daemon_on(&private).await;
    let session = daemon.session().await;
    daemon.post(&session.path("/shells"), json!({ "name": "other" })).await.ok();
    let mut stream = session.stream(json!({ "cmd": "echo begun; sleep 1000", "shell": "other" })).await;
    stream.until("chunk").await;
    private.stop(Signal::SIGKILL).await;
    assert_eq!(session.sh("echo still here").await, "still here\n");
    private.start_again().await;
    is_cut_off(stream).await;
    is_crashed(&session).await;
    nothing_is_left(&private, daemon).await;
}

#[tokio::test]
async fn sessions_outlive_an_engine_with_live_restore() {
    let Some(engine) = engine() else { return skipped("live-restore", "the stories run on local") };
    let mut private = PrivateEngine::start(engine, true).await;
    let daemon = daemon_on(&private).await;
    let (busy, idle) = (daemon.session().await, daemon.session().await);
    idle.sh("export MINE=yes").await;
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut stream = busy
            .stream(json!({ "cmd": "rm -f go; echo begun; until test -e go; do sleep 0.1; done; echo ended" }))
            .await;
        stream.until("chunk").await;
        private.stop(signal).await;
        // The sessions can be reached without the engine.
        assert_eq!(idle.sh("echo $MINE").await, "yes\n", "{signal}: while the engine is away");
        private.start_again().await;
        busy.put("go", "").await.ok();
        assert_eq!(stream.until("done").await.data["exit_code"], 0, "{signal}");
        assert_eq!(idle.sh("echo $MINE").await, "yes\n", "{signal}: after the engine is back");
    }
    // The daemon hears of the engine's events again.
    let (lost, paused) = (created_within_time(&daemon).await, &idle);
    private.engine.docker(&["pause", &private.engine.container(&paused.id)]);
    private.engine.docker(&["kill", &private.engine.container(&lost.id)]);
    is_crashed(&lost).await;
    assert_eq!(paused.sh("echo $MINE").await, "yes\n");
    for session in [busy, idle] {
        session.destroy().await;
    }
    nothing_is_left(&private, daemon).await;
}

/// Nobody reports what happens while the daemon has no connection to the engine, so the daemon must look.
#[tokio::test]
async fn what_ends_while_the_engine_is_away_is_noticed() {
    let Some(engine) = engine() else { return skipped("an end during an outage", "the stories run on local") };
    let mut private = PrivateEngine::start(engine, true).await;
    let daemon = daemon_on(&private).await;
    let (lost, kept) = (daemon.session().await, daemon.session().await);
    let container = private.engine.container(&lost.id);
    let pid = private.engine.docker(&["inspect", "--format", "{{.State.Pid}}", &container]);
    private.stop(Signal::SIGTERM).await;
    e2e::procfs::signal(pid.parse().expect("a pid"), Signal::SIGKILL);
    is_crashed(&lost).await;
    assert_eq!(kept.sh("echo here").await, "here\n");
    private.start_again().await;
    assert_eq!(kept.sh("echo here").await, "here\n");
    kept.destroy().await;
    nothing_is_left(&private, daemon).await;
}
