//! The commands of `cove`, as people and scripts use them, and the start and stop of the daemon.

use std::path::Path;
use std::time::Duration;

use e2e::daemon::{Ability, Cove, Daemon, Finished, Leftovers, finished, lacks};
use e2e::{DEADLINE, is_root, procfs, skipped, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

/// A part of the warning about limits.
const NOT_ENFORCED: &str = "limits of sandboxes are not enforced";
const SOMEBODY: u32 = 1000;

/// Commands without a daemon to find, in a directory where everything that they leave is visible.
struct Alone {
    cove: Cove,
    home: tempfile::TempDir,
}

impl Alone {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("cove-alone-").tempdir().expect("a temporary directory");
        Self { cove: Cove::at(home.path(), &home.path().join("data")), home }
    }

    /// The files and processes that exist now. There are none after every command has ended.
    fn left(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.home.path()).expect("our own directory");
        let files = files.flatten().map(|entry| entry.path().display().to_string());
        let needle = self.home.path().display().to_string();
        let mentions = |pid: i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&needle)
        };
        files.chain(procfs::all().into_iter().filter(|p| mentions(p.pid)).map(|p| p.name)).collect()
    }

    async fn until_nothing_is_left(&self) {
        wait_until("nothing is left", DEADLINE, async || self.left().is_empty().then_some(())).await;
    }
}

#[track_caller]
fn one_line(refused: &Finished, code: i32, word: &str) {
    assert_eq!(refused.code, code, "{refused:?}");
    assert_eq!(said(refused).lines().count(), 1, "{refused:?}");
    assert!(said(refused).contains(word), "{refused:?}");
}

/// What a command printed on standard error, without what a private daemon says about a host that enforces no limits.
fn said(finished: &Finished) -> String {
    finished.stderr.split_inclusive('\n').filter(|line| !line.contains(NOT_ENFORCED)).collect()
}

#[tokio::test]
async fn run_needs_no_daemon_and_leaves_nothing() {
    let alone = Alone::new();
    let ran = alone.cove.run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!((ran.code, ran.text().as_str(), said(&ran).as_str()), (7, "out\n", "err\n"));
    assert!(alone.left().is_empty(), "{:?}", alone.left());
    let piped = alone.cove.run_with_stdin(&["run", "--", "wc", "-c"], vec![7; 1_000_000]).await;
    assert_eq!(piped.ok().trim(), "1000000");
    let killed = alone.cove.run(&["run", "--", "sh", "-c", "kill -TERM $$"]).await;
    assert_eq!(killed.code, 143, "{killed:?}");
    let late = alone.cove.run(&["run", "--timeout", "300ms", "--", "sleep", "1000"]).await;
    assert_eq!(late.code, 124, "{late:?}");
    let missing = alone.cove.run(&["run", "--", "no-such-program"]).await;
    assert_eq!(missing.code, 127, "{missing:?}");
    let as_json = alone.cove.run(&["run", "--json", "-e", "A=b", "--", "printenv", "A"]).await;
    assert_eq!((&as_json.json()["stdout"], &as_json.json()["exit_code"]), (&json!("b\n"), &json!(0)));
    let bad = alone.cove.run(&["run", "no-such-image", "--", "true"]).await;
    one_line(&bad, 1, "no-such-image");
    assert!(alone.left().is_empty(), "{:?}", alone.left());
}

#[tokio::test]
async fn a_private_daemon_says_which_limits_it_cannot_enforce() {
    let story = "a_private_daemon_says_which_limits_it_cannot_enforce";
    if lacks(story, Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped(story, "needs root to become another user");
    }
    let alone = Alone::new();
    let run = ["run", "--", "echo", "ran"];
    let enforced = alone.cove.run(&run).await;
    assert_eq!((enforced.ok().as_str(), enforced.stderr.as_str()), ("ran\n", ""), "root's daemon has cgroups");
    let cove = alone.cove.as_user(SOMEBODY, alone.home.path());
    let warned = cove.run(&run).await;
    assert_eq!(warned.ok(), "ran\n");
    let lines: Vec<&str> = warned.stderr.lines().collect();
    assert!(matches!(lines[..], [line] if line.contains(NOT_ENFORCED) && line.contains("cove doctor")), "{lines:?}");
}

#[tokio::test]
async fn a_run_that_is_interrupted_or_killed_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let alone = Alone::new();
        let mut child = alone.cove.spawn(&["run", "--", "sh", "-c", "echo begun; sleep 1000"]);
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut byte).expect("it begins");
        procfs::signal(i32::try_from(child.id()).expect("a pid"), signal);
        let ended = finished(child).await;
        println!("{signal}: {ended:?}");
        assert_ne!(ended.code, 0);
        alone.until_nothing_is_left().await;
    }
}

