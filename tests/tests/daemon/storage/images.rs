//! Imported root file systems, beside the host's own.

use std::path::Path;

use e2e::daemon::rootfs::{rootfs, tar_of};
use e2e::daemon::{Ability, Cove, Daemon, lacks};
use e2e::{is_root, skipped};
use serde_json::json;
use shared_protocol::ErrorCode::InvalidImage;
use tar::EntryType;

use crate::calls::archives;

/// The names of the images that have files of their own.
pub async fn here(cove: &Cove) -> Vec<String> {
    let listed = cove.run(&["image", "ls", "--json"]).await.json();
    let images = listed.as_array().expect("a list").iter().filter(|image| image["source"] != "host");
    images.map(|image| image["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn an_image_is_imported_from_a_directory_a_file_and_a_pipe() {
    if lacks("an_image_is_imported_from_a_directory_a_file_and_a_pipe", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let root = rootfs();
    let archive = tar_of(root.path());
    let file = daemon.directory().join("rootfs.tar");
    std::fs::write(&file, &archive).expect("our own directory");
    let path = root.path().to_str().expect("text");
    let imported = cove.run(&["image", "import", "one", path, "--json"]).await;
    assert!(imported.json()["files"].as_u64() > Some(10), "{imported:?}");
    cove.run(&["image", "import", "two", file.to_str().expect("text")]).await.ok();
    cove.run_with_stdin(&["image", "import", "three", "-"], archive).await.ok();
    let again = cove.run(&["image", "import", "one", path]).await;
    assert!(again.code == 1 && again.stderr.contains("already"), "{again:?}");
    let names = here(&cove).await;
    assert_eq!(names, ["one", "three", "two"]);
    let known = daemon.get("/v1/images").await.ok().to_string();
    assert!(["one", "two", "three"].iter().all(|name| known.contains(&format!("\"{name}\""))), "{known}");

    for name in ["one", "two", "three"] {
        let session = daemon.create(json!({ "image": name })).await;
        assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
        assert_eq!(session.view().await["image"], name);
        session.sh("echo x > /workspace/x; cat /workspace/x; mkdir /tmp/y").await;
        for place in ["/", "/etc", "/bin"] {
            assert_ne!(session.exec(&format!("echo x > {place}/new")).await["exit_code"], 0, "{place} is writable");
        }
        assert_ne!(session.exec("ls /usr/bin/python3").await["exit_code"], 0, "the host's programs are seen");
        session.destroy().await;
    }
    cove.run(&["image", "rm", "two"]).await.ok();
    assert_eq!(cove.run(&["image", "rm", "two"]).await.code, 1);
    assert_eq!(daemon.post("/v1/sessions", json!({ "image": "two" })).await.refused(), InvalidImage);
    daemon.stop().await;
}

#[tokio::test]
async fn a_configured_image_that_is_not_imported_is_told_at_the_start_and_at_a_create() {
    if lacks("a_configured_image_that_is_not_imported_is_told_at_the_start_and_at_a_create", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::builder().config("[images]\npython = 'nosuch'\n").start().await;
    let log = daemon.log();
    let warning = log.lines().find(|line| line.contains("configured image is not here")).unwrap_or_default();
    assert!(warning.contains("images.python") && warning.contains("cove image import nosuch"), "{log}");
    let refused = daemon.post("/v1/sessions", json!({ "image": "python" })).await;
    assert!(refused.text().contains("images.python"), "{}", refused.text());
    assert_eq!(refused.refused(), InvalidImage);
    let offered = daemon.get("/v1/images").await.ok().to_string();
    assert!(!offered.contains("python"), "{offered}");
    // It can be imported while the daemon runs.
    let root = rootfs();
    Cove::of(&daemon).run(&["image", "import", "nosuch", root.path().to_str().expect("text")]).await.ok();
    let session = daemon.create(json!({ "image": "python" })).await;
    assert_eq!(session.sh("cat /etc/mark").await, "an image of its own\n");
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_written_to_a_writable_root_goes_with_the_session() {
    if lacks("what_is_written_to_a_writable_root_goes_with_the_session", Ability::ImportedImages) {
        return;
    }
    if !is_root() {
        return skipped("a writable root", "its overlay needs root");
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let root = rootfs();
    cove.run(&["image", "import", "mine", root.path().to_str().expect("text")]).await.ok();
    let create = json!({ "image": "mine", "writable_root": true });
    let (one, other) = (daemon.create(create.clone()).await, daemon.create(create.clone()).await);
    assert_eq!(one.view().await["writable_root"], true);
    // Commands run as the sandbox user, in that user's home directory.
    let made = one.sh("mkdir /home/sandbox/d && echo x > /home/sandbox/d/f && cat /home/sandbox/d/f; id -u").await;
    assert_eq!(made, "x\n1000\n");
    let written = one.exec("echo mine > /etc/mark; cat /etc/mark").await;
    println!("writing to /etc as the sandbox's user: {written}");
    assert_eq!(other.sh("cat /etc/mark; ls -A /home/sandbox").await, "an image of its own\n");
    one.destroy().await;
    other.destroy().await;
    let later = daemon.create(create).await;
    assert_eq!(later.sh("cat /etc/mark; ls -A /home/sandbox").await, "an image of its own\n");
    daemon.stop().await;
}

#[tokio::test]
async fn the_hosts_own_system_can_be_changed_in_a_session_and_stays_as_it_is() {
    if lacks("the_hosts_own_system_can_be_changed_in_a_session_and_stays_as_it_is", Ability::HostImage) {
        return;
    }
    if !is_root() {
        return skipped("a writable root", "its overlay needs root");
    }
    let daemon = Daemon::start().await;
    let create = json!({ "image": "host", "writable_root": true });
    let (one, other) = (daemon.patient().create(create.clone()).await, daemon.create(create).await);
    let names = ["/usr/bin/cove-story", "/usr/local/cove-story", "/etc/cove-story", "/cove-story"];
    for name in names {
        assert_eq!(one.sh(&format!("echo mine > {name} && cat {name}")).await, "mine\n", "{name}");
        assert_eq!(other.exec(&format!("cat {name}")).await["exit_code"], 1, "{name}");
        assert!(!std::path::Path::new(name).exists(), "{name} is on the host");
    }
    let before = std::fs::read("/usr/bin/env").expect("a program of the host");
    assert_eq!(
        one.sh("echo changed > /usr/bin/env; cat /usr/bin/env; rm /usr/bin/env; ls /usr/bin/env 2>&1 | wc -l").await,
        "changed\n1\n"
    );
    assert_eq!(std::fs::read("/usr/bin/env").expect("the host's own"), before);
    assert_eq!(other.sh("/usr/bin/env echo whole").await, "whole\n");
    // What only root may read in the host's /etc is not copied.
    assert_eq!(one.sh("cat /etc/shadow /etc/gshadow /etc/ssl/private/* 2>/dev/null; true").await, "");
    // It counts towards the session's own disk.
    let small = daemon.create(json!({ "image": "host", "writable_root": true, "resources": { "disk_mb": 50 } })).await;
    let full = small.sh("cat /dev/zero > /usr/bin/big 2>/dev/null; stat -c %s /usr/bin/big").await;
    assert!(full.trim().parse::<u64>().expect("a number") < 50 << 20, "{full}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_hostile_archive_stays_in_its_image() {
    if lacks("a_hostile_archive_stays_in_its_image", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let base = tar_of(rootfs().path());
    let victim = daemon.data_dir().join("images/victim");
    for (n, (name, hostile)) in archives::hostile().into_iter().enumerate() {
        // The entry follows a complete image, so that only the entry itself can be the cause.
        let mut archive = base[..base.len() - 1024].to_vec();
        archive.extend_from_slice(&hostile);
        let image = format!("hostile{n}");
        let imported = cove.run_with_stdin(&["image", "import", &image, "-"], archive).await;
        println!("{name}: {} {}", imported.code, imported.stderr.trim());
        assert!([0, 1].contains(&imported.code), "{name}: {imported:?}");
        assert!(!Path::new("/tmp/escaped").exists(), "{name} came to the host");
        let images = daemon.data_dir().join("images");
        for place in [images.join("escaped"), images.join(&image).join("escaped"), daemon.data_dir().join("escaped")] {
            assert!(!place.exists(), "{name} wrote {}", place.display());
        }
        assert!(!victim.exists());
        if imported.code == 0 {
            let session = daemon.create(json!({ "image": image })).await;
            let found = session.exec("for f in /device /stolen; do [ -e $f ] && ls -l $f && cat $f; done; true").await;
            let output = found["output"].as_str().expect("text");
            assert!(
                !output.contains("root:") && !output.contains("crw") && !output.contains("brw"),
                "{name}: {output}"
            );
            session.destroy().await;
        } else {
            assert!(!images.join(&image).exists(), "{name} left half an image");
            let left: Vec<_> = std::fs::read_dir(&images)
                .expect("images")
                .flatten()
                .map(|e| e.file_name())
                .filter(|n| n.to_string_lossy().starts_with('.'))
                .collect();
            assert!(left.is_empty(), "{name} left {left:?}");
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_no_image_is_refused_with_a_reason() {
    if lacks("what_is_no_image_is_refused_with_a_reason", Ability::ImportedImages) {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let mut no_bash = Vec::new();
    archives::entry(&mut no_bash, EntryType::Regular, "etc/passwd", "", b"root:x:0:0::/:/bin/sh\n");
    archives::end(&mut no_bash);
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &[0; 600]].concat();
    let xz = [&[0xfd, b'7', b'z', b'X', b'Z', 0][..], &[0; 600]].concat();
    for (what, bytes, word) in [
        ("no bash", no_bash, "bash"),
        ("not really compressed", gzip, "tar"),
        ("compressed in another way", xz, "xzcat"),
        ("nonsense", vec![7; 4096], "tar"),
        ("empty", Vec::new(), ""),
    ] {
        let refused = cove.run_with_stdin(&["image", "import", "bad", "-"], bytes).await;
        assert!(refused.code == 1 && refused.stderr.contains(word), "{what}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{what}: {refused:?}");
    }
    for name in ["../x", "", ".hidden", "a/b", "-x"] {
        let refused = cove.run_with_stdin(&["image", "import", "--", name, "-"], Vec::new()).await;
        assert_ne!(refused.code, 0, "{name}: {refused:?}");
    }
    assert_eq!(here(&cove).await, [""; 0]);
    daemon.stop().await;
}
