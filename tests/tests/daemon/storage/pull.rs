//! Images of registries: pulled, shared, used and removed, without a container engine.

use std::path::Path;
use std::sync::Arc;

use e2e::daemon::{Ability, Cove, Daemon, Event, EventStream, Session, lacks};
use e2e::{DEADLINE, is_root, skipped, wait_until};
use hyper::Method;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Forbidden, InvalidImage, InvalidRequest};
use tar::EntryType;
use tokio::sync::Semaphore;

use super::images::here;
use crate::calls::archives;
use e2e::daemon::registry::{DebianRegistry, Image, Layer, OwnRegistry, Reply, good};
use e2e::daemon::rootfs::{rootfs, tar_of};

/// A user without privileges.
const SOMEBODY: u32 = 1000;

/// A layer over the root file system of `rootfs`: it adds, replaces and removes.
fn second_layer() -> Vec<u8> {
    let mut tar = Vec::new();
    let mut put = |kind, name: &str, link: &str, content: &[u8]| archives::entry(&mut tar, kind, name, link, content);
    put(EntryType::Directory, "srv/", "", b"");
    put(EntryType::Directory, "srv/app/", "", b"");
    put(EntryType::Regular, "srv/app/two", "", b"the second layer\n");
    put(EntryType::Link, "srv/app/same", "srv/app/two", b"");
    put(EntryType::Symlink, "srv/app/link", "two", b"");
    put(EntryType::Regular, "srv/app/late", "", b"read late\n");
    put(EntryType::Char, "srv/app/device", "", b"");
    // The mark of the first layer goes, before or after what is added beside it.
    put(EntryType::Regular, "etc/.wh.mark", "", b"");
    put(EntryType::Regular, "etc/new", "", b"new\n");
    put(EntryType::Directory, "data/", "", b"");
    put(EntryType::Regular, "data/own", "", b"own\n");
    put(EntryType::Regular, "data/.wh..wh..opq", "", b"");
    archives::end(&mut tar);
    tar
}

fn small_layer(name: &str, content: &str) -> Vec<u8> {
    let mut tar = Vec::new();
    archives::entry(&mut tar, EntryType::Regular, name, "", content.as_bytes());
    archives::end(&mut tar);
    tar
}

/// The root file system of most images here, with a directory that a layer above empties.
pub fn base_layer() -> Vec<u8> {
    let root = rootfs();
    std::fs::create_dir(root.path().join("data")).expect("our own directory");
    std::fs::write(root.path().join("data/old"), "old\n").expect("our own directory");
    tar_of(root.path())
}

pub fn store(daemon: &Daemon) -> std::path::PathBuf {
    daemon.data_dir().join("images/.store")
}

pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn layers(daemon: &Daemon) -> usize {
    names_in(&store(daemon).join("layers")).iter().filter(|name| !name.ends_with(".json")).count()
}

fn of_image<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array()
        .expect("a list")
        .iter()
        .find(|image| image["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {list}"))
}

