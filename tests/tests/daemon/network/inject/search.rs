//! A search for the value of a secret everywhere that a sandbox can read, and everywhere that people may read later.

use std::path::Path;

use serde_json::json;

use super::{SecureWorld, bearer, prints};

const VALUE: &str = "s3cr3t-9f1c7d52b0e84a6f";
/// A value that is in the sandbox, to show that the search finds one.
const PLANTED: &str = "plant3d-77aa10c4d2";

/// Uses the secret, then looks for words in everything that it can read: its own memory and that of others, environments, files. The words
/// come reversed and are looked for in reversed data, so that the search does not find itself. Each place is printed with the word's number.
const SEARCH: &str = r#"
import os, sys, urllib.request
held = [urllib.request.urlopen('https://api.example.com/bytes/100000').read() for _ in range(5)]
words = [word.encode() for word in sys.argv[1:]]
def report(place, data):
    data = data[::-1]
    for number, word in enumerate(words):
        if word in data: print('FOUND', number, place)
own, looked = str(os.getpid()), {'own': 0, 'others': 0, 'files': 0}
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    for name in ('environ', 'cmdline'):
        try: report(f'/proc/{pid}/{name}', open(f'/proc/{pid}/{name}', 'rb').read())
        except OSError: pass
    try: maps, memory = open(f'/proc/{pid}/maps').readlines(), open(f'/proc/{pid}/mem', 'rb', buffering=0)
    except OSError: continue
    for line in maps:
        fields = line.split()
        if 'r' not in fields[1] or fields[-1].startswith('[v'): continue
        begin, end = (int(part, 16) for part in fields[0].split('-'))
        try:
            memory.seek(begin)
            data = memory.read(min(end - begin, 32 << 20))
        except (OSError, ValueError, OverflowError): continue
        report(f'/proc/{pid}/mem {fields[-1]}', data)
        looked['own' if pid == own else 'others'] += 1
for top in ('/workspace', '/tmp', '/var/tmp', '/home', '/run', '/dev/shm', '/etc'):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.isfile(path): continue
            try: report(path, open(path, 'rb').read(32 << 20))
            except OSError: continue
            looked['files'] += 1
print('LOOKED', looked['own'] > 10, looked['files'] > 10, looked)
"#;

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// The files below a directory that contain the value.
fn files_with(directory: &Path, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_with(&path, value));
        } else if entry.file_type().is_ok_and(|kind| kind.is_file())
            && std::fs::read(&path).is_ok_and(|bytes| contains(&bytes, value))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

fn contains(bytes: &[u8], value: &str) -> bool {
    memchr::memmem::find(bytes, value.as_bytes()).is_some()
}

#[tokio::test]
async fn no_sandbox_no_log_and_no_answer_contains_the_value() {
    let Some(world) = SecureWorld::start("a search for a secret").await else { return };
    world.set_secret("token", VALUE).await;
    let session = world.session().await;
    // A program that has used it and still runs, beside the search, which uses it too.
    session
        .sh(&format!(
            "export PLANTED={PLANTED}; echo {PLANTED} > /tmp/planted; (python3 -c '
import urllib.request, time
held = [urllib.request.urlopen(\"https://api.example.com/held\").read() for _ in range(5)]
print(\"ready\", flush=True); time.sleep(600)' > /tmp/ready 2>&1 &)"
        ))
        .await;
    e2e::wait_until("the program has used it", e2e::DEADLINE, async || {
        session.sh("cat /tmp/ready").await.contains("ready").then_some(())
    })
    .await;
    // A server that sends the header back in a header does not bring it into the sandbox.
    let echoed = prints(&session, "curl -sSi -o /dev/null -D - https://api.example.com/echo").await;
    assert!(echoed.contains("[redacted]") && !echoed.contains(VALUE), "{echoed}");
    session.put("search.py", SEARCH).await.ok();
    let output = prints(&session, &format!("python3 search.py {} {}", reversed(VALUE), reversed(PLANTED))).await;
    assert!(output.contains("LOOKED True True"), "it looked at too little: {output}");
    assert_eq!(world.server.header("/bytes/100000", "authorization").len(), 5);
    assert!(!output.contains("FOUND 0"), "the secret is in the sandbox: {output}");
    // The control: the same search finds what is there, in a file, an environment and memory.
    for place in ["/environ", "/mem", "/tmp/planted"] {
        let found = output.lines().any(|line| line.starts_with("FOUND 1") && line.contains(place));
        assert!(found, "the search does not find what is in {place}: {output}");
    }
    // Everything that people may read: answers, metrics, logs, the data directory.
    let (path, daemon) = (session.path(""), &world.daemon);
    for route in
        [&path, &format!("{path}/network"), &format!("{path}/network/log"), "/v1/secrets", "/metrics", "/v1/sessions"]
    {
        let text = daemon.get(route).await.text();
        assert!(!text.contains(VALUE), "{route}: {text}");
    }
    let refused = daemon.put("/v1/secrets/bad", json!({ "value": format!("{VALUE}\n") })).await;
    assert!(refused.status == 400 && !refused.text().contains(VALUE));
    let refused = daemon.post("/v1/sessions", json!({ "network": "none", "inject": bearer() })).await;
    assert!(refused.status == 400 && !refused.text().contains(VALUE));
    assert!(!daemon.log().contains(VALUE), "the daemon's log");
    for process in e2e::procfs::all() {
        let of = |name: &str| std::fs::read(format!("/proc/{}/{name}", process.pid)).unwrap_or_default();
        for name in ["cmdline", "environ"] {
            // This test itself has the value.
            let is_ours = process.pid == i32::try_from(std::process::id()).expect("a pid");
            assert!(is_ours || !contains(&of(name), VALUE), "{name} of {}", process.pid);
        }
    }
    let files = files_with(daemon.directory(), VALUE);
    let own = daemon.data_dir().join("secrets/default/token.json").display().to_string();
    assert_eq!(files, [own], "only the secret's own file has it, which is also the control of this search");
    world.daemon.stop().await;
}
