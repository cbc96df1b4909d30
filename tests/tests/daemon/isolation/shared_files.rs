//! Files that several sandboxes see: the host's own system, and imported images. A sandbox can neither notice nor disturb what others
//! do with them.

use std::path::Path;

use e2e::daemon::{Ability, Cove, Daemon, is_local_only, lacks};
use e2e::{is_root, skipped};
use serde_json::{Value, json};

use super::beacon::Beacon;
use e2e::daemon::rootfs::{put_program, rootfs};

#[tokio::test]
async fn a_lock_on_a_program_of_the_host_holds_in_its_own_sandbox_only() {
    let daemon = Daemon::start().await;
    let (one, other) = (daemon.session().await, daemon.session().await);
    let lock = "flock --nonblock /usr/bin/env";
    one.sh(&format!("(flock /usr/bin/env sleep 1000 &); until ! {lock} true; do sleep 0.01; done")).await;
    assert_eq!(one.exec(&format!("{lock} true")).await["exit_code"], 1, "there is no lock");
    assert_eq!(other.exec(&format!("{lock} true")).await["exit_code"], 0, "another sandbox has to wait");
    daemon.stop().await;
}

/// A socket, a FIFO, a lock and a watch in an image, which the host or another sandbox of the same image uses.
#[tokio::test]
async fn nothing_leads_out_through_the_files_of_an_image() {
    if lacks("nothing_leads_out_through_the_files_of_an_image", Ability::ImportedImages) {
        return;
    }
    if !is_root() {
        return skipped("nothing_leads_out_through_the_files_of_an_image", "only root makes devices and maps images");
    }
    let root = rootfs();
    put_program(root.path(), Path::new(env!("CARGO_BIN_EXE_probe")));
    for (config, is_apart) in [("", true), ("[local]\ndisabled_protections = [\"own_inodes\", \"landlock\"]\n", false)]
    {
        let daemon = Daemon::builder().config(config).start().await;
        let path = root.path().to_str().expect("text");
        Cove::of(&daemon).run(&["image", "import", "mine", path]).await.ok();
        let place = daemon.data_dir().join("images/mine/rootfs/beacon");
        std::fs::create_dir(&place).expect("our own image");
        let _beacon = Beacon::at(&place);
        let session = daemon.create(json!({ "image": "mine" })).await;
        let ran = session.run(&["/bin/probe", "0", "/beacon"]).await;
        let facts: Value = serde_json::from_str(ran["stdout"].as_str().expect("text"))
            .unwrap_or_else(|error| panic!("{error}: {ran}"));
        let reached = &facts["beacon"];
        assert_eq!(reached["seen"], true, "{reached}");
        for way in ["socket", "fifo", "lock", "event"] {
            assert_eq!(reached[way], !is_apart, "{way}, {config:?}: {reached}");
        }
        let roots = facts["mount_roots"].to_string();
        assert_eq!(roots.contains("images/mine"), !is_apart, "{roots}");
        daemon.stop().await;
    }
}

/// Names that an operator adds are shown; nothing else of the host's `/etc` is.
#[tokio::test]
async fn of_etc_a_sandbox_sees_what_programs_need_and_what_the_operator_adds() {
    if is_local_only(
        "of_etc_a_sandbox_sees_what_programs_need_and_what_the_operator_adds",
        "a container has its image's",
    ) {
        return;
    }
    let names = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let daemon = Daemon::start().await;
    let usual = names(daemon.session().await.sh("ls -A /etc").await);
    for own in ["passwd", "group", "hosts", "hostname", "resolv.conf"] {
        assert!(usual.iter().any(|name| name == own), "{own}: {usual:?}");
    }
    let session = daemon.session().await;
    assert_eq!(
        session.sh("cat /etc/hostname; id -un; stat -c %A /etc/passwd").await,
        format!("{}\nsandbox\n-r--r--r--\n", session.id)
    );
    // The daemon answers, not a name server of the host's network.
    assert_eq!(
        session.sh("grep -c . /etc/resolv.conf; grep ^nameserver /etc/resolv.conf").await,
        "2\nnameserver 192.0.2.53\n"
    );
    daemon.stop().await;
    let daemon = Daemon::builder().config("[local]\netc = [\"fstab\", \"login*\"]\n").start().await;
    let more = names(daemon.session().await.sh("ls -A /etc").await);
    let added: Vec<_> = more.iter().filter(|name| !usual.contains(name)).collect();
    assert!(!added.is_empty() && added.iter().all(|name| *name == "fstab" || name.starts_with("login")), "{added:?}");
    daemon.stop().await;
}
