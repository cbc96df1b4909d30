//! `cove serve --embedded`: a daemon for one program, which ends with that program.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use e2e::daemon::{Ability, Cove, finished, lacks};
use e2e::{DEADLINE, is_root, procfs, skipped, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOMEBODY: u32 = 1000;

/// A directory with all files that the programs of a story make, and the commands to start them.
struct Place {
    home: tempfile::TempDir,
    cove: Cove,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("cove-embedded-").tempdir().expect("a temporary directory");
        Self { cove: Cove::at(home.path(), &home.path().join("data")), home }
    }

    /// Private data directories that are there now.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.home.path()).expect("our own directory").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("cove-private-")).collect()
    }

    /// Commands for the daemon that said where it is.
    fn client(&self, said: &Value) -> Cove {
        let text = |name: &str| said[name].as_str().expect("a text").to_owned();
        Cove::at(self.home.path(), self.home.path()).env("COVE_URL", &text("url")).env("COVE_API_KEY", &text("api_key"))
    }
}

fn start(cove: &Cove, args: &[&str]) -> (Child, Value) {
    let args = [&["serve", "--embedded"], args].concat();
    let mut child = cove.command(&args).stdin(Stdio::piped()).spawn().expect("cove can be started");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a pipe");
    child.stdout = Some(stdout.into_inner());
    let said = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    (child, said)
}

/// Uses the daemon, closes its standard input, and expects that nothing is left.
async fn is_used_and_ends(place: &Place, cove: &Cove) {
    let (mut child, said) = start(cove, &[]);
    assert!(said["url"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")), "{said}");
    let client = place.client(&said);
    let id = client.run(&["create", "--name", "own"]).await.ok();
    assert_eq!(client.run(&["exec", "own", "echo hello"]).await.ok(), "hello\n");
    assert_eq!(client.run(&["ps", "-q"]).await.ok(), id);
    assert_eq!(place.left().len(), 1);
    drop(child.stdin.take());
    let ended = finished(child).await;
    assert_eq!((ended.code, ended.text().as_str()), (0, ""), "{ended:?}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[tokio::test]
async fn an_embedded_daemon_serves_one_program_and_leaves_nothing() {
    let place = Place::new();
    let cove = Cove::at(place.home.path(), &place.home.path().join("data")).env("COVE_API_KEY", "of-another-daemon");
    is_used_and_ends(&place, &cove).await;
}

#[tokio::test]
async fn an_embedded_daemon_of_an_ordinary_user_serves_one_program_and_leaves_nothing() {
    let story = "an_embedded_daemon_of_an_ordinary_user_serves_one_program_and_leaves_nothing";
    if lacks(story, Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped(story, "needs root to become another user");
    }
    let place = Place::new();
    let cove = Cove::at(place.home.path(), &place.home.path().join("data")).as_user(SOMEBODY, place.home.path());
    is_used_and_ends(&place, &cove).await;
}

#[tokio::test]
async fn a_named_data_directory_stays_and_its_sessions_do_not() {
    let place = Place::new();
    let data = place.home.path().join("kept");
    let (mut child, said) = start(&place.cove, &["--data-dir", &data.to_string_lossy()]);
    assert_eq!((said["data_dir"].as_str(), said["pid"].as_u64()), (data.to_str(), Some(child.id().into())));
    place.client(&said).run(&["create"]).await.ok();
    drop(child.stdin.take());
    assert_eq!(finished(child).await.code, 0);
    let (mut child, again) = start(&place.cove, &["--data-dir", &data.to_string_lossy()]);
    assert_eq!(again["api_key"], said["api_key"], "the key is in the directory");
    assert_eq!(place.client(&again).run(&["ps", "-q"]).await.ok(), "");
    drop(child.stdin.take());
    assert_eq!(finished(child).await.code, 0);
}

#[tokio::test]
async fn an_embedded_daemon_ends_with_a_program_that_is_killed() {
    let place = Place::new();
    let script = r#"coproc "$0" serve --embedded; read -r line <&"${COPROC[0]}"; echo "$line"; read -r _"#;
    let cove = place.cove.command(&["unused"]);
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", script]).arg(cove.get_program());
    bash.envs(cove.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut bash = bash.spawn().expect("bash can be started");
    let mut line = String::new();
    BufReader::new(bash.stdout.take().expect("a pipe")).read_line(&mut line).expect("a pipe");
    let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    place.client(&said).run(&["create"]).await.ok();
    procfs::signal(i32::try_from(bash.id()).expect("a pid"), Signal::SIGKILL);
    bash.wait().expect("our own child");
    wait_until("nothing is left", DEADLINE, async || place.left().is_empty().then_some(())).await;
    let pid = i32::try_from(said["pid"].as_u64().expect("a pid")).expect("a pid");
    wait_until("the daemon's end", DEADLINE, async || {
        procfs::all().iter().all(|process| process.pid != pid).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_embedded_daemon_takes_no_address_of_others() {
    let place = Place::new();
    for flag in [["--listen", "127.0.0.1:0"], ["--socket", "/tmp/x.sock"], ["--api-key-file", "/tmp/x"]] {
        let refused = place.cove.run(&["serve", "--embedded", flag[0], flag[1]]).await;
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}
