//! Numbers that the whole host shares: terminals, open files, processes. One session cannot take all of them.

use std::time::{Duration, Instant};

use e2e::daemon::{Daemon, cgroups_of, engine};
use e2e::{is_root, skipped};
use serde_json::json;

/// Opens terminals until there are no more, prints how many there were, and keeps them.
const TAKE_TERMINALS: &str = "python3 -c 'import os,time
n=[]
try:
  while True: n.append(os.openpty())
except OSError: print(len(n),flush=True)
time.sleep(60)'";

#[tokio::test]
async fn one_session_cannot_take_all_terminals() {
    if engine().is_some() {
        return skipped(
            "the number of terminals",
            "an engine mounts /dev/pts without a limit, and has no option for one",
        );
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "pids": 32 } })).await;
    // Each terminal takes two files, and those are not what stops the program.
    let files: u64 = session.sh("ulimit -n").await.trim().parse().expect("a number");
    assert!(files > 4 * 128, "{files}");
    let mut taking = session.stream(json!({ "cmd": TAKE_TERMINALS })).await;
    let taken = String::from_utf8_lossy(&taking.until("chunk").await.bytes()).into_owned();
    assert!(taken.trim().parse::<u64>().is_ok_and(|count| (64..=128).contains(&count)), "{taken:?}");
    // While they are open, another session still has terminals.
    assert_eq!(daemon.session().await.sh("python3 -c 'import os; os.openpty(); print(1)'").await, "1\n");
    session.destroy().await;
    drop(taking);
    daemon.stop().await;
}

/// Makes instances of inotify until there are no more, prints how many there were, and keeps them.
const TAKE_INOTIFY: &str = "python3 -c 'import ctypes,time
c=ctypes.CDLL(None);n=0
while c.inotify_init()>=0: n+=1
print(n,flush=True);time.sleep(60)'";

#[tokio::test]
async fn a_session_that_takes_all_instances_of_inotify_takes_only_its_own() {
    if !is_root() {
        return skipped("instances of inotify", "the sandboxes of an ordinary user count as that user's");
    }
    if engine().is_some() {
        return skipped("instances of inotify", "containers have the user ids of the engine");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut taking = session.stream(json!({ "cmd": TAKE_INOTIFY })).await;
    let taken = String::from_utf8_lossy(&taking.until("chunk").await.bytes()).into_owned();
    // The control: they are limited at all.
    assert!(taken.trim().parse::<u64>().is_ok_and(|count| count > 0), "{taken:?}");
    let one = "import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)";
    assert_eq!(daemon.session().await.sh(&format!("python3 -c '{one}'")).await, "True\n");
    let host = std::process::Command::new("python3").args(["-c", one]).output().expect("python3 is installed");
    assert_eq!(String::from_utf8_lossy(&host.stdout), "True\n", "the host's root has none left");
    session.destroy().await;
    drop(taking);
    daemon.stop().await;
}

/// Opens as many files as may be open, in as many processes as there may be, and prints the number.
const OPEN_FILES: &str = "python3 -c 'import os,sys,time
r,w=os.pipe();n=0
while n<250:
  try: pid=os.fork()
  except OSError: break
  if pid==0:
    k=0
    try:
      while True: os.open(\"/dev/null\",0);k+=1
    except OSError: pass
    os.write(w,k.to_bytes(8,\"little\"));time.sleep(60)
  n+=1
print(n,sum(int.from_bytes(os.read(r,8),\"little\") for i in range(n)),flush=True)
os._exit(0)'";

/// The processor time that all sandboxes of a daemon have used, on either version of cgroups.
fn processor_time(daemon: &Daemon) -> Option<Duration> {
    let read = |name: &str| {
        let places = cgroups_of(&daemon.data_dir());
        places.iter().find_map(|place| std::fs::read_to_string(place.join(name)).ok())
    };
    let nanoseconds = read("cpuacct.usage").and_then(|text| text.trim().parse().ok()).map(Duration::from_nanos);
    let usage = || read("cpu.stat")?.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok());
    nanoseconds.or_else(|| usage().map(Duration::from_micros))
}

#[tokio::test]
async fn a_session_with_all_its_files_open_is_bounded_and_ends() {
    if !is_root() {
        return skipped("open files", "limits by cgroups need root");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let output = session.sh(OPEN_FILES).await;
    let numbers: Vec<u64> = output.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    println!("{} processes opened {} files", numbers[0], numbers[1]);
    assert!(numbers[0] > 200, "{numbers:?}");
    assert!(numbers[1] <= 1 << 18, "{numbers:?}");
    let (start, before) = (Instant::now(), processor_time(&daemon));
    session.destroy().await;
    // How long it takes depends on the machine, and on what else it does.
    let took = before.zip(processor_time(&daemon)).map(|(before, after)| after.saturating_sub(before));
    println!("destroyed in {:?}, with {took:?} of processor time", start.elapsed());
    daemon.stop().await;
}

#[tokio::test]
async fn all_sandboxes_together_leave_the_host_processes() {
    if !is_root() || engine().is_some() {
        return skipped("the total of processes", "it is a limit of the local runtime of root");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "pids": 32768 } })).await;
    let host: u64 = ["pid_max", "threads-max"]
        .map(|name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).expect("readable"))
        .map(|text| text.trim().parse::<u64>().expect("a number"))
        .into_iter()
        .min()
        .expect("two");
    let places = cgroups_of(&daemon.data_dir());
    let total = places.iter().find_map(|place| std::fs::read_to_string(place.join("pids.max")).ok());
    let total: u64 = total.expect("a limit of processes").trim().parse().expect("a number");
    assert!(total < host && total >= host / 2, "{total} of {host}");
    session.destroy().await;
    daemon.stop().await;
}
