//! The tools of agents: what a model reads of files and commands, what it is told when a call was wrong, and that nothing in a sandbox
//! makes a tool hang or answer without a bound.

use e2e::daemon::rootfs::rootfs;
use e2e::daemon::{Ability, Cove, Daemon, Session, lacks};
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{InvalidRequest, SessionNotFound};

/// Calls a tool and returns its answer.
async fn call(session: &Session, tool: &str, arguments: Value) -> Value {
    session.api.post(&session.path(&format!("/tools/{tool}")), arguments).await.ok()
}

/// The text of an answer.
fn text(reply: &Value) -> &str {
    reply["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {reply}"))
}

/// The text of an answer that is no error.
async fn done(session: &Session, tool: &str, arguments: Value) -> String {
    let reply = call(session, tool, arguments).await;
    assert_eq!(reply["is_error"], false, "{tool}: {}", text(&reply));
    text(&reply).to_owned()
}

/// The text of an answer that tells the model to do something else.
async fn refused(session: &Session, tool: &str, arguments: Value) -> String {
    let reply = call(session, tool, arguments).await;
    assert_eq!(reply["is_error"], true, "{tool}: {}", text(&reply));
    text(&reply).to_owned()
}

#[tokio::test]
async fn a_model_writes_reads_edits_compares_and_deletes_a_file() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    assert!(
        done(s, "write", json!({ "path": "src/app.py", "content": "def f():\n    return 1\n" }))
            .await
            .contains("Created")
    );
    assert_eq!(session.sh("cat /workspace/src/app.py").await, "def f():\n    return 1\n");
    let read = done(s, "read", json!({ "path": "src/app.py" })).await;
    assert!(read.contains("     1\tdef f():") && read.contains("     2\t    return 1"), "{read}");

    let edited =
        done(s, "edit", json!({ "path": "src/app.py", "old_string": "return 1", "new_string": "return 2" })).await;
    assert!(edited.contains("-    return 1") && edited.contains("+    return 2"), "{edited}");
    assert_eq!(session.sh("cat /workspace/src/app.py").await, "def f():\n    return 2\n");

    // A program changes it, and `diff` shows what.
    session.sh("echo '# more' >> /workspace/src/app.py").await;
    let diff = done(s, "diff", json!({ "path": "src/app.py" })).await;
    assert!(diff.contains("+# more") && !diff.contains("return 1"), "{diff}");
    session.sh("cp /workspace/src/app.py /workspace/copy.py; echo x >> /workspace/copy.py").await;
    assert!(done(s, "diff", json!({ "path": "src/app.py", "other": "copy.py" })).await.contains("+x"));

    assert!(refused(s, "delete", json!({ "path": "src" })).await.contains("not empty"));
    done(s, "delete", json!({ "path": "src", "recursive": true })).await;
    assert!(refused(s, "read", json!({ "path": "src/app.py" })).await.contains("no such file"));
}

#[tokio::test]
async fn an_edit_that_does_not_fit_says_why_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    session.sh("printf 'a = 1\\nb = 2\\na = 1\\n' > f; chmod 750 f; printf 'x\\r\\ny\\r\\n' > crlf").await;
    let twice = refused(s, "edit", json!({ "path": "f", "old_string": "a = 1", "new_string": "a = 3" })).await;
    assert!(twice.contains("2 times") && twice.contains("replace_all"), "{twice}");
    let near = refused(s, "edit", json!({ "path": "f", "old_string": "b  =  2", "new_string": "b = 3" })).await;
    assert!(near.contains("b = 2") && near.contains('2'), "{near}");
    let edits = json!([{ "old_string": "b = 2", "new_string": "b = 5" }, { "old_string": "nope", "new_string": "x" }]);
    refused(s, "edit", json!({ "path": "f", "edits": edits })).await;
    assert_eq!(session.sh("cat f").await, "a = 1\nb = 2\na = 1\n", "all or none");

    done(s, "edit", json!({ "path": "f", "old_string": "a = 1", "new_string": "a = 3", "replace_all": true })).await;
    assert_eq!(session.sh("cat f; stat -c %a f").await, "a = 3\nb = 2\na = 3\n750\n", "the mode stays");
    done(s, "edit", json!({ "path": "crlf", "old_string": "x\ny", "new_string": "x\nz" })).await;
    assert_eq!(session.sh("od -c crlf | head -1").await, "0000000   x  \\r  \\n   z  \\r  \\n\n", "line endings stay");
}

