//! Registries that fail, lie and attack: each pull ends with a clear error, in bounded time, and leaves nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::daemon::{Ability, Cove, Daemon, lacks};
use e2e::{DEADLINE, wait_until};
use serde_json::json;
use shared_protocol::ErrorCode::InvalidImage;
use tar::EntryType;

use super::images::here;
use super::pull::{base_layer, names_in, store};
use crate::calls::archives;
use e2e::daemon::registry::{INDEX, Image, Layer, OwnRegistry, Reply, Request, digest};

/// A registry may be silent for a second, and an image may have 64 MiB.
const CONFIG: &str = "[images]\ntimeout_seconds = 1\nmax_unpacked_mb = 64\n";

fn is_layer(request: &Request, image: &Image) -> bool {
    let largest = image.blobs.iter().max_by_key(|(_, blob)| blob.len()).map(|(digest, _)| digest.clone());
    largest.is_some_and(|digest| request.path.ends_with(&digest))
}

/// Pulls by the command, and returns what it said. Nothing must be left of the pull.
async fn refused(daemon: &Daemon, registry: &OwnRegistry) -> String {
    let config = daemon.directory().join("pull.toml");
    std::fs::write(&config, CONFIG).expect("our own directory");
    let config = config.to_str().expect("text").to_owned();
    let pulled = Cove::of(daemon).run(&["image", "pull", &registry.name(), "--config", &config]).await;
    assert_eq!(pulled.code, 1, "{pulled:?}");
    assert_eq!(pulled.stderr.lines().count(), 1, "{pulled:?}");
    nothing_is_left(daemon, &pulled.stderr);
    pulled.stderr
}

fn nothing_is_left(daemon: &Daemon, what: &str) {
    for place in ["staging", "layers", "references", "uses"] {
        let left = names_in(&store(daemon).join(place));
        assert!(left.is_empty(), "{what}: {place} has {left:?}");
    }
}

