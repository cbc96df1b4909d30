//! What people type who know docker: each works, or a sentence says what to type. And the names of sessions.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use e2e::daemon::{Cove, Daemon, Finished, finished};
use e2e::{DEADLINE, procfs, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

const SMALL: [&str; 2] = ["-m", "64m"];

#[track_caller]
fn says(refused: &Finished, code: i32, words: &str) {
    assert_eq!((refused.code, refused.text().as_str()), (code, ""), "{refused:?}");
    assert!(refused.stderr.contains(words) && refused.stderr.starts_with("cove: "), "{refused:?}");
}

#[tokio::test]
async fn a_session_is_found_by_its_name_and_by_the_beginning_of_its_id() {
    let daemon = Daemon::builder().keeps_sessions().start().await;
    let cove = Cove::of(&daemon);
    let id = cove.run(&["create", "--name", "web", "-w", "/tmp", "-l", "job=x"]).await.ok().trim().to_owned();
    assert_eq!(cove.run(&["exec", "web", "pwd; A=1"]).await.ok(), "/tmp\n");
    let taken = cove.run(&["create", "--name", "web"]).await;
    says(&taken, 1, "has the name web");
    assert!(taken.stderr.contains(&id), "it names the session that has it: {taken:?}");
    let invalid = cove.run(&["create", "--name", "a b"]).await;
    assert!(invalid.code == 2 && invalid.stderr.contains("session name"), "{invalid:?}");
    says(&cove.run(&["create", "--name", "7183cb80-d6c"]).await, 1, "form of a session id");
    says(&cove.run(&["exec", "nobody", "true"]).await, 1, "`cove ps`");
    says(&cove.run(&["create", "-w", "/no/such"]).await, 1, "/no/such");
    assert_eq!(cove.run(&["ps", "-q"]).await.ok().trim(), id, "a create that fails leaves no session");
    // With one more session than there are digits, two ids begin with the same one.
    for _ in 0..16 {
        cove.run(&[&["create"], &SMALL[..]].concat()).await.ok();
    }
    let ids = cove.run(&["ps", "-q"]).await.ok();
    let shared = |id: &&str| ids.lines().filter(|other| other.as_bytes()[0] == id.as_bytes()[0]).count() > 1;
    let several = ids.lines().find(shared).expect("seventeen ids");
    says(&cove.run(&["rm", &several[..1]]).await, 2, several);
    assert_eq!(cove.run(&["exec", &several[..11], "echo found"]).await.ok(), "found\n");
    let daemon = daemon.restart().await;
    let cove = Cove::of(&daemon);
    assert_eq!(cove.run(&["exec", "web", "pwd; echo $A"]).await.ok(), "/tmp\n1\n");
    assert_eq!(cove.run(&["inspect", "web"]).await.json()[0]["name"], "web");
    assert_eq!(daemon.get("/v1/sessions?name=web").await.ok()[0]["id"], json!(id));
    assert_eq!(daemon.get("/v1/sessions?name=other").await.ok(), json!([]));
    assert_eq!(cove.run(&["ps", "-q", "--name", "web"]).await.ok().trim(), id);
    assert_eq!(cove.run(&["rm", "web"]).await.ok().trim(), id);
    cove.run(&["create", "--name", "web"]).await.ok();
    let all: Vec<String> = cove.run(&["ps", "-q"]).await.ok().lines().map(str::to_owned).collect();
    let rm: Vec<&str> = ["rm", "-f"].into_iter().chain(all.iter().map(String::as_str)).collect();
    assert_eq!(cove.run(&rm).await.ok().lines().count(), 17);
    assert_eq!(cove.run(&["ps", "-q"]).await.ok(), "");
    assert_eq!(cove.run(&["rm", "-f", "nobody", "00000000-000"]).await.ok(), "");
    assert_eq!(cove.run(&["rm", "-f"]).await.ok(), "");
    daemon.stop().await;
}

#[tokio::test]
async fn run_takes_an_image_and_a_program_as_docker_does() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let run = async |line: &str| cove.run(&line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(run("run --rm base echo -n -- hi").await.ok(), "-- hi");
    assert_eq!(run("run -e A=1 -m 64m --cpus 0.5 --network none base printenv A").await.ok(), "1\n");
    assert_eq!(run("run -w /tmp base pwd").await.ok(), "/tmp\n");
    assert_eq!(run("run base -e A=2 -- printenv A").await.ok(), "2\n", "as before");
    assert_eq!(run("run -- echo hi").await.ok(), "hi\n");
    says(&run("run echo hi").await, 1, "`cove run -- echo hi`");
    says(&run("run base").await, 2, "`cove run base CMD`");
    says(&run("run --privileged base ls").await, 2, "--user root");
    says(&run("run base --entrypoint sh ls").await, 2, "as CMD");
    says(&run("run base --nonsense ls").await, 2, "cove help run");
    says(&run("run -it base sh").await, 2, "terminal");
    assert_eq!(run("run -v .:/app base ls").await.code, 2);
    says(&run("create base ls").await, 2, "cove exec SESSION CMD");
    assert_eq!(run("ps -q").await.ok(), "");
    let kept = run("run --keep --name kept base true").await;
    assert!(kept.stderr.contains("session "), "{kept:?}");
    assert_eq!(run("ps -q --name kept").await.ok().lines().count(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_detached_program_has_logs() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let program = "echo begun; until [ -e go ]; do sleep 0.01; done; echo over; exit 3";
    let id = cove.run(&["run", "-d", "--name", "job", "base", "sh", "-c", program]).await.ok();
    let logs = async || cove.run(&["logs", "job"]).await.ok();
    wait_until("the first line", DEADLINE, async || (logs().await == "begun\n").then_some(())).await;
    let exec = cove.run(&["logs", "--list", "-q", "job"]).await.ok().trim().to_owned();
    assert_eq!(cove.run(&["logs", &exec]).await.ok(), "begun\n", "in whichever session it is");
    assert!(cove.run(&["logs", "--list", "job"]).await.ok().contains("running"));
    let following = cove.spawn(&["logs", "-f", "job", &exec[..6]]);
    cove.run(&["exec", "job", "touch go"]).await.ok();
    let ended = finished(following).await;
    assert_eq!((ended.code, ended.text().as_str()), (3, "begun\nover\n"), "{ended:?}");
    assert_eq!(cove.run(&["logs", "--list", "--json", "job"]).await.json()[0]["done"]["exit_code"], 3);
    cove.run(&["exec", "job", "seq 1000; printf end"]).await.ok();
    assert_eq!(cove.run(&["logs", "--tail", "2", "job"]).await.ok(), "1000\nend");
    assert_eq!(cove.run(&["logs", "-f", "-n", "2", "job"]).await.ok(), "1000\nend");
    assert_eq!(cove.run(&["logs", "-n", "0", "job"]).await.ok(), "");
    says(&cove.run(&["logs", "job", "no-such"]).await, 1, "--list");
    assert_eq!(cove.run(&["rm", "job"]).await.ok(), id);
    daemon.stop().await;
}

#[tokio::test]
async fn kill_ends_commands_and_leaves_the_session() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    cove.run(&["create", "--name", "busy"]).await.ok();
    let exec = cove.run(&["exec", "-d", "busy", "sleep 1000"]).await.ok();
    wait_until("the command", DEADLINE, async || {
        cove.run(&["logs", "--list", "busy"]).await.ok().contains("running").then_some(())
    })
    .await;
    assert_eq!(cove.run(&["kill", "-s", "SIGTERM", "busy"]).await.ok(), exec);
    assert_eq!(cove.run(&["logs", "-f", "busy", exec.trim()]).await.code, 143);
    let none = cove.run(&["kill", "busy"]).await;
    assert!(none.ok().is_empty() && none.stderr.contains("no command runs"), "{none:?}");
    assert_eq!(cove.run(&["exec", "busy", "echo alive"]).await.ok(), "alive\n");
    daemon.stop().await;
}

#[tokio::test]
async fn stats_measure_once_or_until_they_are_interrupted() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    cove.run(&["create", "--name", "web"]).await.ok();
    let once = cove.run(&["stats", "--no-stream", "--json", "web"]).await.json();
    assert_eq!(once[0]["name"], "web");
    assert!(once[0]["cpu_percent"].is_number() && once[0]["pids"].is_number(), "{once}");
    let mut live = cove.spawn(&["stats"]);
    let mut lines = BufReader::new(live.stdout.take().expect("a pipe"));
    let mut line = String::new();
    // Two tables: it goes on.
    while line.matches("web").count() < 2 {
        assert_ne!(lines.read_line(&mut line).expect("a pipe"), 0, "{line}");
    }
    procfs::signal(i32::try_from(live.id()).expect("a pid"), Signal::SIGINT);
    live.stdout = Some(lines.into_inner());
    assert_eq!(finished(live).await.code, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn workspaces_are_made_filled_used_and_removed() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let here = daemon.directory().join("here");
    std::fs::create_dir_all(here.join("sub")).expect("our own directory");
    std::fs::write(here.join("sub/a"), "content\n").expect("our own directory");
    let local = |path: &str| here.join(path).display().to_string();
    assert_eq!(cove.run(&["workspace", "create", "data"]).await.ok(), "data\n");
    assert_eq!(cove.run(&["volume", "create", "data"]).await.ok(), "data\n", "it exists already");
    assert_eq!(cove.run(&["workspace", "ls", "-q"]).await.ok(), "data\n");
    cove.run(&["workspace", "cp", &local("sub"), "data:"]).await.ok();
    assert_eq!(cove.run(&["run", "-v", "data", "base", "cat", "sub/a"]).await.ok(), "content\n");
    cove.run(&["workspace", "cp", "data:/sub/a", &local("back")]).await.ok();
    assert_eq!(std::fs::read_to_string(here.join("back")).expect("a copy"), "content\n");
    says(&cove.run(&["workspace", "cp", "other:a", &local("b")]).await, 1, "no workspace other");
    assert_eq!(cove.run(&["workspace", "ls", "-q"]).await.ok(), "data\n", "none was made");
    cove.run(&["create", "--name", "user", "-v", "data"]).await.ok();
    says(&cove.run(&["workspace", "rm", "data"]).await, 1, "-f ends them");
    says(&cove.run(&["prune"]).await, 2, "-f");
    cove.run(&["prune", "-f", "--workspaces"]).await.ok();
    assert_eq!(cove.run(&["workspace", "ls", "--json"]).await.json()[0]["id"], "data", "it is in use");
    assert_eq!(cove.run(&["workspace", "rm", "-f", "data"]).await.ok(), "data\n");
    assert_eq!(cove.run(&["ps", "-q"]).await.ok(), "");
    cove.run(&["workspace", "create", "unused"]).await.ok();
    assert_eq!(cove.run(&["prune", "-f", "--workspaces"]).await.ok(), "unused\n");
    daemon.stop().await;
}

#[tokio::test]
async fn what_docker_has_and_cove_does_not_says_what_to_type() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    for (word, instead) in [
        ("build", "cove image import"),
        ("push", "docker or podman"),
        ("attach", "cove shell SESSION"),
        ("top", "cove exec SESSION ps aux"),
        ("restart", "cove stop SESSION"),
        ("login", ".docker/config.json"),
        ("compose", "cove forward"),
    ] {
        says(&cove.run(&[word, "x"]).await, 2, instead);
    }
    let near = cove.run(&["exce", "x", "ls"]).await;
    assert!(near.code == 2 && near.stderr.contains("'exec'"), "{near:?}");
    let near = cove.run(&["ps", "--quite"]).await;
    assert!(near.code == 2 && near.stderr.contains("'--quiet'"), "{near:?}");
    says(&cove.run(&["ps", "--format", "{{.ID}}"]).await, 2, "--json");
    says(&cove.run(&["exec", "x"]).await, 2, "`cove shell x`");
    assert!(cove.run(&["images", "-q"]).await.ok().lines().any(|name| name == "base"));
    assert_eq!(cove.run(&["container", "ls", "-q"]).await.ok(), "");
    let help = cove.run(&["help", "exec"]).await.ok();
    assert!(help.contains("cove exec -it"), "{help}");
    assert!(cove.run(&["help", "workspace", "cp"]).await.ok().contains("NAME:PATH"));
    let pages = daemon.directory().join("man");
    cove.run(&["man", &pages.to_string_lossy()]).await.ok();
    assert!(std::fs::read_to_string(pages.join("cove-run.1")).expect("a page").contains("cove run"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_program_that_runs_has_its_ports_here() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let server =
        "import http.server as h; h.HTTPServer(('127.0.0.1', 8000), h.SimpleHTTPRequestHandler).serve_forever()";
    let mut child = cove.spawn(&["run", "-p", "0:8000", "base", "python3", "-c", server]);
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a pipe");
    let address = line.strip_prefix("cove: ").and_then(|line| line.split(' ').next()).expect("an address").to_owned();
    let page = async || {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.contains("200 OK").then_some(())
    };
    wait_until("the page", DEADLINE, page).await;
    procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGINT);
    child.stderr = Some(stderr.into_inner());
    assert_eq!(finished(child).await.code, 130);
    daemon.stop().await;
}
