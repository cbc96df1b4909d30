//! Memory that outlives the command which took it, or that nobody is charged for, does not stop a session, its runner or the daemon.

use std::path::PathBuf;

use e2e::daemon::{Ability, Daemon, Session, cgroups_of, engine};
use e2e::{LONG_DEADLINE, is_root, procfs, skipped, wait_until};
use hyper::Method;
use serde_json::json;

/// The sessions that each command is tried in: what the kernel does at a limit is a matter of luck.
const TRIES: usize = 4;

/// Commands that leave as much memory behind as they can, by name. None of it belongs to a process that could be killed.
const LEAVERS: [(&str, &str); 4] = [
    ("content", "for d in /workspace /tmp /var/tmp /home/sandbox /dev/shm; do cat /dev/zero > $d/big; done; true"),
    (
        "names",
        "python3 -c 'import os\nfor d in [\"/workspace\", \"/tmp\"]:\n  try:\n    for i in range(10**6): open(d + \"/\" + \"n\" * 190 + str(i), \"w\").close()\n  except OSError as e: print(e.errno)'; cat /dev/zero > /tmp/big; true",
    ),
    (
        "shared memory",
        "python3 -c 'import ctypes\nc=ctypes.CDLL(None)\nc.shmat.restype=ctypes.c_void_p\nfor i in range(12):\n  s=c.shmget(0,8<<20,0o1600)\n  if s<0: break\n  p=c.shmat(s,0,0)\n  ctypes.memset(p,1,8<<20)\n  c.shmdt(ctypes.c_void_p(p))'; cat /dev/zero > /tmp/big; true",
    ),
    (
        "messages",
        "python3 -c 'import ctypes\nc=ctypes.CDLL(None)\nm=ctypes.create_string_buffer(b\"x\"*8200)\nn=0\nfor i in range(6000):\n  q=c.msgget(0,0o1600)\n  if q<0: break\n  while c.msgsnd(q,m,8000,0o4000)==0: n+=1\nprint(n)'; cat /dev/zero > /tmp/big; true",
    ),
];