#[tokio::test]
async fn images_are_images_and_other_bytes_are_told_apart() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    session.sh(&format!("echo {pixel} | base64 -d > p.png; head -c 2000 /dev/zero > zero; : > empty")).await;
    let image = call(&session, "read", json!({ "path": "p.png" })).await;
    assert_eq!(image["content"][1]["media_type"], "image/png");
    assert_eq!(image["content"][1]["data_base64"], pixel);
    assert!(done(&session, "read", json!({ "path": "zero" })).await.contains("binary"));
    assert!(done(&session, "read", json!({ "path": "empty" })).await.contains("empty"));
}

#[tokio::test]
async fn a_tree_is_listed_searched_and_found_without_what_git_ignores() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    session
        .sh("mkdir -p app/src app/node_modules/left/deep app/.git; cd app
             printf 'node_modules/\\n*.log\\n' > .gitignore; echo 'needle here' > src/a.py; echo 'Needle there' > src/b.txt
             echo 'needle hidden' > node_modules/left/deep/x.py; echo 'needle' > run.log; echo 'needle' > .git/config
             printf 'needle\\0binary' > src/bin; ln -s /etc/passwd src/link; cd")
        .await;
    let listed = done(s, "ls", json!({ "path": "app", "depth": 3 })).await;
    assert!(listed.contains("a.py") && listed.contains("link") && !listed.contains("deep"), "{listed}");
    assert!(listed.contains("[2 entries ignored by git left out"), "{listed}");
    let all = done(s, "ls", json!({ "path": "app", "depth": 4, "include_ignored": true })).await;
    assert!(all.contains("deep") && all.contains("run.log"), "{all}");

    let found = call(s, "grep", json!({ "pattern": "needle", "path": "app" })).await;
    assert_eq!(
        (&found["structured"]["files"], &found["structured"]["matches"]),
        (&json!(1), &json!(1)),
        "{}",
        text(&found)
    );
    assert!(text(&found).contains("app/src/a.py") && text(&found).contains("needle here"), "{}", text(&found));
    // What a search prints, `read` takes.
    assert!(done(s, "read", json!({ "path": "app/src/a.py" })).await.contains("needle here"));
    let wide =
        done(s, "grep", json!({ "pattern": "NEEDLE", "ignore_case": true, "path": "app", "mode": "files" })).await;
    assert!(wide.contains("a.py") && wide.contains("b.txt"), "{wide}");
    let typed = done(s, "grep", json!({ "pattern": "(?i)needle", "path": "app", "type": "py" })).await;
    assert!(typed.contains("a.py") && !typed.contains("b.txt"), "{typed}");
    let one = done(s, "grep", json!({ "pattern": "Needle", "path": "app/src/b.txt" })).await;
    assert!(one.contains("Needle there"), "{one}");
    let ignored = done(s, "grep", json!({ "pattern": "needle", "path": "app/node_modules" })).await;
    assert!(ignored.contains("needle hidden"), "who names an ignored directory wants to see it: {ignored}");
    assert!(refused(s, "grep", json!({ "pattern": "(unclosed", "path": "app" })).await.contains("unclosed"));

    let names = call(s, "find", json!({ "path": "app", "pattern": "*.py" })).await;
    assert_eq!(names["structured"]["paths"], json!(["app/src/a.py"]));
    assert!(text(&names).starts_with("app/src/a.py"), "{}", text(&names));
    let directories = done(s, "find", json!({ "path": "app", "type": "directory" })).await;
    assert!(directories.contains("src") && !directories.contains("a.py"), "{directories}");
    assert!(refused(s, "ls", json!({ "path": "nowhere" })).await.contains("no such file"));
}

