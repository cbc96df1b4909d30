//! A container engine finishes a request although the daemon that sent it is dead.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use e2e::daemon::{Daemon, Engine, Leftovers, engine};
use e2e::{DEADLINE, skipped, wait_until};
use hyper::Method;
use serde_json::json;

use crate::agreed;

/// A proxy to the engine's socket that acts like a busy engine: each request waits before the engine sees it.
struct SlowEngine {
    socket: PathBuf,
    holds: Arc<AtomicBool>,
    held: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl SlowEngine {
    fn before(engine: &Engine) -> Self {
        let folder = tempfile::Builder::new().prefix("cove-slow-").tempdir().expect("a temporary directory");
        let socket = folder.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).expect("our own directory");
        let slow = Self { socket, holds: Arc::default(), held: Arc::default(), made: Arc::default(), _folder: folder };
        let behind = engine.socket().to_owned();
        let (holds, held, made) = (slow.holds.clone(), slow.held.clone(), slow.made.clone());
        // These are threads, because the story's only task waits for the daemon's start.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let engine = UnixStream::connect(&behind).expect("the engine is there");
                let (back, forth) = (engine.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                let (holds, held, made) = (holds.clone(), held.clone(), made.clone());
                std::thread::spawn(move || {
                    carry(client, engine, |said| {
                        if has(said, b"/containers/create") && holds.load(Ordering::SeqCst) {
                            held.fetch_add(1, Ordering::SeqCst);
                            while holds.load(Ordering::SeqCst) {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        }
                    });
                });
                std::thread::spawn(move || {
                    carry(back, forth, |said| {
                        made.fetch_add(usize::from(has(said, b" 201 Created")), Ordering::SeqCst);
                    });
                });
            }
        });
        slow
    }
}

fn has(said: &[u8], words: &[u8]) -> bool {
    said.windows(words.len()).any(|part| part == words)
}

fn carry(mut from: UnixStream, mut to: UnixStream, heard: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        heard(&buffer[..count]);
        // The bytes go on to the engine, whether or not the sender still exists.
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_container_that_comes_to_be_after_its_daemon_died_is_removed_by_the_next() {
    let _alone = crate::alone().await;
    let Some(engine) = engine() else { return skipped("an engine that is slow", "the stories run on local") };
    let slow = SlowEngine::before(engine);
    let mut daemon = Daemon::builder().env("COVE_DOCKER_SOCKET", &slow.socket.display().to_string()).start().await;
    let kept = daemon.session().await;
    slow.holds.store(true, Ordering::SeqCst);
    let api = daemon.api().clone();
    let asking =
        tokio::spawn(async move { api.try_send(Method::POST, "/v1/sessions", json!({}).to_string()).await.is_ok() });
    wait_until("the engine to be asked", DEADLINE, async || (slow.held.load(Ordering::SeqCst) == 1).then_some(()))
        .await;
    let mut ids = Leftovers::sandboxes(&daemon.data_dir());
    ids.remove(&kept.id);
    let late = daemon.data_dir().join("containers").join(ids.pop_first().expect("it is being made"));
    daemon.kill().await;
    assert!(!asking.await.expect("it does not panic"), "there was nobody to answer");
    let daemon = daemon.start_again();
    assert_eq!(agreed(&daemon).await.len(), 1);
    // Without this directory an engine makes no container. A slow engine has seen it before it was removed.
    std::fs::create_dir_all(late.join("run")).expect("our own directory");
    slow.holds.store(false, Ordering::SeqCst);
    wait_until("the engine to make it", DEADLINE, async || (slow.made.load(Ordering::SeqCst) == 2).then_some(())).await;
    std::fs::remove_dir_all(late).expect("our own directory");
    assert_eq!(agreed(&daemon).await.into_iter().collect::<Vec<_>>(), [kept.id]);
    daemon.stop().await;
}
