//! Files go in and come out unchanged, with any size and any name, and nothing is written outside of its place.

use e2e::daemon::{Ability, Daemon, Pattern, Session, engine};
use e2e::{DEADLINE, LONG_DEADLINE, procfs, wait_until};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, FileNotFound, InvalidRequest};

use crate::calls::archives;

const GIB: u64 = 1 << 30;

/// The most memory of a process while gigabytes pass through it, in KiB.
const MAX_DAEMON_KIB: u64 = 100 << 10;
const MAX_RUNNER_KIB: u64 = 32 << 10;

#[tokio::test]
async fn what_is_put_is_what_is_got() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let binary: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    for content in [Vec::new(), b"text\n".to_vec(), vec![0], binary] {
        let answer = session.put("dir/file", content.clone()).await;
        assert_eq!((answer.status, &answer.json()["bytes"]), (201, &json!(content.len())), "{}", answer.text());
        let got = session.get("dir/file").await;
        assert_eq!(got.status, 200);
        assert!(got.body == content, "{} bytes came back as {}", content.len(), got.body.len());
        assert_eq!(got.header("content-type"), "application/octet-stream");
        assert_eq!(got.header("content-length"), content.len().to_string());
        assert_eq!(session.sh("stat -c %s dir/file").await.trim(), content.len().to_string());
    }
    let absolute = session.put("/tmp/absolute", "x").await;
    assert_eq!(absolute.status, 201);
    assert_eq!(session.sh("cat /tmp/absolute").await, "x");
    assert_eq!(session.get("%2Ftmp%2Fabsolute").await.text(), "x");
    daemon.send(Method::PUT, &session.path("/files/run.sh?mode=755"), "#!/bin/sh\necho ran\n").await.ok();
    assert_eq!(session.sh("./run.sh").await, "ran\n");
    let head = daemon.send(Method::HEAD, &session.path("/files/run.sh"), "").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "19", 0));
    daemon.stop().await;
}

#[tokio::test]
async fn parts_of_a_file_are_to_be_had() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.put("digits", "0123456789").await.ok();
    for (range, expected, of) in
        [("0-3", "0123", "0-3"), ("4-", "456789", "4-9"), ("9-9", "9", "9-9"), ("5-100", "56789", "5-9")]
    {
        let api = daemon.with_header("range", &format!("bytes={range}"));
        let part = api.get(&session.path("/files/digits")).await;
        assert_eq!((part.status, part.text().as_str()), (206, expected), "{range}");
        assert_eq!(part.header("content-range"), format!("bytes {of}/10"), "{range}");
    }
    for range in ["bytes=10-", "bytes=x-y", "bytes=5-3", "lines=1-2"] {
        let answer = daemon.with_header("range", range).get(&session.path("/files/digits")).await;
        assert!(answer.status == 200 || (400..500).contains(&answer.status), "{range}: {}", answer.status);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_gibibyte_goes_in_and_out_and_nobody_grows() {
    let daemon = Daemon::start().await;
    // On an engine, /workspace is one of five disks that share the memory.
    let memory_mb = if engine().is_some() { 4096 } else { 2048 };
    let resources = json!({ "disk_mb": 1200, "memory_mb": memory_mb });
    let session = daemon.create(json!({ "resources": resources })).await;
    let start = std::time::Instant::now();
    let answer = daemon.put_pattern(&session.path("/files/big"), GIB).await.expect("an answer");
    assert_eq!((answer.status, &answer.json()["bytes"]), (201, &json!(GIB)));
    let (put_took, start) = (start.elapsed(), std::time::Instant::now());
    let response = daemon.open(Method::GET, &session.path("/files/big"), "").await.expect("an answer");
    let mut body = response.into_body();
    let mut received = 0;
    while let Some(frame) = tokio::time::timeout(LONG_DEADLINE, body.frame()).await.expect("more in time") {
        let data = frame.expect("the connection holds").into_data().unwrap_or_default();
        assert!(Pattern::has(received, &data), "wrong bytes behind {received}");
        received += u64::try_from(data.len()).expect("small");
    }
    assert_eq!(received, GIB);
    let peaks = [daemon.pid(), daemon.runner_pid(&session)].map(|pid| procfs::status_kib(pid, "VmHWM"));
    println!("1 GiB in {put_took:?} in, {:?} out; peaks of daemon and runner: {peaks:?} KiB", start.elapsed());
    assert!(peaks[0] < MAX_DAEMON_KIB, "{peaks:?} KiB");
    if Ability::RunnerOnHost.is_there("the runner's memory") {
        assert!(peaks[1] < MAX_RUNNER_KIB, "{peaks:?} KiB");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_is_there_whole_or_not_at_all() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "disk_mb": 8 } })).await;
    session.put("file", "old").await.ok();
    // This is more than fits.
    let answer = daemon.put_pattern(&session.path("/files/file"), 20 << 20).await;
    if let Ok(answer) = answer {
        assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
        answer.refused();
    }
    assert_eq!(session.get("file").await.text(), "old");
    // This client disconnects halfway.
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: 1000000\r\n\r\nhalf",
        session.path("/files/file"),
        daemon.address,
        daemon.key.as_deref().expect("a key")
    );
    use tokio::io::AsyncWriteExt as _;
    let mut stream = tokio::net::TcpStream::connect(daemon.address).await.expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("a request");
    drop(stream);
    wait_until("nothing but the file is left", DEADLINE, async || {
        (session.sh("ls -A").await == "file\n").then_some(())
    })
    .await;
    assert_eq!(session.get("file").await.text(), "old");
    daemon.stop().await;
}