#[tokio::test]
async fn a_command_tells_its_end_its_directory_and_where_the_rest_is() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    let first = done(s, "bash", json!({ "command": "cd /tmp; export A=7; echo hello" })).await;
    assert!(first.contains("hello") && first.contains("exit code 0, in /tmp"), "{first}");
    let failed = call(s, "bash", json!({ "command": "echo $A; false" })).await;
    assert_eq!((&failed["is_error"], &failed["structured"]["exit_code"]), (&json!(true), &json!(1)));
    assert!(text(&failed).starts_with("7\n"), "{}", text(&failed));

    let long = call(s, "bash", json!({ "command": "for i in $(seq 5000); do echo line $i is fine; done" })).await;
    let id = long["structured"]["exec_id"].as_str().expect("an id").to_owned();
    assert!(text(&long).len() < 2000 && text(&long).contains("shortened"), "{}", text(&long));
    let page = call(s, "output", json!({ "exec_id": id, "from": 0, "max_bytes": 100 })).await;
    assert!(text(&page).starts_with("line 1 is fine\nline 2 is fine\n"), "{}", text(&page));
    let next = page["structured"]["next_from"].as_u64().expect("an offset");
    let rest = call(s, "output", json!({ "exec_id": id, "from": next, "max_bytes": 100 })).await;
    assert_eq!(rest["structured"]["from"], next);

    let late = call(s, "bash", json!({ "command": "sleep 60", "timeout_seconds": 1 })).await;
    assert!(text(&late).contains("timed out") && late["structured"]["timed_out"] == true, "{}", text(&late));
    done(s, "bash", json!({ "restart": true })).await;
    assert!(done(s, "bash", json!({ "command": "echo [$A]" })).await.starts_with("[]\n"), "the shell is new");
}

#[tokio::test]
async fn a_command_tells_what_the_network_denied() {
    if lacks("a_command_tells_what_the_network_denied", Ability::EveryDial) {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let denied = call(&session, "bash", json!({ "command": "getent hosts example.com; true" })).await;
    assert!(text(&denied).contains("denied: example.com"), "{}", text(&denied));
    assert_eq!(denied["structured"]["network_denied"], json!(["example.com"]));
}

#[tokio::test]
async fn commands_in_the_background_are_waited_for_read_and_ended() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    session.sh("mkfifo go; export WHO=me; cd /tmp").await;
    let started = call(
        s,
        "run_background",
        json!({ "command": "echo started by $WHO in $PWD; read x < /workspace/go; echo $x" }),
    )
    .await;
    let id = started["structured"]["exec_id"].clone();
    let running = call(s, "wait", json!({ "exec_id": id, "timeout_seconds": 0 })).await;
    assert_eq!(running["structured"]["is_running"], true, "{}", text(&running));
    // The shell is free meanwhile.
    assert!(done(s, "bash", json!({ "command": "echo word > /workspace/go" })).await.contains("exit code 0"));
    let ended = done(s, "wait", json!({ "exec_id": id })).await;
    assert!(ended.contains("started by me in /tmp") && ended.contains("word"), "{ended}");

    let endless = call(s, "bash", json!({ "command": "sleep 1000", "background": true })).await;
    let id = endless["structured"]["exec_id"].clone();
    // Right after the start, the shell itself may get the signal.
    assert!(done(s, "kill", json!({ "exec_id": id })).await.contains("has ended"));
    let killed = call(s, "wait", json!({ "exec_id": id })).await;
    assert_eq!(killed["structured"]["is_running"], false, "{}", text(&killed));
    let deaf = call(
        s,
        "run_background",
        json!({ "command": "trap '' INT TERM; mkfifo /workspace/deaf; while :; do sleep 1; done" }),
    )
    .await;
    let id = deaf["structured"]["exec_id"].clone();
    session.sh("until test -p /workspace/deaf; do sleep 0.01; done").await;
    let ended = call(s, "kill", json!({ "exec_id": id })).await;
    assert_eq!(
        (&ended["is_error"], &ended["structured"]["is_running"]),
        (&json!(false), &json!(false)),
        "{}",
        text(&ended)
    );
    assert!(refused(s, "wait", json!({ "exec_id": "never" })).await.contains("never"));
    // Shells of background commands do not pile up.
    for _ in 0..70 {
        let one = call(s, "run_background", json!({ "command": "true" })).await;
        assert_eq!(one["is_error"], false, "{}", text(&one));
        done(s, "wait", json!({ "exec_id": one["structured"]["exec_id"] })).await;
    }
}