#[tokio::test]
async fn a_registry_that_refuses_or_lies_is_told_in_a_line_and_leaves_nothing() {
    if lacks("a_registry_that_refuses_or_lies_is_told_in_a_line_and_leaves_nothing", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let image = Image::new(&[Layer::gzip(&base_layer())], json!({}));
    let of_layer = |change: fn(Reply) -> Reply| {
        let image = image.clone();
        move |request: &Request| {
            is_layer(request, &image).then(|| {
                change(e2e::daemon::registry::good(&image, &Request { headers: Default::default(), ..request.clone() }))
            })
        }
    };
    let always = |reply: Reply| move |_: &Request| Some(reply.clone());
    type Change = Box<dyn Fn(&Request) -> Option<Reply> + Send + Sync>;
    let foreign = digest(b"nothing");
    let index = json!({ "schemaVersion": 2, "manifests": [{ "digest": foreign, "size": 1, "platform": { "os": "linux", "architecture": "s390x" } }] });
    let index = Reply::ok(index.to_string().as_bytes()).header("Content-Type", INDEX);
    let faults: Vec<(&str, Change)> = vec![
        ("docker login", Box::new(always(Reply::of(401)))),
        ("(403)", Box::new(always(Reply::of(403)))),
        ("(404)", Box::new(always(Reply::of(404)))),
        ("try again in 77 s", Box::new(always(Reply::of(429).header("Retry-After", "77")))),
        ("answered 500", Box::new(always(Reply::of(500)))),
        ("was silent", Box::new(always(Reply { hangs: true, ..Reply::default() }))),
        ("not understood", Box::new(always(Reply::ok(b"<html>")))),
        ("linux/s390x", Box::new(always(index))),
        (
            "does not have the digest",
            Box::new(of_layer(|mut reply| {
                reply.body[100] ^= 1;
                reply
            })),
        ),
        (
            "larger than it may be",
            Box::new(of_layer(|mut reply| {
                reply.body.push(0);
                reply
            })),
        ),
    ];
    for (word, change) in faults {
        let registry = OwnRegistry::of(image.clone(), change).await;
        let said = refused(&daemon, &registry).await;
        assert!(said.contains(word), "{word}: {said}");
        assert!(names_in(&store(&daemon).join("blobs")).is_empty(), "{word}");
    }
    // The daemon says the same to whoever creates a session.
    let registry = OwnRegistry::of(image, always(Reply::of(429).header("Retry-After", "77"))).await;
    let answer = daemon.post("/v1/sessions", json!({ "image": registry.name() })).await;
    assert!(answer.text().contains("try again in 77 s"), "{}", answer.text());
    assert_eq!(answer.refused(), InvalidImage);
    nothing_is_left(&daemon, "a create");
    daemon.stop().await;
}

#[tokio::test]
async fn a_layer_that_is_cut_off_continues_where_it_was() {
    if lacks("a_layer_that_is_cut_off_continues_where_it_was", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let image = Image::new(&[Layer::gzip(&base_layer())], json!({}));
    let length = image.blobs.values().map(Vec::len).max().expect("a layer");
    // Every answer ends after half a megabyte, and those of the first pull come five times only: then the pull has failed.
    let piece = length / 8;
    let cut = {
        let image = image.clone();
        move |request: &Request| {
            let reply = e2e::daemon::registry::good(&image, request);
            is_layer(request, &image).then_some(Reply { cut_after: Some(piece), ..reply })
        }
    };
    let registry = OwnRegistry::of(image.clone(), cut).await;
    let said = refused(&daemon, &registry).await;
    assert!(said.contains("is cut off"), "{said}");
    let blobs = store(&daemon).join("blobs");
    let part = names_in(&blobs).first().map(|name| std::fs::metadata(blobs.join(name)).expect("a file").len());
    assert!(part >= u64::try_from(4 * piece).ok(), "{part:?} of {length}");
    // The second pull asks for the rest alone.
    let config = daemon.directory().join("pull.toml");
    let before = registry.paths().len();
    Cove::of(&daemon).run(&["image", "pull", &registry.name(), "--config", config.to_str().expect("text")]).await.ok();
    let ranges: Vec<Option<String>> = registry.seen.lock().expect("no panic")[before..]
        .iter()
        .map(|request| request.headers.get("range").cloned())
        .collect();
    let expected = format!("bytes={}-", part.unwrap_or_default());
    assert!(ranges.contains(&Some(expected.clone())), "{expected}: {ranges:?}");
    let session = daemon.create(json!({ "image": registry.name() })).await;
    assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_pull_that_is_killed_leaves_no_image_and_the_next_one_continues_it() {
    if lacks("a_pull_that_is_killed_leaves_no_image_and_the_next_one_continues_it", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let image = Image::new(&[Layer::gzip(&base_layer())], json!({}));
    // The first answer stops in the middle of the layer, and the others do not.
    let half = image.blobs.values().map(Vec::len).max().expect("a layer") / 2;
    let layers_sent = AtomicUsize::new(0);
    let registry = {
        let image = image.clone();
        OwnRegistry::of(image.clone(), move |request| {
            let is_first = is_layer(request, &image) && layers_sent.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then(|| Reply {
                cut_after: Some(half),
                hangs: true,
                ..e2e::daemon::registry::good(&image, request)
            })
        })
        .await
    };
    let cove = Cove::of(&daemon);
    let mut pulling = cove.spawn(&["image", "pull", &registry.name()]);
    let blobs = store(&daemon).join("blobs");
    wait_until("half a layer is here", DEADLINE, async || {
        let blob = names_in(&blobs).first().map(|name| blobs.join(name))?;
        (std::fs::metadata(blob).ok()?.len() >= u64::try_from(half).ok()?).then_some(())
    })
    .await;
    pulling.kill().expect("our own process");
    pulling.wait().expect("our own process");
    assert_eq!(here(&cove).await, [""; 0]);
    nothing_is_left(&daemon, "a pull that was killed");
    cove.run(&["image", "pull", &registry.name()]).await.ok();
    let last = registry.seen.lock().expect("no panic").last().cloned().expect("a request");
    assert_eq!(last.headers.get("range"), Some(&format!("bytes={half}-")));
    let session = daemon.create(json!({ "image": registry.name() })).await;
    assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
    assert!(names_in(&blobs).is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn a_hostile_layer_stays_in_its_layer_and_a_bomb_ends_at_the_limit() {
    if lacks("a_hostile_layer_stays_in_its_layer_and_a_bomb_ends_at_the_limit", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let base = Layer::gzip(&base_layer());
    for (name, mut hostile) in archives::hostile() {
        archives::end(&mut hostile);
        let registry = OwnRegistry::of(Image::new(&[base.clone(), Layer::gzip(&hostile)], json!({})), |_| None).await;
        let pulled = Cove::of(&daemon).run(&["image", "pull", &registry.name()]).await;
        println!("{name}: {} {}", pulled.code, pulled.stderr.trim());
        for place in [
            Path::new("/tmp/escaped"),
            &daemon.data_dir().join("escaped"),
            &store(&daemon).join("layers/escaped"),
            &store(&daemon).join("escaped"),
        ] {
            assert!(!place.exists(), "{name} wrote {}", place.display());
        }
        assert!(names_in(&store(&daemon).join("staging")).is_empty(), "{name}");
        if pulled.code == 0 {
            let session = daemon.create(json!({ "image": registry.name() })).await;
            let found = session.exec("for f in /device /stolen; do [ -e $f ] && ls -l $f && cat $f; done; true").await;
            let output = found["output"].as_str().expect("text");
            assert!(
                !output.contains("root:") && !output.contains("crw") && !output.contains("brw"),
                "{name}: {output}"
            );
            session.destroy().await;
            Cove::of(&daemon).run(&["image", "rm", &registry.name()]).await.ok();
        }
        nothing_is_left(&daemon, name);
    }
    let mut bomb = Vec::new();
    archives::entry(&mut bomb, EntryType::Regular, "bomb", "", &vec![0; 80 << 20]);
    archives::end(&mut bomb);
    let wrong = Layer { diff_id: digest(b"another"), ..base.clone() };
    let other = Layer { media_type: "application/vnd.oci.image.layer.v1.tar+gzip+encrypted".into(), ..base.clone() };
    let empty = Layer::gzip(&[0; 1024]);
    for (word, layers) in [
        ("images.max_unpacked_mb", vec![base.clone(), Layer::gzip(&bomb)]),
        ("its content has the digest", vec![wrong]),
        ("encrypted", vec![other]),
        ("no bash", vec![empty]),
    ] {
        let registry = OwnRegistry::of(Image::new(&layers, json!({})), |_| None).await;
        let said = refused(&daemon, &registry).await;
        assert!(said.contains(word), "{word}: {said}");
        assert!(names_in(&store(&daemon).join("blobs")).is_empty(), "{word}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_registry_gets_the_login_that_it_wants() {
    if lacks("a_registry_gets_the_login_that_it_wants", Ability::ImportedImages) {
        return;
    }
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode("ann:secret");
    let image = Image::new(&[Layer::gzip(&base_layer())], json!({}));
    let daemon = Daemon::start().await;
    let docker = daemon.directory().join(".docker");
    std::fs::create_dir(&docker).expect("our own directory");

    // Basic: the login goes with every request.
    let wants = format!("Basic {login}");
    let basic = OwnRegistry::of(image.clone(), move |request| {
        let is_known = request.headers.get("authorization") == Some(&wants);
        (!is_known).then(|| Reply::of(401).header("WWW-Authenticate", "Basic realm=\"story\""))
    })
    .await;
    // Bearer: the login goes to the token server, and the token with every request.
    let address: Arc<std::sync::OnceLock<String>> = Arc::default();
    let tokens = Arc::new(AtomicUsize::new(0));
    let bearer = {
        let (address, tokens, login) = (address.clone(), tokens.clone(), format!("Basic {login}"));
        OwnRegistry::of(image, move |request| {
            let authorization = request.headers.get("authorization").map(String::as_str);
            if request.path.starts_with("/token?") {
                tokens.fetch_add(1, Ordering::SeqCst);
                let is_whole = request.path.contains("scope=repository%3Astory%2Fimage%3Apull")
                    && request.path.contains("service=story");
                let is_known = authorization == Some(login.as_str()) && is_whole;
                return Some(if is_known { Reply::ok(br#"{"token":"let-me-in"}"#) } else { Reply::of(401) });
            }
            let realm = format!(
                "Bearer realm=\"http://{}/token\",service=\"story\",scope=\"repository:story/image:pull\"",
                address.get().expect("set")
            );
            (authorization != Some("Bearer let-me-in")).then(|| Reply::of(401).header("WWW-Authenticate", &realm))
        })
        .await
    };
    address.set(bearer.address.clone()).expect("once");
    for registry in [&basic, &bearer] {
        let said = refused(&daemon, registry).await;
        assert!(said.contains("docker login") && !said.contains("secret"), "{said}");
    }
    let auths =
        json!({ "auths": { (basic.address.clone()): { "auth": login }, (bearer.address.clone()): { "auth": login } } });
    std::fs::write(docker.join("config.json"), auths.to_string()).expect("our own directory");
    tokens.store(0, Ordering::SeqCst);
    for registry in [&basic, &bearer] {
        Cove::of(&daemon).run(&["image", "pull", &registry.name()]).await.ok();
    }
    assert_eq!(tokens.load(Ordering::SeqCst), 1, "one token serves the whole pull");
    daemon.stop().await;
}