#[tokio::test]
async fn exec_ps_and_rm_talk_to_the_daemon_that_runs() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    assert_eq!(cove.run(&["ps", "--json"]).await.json(), json!([]));
    let (one, other) = (daemon.create(json!({ "labels": { "job": "x" } })).await, daemon.session().await);
    let exec = async |args: &[&str]| cove.run(&[&["exec", one.id.as_str()], args].concat()).await;
    assert_eq!(exec(&["cd /tmp && export A=1"]).await.ok(), "");
    assert_eq!(exec(&["echo $A; pwd"]).await.ok(), "1\n/tmp\n");
    assert_eq!(exec(&["printf", "%s.", "a b", "$A", "*"]).await.ok(), "a b.$A.*.");
    assert_eq!(exec(&["exit 9"]).await.code, 9);
    assert_eq!(exec(&["--timeout", "300ms", "sleep 1000"]).await.code, 124);
    let both = exec(&["echo out; echo err >&2"]).await;
    assert_eq!((both.ok().as_str(), both.stderr.as_str()), ("out\n", "err\n"));
    let piped = cove.run_with_stdin(&["exec", "-i", &one.id, "cat"], "typed").await;
    assert_eq!(piped.ok(), "typed");
    let id = exec(&["--detach", "echo late"]).await.ok();
    assert_eq!(exec(&["--attach", id.trim()]).await.ok(), "late\n");
    assert_eq!(exec(&["--json", "echo x"]).await.json()["output"], "x\n");
    let listed = cove.run(&["ps", "--json", "--label", "job=x"]).await.json();
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["id"]), (Some(1), &json!(one.id)));
    assert!(cove.run(&["ps"]).await.ok().contains(&other.id));
    assert_eq!(cove.run(&["rm", &one.id]).await.ok().trim(), one.id);
    one_line(&cove.run(&["exec", "00000000-000", "true"]).await, 1, "00000000-000");
    cove.run(&["rm", "--all"]).await.ok();
    assert_eq!(cove.run(&["ps", "-q"]).await.ok(), "");
    assert!(cove.run(&["ps", "--all"]).await.ok().contains("destroyed"));
    daemon.stop().await;
}

#[tokio::test]
async fn an_interrupted_exec_interrupts_its_command() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let session = daemon.session().await;
    let mut child = cove.spawn(&["exec", &session.id, "echo begun; sleep 1000"]);
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut byte).expect("it begins");
    procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGINT);
    let ended = finished(child).await;
    assert_eq!(ended.code, 130, "{ended:?}");
    assert_eq!(session.sh("echo free").await, "free\n");
    daemon.stop().await;
}

#[tokio::test]
async fn an_exec_behind_a_busy_shell_says_so_and_an_interrupt_takes_it_out_of_the_queue() {
    use std::io::BufRead as _;
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let session = daemon.session().await;
    let busy = json!({ "cmd": "echo begun; until [ -e go ]; do sleep 0.01; done; echo over", "exec_id": "busy" });
    let mut running = session.stream(busy).await;
    running.until("chunk").await;
    let mut child = cove.spawn(&["exec", &session.id, "touch ran"]);
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("it says something");
    assert!(said.contains("busy with exec busy") && said.contains("Ctrl-C"), "{said:?}");
    procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGINT);
    child.stderr = Some(stderr.into_inner());
    let ended = finished(child).await;
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.stderr.contains("did not run"), "{ended:?}");
    let refused = cove.run(&["exec", "--queue-timeout", "0s", &session.id, "touch ran"]).await;
    one_line(&refused, 1, "SHELL_BUSY");
    session.put("go", "").await.ok();
    let (output, done) = running.finish().await;
    assert_eq!((output.as_slice(), &done.data["exit_code"]), (&b"over\n"[..], &json!(0)));
    assert_eq!(session.exec("test -e ran").await["exit_code"], 1);
    daemon.stop().await;
}

