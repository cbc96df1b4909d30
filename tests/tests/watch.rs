//! A watch tells every change below a directory, or says that it lost some; it ends with its directory or its client.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::http::Lines;
use e2e::procfs::{self, Process};
use e2e::{DEADLINE, LONG_DEADLINE, Runner, is_root, skipped, wait_until};
use http_body_util::Full;
use hyper::{Method, Request};
use nix::sys::signal::Signal;
use shared_protocol::ErrorCode::{FileNotFound, Forbidden, InvalidRequest, LimitReached};
use shared_protocol::runner::ChangeKind::{Created, Deleted, Modified, Moved};
use shared_protocol::runner::{ChangeKind, FileChange, WatchEnd, WatchFrame};

/// The most watches of a runner, as its documents say.
const MAX_WATCHES: usize = 16;

struct Watch {
    lines: Lines,
}

impl Watch {
    async fn start(runner: &Runner, query: &str) -> Self {
        let request = Request::get(format!("/v1/fs/watch?{query}")).body(Full::default()).expect("a valid request");
        let response = runner.send(request).await.expect("the runner answers");
        assert_eq!(response.status(), 200, "{query}");
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let mut watch = Self { lines: Lines::new(response.into_body()) };
        assert_eq!(watch.next().await, Some(WatchFrame::Ready { truncated: false }), "{query}");
        watch
    }

    async fn next(&mut self) -> Option<WatchFrame> {
        let line = tokio::time::timeout(DEADLINE, self.lines.next()).await.expect("a line in time");
        line.expect("the connection holds").map(|line| serde_json::from_slice(&line).expect("a frame"))
    }

    async fn change(&mut self) -> FileChange {
        match self.next().await {
            Some(WatchFrame::Change(change)) => change,
            other => panic!("not a change: {other:?}"),
        }
    }

    /// All changes until this file is told.
    async fn until(&mut self, path: &str) -> Vec<FileChange> {
        let mut changes = Vec::new();
        loop {
            let change = self.change().await;
            if change.path == path {
                return changes;
            }
            changes.push(change);
        }
    }

    async fn ends(mut self, reason: WatchEnd) {
        loop {
            match self.next().await {
                Some(WatchFrame::Change(_)) => {}
                Some(WatchFrame::Ended { reason: told }) => {
                    assert_eq!(told, reason);
                    break;
                }
                other => panic!("not an end: {other:?}"),
            }
        }
        assert_eq!(self.next().await, None, "the end is the last line");
    }
}

/// The changes without modifications: on a busy machine, one that is expected can be told twice.
fn told(changes: &[FileChange]) -> Vec<(ChangeKind, &str)> {
    let others = changes.iter().filter(|change| change.kind != Modified);
    others.map(|change| (change.kind, change.path.as_str())).collect()
}

fn has(changes: &[FileChange], kind: ChangeKind, path: &str) -> bool {
    changes.iter().any(|change| (change.kind, change.path.as_str()) == (kind, path))
}

fn helpers(runner: &Runner) -> Vec<Process> {
    procfs::children(runner.pid()).into_iter().filter(|process| process.name == "runner-files").collect()
}

#[tokio::test]
async fn what_happens_to_a_file_is_told_in_its_order() {
    let runner = Runner::start().await;
    runner.sh("echo old >there; mkdir sub").await;
    let mut watch = Watch::start(&runner, "path=.").await;
    runner.sh("echo new >>there").await;
    assert_eq!(told(&watch.until("there").await), []);
    runner.sh("mv there here; echo x >sub/unseen; rm here; mkdir d; mkdir marker").await;
    let mut changes = watch.until("marker").await;
    changes.retain(|change| change.kind != Modified);
    let here = changes.iter().find(|change| change.kind == Moved).expect("a move");
    assert_eq!((here.path.as_str(), here.from.as_deref(), here.is_dir), ("here", Some("there"), false));
    assert_eq!(told(&changes), [(Moved, "here"), (Deleted, "here"), (Created, "d")]);
    assert!(changes[2].is_dir);
}