#[tokio::test]
async fn images_are_pulled_share_their_layers_and_are_used() {
    if lacks("images_are_pulled_share_their_layers_and_are_used", Ability::ImportedImages) {
        return;
    }
    let Some(registry) = DebianRegistry::start().await else {
        return skipped("pulling from a registry", "docker-registry is not installed");
    };
    let base = Layer::gzip(&base_layer());
    let config = json!({
        "Env": ["PATH=/srv/app:/bin", "GREETING=from the image", "OTHER=of the image"], "WorkingDir": "/srv/app", "User": "nobody",
    });
    let one = registry.push("story/one", "1", &Image::new(&[base.clone(), Layer::zstd(&second_layer())], config));
    let three = Layer::plain(&small_layer("etc/three", "the third layer\n"));
    let two = registry.push("story/two", "1", &Image::new(&[base, three], json!({})));
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);

    let pulled = cove.run(&["image", "pull", &one, "--json"]).await;
    assert_eq!(pulled.json()["name"], one, "{pulled:?}");
    cove.run(&["image", "pull", &two]).await.ok();
    let listed = cove.run(&["image", "ls", "--json"]).await.json();
    let (bytes, shared) = (&of_image(&listed, &one)["bytes"], &of_image(&listed, &one)["shared_bytes"]);
    assert!(shared.as_u64() > Some(1 << 20) && bytes.as_u64() > shared.as_u64(), "{listed}");
    if is_root() {
        // The shared one, one more of each image, and what Cove adds to each.
        assert_eq!(layers(&daemon), 5, "{listed}");
    }
    assert!(names_in(&store(&daemon).join("staging")).is_empty() && names_in(&store(&daemon).join("blobs")).is_empty());

    let session = daemon.create(json!({ "image": one, "env": { "OTHER": "of the session" } })).await;
    assert_eq!(session.view().await["cwd"], "/srv/app");
    let seen = session.sh("pwd; cat two same link; cat /etc/new; echo $GREETING, $OTHER; echo $PATH").await;
    let expected = "/srv/app\nthe second layer\nthe second layer\nthe second layer\nnew\nfrom the image, of the session\n/srv/app:/bin\n";
    assert_eq!(seen, expected);
    assert_eq!(
        session.sh("ls -A /data; [ -e /etc/mark ] || echo gone; [ -e device ] || echo none; id -u").await,
        "own\ngone\nnone\n1000\n"
    );
    for place in ["/", "/etc", "/srv/app"] {
        assert_ne!(session.exec(&format!("echo x > {place}/x")).await["exit_code"], 0, "{place} is writable");
    }
    session.sh("echo x > /workspace/x; cat /etc/passwd > /tmp/y").await;
    let other = daemon.create(json!({ "image": two })).await;
    assert_eq!(
        other.sh("pwd; cat /etc/mark /etc/three; ls /data").await,
        "/workspace\nan image of its own\nthe third layer\nold\n"
    );
    if is_root() {
        let writable = daemon.create(json!({ "image": one, "writable_root": true })).await;
        assert_eq!(writable.sh("rm two; echo x > /etc/new; cat /etc/new; ls").await, "x\nlate\nlink\nsame\n");
        writable.destroy().await;
    }
    assert_eq!(session.sh("cat two /etc/new").await, "the second layer\nnew\n");

    // A removal does not take files away from a sandbox, nor from the other image.
    cove.run(&["image", "rm", &one]).await.ok();
    assert_eq!(daemon.post("/v1/sessions", json!({ "image": format!("{one}x") })).await.refused(), InvalidImage);
    assert_eq!(session.sh("cat link; ls /bin/id").await, "the second layer\n/bin/id\n");
    cove.run(&["image", "prune"]).await.ok();
    // Nobody in this sandbox has looked at this file before, so no cache has it.
    assert_eq!(session.sh("cat same late; ls /bin/rm").await, "the second layer\nread late\n/bin/rm\n");
    session.destroy().await;
    assert_eq!(other.sh("cat /etc/three").await, "the third layer\n");
    other.destroy().await;
    cove.run(&["image", "rm", &two]).await.ok();
    cove.run(&["image", "prune"]).await.ok();
    assert_eq!((layers(&daemon), here(&cove).await), (0, Vec::new()));
    daemon.stop().await;
}

#[tokio::test]
async fn a_create_pulls_what_is_missing_and_two_creates_share_the_pull() {
    if lacks("a_create_pulls_what_is_missing_and_two_creates_share_the_pull", Ability::ImportedImages) {
        return;
    }
    let registry = OwnRegistry::of(Image::new(&[Layer::gzip(&base_layer())], json!({})), |_| None).await;
    let daemon = Daemon::start().await;
    let name = registry.name();
    // A request that is refused for another reason pulls nothing.
    daemon.post("/v1/sessions", json!({ "image": name, "resources": { "memory_mb": 1 } })).await.refused();
    assert_eq!(registry.paths(), [""; 0]);
    let create = || daemon.create(json!({ "image": name }));
    let (one, two) = tokio::join!(create(), create());
    for session in [one, two] {
        assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
        session.destroy().await;
    }
    let paths = registry.paths();
    assert_eq!(paths.len(), 3, "manifest, configuration and layer, once each: {paths:?}");
    let described = daemon.get(&format!("/v1/images/{}", name.replace('/', "%2F"))).await.ok();
    assert_eq!(
        (&described["name"], described["layers"].as_array().map(Vec::len)),
        (&json!(name), Some(if is_root() { 2 } else { 1 }))
    );
    assert!(daemon.get("/v1/images").await.ok().to_string().contains(&name));
    daemon.delete(&format!("/v1/images/{}", name.replace('/', "%2F"))).await.ok();
    assert_eq!(layers(&daemon), 0);
    daemon.stop().await;
}