#[tokio::test]
async fn a_disk_filled_to_the_limit_of_memory_leaves_the_session_usable() {
    if !is_root() {
        return skipped("a full disk", "limits by cgroups need root");
    }
    let _alone = crate::alone().await;
    // Where files are in memory, they may take nearly all of it.
    let daemon = Daemon::builder().config("[local]\ndisk = \"tmpfs\"\n").start().await;
    leave_and_use(&daemon, 128).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_full_disk_beside_a_small_memory_leaves_the_session_usable() {
    if !is_root() {
        return skipped("a full disk", "limits by cgroups need root");
    }
    if engine().is_some() {
        return skipped("a full disk", "containers keep their files in memory");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    leave_and_use(&daemon, 24).await;
    daemon.stop().await;
}

/// Leaves as much behind as fits, in sessions with a small memory, and checks that each is usable afterwards.
async fn leave_and_use(daemon: &Daemon, disk_mb: u64) {
    for (name, command) in LEAVERS {
        for attempt in 1..=TRIES {
            let resources = json!({ "memory_mb": 128, "disk_mb": disk_mb, "pids": 64 });
            let session = daemon.patient().create(json!({ "resources": resources })).await;
            // It has an inode before all of them are taken.
            session.sh(": > /tmp/big").await;
            let filled = session.ask(json!({ "cmd": command, "timeout_ms": 30000 })).await;
            let place = format!("{name}, session {attempt} of {TRIES}");
            println!("{place}: {} {}", filled.status, filled.text().chars().take(200).collect::<String>());
            if filled.status != 200
                && !Ability::LimitSurvived.is_there("a session that goes on after its limit of memory")
            {
                continue;
            }
            assert_usable(&session, &place).await;
            session.destroy().await;
        }
    }
}

/// The shell, a program beside it, and the file operations all work while the disk is full, and the disk can be emptied.
async fn assert_usable(session: &Session, place: &str) {
    for word in ["one", "two", "three"] {
        let answer = session.ask(json!({ "cmd": format!("echo {word}"), "timeout_ms": 20000 })).await;
        assert_eq!(
            (answer.status, &answer.json()["output"]),
            (200, &json!(format!("{word}\n"))),
            "{place}: {}",
            answer.text()
        );
    }
    assert_eq!(session.run(&["/bin/true"]).await["exit_code"], 0, "{place}");
    let listed = session.api.get(&session.path("/fs/list?path=/tmp")).await;
    assert_eq!(listed.status, 200, "{place}: {}", listed.text());
    let deleted = session.api.send(Method::DELETE, &session.path("/fs?path=/tmp/big"), "").await;
    assert!(deleted.status < 300, "{place}: {} {}", deleted.status, deleted.text());
    session.sh("find /workspace /tmp /var/tmp /home/sandbox /dev/shm -mindepth 1 -delete; echo emptied").await;
    session.put("again", vec![b'x'; 1 << 20]).await.ok();
    assert_eq!(session.view().await["status"], "running", "{place}");
}

/// Fills the buffers of TCP and UDP sockets on loopback until no more fits, and prints how many MiB that are.
const FILL_SOCKETS: &str = "python3 -c 'import socket
l=socket.socket();l.bind((\"127.0.0.1\",0));l.listen(300)
u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);u.bind((\"127.0.0.1\",0))
keep=[];total=0;b=b\"x\"*32768
try:
  for i in range(120):
    c=socket.socket();c.settimeout(2);c.connect(l.getsockname());l.settimeout(2);s,_=l.accept()
    c.setblocking(False);keep+=[c,s]
    try:
      while True: total+=c.send(b)
    except BlockingIOError: pass
except OSError as e: pass
print(total>>20)'";

#[tokio::test]
async fn the_buffers_of_sockets_are_limited_with_the_memory() {
    if !is_root() {
        return skipped("socket buffers", "limits by cgroups need root");
    }
    if engine().is_some() {
        return skipped(
            "socket buffers",
            "an engine does not limit them on cgroup v1, except for all containers together",
        );
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let mut buffered = Vec::new();
    for memory_mb in [128, 1024] {
        let session = daemon.create(json!({ "resources": { "memory_mb": memory_mb, "disk_mb": 32 } })).await;
        let filled = session.exec(FILL_SOCKETS).await;
        // Cgroup v2 counts the buffers as memory, and ends the command at its limit.
        match filled["oom_killed"].as_bool() {
            Some(true) => println!("with {memory_mb} MiB of memory, the command was killed"),
            _ => buffered.push(filled["output"].as_str().expect("text").trim().parse::<u64>().expect("a number")),
        }
        assert_eq!(session.sh("echo usable").await, "usable\n");
        session.destroy().await;
    }
    println!("MiB in socket buffers with 128 and with 1024 MiB of memory: {buffered:?}");
    if let [small, large] = buffered[..] {
        assert!(small <= 128 / 4, "{buffered:?}");
        // The control: with more memory, the same program fills more than the smaller session may have.
        assert!(large > 128 / 4, "{buffered:?}");
    }
    daemon.stop().await;
}

/// The memory that all sandboxes of the next two stories may use together.
const TOTAL_MB: u64 = 600;

/// A daemon that leaves its sandboxes `TOTAL_MB`.
async fn daemon_with_total() -> Daemon {
    let reserve_mb = host_memory_mb() - TOTAL_MB;
    Daemon::builder().config(&format!("[sessions]\nhost_reserve_mb = {reserve_mb}\n")).start().await
}

fn host_memory_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    total.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number") / 1024
}

/// The file with the memory that all sandboxes of a daemon use together, version 1 or 2.
fn usage_file(daemon: &Daemon) -> PathBuf {
    let files = cgroups_of(&daemon.data_dir()).into_iter();
    let mut files = files.flat_map(|place| ["memory.usage_in_bytes", "memory.current"].map(|name| place.join(name)));
    files.find(|path| path.exists()).expect("the cgroup of the daemon's sandboxes")
}

fn used_mb(file: &PathBuf) -> u64 {
    std::fs::read_to_string(file).expect("readable").trim().parse::<u64>().expect("a number") >> 20
}

#[tokio::test]
async fn all_sandboxes_together_leave_the_host_its_reserve() {
    if !is_root() || engine().is_some() {
        return skipped("the total of all sandboxes", "it is a limit of the local runtime of root");
    }
    let _alone = crate::alone().await;
    let daemon = daemon_with_total().await;
    let usage = usage_file(&daemon);
    let hold = "python3 -c 'x=bytearray(b\"x\") * (350 << 20)\nprint(1, flush=True)\nimport time; time.sleep(60)' & wait %1; echo ended $?";
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let session = daemon.create(json!({ "resources": { "memory_mb": 450, "disk_mb": 32 } })).await;
        let holder = session.clone();
        waiting.push((session, tokio::spawn(async move { holder.exec(hold).await })));
    }
    // Each is within its own limit; together they are above the total, so the kernel ends one of the two.
    let ended = wait_until("one of the two is ended", LONG_DEADLINE, async || {
        assert!(used_mb(&usage) <= TOTAL_MB, "{} MiB", used_mb(&usage));
        waiting.iter().position(|(_, holder)| holder.is_finished())
    })
    .await;
    let (session, holder) = waiting.swap_remove(ended);
    let reply = holder.await.expect("the request ends");
    assert!(reply["output"].as_str().is_some_and(|output| output.contains("ended 137")), "{reply}");
    assert_eq!(daemon.get("/healthz").await.status, 200);
    assert_eq!(session.sh("echo usable").await, "usable\n");
    for (session, holder) in waiting {
        holder.abort();
        session.destroy().await;
    }
    daemon.stop().await;
}

/// Takes descriptors that others send to a socket in the workspace, and keeps them.
const KEEP: &str = "python3 -c 'import socket,os
l=socket.socket(socket.AF_UNIX);l.bind(\"/workspace/s\");l.listen(9);kept=[]
while True:
  c,_=l.accept();kept+=socket.recv_fds(c,1,1)[1];c.send(b\"k\");c.close()'";

/// Makes a file of 150 MiB that is in no directory, and sends its descriptor there.
const SEND: &str = "python3 -c 'import socket,os
f=os.memfd_create(\"m\")
for i in range(150): os.write(f,b\"x\"*(1<<20))
c=socket.socket(socket.AF_UNIX);c.connect(\"/workspace/s\");socket.send_fds(c,[b\"f\"],[f]);c.recv(1)'";

#[tokio::test]
async fn memory_that_one_session_keeps_for_others_counts_in_the_total() {
    if !is_root() || engine().is_some() {
        return skipped("the total of all sandboxes", "it is a limit of the local runtime of root");
    }
    let _alone = crate::alone().await;
    let daemon = daemon_with_total().await;
    let usage = usage_file(&daemon);
    let keeper = daemon.create(json!({ "workspace_id": "shared", "resources": { "memory_mb": 128 } })).await;
    let keeping = {
        let keeper = keeper.clone();
        tokio::spawn(async move { keeper.ask(json!({ "cmd": KEEP })).await })
    };
    wait_until("the socket is there", LONG_DEADLINE, async || {
        (keeper.run(&["test", "-S", "/workspace/s"]).await["exit_code"] == 0).then_some(())
    })
    .await;
    let mut most = 0;
    for _ in 0..6 {
        let maker = daemon.create(json!({ "workspace_id": "shared", "resources": { "memory_mb": 256 } })).await;
        let sent = maker.exec(SEND).await;
        maker.destroy().await;
        println!("sent: {}, in use: {} MiB", sent["exit_code"], used_mb(&usage));
        most = most.max(used_mb(&usage));
        assert!(used_mb(&usage) <= TOTAL_MB, "{} MiB", used_mb(&usage));
    }
    // The control: the makers' memory did outlive them, until the total was reached.
    assert!(most > 300, "{most} MiB at most");
    assert_eq!(daemon.get("/healthz").await.status, 200);
    assert_eq!(daemon.session().await.sh("echo usable").await, "usable\n");
    keeper.destroy().await;
    let _ = keeping.await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_kernel_chooses_a_command_before_its_runner_and_a_runner_before_the_daemon() {
    if !is_root() {
        return skipped("oom scores", "the scores of another user's processes are not ours to look at");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let score = |pid: i32| -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("the process lives");
        text.trim().parse().expect("a number")
    };
    let command: i32 = session.sh("cat /proc/self/oom_score_adj").await.trim().parse().expect("a number");
    if !Ability::RunnerOnHost.is_there("the runner's score") {
        return daemon.stop().await;
    }
    let (runner, own) = (score(daemon.runner_pid(&session)), score(daemon.pid()));
    assert!(command > runner && runner > own, "command {command}, runner {runner}, daemon {own}");
    // What a command may lower its score to is up to a capability that not every root has.
    let lowered = session.exec("echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj").await;
    let has_capability = procfs::status_text(daemon.pid(), "CapEff");
    let has_capability = u64::from_str_radix(&has_capability, 16).expect("a number") & (1 << 24) != 0;
    if has_capability {
        assert!(lowered["output"].as_str().is_some_and(|output| output.contains("Permission denied")), "{lowered}");
    } else {
        skipped("the floor of a command's score", "this root does not have CAP_SYS_RESOURCE");
    }
    daemon.stop().await;
}
