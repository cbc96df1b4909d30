//! The state of a runner's shells goes to another runner: for snapshots, and for sessions that are stopped.

use e2e::{Ask as _, Refused, Runner, ask, run};
use hyper::Method;
use serde_json::{Value, json};
use shared_protocol::ErrorCode;
use shared_protocol::runner::{RestoreRequest, SandboxState, encode_shell_text};

async fn state_of(runner: &Runner) -> SandboxState {
    runner.get("/v1/state").await.expect("a state")
}

async fn waiting() -> Runner {
    Runner::builder().env("COVE_RUNNER_AWAIT_RESTORE", "true").start().await
}

async fn restore(runner: &Runner, request: &RestoreRequest) -> Result<Value, Refused> {
    runner.post("/v1/restore", request).await
}

#[tokio::test]
async fn shells_go_on_in_another_runner_as_they_were_after_their_last_command() {
    let first = Runner::builder().env("GIVEN", "1").env("COVE_RUNNER_SESSION_VARIABLES", "GIVEN").start().await;
    first.sh("cd /usr; export A='x y'; B=$'l1\\nl2'; f() { echo f; }; shopt -s nullglob; shopt -u sourcepath; set -o pipefail").await;
    first.open("second").await;
    first.exec(ask("C=3; cd /tmp").in_shell("second")).await;
    let state = state_of(&first).await;
    assert_eq!(state.shells.iter().map(|shell| shell.name.as_str()).collect::<Vec<_>>(), ["main", "second"]);
    assert_eq!(state.env.get("GIVEN").map(String::as_str), Some("1"));
    // What happens now is not part of it.
    first.sh("A=later; cd /").await;

    let next = waiting().await;
    let env = [("NEW".to_owned(), "it's".to_owned()), ("A".to_owned(), "newer".to_owned())].into();
    restore(&next, &RestoreRequest { state, env }).await.expect("the state is taken");
    assert_eq!(next.output_of("pwd; echo \"$A|$B|$NEW|$GIVEN\"; f").await, "/usr\nnewer|l1\nl2|it's|1\nf\n");
    let options = "shopt -q nullglob && ! shopt -q sourcepath && shopt -qo pipefail && shopt -q cmdhist && echo same";
    assert_eq!(next.output_of(options).await, "same\n");
    assert_eq!(next.exec(ask("echo $C; pwd").in_shell("second")).await.text(), "3\n/tmp\n");
    assert_eq!(next.run(run(["printenv", "GIVEN", "NEW"])).await.stdout_text(), "1\nit's\n");
    // The options are known after the death of a shell as well, although no bash has started as a login.
    next.sh("kill -9 $$").await;
    assert_eq!(next.output_of(options).await, "same\n");
    assert_eq!(next.output_of("f; pwd").await, "f\n/usr\n");
}

#[tokio::test]
async fn a_runner_takes_one_state_and_only_if_it_waits_for_it() {
    let usual = Runner::start().await;
    let empty = RestoreRequest::default();
    assert_eq!(restore(&usual, &empty).await.expect_err("it does not wait").body.error_code, ErrorCode::Conflict);
    let runner = waiting().await;
    let refused = runner.raw(Method::POST, "/v1/exec", json!({ "cmd": "true" }).to_string()).await;
    assert_eq!(refused.refused(), ErrorCode::ShellNotFound, "{}", refused.text());
    restore(&runner, &empty).await.expect("an empty state is a state");
    assert_eq!(runner.output_of("echo up").await, "up\n", "main is always there");
    assert_eq!(restore(&runner, &empty).await.expect_err("a second one").body.error_code, ErrorCode::Conflict);
}