#[tokio::test]
async fn a_name_can_have_any_bytes() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let names: [&[u8]; 9] = [
        b"with space",
        b"new\nline",
        b"\xff\xfe not utf-8",
        "ünïcödé 🦀".as_bytes(),
        b"-rf",
        b"a+b&c=d?e#f%",
        b"'\"$`\\",
        b"...",
        b"\x01\x7f",
    ];
    for name in names {
        let encoded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        session.put(&format!("names/{encoded}"), name.to_vec()).await.ok();
        assert_eq!(session.get(&format!("names/{encoded}")).await.body, name);
        let stat = daemon.get(&session.path(&format!("/fs/stat?path=names/{encoded}"))).await.ok();
        assert_eq!(stat["size"], name.len(), "{stat}");
    }
    let list = daemon.get(&session.path("/fs/list?path=names")).await.ok();
    let listed: std::collections::BTreeSet<Vec<u8>> =
        list["entries"].as_array().expect("a list").iter().map(bytes_of).collect();
    assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
    // Each file contains its own name, so the shell can confirm the names.
    assert_eq!(
        session
            .sh(r#"cd names; for f in * ...; do printf %s "$f" | cmp - "./$f" || exit 1; done; ls -A | wc -l; cd .."#)
            .await,
        "10\n"
    );
    for name in names {
        let encoded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        daemon.delete(&session.path(&format!("/fs?path=names/{encoded}"))).await.ok();
    }
    assert_eq!(session.sh("ls -A names").await, "");
    daemon.stop().await;
}

fn bytes_of(entry: &Value) -> Vec<u8> {
    use base64::Engine as _;
    match entry["path_base64"].as_str() {
        Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64"),
        None => entry["path"].as_str().expect("a path").as_bytes().to_vec(),
    }
}

#[tokio::test]
async fn directories_are_made_listed_moved_and_deleted() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let post = async |rest: &str, body: Value| daemon.post(&session.path(rest), body).await;
    let get = async |rest: &str| daemon.get(&session.path(rest)).await;
    assert_eq!(post("/fs/mkdir", json!({ "path": "a/b" })).await.refused(), FileNotFound);
    assert_eq!(post("/fs/mkdir", json!({ "path": "a/b", "parents": true })).await.status, 201);
    assert_eq!(post("/fs/mkdir", json!({ "path": "a/b" })).await.refused(), Conflict);
    session.put("a/b/f", "content").await.ok();
    session.sh("ln -s /etc/passwd a/link; mkfifo a/fifo").await;
    let list = get("/fs/list?path=a&recursive=1").await.ok();
    let shown: Vec<String> = list["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| format!("{} {}", entry["path"].as_str().expect("a path"), entry["kind"].as_str().expect("a kind")))
        .collect();
    assert_eq!(shown, ["b directory", "b/f file", "fifo fifo", "link symlink"]);
    let link = get("/fs/stat?path=a/link&follow=0").await.ok();
    assert_eq!((&link["kind"], &link["symlink_target"]), (&json!("symlink"), &json!("/etc/passwd")), "{link}");
    assert_eq!(get("/fs/stat?path=a/link").await.ok()["kind"], "file");
    assert_eq!(post("/fs/move", json!({ "from": "a/b/f", "to": "g" })).await.status, 200);
    session.put("h", "other").await.ok();
    assert_eq!(post("/fs/move", json!({ "from": "g", "to": "h" })).await.refused(), Conflict);
    assert_eq!(post("/fs/move", json!({ "from": "g", "to": "h", "overwrite": true })).await.status, 200);
    assert_eq!(session.get("h").await.text(), "content");
    assert_eq!(daemon.delete(&session.path("/fs?path=a")).await.refused(), Conflict);
    daemon.delete(&session.path("/fs?path=a&recursive=1")).await.ok();
    assert_eq!(session.sh("ls -A").await, "h\n");
    assert_eq!(session.sh("head -1 /etc/passwd | cut -d: -f1").await, "root\n");
    for rest in ["/fs/stat?path=no", "/fs/list?path=no", "/fs/read?path=no", "/files/no", "/archive?path=no"] {
        assert_eq!(get(rest).await.refused(), FileNotFound, "{rest}");
    }
    assert_eq!(daemon.delete(&session.path("/fs?path=no")).await.refused(), FileNotFound);
    daemon.stop().await;
}