#[tokio::test]
async fn a_file_that_is_replaced_as_editors_do_it_is_told() {
    let runner = Runner::start().await;
    runner.sh("echo old >file").await;
    let mut watch = Watch::start(&runner, "path=.").await;
    runner.sh("echo new >.file.swp; mv .file.swp file; mkdir marker").await;
    let changes = watch.until("marker").await;
    assert!(has(&changes, Moved, "file"), "{changes:?}");
    // A write through the API takes the place of a file in the same way, and its temporary name is nobody's business.
    let reply = runner.raw(Method::PUT, "/v1/files?path=file", "newer").await;
    assert_eq!(reply.status, 201);
    assert_eq!(told(&[watch.change().await]), [(Created, "file")]);
}

#[tokio::test]
async fn a_file_that_is_written_all_the_time_is_told_now_and_then() {
    let runner = Runner::start().await;
    runner.sh("touch log").await;
    let mut watch = Watch::start(&runner, "path=.").await;
    runner.sh("for i in {1..20000}; do echo $i; done >>log; touch marker").await;
    let changes = watch.until("marker").await;
    assert!(has(&changes, Modified, "log") && told(&changes).is_empty(), "{changes:?}");
    assert!(changes.len() < 2000, "{} changes for 20,000 writes", changes.len());
}

#[tokio::test]
async fn directories_that_appear_are_watched_with_all_that_is_in_them() {
    let runner = Runner::start().await;
    let mut watch = Watch::start(&runner, "path=.&recursive=1").await;
    // Nobody could add watches as fast as this makes directories.
    runner.sh("for i in {1..200}; do mkdir -p $i/b/c; touch $i/b/c/f; done; touch marker").await;
    let changes = watch.until("marker").await;
    let created: BTreeSet<&str> = changes.iter().filter(|c| c.kind == Created).map(|c| c.path.as_str()).collect();
    for i in 1..=200 {
        for path in [format!("{i}"), format!("{i}/b"), format!("{i}/b/c"), format!("{i}/b/c/f")] {
            assert!(created.contains(path.as_str()), "{path} was not told");
        }
    }
    runner.sh("echo x >>7/b/c/f; rm 8/b/c/f; touch marker2").await;
    let changes = watch.until("marker2").await;
    assert!(has(&changes, Modified, "7/b/c/f"), "{changes:?}");
    assert_eq!(told(&changes), [(Deleted, "8/b/c/f")]);
}

#[tokio::test]
async fn a_directory_that_moves_is_followed_and_one_that_leaves_is_not() {
    let runner = Runner::start().await;
    runner.sh("mkdir -p tree/a/b out; touch tree/a/b/f").await;
    let mut watch = Watch::start(&runner, "path=tree&recursive=1").await;
    runner.sh("mv tree/a tree/z; echo x >>tree/z/b/f; mv tree/z out; touch out/z/b/unseen; touch tree/m1").await;
    let changes = watch.until("tree/m1").await;
    assert_eq!(changes[0].from.as_deref(), Some("tree/a"));
    assert!(has(&changes, Modified, "tree/z/b/f"), "{changes:?}");
    assert_eq!(told(&changes), [(Moved, "tree/z"), (Deleted, "tree/z")]);
    runner.sh("mv out/z tree/back; touch tree/back/b/seen; touch tree/m2").await;
    let changes = watch.until("tree/m2").await;
    let created: BTreeSet<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    for path in ["tree/back", "tree/back/b", "tree/back/b/f", "tree/back/b/unseen", "tree/back/b/seen"] {
        assert!(created.contains(path), "{path}: {changes:?}");
    }
    // Moved and made anew before anybody looked.
    runner.sh("for i in {1..50}; do mkdir tree/x; mv tree/x tree/y$i; touch tree/y$i/f; done; touch tree/m3").await;
    let changes = watch.until("tree/m3").await;
    let paths: BTreeSet<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    for i in 1..=50 {
        assert!(paths.contains(format!("tree/y{i}/f").as_str()), "{i}: {changes:?}");
    }
    runner.sh("touch tree/y1/g tree/y50/g; touch tree/m4").await;
    assert_eq!(told(&watch.until("tree/m4").await), [(Created, "tree/y1/g"), (Created, "tree/y50/g")]);
}

