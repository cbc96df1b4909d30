//! The daemon dies at every step of a pull, a commit, a removal and a prune. The next daemon trusts nothing half-made, leaves nothing of it, and
//! can pull, use and remove the image again.

use std::path::Path;

use e2e::daemon::registry::{Image, Layer, OwnRegistry};
use e2e::daemon::rootfs::{rootfs, tar_of};
use e2e::daemon::{Api, Cove, Daemon, Session, engine, failpoints};
use e2e::{LONG_DEADLINE, is_root, is_soak, skipped, wait_until};
use hyper::Method;
use serde_json::{Value, json};

const SOAK_TIMES: usize = 20;
/// How many files the second layer has. Each must be in the session.
const FILES: usize = 300;
/// How the failpoints of a commit begin.
const OF_COMMIT: &str = "image.commit.";
/// A download that nobody needs, for a prune to remove.
const PLANTED: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

fn image() -> Image {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let files = folder.path().join("srv");
    std::fs::create_dir(&files).expect("our own directory");
    for n in 0..FILES {
        std::fs::write(files.join(n.to_string()), format!("file {n}\n").repeat(100)).expect("our own directory");
    }
    let layers = [Layer::gzip(&tar_of(rootfs().path())), Layer::plain(&tar_of(folder.path()))];
    Image::new(&layers, json!({ "Env": ["GREETING=hello"] }))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn path_of(image: &str) -> String {
    format!("/v1/images/{}", image.replace('/', "%2F"))
}

/// Pulls, uses, removes and prunes the image until the daemon dies.
async fn use_until_dead(daemon: &mut Daemon, image: &str) {
    let (api, blobs, image) = (daemon.api().clone(), daemon.data_dir().join("images/.store/blobs"), image.to_owned());
    let using = tokio::spawn(async move {
        loop {
            let small = json!({ "image": image, "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 } });
            let Ok(answer) = api.try_send(Method::POST, "/v1/sessions", small.to_string()).await else { break };
            assert_eq!(answer.status, 201, "{}", answer.text());
            let id = answer.json()["id"].as_str().expect("an id").to_owned();
            if api.try_send(Method::DELETE, &format!("/v1/sessions/{id}"), "").await.is_err()
                || api.try_send(Method::DELETE, &path_of(&image), "").await.is_err()
            {
                break;
            }
            // If the daemon is dead already, so is the directory's owner, and nobody minds the file.
            let _ = std::fs::write(blobs.join(PLANTED), "half a blob");
            if api.try_send(Method::POST, "/v1/images/prune", "").await.is_err() {
                break;
            }
        }
    });
    daemon.ended().await;
    using.await.expect("a client does not fail");
}

/// Checks that what is in the store belongs together, once the daemon has tidied up.
async fn is_tidy(daemon: &Daemon, name: &str) {
    let store = daemon.data_dir().join("images/.store");
    wait_until("nothing half-made is left", LONG_DEADLINE, async || {
        let half_made = names_in(&store.join("staging")).len() + names_in(&store.join("discarded")).len();
        let being_written = ["references", "layers"].iter().flat_map(|place| names_in(&store.join(place)));
        (half_made == 0 && being_written.filter(|name| name.ends_with(".new")).count() == 0).then_some(())
    })
    .await;
    let layers = store.join("layers");
    for entry in names_in(&layers) {
        let other = match entry.strip_suffix(".json") {
            Some(layer) => layer.to_owned(),
            None => format!("{entry}.json"),
        };
        assert!(layers.join(&other).exists(), "after {name}: {entry} without {other}");
    }
    for entry in names_in(&store.join("references")) {
        let record = std::fs::read(store.join("references").join(&entry)).expect("a record");
        let record: Value = serde_json::from_slice(&record).expect("a whole record");
        for layer in record["layers"].as_array().expect("layers") {
            assert!(layers.join(layer.as_str().expect("text")).is_dir(), "after {name}: {layer} is missing");
        }
    }
}

async fn is_usable(api: &Api, image: &str, name: &str) {
    let session: Session = api.create(json!({ "image": image })).await;
    let count = "n=0; for f in /srv/*; do [ -s $f ] && n=$((n + 1)); done; echo $n, $GREETING; cat /etc/mark";
    let seen = session.sh(count).await;
    assert_eq!(seen, format!("{FILES}, hello\nan image of its own\n"), "after {name}");
    let size = session.sh("IFS= read -r -d '' text < /srv/299; echo ${#text}").await;
    assert_eq!(size, "900\n", "after {name}");
    session.destroy().await;
}

#[tokio::test]
async fn a_death_at_any_step_of_a_pull_or_a_removal_leaves_nothing_that_is_trusted_and_only_half_there() {
    let story = "a_death_at_any_step_of_a_pull_or_a_removal_leaves_nothing_that_is_trusted_and_only_half_there";
    let _alone = crate::alone().await;
    if engine().is_some() {
        return skipped(story, "images are the engine's");
    }
    if !is_root() {
        return skipped(story, "as an ordinary user the layers are unpacked into one");
    }
    let is_of_pull = |name: &&String| name.starts_with("image.") && !name.starts_with(OF_COMMIT);
    let names: Vec<&String> = failpoints().iter().filter(is_of_pull).collect();
    assert!(names.len() >= 14, "{names:?}");
    // The records of both layers and of what Cove adds come before that of the image; and the last layer is made in another way.
    let later = [("image.record.written", 4), ("image.layer.sized", 3), ("image.layer.named", 3)];
    let first = names.iter().map(|name| (name.as_str(), 1));
    let soak = (2..=SOAK_TIMES).flat_map(|nth| names.iter().map(move |name| (name.as_str(), nth)));
    let turns: Vec<(&str, usize)> = match is_soak() {
        true => first.chain(soak).collect(),
        false => first.chain(later).collect(),
    };
    let image = image();
    for (name, nth) in turns {
        let start = std::time::Instant::now();
        let registry = OwnRegistry::of(image.clone(), |_| None).await;
        let mut daemon = Daemon::builder().failpoints(&format!("{name}=abort@{nth}")).start().await;
        use_until_dead(&mut daemon, &registry.name()).await;
        daemon.rebuild(|builder| builder.failpoints(""));
        let daemon = daemon.start_again();
        let what = format!("{name} at {nth}");
        is_tidy(&daemon, &what).await;
        is_usable(daemon.api(), &registry.name(), &what).await;
        daemon.delete(&path_of(&registry.name())).await.ok();
        daemon.post("/v1/images/prune", json!(null)).await.ok();
        let store = daemon.data_dir().join("images/.store");
        for place in ["layers", "references", "blobs", "staging", "discarded", "uses"] {
            assert_eq!(names_in(&store.join(place)), [""; 0], "{place} after {what}");
        }
        daemon.stop().await;
        println!("{what}: {:?}", start.elapsed());
    }
}

/// Makes an image from a session, until the daemon dies.
async fn commit_until_dead(daemon: &mut Daemon, session: &Session) {
    let asked = json!({ "session_id": session.id, "image": "made" }).to_string();
    let api = daemon.api().clone();
    let committing = tokio::spawn(async move { api.try_send(Method::POST, "/v1/images/commit", asked).await });
    daemon.ended().await;
    // The answer has begun before the daemon died, or not.
    drop(committing.await.expect("a client does not fail"));
}

#[tokio::test]
async fn a_death_at_any_step_of_a_commit_leaves_all_of_the_image_or_nothing() {
    let story = "a_death_at_any_step_of_a_commit_leaves_all_of_the_image_or_nothing";
    let _alone = crate::alone().await;
    if engine().is_some() || !is_root() {
        return skipped(story, "sessions have no disks to commit from here");
    }
    let of_commit: Vec<&String> = failpoints().iter().filter(|name| name.starts_with(OF_COMMIT)).collect();
    assert!(of_commit.len() >= 5, "{of_commit:?}");
    // The imported image, the changes and Cove's own layer are stored before the name; and a snapshot is made before all of it.
    let others =
        ["local.snapshot.disk", "snapshot.ready", "image.layer.sized", "image.layer.named", "image.record.named"];
    let first = of_commit.iter().map(|name| name.as_str()).chain(others).map(|name| (name, 1));
    let later = [("image.commit.packed", 2), ("image.layer.named", 3), ("image.record.written", 4)];
    let soak = (2..=SOAK_TIMES).flat_map(|_| of_commit.iter().map(|name| (name.as_str(), 1)));
    let turns: Vec<(&str, usize)> = match is_soak() {
        true => first.chain(later).chain(soak).collect(),
        false => first.chain(later).collect(),
    };
    let root = rootfs();
    for (name, nth) in turns {
        let start = std::time::Instant::now();
        let what = format!("{name} at {nth}");
        let mut daemon = Daemon::builder().keeps_sessions().failpoints(&format!("{name}=abort@{nth}")).start().await;
        let cove = Cove::of(&daemon);
        cove.run(&["image", "import", "mine", root.path().to_str().expect("text")]).await.ok();
        let session = daemon.create(json!({ "image": "mine", "user": "root" })).await;
        session
            .sh("mkdir /srv; n=0; while [ $n -lt 300 ]; do echo $n > /srv/$n; n=$((n + 1)); done; rm /etc/mark")
            .await;
        commit_until_dead(&mut daemon, &session).await;
        daemon.rebuild(|builder| builder.failpoints(""));
        let daemon = daemon.start_again();
        is_tidy(&daemon, &what).await;
        let session = Session { api: daemon.api().clone(), id: session.id.clone() };
        assert_eq!(session.sh("echo alive").await, "alive\n", "after {what}");
        if daemon.get("/v1/images/made").await.status == 404 {
            let asked = json!({ "session_id": session.id, "image": "made" });
            let answer = daemon.post("/v1/images/commit", asked).await.text();
            assert!(answer.contains("event: done"), "after {what}: {answer}");
        }
        let made = daemon.create(json!({ "image": "made" })).await;
        let seen = "n=0; for f in /srv/*; do [ -s $f ] && n=$((n + 1)); done; echo $n; ls /etc/mark 2>/dev/null; true";
        assert_eq!(made.sh(seen).await, "300\n", "after {what}");
        made.destroy().await;
        session.destroy().await;
        for image in ["made", "mine"] {
            daemon.delete(&path_of(image)).await.ok();
        }
        daemon.post("/v1/images/prune", json!(null)).await.ok();
        let store = daemon.data_dir().join("images/.store");
        for place in ["layers", "references", "blobs", "staging", "discarded", "uses"] {
            assert_eq!(names_in(&store.join(place)), [""; 0], "{place} after {what}");
        }
        let snapshots = daemon.data_dir().join("snapshots");
        wait_until("the copies to be gone", LONG_DEADLINE, async || names_in(&snapshots).is_empty().then_some(()))
            .await;
        daemon.stop().await;
        println!("{what}: {:?}", start.elapsed());
    }
}