#[tokio::test]
async fn git_needs_neither_a_pager_nor_a_person() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    if session.exec("git --version").await["exit_code"] != 0 {
        println!("skipped: the image has no git");
        return;
    }
    session
        .sh("cd /workspace; git init -q .; git config user.email a@example.com; git config user.name a; echo 1 > f")
        .await;
    done(s, "git", json!({ "args": "add f" })).await;
    done(s, "git", json!({ "args": ["commit", "-m", "first one"] })).await;
    assert!(done(s, "git", json!({ "args": "git log --oneline" })).await.contains("first one"));
    session.sh("cd /workspace; echo 2 > f").await;
    assert!(done(s, "git", json!({ "args": "diff" })).await.contains("+2"));
    assert!(refused(s, "git", json!({ "args": "push" })).await.contains("exit code"));
}

#[tokio::test]
async fn what_a_hostile_sandbox_has_is_answered_in_time_and_within_bounds() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let s = &session;
    session
        .sh(r"mkfifo fifo; ln -s /proc/self/mem mem; ln -s loop loop; truncate -s 10G huge; printf 'a\xff\xfeb\n' > bytes
              mkdir locked; touch locked/x; chmod 000 locked; head -c 3000000 /dev/zero | tr '\0' x > oneline
              touch $'new\nline' $'\x1b[31mred' $'\xff'; d=.; for i in $(seq 120); do d=$d/d; mkdir $d; done")
        .await;
    assert!(refused(s, "read", json!({ "path": "fifo" })).await.contains("not a regular file"));
    refused(s, "read", json!({ "path": "loop" })).await;
    refused(s, "edit", json!({ "path": "huge", "old_string": "a", "new_string": "b" })).await;
    refused(s, "read", json!({ "path": "locked/x" })).await;
    let reply = call(s, "read", json!({ "path": "huge" })).await;
    assert!(text(&reply).len() < 1000, "{}", text(&reply).len());
    let line = done(s, "read", json!({ "path": "oneline" })).await;
    assert!(line.len() < 70_000, "{}", line.len());
    done(s, "read", json!({ "path": "bytes" })).await;
    let listed = done(s, "ls", json!({})).await;
    assert!(listed.contains("huge") && !listed.contains('\x1b') && !listed.contains("new\nline"), "{listed}");
    let found = done(s, "grep", json!({ "pattern": "(a*)*(a*)*x{10,100}$", "path": "." })).await;
    assert!(found.len() < 70_000, "{}", found.len());
    let everything = call(s, "grep", json!({ "pattern": ".", "path": "/proc" })).await;
    assert!(text(&everything).len() < 200_000, "{}", text(&everything).len());
    assert_eq!(session.sh("echo well").await, "well\n");
}

#[tokio::test]
async fn a_call_that_is_wrong_is_refused_with_what_would_be_right() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for (tool, arguments, hint) in [
        ("reed", json!({}), "did you mean read"),
        ("read", json!({ "file": "x" }), "path (text, required)"),
        ("bash", json!({ "command": 5 }), "command"),
    ] {
        let refused = daemon.post(&session.path(&format!("/tools/{tool}")), arguments).await;
        assert!(refused.text().contains(hint), "{}", refused.text());
        assert_eq!(refused.refused(), InvalidRequest);
    }
    let nobody = daemon.post("/v1/sessions/00000000-000/tools/bash", json!({ "command": "true" })).await;
    assert_eq!(nobody.refused(), SessionNotFound);
    for format in ["openai", "anthropic", "gemini", "mcp"] {
        let listed = daemon.get(&format!("/v1/tools?format={format}")).await.ok();
        assert!(listed.as_array().is_some_and(|tools| tools.len() == 18), "{format}: {listed}");
    }
    assert_eq!(daemon.get("/v1/tools?format=nope").await.refused(), InvalidRequest);
}