#[tokio::test]
async fn links_are_told_and_not_followed() {
    let runner = Runner::start().await;
    runner.sh("mkdir other; ln -s ../other tree-link; mkdir tree").await;
    let mut watch = Watch::start(&runner, "path=tree&recursive=1").await;
    runner.sh("ln -s ../other tree/link; touch other/unseen; touch tree/marker").await;
    let changes = watch.until("tree/marker").await;
    assert_eq!(told(&changes), [(Created, "tree/link")]);
    assert!(!changes[0].is_dir);
}

#[tokio::test]
async fn a_watch_ends_with_its_directory() {
    let runner = Runner::start().await;
    runner.sh("mkdir -p gone moved above/below held").await;
    let gone = Watch::start(&runner, "path=gone").await;
    let moved = Watch::start(&runner, "path=moved&recursive=1").await;
    let below = Watch::start(&runner, "path=above/below").await;
    let held = Watch::start(&runner, "path=held").await;
    runner.sh("rm -r gone; mv moved elsewhere; mv above aside").await;
    gone.ends(WatchEnd::Deleted).await;
    moved.ends(WatchEnd::Moved).await;
    below.ends(WatchEnd::Moved).await;
    // A directory that a program is in does not tell by itself that it is deleted.
    runner.sh("cd held; rmdir ../held").await;
    held.ends(WatchEnd::Deleted).await;
    wait_until("no process is left", DEADLINE, async || helpers(&runner).is_empty().then_some(())).await;
}

#[tokio::test]
async fn ten_thousand_files_at_once_are_all_told_to_a_slow_reader_or_it_hears_of_a_loss() {
    let runner = Runner::start().await;
    let mut watch = Watch::start(&runner, "path=.&recursive=1").await;
    // Nothing is read meanwhile.
    runner.sh("mkdir many; cd many; for i in {1..10000}; do : >a-rather-long-name-$i; done; cd ..").await;
    let mut seen = BTreeSet::new();
    let mut lost = false;
    while !lost && seen.len() < 10_000 {
        match watch.next().await {
            Some(WatchFrame::Change(change)) => {
                if change.path.starts_with("many/") {
                    seen.insert(change.path);
                }
            }
            Some(WatchFrame::Overflow) => lost = true,
            other => panic!("{other:?}"),
        }
    }
    println!("{} files were told, and some were lost: {lost}", seen.len());
    runner.sh("touch many/marker").await;
    watch.until("many/marker").await;
}

#[tokio::test]
async fn events_that_the_kernel_drops_are_a_loss_that_is_told() {
    let runner = Runner::start().await;
    let mut watch = Watch::start(&runner, "path=.&recursive=1").await;
    let queue: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let [helper] = helpers(&runner).try_into().expect("one helper");
    procfs::signal(helper.pid, Signal::SIGSTOP);
    wait_until("the helper is stopped", DEADLINE, async || (procfs::process(helper.pid)?.state == 'T').then_some(()))
        .await;
    runner.sh("mkdir -p new/dir").await;
    let file = runner.workspace().join("file");
    for _ in 0..queue {
        std::fs::write(&file, "x").unwrap();
        std::fs::remove_file(&file).unwrap();
    }
    procfs::signal(helper.pid, Signal::SIGCONT);
    let told = tokio::time::timeout(LONG_DEADLINE, async {
        while watch.next().await.expect("more lines") != WatchFrame::Overflow {}
    });
    told.await.expect("the loss is told");
    // Directories that appeared unseen are watched by then.
    runner.sh("touch new/dir/f; touch marker").await;
    let changes = watch.until("marker").await;
    assert!(changes.iter().any(|change| change.path == "new/dir/f"), "{changes:?}");
}

