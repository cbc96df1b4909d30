//! The images `base`, `python` and `node`: the host's own system until they are imported, then what scripts/images has made.

use std::path::PathBuf;

use e2e::daemon::{Ability, Cove, Daemon, lacks};
use e2e::{is_root, skipped};
use serde_json::{Value, json};

/// The directory with the archives that scripts/images makes. `scripts/test` makes them, and names it.
const ARCHIVES: &str = "COVE_E2E_IMAGES";

/// What each image is for, as a command whose last line is `well`.
const USES: [(&str, &str); 4] = [
    (
        "base",
        "set -e; . /etc/os-release; echo $ID; echo '{\"a\": [1, 2]}' | jq -c .a; cd /tmp; git init -q one; \
         echo needle > one/file; git -C one add file; git -C one -c user.name=x -c user.email=x@example.com commit -qm first; \
         git clone -q one two; rg -l needle two; curl --version | head -n 1; less --version | head -n 1; ps -o comm= -p 1; \
         [ -s /etc/ssl/certs/ca-certificates.crt ]; for tool in unzip zip xz zstd tree file ssh; do command -v $tool; done; echo well",
    ),
    (
        "python",
        "set -e; python -c 'import sqlite3, ssl, sys; print(sys.version)'; pip --version; uv --version; \
         python -m venv /tmp/v; /tmp/v/bin/pip --version; uv venv -q /tmp/u; git --version; echo well",
    ),
    (
        "node",
        "set -e; node -e 'console.log(process.versions.node)'; npm --version; corepack --version; \
         mkdir -p /tmp/p; cd /tmp/p; npm init -y > /dev/null; node -p 'require(\"./package.json\").name'; git --version; echo well",
    ),
    (
        "base-build",
        "set -e; cd /tmp; printf 'all: a\\n' > Makefile; echo 'int main() { return 0; }' > a.c; make -s; ./a; pkg-config --version; echo well",
    ),
];

fn archive(name: &str) -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(ARCHIVES)?);
    Some(directory.join(format!("{name}.tar"))).filter(|path| path.is_file())
}

async fn source_of(daemon: &Daemon, image: &str) -> Value {
    let images = daemon.get("/v1/images").await.ok();
    let found = images.as_array().and_then(|images| images.iter().find(|view| view["name"] == image)).cloned();
    found.unwrap_or_else(|| panic!("{image}: {images}"))["source"].clone()
}

#[tokio::test]
async fn a_name_without_an_image_is_the_hosts_own_system_and_that_is_told() {
    if lacks("a_name_without_an_image_is_the_hosts_own_system_and_that_is_told", Ability::HostImage) {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let told = "images are not imported and show the host's own system";
    assert_eq!(daemon.log().matches(told).count(), 1, "{}", daemon.log());
    assert!(!cove.run(&["ps"]).await.stderr.contains("host's own system"), "nobody uses them");
    for image in ["python", "python", "host"] {
        daemon.create(json!({ "image": image })).await;
    }
    assert_eq!(source_of(&daemon, "python").await, "host");
    let listed = cove.run(&["ps"]).await;
    assert_eq!(listed.stderr.matches("image python shows the host's own system").count(), 1, "{listed:?}");
    assert_eq!(cove.run(&["ps", "--json"]).await.stderr, "");
    // An import takes effect at once, for the sessions that come.
    let root = e2e::daemon::rootfs::rootfs();
    let path = root.path().to_str().expect("text");
    cove.run(&["image", "import", "python", path]).await.ok();
    assert_eq!(source_of(&daemon, "python").await, "python");
    assert!(!cove.run(&["ps"]).await.stderr.contains("host's own system"));
    let images = cove.run(&["image", "ls"]).await.ok();
    let source =
        |name: &str| images.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_whitespace().nth(1));
    assert_eq!((source("python"), source("node")), (Some("import"), Some("host")), "{images}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_images_of_scripts_images_have_what_their_names_say_and_share_a_layer() {
    let story = "the_images_of_scripts_images_have_what_their_names_say_and_share_a_layer";
    if lacks(story, Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::builder().config("[images]\npull = 'never'\n").start().await;
    let cove = Cove::of(&daemon);
    for (image, command) in USES {
        let Some(archive) = archive(image) else {
            skipped(
                &format!("{story}: {image}"),
                &format!("{ARCHIVES} names no directory with {image}.tar; scripts/images makes it"),
            );
            continue;
        };
        let imported = cove.run(&["image", "import", image, archive.to_str().expect("text")]).await;
        assert_eq!(imported.code, 0, "{imported:?}");
        assert!(!imported.stderr.contains("left out"), "there are no devices in it: {imported:?}");
        let session = daemon.patient().create(json!({ "image": image, "resources": { "memory_mb": 1024 } })).await;
        let said = session.ask(json!({ "cmd": format!("({command})"), "timeout_ms": 120_000 })).await.ok();
        let said = said["output"].as_str().expect("text");
        assert!(said.ends_with("well\n"), "{image}: {said}");
        assert_eq!(
            session.sh("pwd; id -un; echo $LANG; [ -e /etc/machine-id ] || echo none").await,
            "/workspace\nsandbox\nC.UTF-8\nnone\n"
        );
        assert_eq!(
            session.sh("ls -A /var/lib/apt/lists /var/log /var/cache/apt 2>/dev/null | grep -v :$ | wc -w").await,
            "0\n"
        );
        session.destroy().await;
        assert_eq!(source_of(&daemon, image).await, image);
        let described = daemon.get(&format!("/v1/images/{image}")).await.ok();
        println!(
            "{image}: {} MiB, of which {} MiB are shared",
            described["bytes"].as_u64().unwrap_or(0) >> 20,
            described["shared_bytes"].as_u64().unwrap_or(0) >> 20
        );
        if image != "base" && is_root() && self::archive("base").is_some() {
            assert!(described["shared_bytes"].as_u64() > Some(100 << 20), "the layer of base: {described}");
        }
    }
    daemon.stop().await;
}