#[tokio::test]
async fn cp_carries_files_and_directories_both_ways() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let session = daemon.session().await;
    let here = daemon.directory().join("here");
    std::fs::create_dir_all(here.join("tree/deep")).expect("our own directory");
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(here.join("tree/deep/a b"), &content).expect("our own directory");
    std::fs::write(here.join("tree/script"), "#!/bin/sh\necho ran\n").expect("our own directory");
    std::fs::set_permissions(here.join("tree/script"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("ours");
    std::os::unix::fs::symlink("deep/a b", here.join("tree/link")).expect("our own directory");
    let at = |path: &str| here.join(path).display().to_string();
    let remote = |path: &str| format!("{}:{path}", session.id);
    let cp = async |from: &str, to: &str| cove.run(&["cp", from, to]).await;

    cp(&at("tree/deep/a b"), &remote("")).await.ok();
    assert!(session.get("a%20b").await.body == content);
    cp(&at("tree"), &remote("/workspace/tree")).await.ok();
    assert_eq!(
        session.sh("tree/script; readlink tree/link; cmp 'a b' 'tree/deep/a b' && echo same").await,
        "ran\ndeep/a b\nsame\n"
    );
    cp(&at("tree/script"), &remote("alone")).await.ok();
    assert_eq!(session.sh("./alone").await, "ran\n");
    cp(&remote("tree"), &at("back")).await.ok();
    assert!(std::fs::read(here.join("back/deep/a b")).expect("it is there") == content);
    assert_eq!(std::fs::read_link(here.join("back/link")).expect("a link"), Path::new("deep/a b"));
    cp(&remote("a b"), &at("single")).await.ok();
    assert!(std::fs::read(here.join("single")).expect("it is there") == content);
    let piped = cove.run_with_stdin(&["cp", "-", &remote("greeting")], "hi").await;
    assert_eq!(piped.ok(), "");
    assert_eq!(cp(&remote("greeting"), "-").await.ok(), "hi");
    let missing = cp(&remote("no-such-file"), &at("x")).await;
    one_line(&missing, 1, "no-such-file");
    assert!(!here.join("x").exists());
    let other = daemon.session().await;
    cp(&remote("tree"), &format!("{}:copy", other.id)).await.ok();
    assert_eq!(other.sh("copy/script").await, "ran\n");
    // A sandbox that lies about its files cannot write outside the target.
    session.sh("mkdir evil; ln -s /tmp evil/out; echo x > evil/plain").await;
    cp(&remote("evil"), &at("evil")).await.ok();
    assert_eq!(std::fs::read_link(here.join("evil/out")).expect("a link"), Path::new("/tmp"));
    daemon.stop().await;
}

#[tokio::test]
async fn doctor_version_and_completion_answer() {
    let alone = Alone::new();
    let doctor = alone.cove.run(&["doctor", "--json"]).await;
    let report = doctor.json();
    assert_eq!((doctor.code, &report["can_run"]), (0, &json!(true)), "{report:#}");
    assert!(report["findings"].as_array().map(Vec::len) > Some(5), "{report:#}");
    assert!(alone.cove.run(&["doctor"]).await.ok().contains("sandboxes can run here"));
    let version = alone.cove.run(&["version", "--json"]).await.json();
    assert!(version["version"].is_string() && version["runner"]["bytes"].as_u64() > Some(100_000), "{version}");
    assert!(alone.cove.run(&["--version"]).await.ok().starts_with("cove "));
    for shell in ["bash", "zsh", "fish"] {
        assert!(alone.cove.run(&["completion", shell]).await.ok().contains("cove"), "{shell}");
    }
    let script = alone.cove.run(&["completion", "bash"]).await.ok();
    let syntax = std::process::Command::new("bash").args(["-n", "-c", &script]).output().expect("bash");
    assert!(syntax.status.success() && syntax.stderr.is_empty(), "{syntax:?}");
    for wrong in [&["nonsense"][..], &["run"], &["exec"], &["cp", "a"], &["ps", "--nonsense"]] {
        assert_eq!(alone.cove.run(wrong).await.code, 2, "{wrong:?}");
    }
    let nobody = alone.cove.run(&["ps"]).await;
    assert!(nobody.code != 0 && nobody.stderr.contains("cove serve"), "{nobody:?}");
    assert!(alone.left().is_empty(), "{:?}", alone.left());
}

#[tokio::test]
async fn a_wrong_configuration_is_one_line_and_64() {
    let alone = Alone::new();
    let config = alone.home.path().join("cove.toml");
    std::fs::write(&config, "[server]\nlistne = '127.0.0.1:0'\n").expect("our own directory");
    let config = config.to_str().expect("text");
    let misspelt = alone.cove.run(&["serve", "--config", config]).await;
    one_line(&misspelt, 64, "cove.toml:2: server.listne is not a setting of cove; did you mean server.listen?");
    std::fs::write(config, "[server\n").expect("our own directory");
    one_line(&alone.cove.run(&["serve", "--config", config]).await, 64, "cove.toml");
    one_line(&alone.cove.run(&["serve", "--config", "/nowhere.toml"]).await, 64, "/nowhere.toml");
    one_line(&alone.cove.run(&["serve", "--listen", "nonsense"]).await, 64, "--listen");
    one_line(&alone.cove.run(&["serve", "--listen", "0.0.0.0:0"]).await, 64, "COVE_API_KEY");
    one_line(&alone.cove.run(&["serve", "--max-sessions", "many"]).await, 64, "--max-sessions");
    one_line(&alone.cove.run(&["serve", "--runtime", "nonsense"]).await, 64, "nonsense");
    let wrong = Cove::at(alone.home.path(), &alone.home.path().join("data")).env("COVE_SESSIONS_MAX_SESSIONS", "-1");
    one_line(&wrong.run(&["serve", "--listen", "127.0.0.1:0"]).await, 64, "COVE_SESSIONS_MAX_SESSIONS");
    std::fs::remove_file(config).expect("our own file");
    assert!(alone.left().is_empty(), "{:?}", alone.left());
}

#[tokio::test]
async fn two_daemons_never_share_a_directory_nor_a_port() {
    let daemon = Daemon::start().await;
    let data = daemon.data_dir();
    let data = data.to_str().expect("text");
    let cove = Cove::of(&daemon);
    let second = cove.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data]).await;
    assert!(second.code != 0 && second.stderr.contains(&daemon.pid().to_string()), "{second:?}");
    let elsewhere = daemon.directory().join("elsewhere");
    let address = daemon.address.to_string();
    let taken = cove.run(&["serve", "--listen", &address, "--data-dir", elsewhere.to_str().expect("text")]).await;
    assert!(taken.code != 0 && taken.stderr.contains(&address), "{taken:?}");
    assert!(taken.stderr.contains("another cove") && taken.stderr.contains("--listen"), "{taken:?}");
    assert!(!elsewhere.join("cove.db").exists(), "a daemon that cannot listen has opened its store");
    assert_eq!(daemon.session().await.sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_fresh_daemon_says_how_to_use_it() {
    let daemon = Daemon::start().await;
    let banner = daemon.banner.join("\n");
    assert!(daemon.banner[0] == format!("listening on http://{}", daemon.address), "{banner}");
    assert!(banner.contains("curl") && banner.contains("/v1/sessions") && banner.contains(" shell $ID"), "{banner}");
    // The harness configured it this way.
    assert!(banner.contains("Ctrl-C and SIGTERM stop the daemon and end all sessions"), "{banner}");
    // The printed lines run as they are; the last one is for a person.
    let lines = daemon.banner.iter().filter(|line| line.starts_with("  ") && !line.contains(" shell $ID"));
    let script: String = lines.map(|line| format!("{line}\n")).collect();
    println!("{banner}");
    let ran =
        std::process::Command::new("bash").arg("-euc").arg(&script).env_remove("COVE_API_KEY").output().expect("bash");
    println!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{script}\n{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("hello from /tmp"), "{ran:?}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |name: &str| std::fs::metadata(daemon.data_dir().join(name)).expect(name).permissions().mode() & 0o777;
    assert_eq!((mode("api-key"), mode("daemon.json"), mode("")), (0o600, 0o600, 0o700));
    daemon.stop().await;
}

#[tokio::test]
async fn a_stop_drains_what_is_in_flight_and_leaves_nothing() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = session.stream(json!({ "cmd": "echo begun; sleep 1; echo ended" })).await;
    let first = stream.until("chunk").await;
    assert_eq!((first.bytes(), first.data["offset"].as_u64()), (b"begun\n".to_vec(), Some(0)), "{first:?}");
    let stubborn = daemon.session().await;
    stubborn.sh("(trap '' TERM; sleep 1000) & echo ok").await;
    daemon.signal(Signal::SIGTERM);
    // A running request is finished; a later one finds no daemon.
    let (output, done) = stream.finish().await;
    assert_eq!((String::from_utf8_lossy(&output).as_ref(), done.name.as_str()), ("ended\n", "done"));
    let status = daemon.ended().await;
    assert!(status.success(), "{status}");
    let left = Leftovers::of(&daemon.data_dir());
    assert!(left.is_empty(), "{left:?}");
    assert!(!daemon.data_dir().join("daemon.json").exists());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let mut daemon = Daemon::builder().config("[server]\ndrain_seconds = 1\n").start().await;
    let session = daemon.session().await;
    let mut stream =
        session.stream(json!({ "cmd": "echo begun; trap '' TERM INT; while :; do sleep 1000; done" })).await;
    stream.until("chunk").await;
    let start = std::time::Instant::now();
    daemon.signal(Signal::SIGTERM);
    let status = daemon.ended().await;
    assert!(status.success() && start.elapsed() < Duration::from_secs(10), "{status} after {:?}", start.elapsed());
    let left = Leftovers::of(&daemon.data_dir());
    assert!(left.is_empty(), "{left:?}");
}
