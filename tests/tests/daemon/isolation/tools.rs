//! The language runtimes, build tools, editors and debuggers of this host, in a sandbox: the system call filter and the files that are
//! shown leave them what they need. A tool that the sandbox does not see is skipped.

use e2e::daemon::{Daemon, is_local_only};
use e2e::skipped;
use serde_json::json;

/// A tool, and a script that uses much of it. Each prints `well` in its last line.
const TOOLS: [(&str, &str); 17] = [
    (
        "python3",
        "python3 -c '
import asyncio, concurrent.futures, multiprocessing, sqlite3, ssl, subprocess, threading, zoneinfo
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1]) == [1]
with concurrent.futures.ThreadPoolExecutor() as threads: threads.submit(sqlite3.connect, \":memory:\").result()
async def main(): await (await asyncio.create_subprocess_exec(\"true\")).wait()
asyncio.run(main())
assert ssl.create_default_context().get_ca_certs() or not ssl.get_default_verify_paths().cafile
print(subprocess.check_output([\"echo\", \"well\"]).decode(), end=\"\")'",
    ),
    (
        "node",
        "node -e '
const { Worker } = require(\"worker_threads\"), fs = require(\"fs\");
const server = require(\"http\").createServer((request, response) => response.end(\"well\"));
const ask = () => fetch(`http://127.0.0.1:${server.address().port}/`).then(answer => answer.text());
const end = text => { console.log(text); server.close() };
fs.watch(\"/tmp\").close();
server.listen(0, \"127.0.0.1\", () =>
  new Worker(\"require(`child_process`).execSync(`true`)\", { eval: true }).on(\"exit\", () => ask().then(end)))'",
    ),
    (
        "gcc",
        "printf '#include <stdio.h>\\nint main(void) { puts(\"well\"); return 0; }\\n' > hello.c &&
         gcc -g -O1 hello.c -o hello && ./hello",
    ),
    (
        "make",
        "printf 'all: a b\\na b:\\n\\ttouch $@\\n' > Makefile && make -j4 >/dev/null && ls a b >/dev/null && echo well",
    ),
    // Compiling Go's own library would take too long; these are programs in Go.
    ("go", "printf 'package main' | gofmt | grep -q main && go env GOROOT >/dev/null && echo well"),
    (
        "java",
        "printf 'public class H { public static void main(String[] a) throws Exception {
         Thread t = new Thread(() -> System.out.println(\"well\")); t.start(); t.join(); System.gc(); } }' > H.java &&
         java -Xmx256m -XX:TieredStopAtLevel=1 H.java",
    ),
    (
        "rustc",
        "printf 'fn main() { std::thread::spawn(|| println!(\"well\")).join().unwrap() }' > r.rs && rustc r.rs && ./r",
    ),
    (
        "git",
        "git init -q r && cd r && echo x > f && git add f &&
         git -c user.name=a -c user.email=a@b commit -qm well && git gc -q && git log --format=%s",
    ),
    (
        "perl",
        "perl -MPOSIX -MSocket -e 'my $p = fork; if (!$p) { exit 0 } waitpid $p, 0;
         print strftime(\"%Z\", localtime) ? \"well\\n\" : \"\"'",
    ),
    ("vim", "printf 'bad\\n' > v && TERM=dumb vim -es -c '%s/bad/well/' -c wq v; cat v"),
    ("less", "echo well | less"),
    ("man", "manpath >/dev/null && echo well"),
    ("tar", "mkdir -p t && echo well > t/f && tar -cf - --xattrs t | gzip | tar -xzf - -C /tmp && cat /tmp/t/f"),
    ("openssl", "openssl rand -hex 4 >/dev/null && echo well"),
    // Both fall back to the one way to trace a child that needs no profile.
    ("strace", "strace -f -o trace bash -c '/bin/true; echo well' && grep -q execve trace"),
    (
        "gdb",
        "HOME=/tmp gdb -q -batch -nx -ex starti -ex bt -ex continue --args /bin/echo well 2>&1 | grep -o well | tail -n 1",
    ),
    ("mvn", "mvn -v >/dev/null 2>&1 && echo && echo well"),
];

#[tokio::test]
async fn the_usual_tools_of_the_host_work_in_a_sandbox() {
    if is_local_only("the_usual_tools_of_the_host_work_in_a_sandbox", "a container has the tools of its image") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().create(json!({ "resources": { "memory_mb": 2048, "disk_mb": 1024 } })).await;
    session.sh("PATH=$PATH:/usr/local/go/bin").await;
    let mut failed = Vec::new();
    for (tool, script) in TOOLS {
        if session.exec(&format!("command -v {tool}")).await["exit_code"] != 0 {
            skipped(tool, "a sandbox of this host does not have it");
            continue;
        }
        let reply = session.exec(&format!("(cd /workspace && {script})")).await;
        let printed = reply["output"].as_str().unwrap_or_default();
        if reply["exit_code"] != 0 || printed.lines().last() != Some("well") {
            failed.push((tool, reply));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    daemon.stop().await;
}
