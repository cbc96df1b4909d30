//! Tests of the judgement, and of sessions whose runner is a fake on a real socket. The clock stands still unless everybody
//! waits, so no time passes.

use std::path::Path;

use shared_protocol::api::SessionStatus;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::*;
use crate::config::SessionsConfig;
use crate::metrics::Metrics;
use crate::session::fake::FakeRuntime;
use crate::session::{Clock, Registry, RegistryParts, SessionHandle};
use crate::store::Store;
use crate::workspace::WorkspaceDirs;

const ASLEEP: ProcessSample = ProcessSample { state: ProcessState::Sleeping, cpu: Duration::ZERO, turns: 0 };

fn silence(lasted: Duration, state: ProcessState, used: Duration) -> Silence {
    Silence { lasted, tries: MIN_TRIES, is_continued: true, is_host_slow: false, process: Some((state, used)) }
}

#[test]
fn a_runner_that_sleeps_while_it_is_asked_is_lost_after_three_questions_and_the_named_time() {
    for state in [ProcessState::Sleeping, ProcessState::Traced, ProcessState::Stopped, ProcessState::Ended] {
        let long = silence(PATIENCE, state, Duration::ZERO);
        assert_eq!(judge(long), Judgement::Lost, "{state:?}");
        assert_eq!(judge(Silence { lasted: PATIENCE - ASK_TIME, ..long }), Judgement::AskAgain, "{state:?}");
        assert_eq!(judge(Silence { tries: MIN_TRIES - 1, ..long }), Judgement::AskAgain, "{state:?}");
    }
}

#[test]
fn a_stopped_runner_is_continued_once() {
    let stopped = silence(Duration::ZERO, ProcessState::Stopped, Duration::ZERO);
    assert_eq!(judge(Silence { tries: 1, is_continued: false, ..stopped }), Judgement::Continue);
    assert_eq!(judge(Silence { tries: 1, ..stopped }), Judgement::AskAgain);
}

#[test]
fn a_runner_without_a_processor_gets_more_time_than_one_that_computes_something_else() {
    let starved = silence(STARVED_PATIENCE - ASK_TIME, ProcessState::Runnable, Duration::ZERO);
    assert_eq!(judge(starved), Judgement::AskAgain);
    assert_eq!(judge(Silence { lasted: STARVED_PATIENCE, ..starved }), Judgement::Lost);
    assert_eq!(judge(silence(PATIENCE, ProcessState::Runnable, SPINNING)), Judgement::Lost);
}

#[test]
fn a_runner_on_a_slow_host_has_the_time_of_one_without_a_processor() {
    for state in [ProcessState::Sleeping, ProcessState::Blocked] {
        let slow = Silence { is_host_slow: true, ..silence(STARVED_PATIENCE - ASK_TIME, state, Duration::ZERO) };
        assert_eq!(judge(slow), Judgement::AskAgain, "{state:?}");
        assert_eq!(judge(Silence { lasted: STARVED_PATIENCE, ..slow }), Judgement::Lost, "{state:?}");
    }
    let busy = Silence { is_host_slow: true, ..silence(PATIENCE, ProcessState::Runnable, SPINNING) };
    assert_eq!(judge(busy), Judgement::Lost, "it computes something else");
}

/// A runner that sleeps whenever it is looked at, but runs in between.
#[tokio::test(start_paused = true)]
async fn a_runner_that_runs_between_two_questions_is_not_lost_as_soon_as_one_that_does_not() {
    let (runtime, session, _folder) = session_with(Runner::Silent).await;
    let activity = session.begin().await.unwrap();
    activity.runner().pulse().doubt();
    let (began, mut turns) = (Instant::now(), 0);
    let runs = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            turns += 1;
            runtime.state().process = Some(ProcessSample { turns, ..ASLEEP });
        }
    };
    tokio::select! {
        () = runs => {}
        _ = activity.ended() => {}
    }
    assert!(began.elapsed() >= STARVED_PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_runner_that_waits_for_a_disk_or_cannot_be_seen_gets_more_time_than_one_that_sleeps() {
    for process in [Some((ProcessState::Blocked, Duration::ZERO)), None] {
        let early = Silence { lasted: PATIENCE, tries: 9, is_continued: false, is_host_slow: false, process };
        assert_eq!(judge(early), Judgement::AskAgain);
        assert_eq!(judge(Silence { lasted: BLOCKED_PATIENCE, ..early }), Judgement::Lost);
    }
}

/// What a fake runner does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    /// It reads it and never answers.
    Silent,
    /// It answers the question whether it is there, and nothing else.
    Busy,
}

fn listen(path: &Path, runner: Runner) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut request).await {
                    if runner == Runner::Busy && request[..count].starts_with(b"GET /healthz") {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
                    }
                }
            });
        }
    });
}

async fn session_with(runner: Runner) -> (Arc<FakeRuntime>, SessionHandle, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::new();
    listen(&folder.path().join("s"), runner);
    runtime.state().runner = Some(folder.path().join("s"));
    runtime.state().process = Some(ASLEEP);
    let parts = RegistryParts {
        network: crate::network::Network::for_test(),
        runtimes: vec![runtime.clone()],
        config: SessionsConfig::default(),
        snapshots: crate::config::SnapshotsConfig::default(),
        workspaces: WorkspaceDirs::open(folder.path().join("workspaces")).unwrap(),
        metrics: Metrics::new(),
        store: Store::in_memory(),
        clock: Clock::start(),
    };
    let registry = Registry::new(parts).unwrap();
    let view = registry.create(serde_json::from_str("{}").unwrap(), None).await.unwrap();
    let session = registry.get(&view.id).unwrap();
    (runtime, session, folder)
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_runner_does_not_answer_a_request_has_crashed_within_ten_seconds_and_says_why() {
    let (runtime, session, _folder) = session_with(Runner::Silent).await;
    let activity = session.begin().await.unwrap();
    let began = Instant::now();
    let error = tokio::select! {
        _ = activity.runner().execs(None, 10) => panic!("the runner does not answer"),
        error = activity.ended() => error,
    };
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    assert!(matches!(&error, SessionError::Lost { reason, .. } if reason.contains("did not answer")), "{error:?}");
    assert_eq!(session.view().status, SessionStatus::Crashed);
    assert!(session.view().reason.unwrap().contains("its process sleeps"));
    session.destroy().await.unwrap();
    assert_eq!(runtime.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_is_slow_with_one_request_but_answers_is_not_lost() {
    let (_runtime, session, _folder) = session_with(Runner::Busy).await;
    let activity = session.begin().await.unwrap();
    let slow = activity.runner().execs(None, 10).await.unwrap_err();
    assert!(slow.to_string().contains("no answer within 30 seconds to GET /v1/execs on a new connection"), "{slow}");
    assert_eq!(session.view().status, SessionStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_a_signal_has_stopped_is_continued_before_it_counts_as_lost() {
    let (runtime, session, _folder) = session_with(Runner::Silent).await;
    runtime.state().process = Some(ProcessSample { state: ProcessState::Stopped, ..ASLEEP });
    let activity = session.begin().await.unwrap();
    activity.runner().pulse().doubt();
    activity.ended().await;
    assert_eq!(runtime.state().continues, 1);
}

#[tokio::test(start_paused = true)]
async fn a_paused_session_is_not_asked() {
    let (runtime, session, _folder) = session_with(Runner::Silent).await;
    session.pause().await.unwrap();
    session.0.client().unwrap().pulse().doubt();
    tokio::time::sleep(HEARTBEAT * 2).await;
    assert_eq!(session.view().status, SessionStatus::Paused);
    assert_eq!(runtime.alive(), 1);
}