/// The events of a create, to its end.
async fn told(stream: &mut EventStream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn a_create_that_is_asked_for_a_stream_tells_how_far_the_pull_is() {
    if lacks("a_create_that_is_asked_for_a_stream_tells_how_far_the_pull_is", Ability::ImportedImages) {
        return;
    }
    let gate = Arc::new(Semaphore::new(0));
    let registry = {
        let (image, gate) = (Image::new(&[Layer::gzip(&base_layer())], json!({})), gate.clone());
        let layer = image.blobs.iter().max_by_key(|(_, blob)| blob.len()).expect("a layer").0.clone();
        OwnRegistry::of(image.clone(), move |request| {
            let is_layer = request.path.ends_with(&layer);
            is_layer.then(|| Reply { after: Some(gate.clone()), ..good(&image, request) })
        })
        .await
    };
    let daemon = Daemon::start().await;
    let streaming = daemon.with_header("accept", "text/event-stream");
    // What is wrong with a request is an ordinary answer.
    let wrong = json!({ "image": registry.name(), "resources": { "memory_mb": 1 } });
    assert_eq!(streaming.post("/v1/sessions", wrong).await.refused(), InvalidRequest);
    assert_eq!(registry.paths(), [""; 0]);

    let request = json!({ "image": registry.name(), "labels": { "who": "stays" } });
    let mut stays = streaming.events(Method::POST, "/v1/sessions", request).await;
    let leaves = json!({ "image": registry.name(), "labels": { "who": "leaves" } });
    let mut leaves = streaming.events(Method::POST, "/v1/sessions", leaves).await;
    for stream in [&mut stays, &mut leaves] {
        let first = stream.next().await.expect("it has begun");
        assert_eq!((first.name.as_str(), first.data["layers_done"].as_u64()), ("progress", Some(0)), "{first:?}");
    }
    // One client leaves; that is nothing to the pull, nor to the other.
    drop(leaves);
    let told_of = async |wanted: &str, stream: &mut EventStream| loop {
        let event = stream.next().await.expect("the pull goes on");
        if event.data["phase"] == wanted {
            return event;
        }
    };
    let downloading = told_of("downloading", &mut stays).await;
    assert_eq!((&downloading.data["layers"], &downloading.data["bytes"]), (&json!(1), &json!(0)));
    gate.add_permits(1);
    let events = told(&mut stays).await;
    let last = events.last().expect("an end");
    assert_eq!((last.name.as_str(), &last.data["labels"]["who"]), ("done", &json!("stays")), "{events:?}");
    assert!(events.iter().rev().skip(1).all(|event| event.name == "progress"), "{events:?}");
    let id = last.data["id"].as_str().expect("an id").to_owned();
    let session = Session { api: daemon.api().clone(), id: id.clone() };
    assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
    let paths = registry.paths();
    assert_eq!(paths.len(), 3, "manifest, configuration and layer, once for both: {paths:?}");
    let listed = daemon.get("/v1/sessions").await.ok();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "nobody waits for the other session: {listed}");

    // The image is here: the answer is the session alone, also as JSON lines.
    let lines = daemon.with_header("accept", "application/x-ndjson");
    let answer = lines.post("/v1/sessions", json!({ "image": registry.name() })).await;
    let line: Value = serde_json::from_str(answer.text().trim()).expect("one line");
    assert_eq!((answer.status, &line["event"], &line["status"]), (201, &json!("done"), &json!("running")));

    let none = json!({ "image": format!("{}/story/none:1", registry.address) });
    let events = told(&mut streaming.events(Method::POST, "/v1/sessions", none).await).await;
    let last = events.last().expect("an end");
    assert_eq!((last.name.as_str(), &last.data["error_code"]), ("error", &json!("INVALID_IMAGE")), "{events:?}");
    // The audit log knows how each of them ended.
    wait_until("the audit log has the streams", DEADLINE, async || {
        let log = std::fs::read_to_string(daemon.data_dir().join("audit.log")).unwrap_or_default();
        (log.contains(&id) && log.contains("INVALID_IMAGE")).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_ordinary_users_daemon_unpacks_all_layers_into_one_directory() {
    if lacks("an_ordinary_users_daemon_unpacks_all_layers_into_one_directory", Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped(
            "the daemon as another user",
            "needs root to become one; the other stories are about this user",
        );
    }
    let layers_of_image = [Layer::gzip(&base_layer()), Layer::zstd(&second_layer())];
    let registry = OwnRegistry::of(Image::new(&layers_of_image, json!({ "WorkingDir": "/srv/app" })), |_| None).await;
    let daemon = Daemon::builder().as_user(SOMEBODY).start().await;
    let session = daemon.create(json!({ "image": registry.name() })).await;
    let seen = session.sh("pwd; cat two same link /etc/new; ls -A /data; [ -e /etc/mark ] || echo gone; id -u").await;
    let expected = "/srv/app\nthe second layer\nthe second layer\nthe second layer\nnew\nown\ngone\n1000\n";
    assert_eq!(seen, expected);
    assert_ne!(session.exec("echo x > /etc/x").await["exit_code"], 0, "the root is writable");
    assert_eq!(layers(&daemon), 1);
    session.destroy().await;
    daemon.delete(&format!("/v1/images/{}", registry.name().replace('/', "%2F"))).await.ok();
    assert_eq!(layers(&daemon), 0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_a_pull_by_the_api_tells_how_it_ends() {
    if lacks("a_mirror_is_asked_first_and_a_pull_by_the_api_tells_how_it_ends", Ability::ImportedImages) {
        return;
    }
    let mirror = OwnRegistry::of(Image::new(&[Layer::gzip(&base_layer())], json!({})), |_| None).await;
    let config = format!("[images]\nmirrors = {{ 'registry.example.com' = '{}' }}\n", mirror.address);
    let daemon = Daemon::builder().config(&config).start().await;
    // If the mirror were not asked, a name that belongs to nobody would be.
    let name = "registry.example.com/story/image:1";
    let told = daemon.post("/v1/images/pull", json!({ "image": name })).await.text();
    let done = told.lines().skip_while(|line| *line != "event: done").nth(1).unwrap_or_else(|| panic!("{told}"));
    let done: Value = serde_json::from_str(done.trim_start_matches("data: ")).expect("JSON");
    assert_eq!(done["name"], name);
    let session = daemon.create(json!({ "image": name })).await;
    assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
    let asked = mirror.paths().len();
    let here = daemon.post("/v1/images/pull", json!({ "image": name, "if_missing": true })).await.text();
    assert!(here.contains("event: done") && mirror.paths().len() == asked, "{here}");
    let nothing = daemon.post("/v1/images/pull", json!({ "image": format!("{}/story/none:1", mirror.address) })).await;
    assert!(nothing.text().contains("event: error") && nothing.text().contains("INVALID_IMAGE"), "{}", nothing.text());
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_without_a_daemon_keeps_what_it_pulled() {
    if lacks("a_command_without_a_daemon_keeps_what_it_pulled", Ability::ImportedImages) {
        return;
    }
    let registry = OwnRegistry::of(Image::new(&[Layer::gzip(&base_layer())], json!({})), |_| None).await;
    let home = tempfile::Builder::new().prefix("cove-pull-").tempdir().expect("a temporary directory");
    let cove = Cove::at(home.path(), &home.path().join("data"));
    for _ in 0..2 {
        let ran = cove.run(&["run", &registry.name(), "--", "/bin/cat", "/etc/mark"]).await;
        assert_eq!(ran.ok(), "an image of its own\n");
    }
    let paths = registry.paths();
    assert_eq!(paths.len(), 3, "manifest, configuration and layer, by the first command alone: {paths:?}");
}

#[tokio::test]
async fn who_may_pull_what_is_the_operators_choice() {
    if lacks("who_may_pull_what_is_the_operators_choice", Ability::ImportedImages) {
        return;
    }
    let registry = OwnRegistry::of(Image::new(&[Layer::gzip(&base_layer())], json!({})), |_| None).await;
    let daemon = Daemon::builder().config("[images]\npull = 'never'\n").start().await;
    let refused = daemon.post("/v1/sessions", json!({ "image": registry.name() })).await;
    assert!(refused.text().contains(&format!("cove image pull {}", registry.name())), "{}", refused.text());
    assert_eq!((refused.refused(), registry.paths().len()), (InvalidImage, 0));
    daemon.stop().await;

    let daemon = Daemon::start().await;
    let key = daemon.post("/v1/keys", json!({ "name": "ann", "role": "user" })).await.ok()["secret"]
        .as_str()
        .expect("text")
        .to_owned();
    let ann = daemon.with_key(Some(&key));
    let refused = ann.post("/v1/sessions", json!({ "image": registry.name() })).await;
    assert!(refused.text().contains("images.registries"), "{}", refused.text());
    assert_eq!((refused.refused(), registry.paths().len()), (Forbidden, 0));
    daemon.stop().await;

    let daemon = Daemon::builder().config(&format!("[images]\nregistries = ['{}']\n", registry.address)).start().await;
    let key = daemon.post("/v1/keys", json!({ "name": "ann", "role": "user" })).await.ok()["secret"]
        .as_str()
        .expect("text")
        .to_owned();
    let ann = daemon.with_key(Some(&key));
    let session = ann.create(json!({ "image": registry.name() })).await;
    assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
    daemon.stop().await;
}

#[tokio::test]
async fn archives_of_layers_and_compressed_archives_are_imported() {
    if lacks("archives_of_layers_and_compressed_archives_are_imported", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let base = base_layer();
    for (name, archive) in
        [("gzipped", e2e::daemon::registry::gzip(&base)), ("zstandard", e2e::daemon::registry::zstd(&base))]
    {
        cove.run_with_stdin(&["image", "import", name, "-"], archive).await.ok();
    }
    let layers = [Layer::gzip(&base), Layer::plain(&second_layer())];
    let image = Image::new(&layers, json!({ "Env": ["GREETING=hello"] }));
    let (folder, saved) = (daemon.directory().join("layout"), daemon.directory().join("saved.tar"));
    std::fs::create_dir_all(folder.join("blobs/sha256")).expect("our own directory");
    let manifest = e2e::daemon::registry::digest(&image.manifest);
    for (digest, blob) in image.blobs.iter().chain([(&manifest, &image.manifest)]) {
        std::fs::write(folder.join("blobs").join(digest.replace(':', "/")), blob).expect("our own directory");
    }
    let index = json!({ "schemaVersion": 2, "manifests": [{ "mediaType": e2e::daemon::registry::MANIFEST, "digest": manifest, "size": image.manifest.len() }] });
    std::fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("our own directory");
    std::fs::write(folder.join("index.json"), index.to_string()).expect("our own directory");
    cove.run(&["image", "import", "layout", folder.to_str().expect("text")]).await.ok();
    // `docker save` writes the same blobs, and a document of its own.
    let config = image.blobs.iter().find(|(_, blob)| blob.starts_with(b"{")).expect("a configuration").0;
    let path = |digest: &str| format!("blobs/{}", digest.replace(':', "/"));
    let saved_layers: Vec<String> =
        layers.iter().map(|layer| path(&e2e::daemon::registry::digest(&layer.blob))).collect();
    let document = json!([{ "Config": path(config), "RepoTags": ["x:1"], "Layers": saved_layers }]);
    std::fs::write(folder.join("manifest.json"), document.to_string()).expect("our own directory");
    std::fs::write(&saved, tar_of(&folder)).expect("our own directory");
    cove.run(&["image", "import", "saved", saved.to_str().expect("text")]).await.ok();
    for name in ["gzipped", "zstandard"] {
        let session = daemon.create(json!({ "image": name })).await;
        assert_eq!(session.sh("cat /etc/mark /data/old").await, "an image of its own\nold\n", "{name}");
        session.destroy().await;
    }
    for name in ["layout", "saved"] {
        let session = daemon.create(json!({ "image": name })).await;
        let seen = session.sh("cat /srv/app/two; ls /data; echo $GREETING; [ -e /etc/mark ] || echo gone").await;
        assert_eq!(seen, "the second layer\nown\nhello\ngone\n", "{name}");
        session.destroy().await;
    }
    daemon.stop().await;
}