#[tokio::test]
async fn small_files_go_as_json() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let write = async |body: Value| daemon.post(&session.path("/fs/write"), body).await;
    write(json!({ "path": "text", "text": "ü\n" })).await.ok();
    write(json!({ "path": "/tmp/binary", "content_base64": "AP8=" })).await.ok();
    write(json!({ "path": "empty", "text": "" })).await.ok();
    write(json!({ "path": "empty2", "content_base64": "" })).await.ok();
    let read = async |query: &str| daemon.get(&session.path(&format!("/fs/read?path={query}"))).await.ok();
    assert_eq!(read("text").await["content_base64"], "w7wK");
    assert_eq!(read("/tmp/binary").await["content_base64"], "AP8=");
    assert_eq!(read("empty").await["content_base64"], "");
    assert_eq!(read("empty2").await["truncated"], false);
    let cut = read("text&max_bytes=2").await;
    assert_eq!((&cut["content_base64"], &cut["truncated"]), (&json!("w7w="), &json!(true)));
    for bad in [
        json!({ "path": "x" }),
        json!({ "path": "x", "text": "a", "content_base64": "YQ==" }),
        json!({ "path": "x", "content_base64": "!" }),
        json!({ "path": "", "text": "a" }),
        json!({ "path": "a\u{0}b", "text": "a" }),
    ] {
        assert_eq!(write(bad.clone()).await.refused(), InvalidRequest, "{bad}");
    }
    assert_eq!(session.sh("ls").await, "empty\nempty2\ntext\n");
    daemon.stop().await;
}