#[tokio::test]
async fn a_state_that_no_runner_gave_out_is_refused_and_half_a_script_does_not_run() {
    let first = Runner::start().await;
    first.sh("KEPT=1").await;
    let state = state_of(&first).await;
    let runner = waiting().await;
    let mut long = state.clone();
    long.shells[0].cwd = format!("/{}", "x".repeat(1 << 20));
    let mut twice = state.clone();
    twice.shells.push(twice.shells[0].clone());
    let mut named = state.clone();
    named.env.insert("A B".into(), String::new());
    for wrong in [long, twice, named] {
        let request = RestoreRequest { state: wrong, ..RestoreRequest::default() };
        assert_eq!(restore(&runner, &request).await.expect_err("refused").body.error_code, ErrorCode::InvalidRequest);
    }
    // The runner still waits. A text that was cut off counts as none.
    let mut cut = state;
    cut.shells[0].text_base64 = encode_shell_text(b"touch /tmp/cove-half-a-script; declare -- KEPT=\"1");
    let request = RestoreRequest { state: cut, ..RestoreRequest::default() };
    restore(&runner, &request).await.expect("it is taken");
    assert_eq!(runner.output_of("echo \"${KEPT-none}\"; ls /tmp/cove-half-a-script 2>/dev/null; true").await, "none\n");
}

/// What a runner gives out of a directory.
async fn disk_of(runner: &Runner, directory: &std::path::Path) -> e2e::http::Answer {
    runner.raw(Method::GET, &format!("/v1/disk?directories={}", directory.display()), "").await
}

#[tokio::test]
async fn a_held_runner_gives_its_disk_out_and_another_takes_it() {
    let first = Runner::start().await;
    let place = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(place.path(), Some(1000), Some(1000))
        .or_else(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(error),
        })
        .expect("our own directory");
    let path = place.path().display();
    first.sh(&format!("cd {path}; mkdir d; echo one > d/file; ln d/file twin; ln -s x link; mkfifo pipe; (while :; do echo >> grows; done) & PID=$!")).await;
    assert_eq!(disk_of(&first, place.path()).await.refused(), ErrorCode::Conflict, "it is not held");
    let _: Value = first.post("/v1/hold", &json!({})).await.expect("it is held");
    let _: Value = first.post("/v1/hold", &json!({})).await.expect("once more changes nothing");
    let size = || std::fs::metadata(place.path().join("grows")).map_or(0, |file| file.len());
    let disk = disk_of(&first, place.path()).await;
    assert_eq!(disk.status, 200, "{}", disk.text());
    let held = size();
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(300), first.output_of("echo late")).await;
    assert!(waiting.is_err(), "a request waits");
    assert_eq!(size(), held, "a held process writes");
    let _: Value = first.post("/v1/release", &json!({})).await.expect("it goes on");
    e2e::wait_until("the process to go on", e2e::DEADLINE, async || (size() > held).then_some(())).await;
    first.sh("kill $PID; wait").await;
    assert_eq!(first.output_of("echo alive").await, "alive\n");

    let put = |runner: &Runner, body: Vec<u8>| {
        let (client, target) = (e2e::Client::clone(runner), format!("/v1/disk?directories={path}"));
        async move { client.raw(Method::PUT, &target, body).await }
    };
    assert_eq!(put(&first, disk.body.to_vec()).await.refused(), ErrorCode::Conflict, "it does not wait for a disk");
    let next = waiting_in(place.path()).await;
    for cut in [0, 5, 12, 40, disk.body.len() - 1] {
        assert_eq!(put(&next, disk.body[..cut].to_vec()).await.refused(), ErrorCode::InvalidRequest, "cut at {cut}");
    }
    let taken = put(&next, disk.body.to_vec()).await;
    assert_eq!(taken.status, 201, "{}", taken.text());
    restore(&next, &RestoreRequest::default()).await.expect("a state");
    let seen = format!("cd {path}; cat d/file; readlink link; [ twin -ef d/file ] && [ -p pipe ] && stat -c %s grows");
    assert_eq!(next.output_of(&seen).await, format!("one\nx\n{held}\n"));
}

/// A runner that waits for its disk and its shells, after everything in the directory was removed.
async fn waiting_in(directory: &std::path::Path) -> Runner {
    for entry in std::fs::read_dir(directory).expect("our own directory").flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_dir { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
        removed.expect("our own file");
    }
    waiting().await
}