#[tokio::test]
async fn an_agent_opens_only_what_the_operator_lets_it_open() {
    let closed = Daemon::start().await;
    let session = closed.session().await;
    let refusal = refused(&session, "network_request", json!({ "hosts": ["api.example.com"] })).await;
    assert!(refusal.contains("network.requests"), "{refusal}");

    let open = Daemon::builder().config("[network]\nrequests = ['*.example.com']\n").start().await;
    let session = open.session().await;
    done(&session, "network_request", json!({ "hosts": ["api.example.com"] })).await;
    let network = open.get(&session.path("/network")).await.ok();
    assert_eq!(network["network"], json!({ "allow": ["api.example.com"] }));
    for more in ["example.org", "10.0.0.1", "api.example.com:22", "*"] {
        let refusal = refused(&session, "network_request", json!({ "hosts": [more] })).await;
        assert!(refusal.contains(more), "{refusal}");
    }
    assert_eq!(
        open.get(&session.path("/network")).await.ok()["network"],
        network["network"],
        "nothing else was opened"
    );
}

#[tokio::test]
async fn a_model_goes_back_to_a_snapshot_and_shows_its_server() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let link = call(&session, "expose_port", json!({ "port": 3000 })).await;
    assert!(link["structured"]["url"].as_str().is_some_and(|url| url.contains("3000-")), "{link}");

    let made = call(&session, "snapshot", json!({ "name": "before" })).await;
    if made["is_error"] == true {
        println!("skipped: no snapshots here: {}", text(&made));
        return;
    }
    session.sh("echo broken > /workspace/f").await;
    let back = call(&session, "restore", json!({ "snapshot_id": made["structured"]["snapshot_id"] })).await;
    let id = back["session_id"].as_str().expect("a session");
    let other = daemon.post(&format!("/v1/sessions/{id}/tools/ls"), json!({})).await.ok();
    assert!(!text(&other).contains('f') || !text(&other).contains("broken"), "{}", text(&other));
    let gone = daemon.post(&format!("/v1/sessions/{id}/tools/read"), json!({ "path": "f" })).await.ok();
    assert_eq!(gone["is_error"], true, "{gone}");
}

#[tokio::test]
async fn an_image_with_nothing_but_a_shell_has_the_file_tools() {
    if lacks("an_image_with_nothing_but_a_shell_has_the_file_tools", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let root = rootfs();
    let path = root.path().to_str().expect("text");
    Cove::of(&daemon).run(&["image", "import", "small", path]).await.ok();
    let session = daemon.create(json!({ "image": "small" })).await;
    let s = &session;
    for program in ["grep", "find", "diff", "rg", "sed", "git"] {
        assert_ne!(session.exec(&format!("command -v {program}")).await["exit_code"], 0, "the image has {program}");
    }
    done(s, "write", json!({ "path": "a/b.txt", "content": "one\ntwo\n" })).await;
    done(s, "edit", json!({ "path": "a/b.txt", "old_string": "two", "new_string": "three" })).await;
    assert!(done(s, "grep", json!({ "pattern": "thr.e" })).await.contains("a/b.txt"));
    assert!(done(s, "find", json!({ "pattern": "*.txt" })).await.contains("a/b.txt"));
    assert!(done(s, "ls", json!({ "path": "/etc" })).await.contains("mark"));
    assert!(done(s, "read", json!({ "path": "a/b.txt" })).await.contains("three"));
    assert!(done(s, "diff", json!({ "path": "a/b.txt", "other": "/etc/mark" })).await.contains("-one"));
    assert!(refused(s, "git", json!({ "args": "status" })).await.contains("git"));
    done(s, "delete", json!({ "path": "a", "recursive": true })).await;
}