/// A form as Sandkasten's SDK and browsers send it.
fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in parts {
        let file = file
            .map(|file| format!("; filename=\"{file}\"\r\nContent-Type: application/octet-stream"))
            .unwrap_or_default();
        body.extend_from_slice(
            format!("--frontier\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes(),
        );
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--frontier--\r\n");
    body
}

#[tokio::test]
async fn files_are_uploaded_as_a_form() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let api = daemon.with_header("content-type", "multipart/form-data; boundary=frontier");
    let upload = async |parts: &[(&str, Option<&str>, &[u8])]| {
        api.send(Method::POST, &session.path("/fs/upload"), form(parts)).await
    };
    let big = vec![7_u8; 20 << 20];
    let answer = upload(&[
        ("path", None, b"/workspace/up"),
        ("file", Some("a b.bin"), b"\x00\xff\r\n--frontie"),
        ("file", Some("empty"), b""),
        ("file", Some("big"), &big),
    ])
    .await;
    assert_eq!(
        answer.ok(),
        json!({ "ok": true, "paths": ["/workspace/up/a b.bin", "/workspace/up/empty", "/workspace/up/big"] })
    );
    assert_eq!(session.get("up/a%20b.bin").await.body.as_ref(), b"\x00\xff\r\n--frontie");
    assert!(session.get("up/big").await.body == big);
    assert_eq!(upload(&[("file", Some("alone"), b"x")]).await.ok()["paths"], json!(["/workspace/alone"]));
    assert_eq!(upload(&[("file", Some("late"), b"x"), ("path", None, b"sub")]).await.status, 200);
    // A name that leads to another directory does not work.
    for name in ["../escaped", "/tmp/escaped", "..", "a/../../escaped"] {
        let answer = upload(&[("path", None, b"up"), ("file", Some(name), b"x")]).await;
        assert!(answer.status == 200 || answer.refused() == InvalidRequest, "{name}: {}", answer.text());
    }
    assert_eq!(session.sh("find / -xdev -name escaped -not -path '/workspace/up/*' 2>/dev/null; find /tmp /workspace -name escaped -not -path '/workspace/up/*'").await, "");
    for bad in [&b"nonsense"[..], b"--frontier\r\n", b""] {
        assert_eq!(api.send(Method::POST, &session.path("/fs/upload"), bad.to_vec()).await.refused(), InvalidRequest);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_directory_goes_out_as_tar_and_comes_back_the_same() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh(r"mkdir -p t/empty t/deep/er; echo x > t/f; chmod 750 t/f; ln -s f t/link; ln -s /nowhere t/dangling; ln t/f t/hard; printf '\xff' > t/$'new\nline'; head -c 3M /dev/urandom > t/deep/er/big; touch -d @1000000000 t/deep; name=$(printf 'x%.0s' {1..200}); echo long > t/$name").await;
    let answer = daemon.get(&session.path("/archive?path=t")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/x-tar"));
    let put = daemon.send(Method::PUT, &session.path("/archive?path=copy"), answer.body).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let describe = r"find . -printf '%P %y %m %s %l %T@\n' | sed 's/ d \([0-9]*\) [0-9]*/ d \1/' | LC_ALL=C sort";
    let (one, other) = (
        session.sh(&format!("cd /workspace/t; {describe}")).await,
        session.sh(&format!("cd /workspace/copy; {describe}")).await,
    );
    // The target directory was created by the unpack.
    let below = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with(" d"))
            .map(|line| line.split('.').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(below(&one), below(&other));
    session.sh("diff -r --no-dereference /workspace/t /workspace/copy").await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_archive_gets_nothing_out_of_where_it_is_unpacked() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("echo intact > /workspace/victim").await;
    for (name, archive) in archives::hostile() {
        session.sh("rm -rf /workspace/in; mkdir /workspace/in").await;
        let answer = daemon.send(Method::PUT, &session.path("/archive?path=/workspace/in"), archive).await;
        assert!(
            answer.status == 201 || answer.refused() == InvalidRequest,
            "{name}: {} {}",
            answer.status,
            answer.text()
        );
        println!("{name}: {} {}", answer.status, answer.text());
        // Every file system that can be written to. A search of the host's own files would take as long as they are many.
        let found = session.sh("find / /tmp /var/tmp /home /run /dev /workspace -xdev -name escaped -not -path '/workspace/in/*' 2>/dev/null; grep -rl escaped /tmp /workspace 2>/dev/null | grep -v ^/workspace/in/; cat /workspace/victim").await;
        assert_eq!(found, "intact\n", "{name}");
        let brought = session.sh("find /workspace/in \\( -type b -o -type c \\); cat /workspace/in/stolen 2>/dev/null | grep -c root; true").await;
        assert!(brought.trim() == "0" || brought.is_empty(), "{name}: {brought}");
        assert!(!std::path::Path::new("/tmp/escaped").exists(), "{name} came to the host");
    }
    let mut cut = Vec::new();
    archives::entry(&mut cut, tar::EntryType::Regular, "whole", "", b"whole");
    archives::entry(&mut cut, tar::EntryType::Regular, "cut", "", &[1; 5000]);
    cut.truncate(2500);
    for (what, bad) in [("nonsense", vec![1; 5000]), ("cut", cut)] {
        let answer = daemon.send(Method::PUT, &session.path("/archive?path=bad"), bad).await;
        assert_eq!(answer.refused(), InvalidRequest, "{what}");
    }
    daemon.stop().await;
}

/// While the sandbox keeps swapping a directory and a link, nothing is written where only the link leads.
#[tokio::test]
async fn a_link_swapped_in_during_a_write_leads_nowhere() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let swap = "mkdir -p real; while :; do ln -sfn /etc d 2>/dev/null; rm -f d; mkdir -p d; rm -rf d; ln -sfn /workspace/.. d; rm -f d; done";
    let run = json!({ "argv": ["bash", "-c", swap], "detach": true });
    daemon.post(&session.path("/run"), run).await.ok();
    let before = etc(&session).await;
    let host_before = host_etc();
    let mut written = 0;
    for n in 0..300 {
        let name = format!("d/cove-race-{n}");
        let answer = session.put(&name, "x").await;
        assert!(answer.status == 201 || (400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
        written += i32::from(answer.status == 201);
        let read = session.get("d/shadow").await;
        assert!(read.status != 200, "shadow was read: {}", read.text());
    }
    println!("{written} of 300 found a directory");
    assert_eq!(etc(&session).await, before);
    assert_eq!(host_etc(), host_before);
    assert!(
        !std::fs::read_dir("/")
            .expect("a root")
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("cove-race"))
    );
    daemon.stop().await;
}

async fn etc(session: &Session) -> String {
    session.run(&["ls", "-A", "/etc", "/"]).await["stdout"].as_str().expect("a listing").to_owned()
}

fn host_etc() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir("/etc")
        .expect("an /etc")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn paths_that_lead_out_of_the_workspace_are_refused_unless_they_are_absolute() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for path in ["../x", "a/../../x", "%2e%2e/x", "..%2Fx"] {
        assert_eq!(session.put(path, "x").await.refused(), InvalidRequest, "{path}");
    }
    for path in ["/etc/cove-test", "/usr/bin/cove-test", "/proc/sys/kernel/hostname", "/dev/cove-test", "/run/cove/x"] {
        let answer = session.put(path, "x").await;
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
    }
    for path in ["/dev/zero", "/dev/tty", "/proc/kmsg", "/workspace", "/etc/shadow", "/proc/1/mem"] {
        let answer = session.get(path).await;
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
    }
    session.sh("mkfifo fifo; ln -s loop loop").await;
    for path in ["fifo", "loop"] {
        let answer = session.get(path).await;
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
    }
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.stop().await;
}