#[tokio::test]
async fn a_client_that_leaves_leaves_no_process() {
    let runner = Runner::start().await;
    let idle = Watch::start(&runner, "path=.").await;
    let mut busy = Watch::start(&runner, "path=.").await;
    runner.sh("touch f").await;
    busy.until("f").await;
    assert_eq!(helpers(&runner).len(), 2);
    drop((idle, busy));
    wait_until("no process is left", DEADLINE, async || helpers(&runner).is_empty().then_some(())).await;
}

#[tokio::test]
async fn watches_are_limited_and_leave_room_for_other_operations() {
    let runner = Runner::start().await;
    let mut watches = Vec::new();
    for _ in 0..MAX_WATCHES {
        watches.push(Watch::start(&runner, "path=.").await);
    }
    let refused = runner.raw(Method::GET, "/v1/fs/watch?path=.", "").await;
    assert_eq!((refused.status, refused.refused()), (429, LimitReached));
    assert!(refused.text().contains("16 watches"), "{}", refused.text());
    assert_eq!(runner.raw(Method::PUT, "/v1/files?path=f", "x").await.status, 201);
    watches.pop();
    wait_until("a place is free", DEADLINE, async || (helpers(&runner).len() < MAX_WATCHES).then_some(())).await;
    drop(Watch::start(&runner, "path=.").await);
    for watch in &mut watches {
        watch.until("f").await;
    }
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused_as_by_other_calls() {
    let runner = Runner::start().await;
    runner.sh("touch file; mkdir -p tree/secret").await;
    for (query, status, code) in [
        ("path=missing", 404, FileNotFound),
        ("path=file", 400, InvalidRequest),
        ("path=../outside", 400, InvalidRequest),
        ("path=", 400, InvalidRequest),
        ("", 400, InvalidRequest),
        ("path=.&depth=1", 400, InvalidRequest),
    ] {
        let reply = runner.raw(Method::GET, &format!("/v1/fs/watch?{query}"), "").await;
        assert_eq!((reply.status, reply.refused()), (status, code), "{query}: {}", reply.text());
    }
    if !is_root() {
        return skipped("what_cannot_be_watched_is_refused_as_by_other_calls", "only root has directories of others");
    }
    let secret = runner.workspace().join("tree/secret");
    std::os::unix::fs::chown(&secret, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let reply = runner.raw(Method::GET, "/v1/fs/watch?path=tree/secret", "").await;
    assert_eq!((reply.status, reply.refused()), (403, Forbidden));
    let request = Request::get("/v1/fs/watch?path=tree&recursive=1").body(Full::default()).unwrap();
    let mut watch = Watch { lines: Lines::new(runner.send(request).await.unwrap().into_body()) };
    assert_eq!(watch.next().await, Some(WatchFrame::Ready { truncated: true }), "a part of it is not watched");
}

#[tokio::test]
async fn a_watch_survives_that_everything_is_held() {
    let runner = Runner::start().await;
    let mut watch = Watch::start(&runner, "path=.").await;
    assert_eq!(runner.raw(Method::POST, "/v1/hold", "").await.status, 200);
    std::fs::write(runner.workspace().join("meanwhile"), "x").unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(300), watch.lines.next()).await;
    assert!(nothing.is_err(), "it is held: {nothing:?}");
    assert_eq!(runner.raw(Method::POST, "/v1/release", "").await.status, 200);
    watch.until("meanwhile").await;
}

#[tokio::test]
async fn names_of_any_bytes_are_told() {
    use base64::Engine as _;
    let runner = Runner::start().await;
    let mut watch = Watch::start(&runner, "path=.&recursive=1").await;
    runner.sh(r"mkdir $'\xff'; touch $'\xff/a\nb'; touch marker").await;
    let changes = watch.until("marker").await;
    let exact: Vec<Vec<u8>> = changes
        .iter()
        .filter_map(|c| base64::engine::general_purpose::STANDARD.decode(c.path_base64.as_ref()?).ok())
        .collect();
    assert!(exact.contains(&b"\xff/a\nb".to_vec()), "{changes:?}");
}
