//! Files are written and read as the sandbox user, and never outside of the root.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use e2e::{Runner, SANDBOX_USER, ask, is_root, skipped};
use hyper::Method;
use serde_json::Value;
use shared_protocol::ErrorCode::{FileNotFound, Forbidden};
use shared_protocol::runner::{FileKind, FileView, ListView, WroteView};

async fn put(runner: &Runner, path: &str, content: impl Into<bytes::Bytes>) -> WroteView {
    let reply = runner.raw(Method::PUT, &format!("/v1/files?path={path}"), content).await;
    assert_eq!(reply.status, 201, "{path}: {}", reply.text());
    serde_json::from_slice(&reply.body).expect("a WroteView")
}

async fn read(runner: &Runner, path: &str) -> Vec<u8> {
    let reply = runner.raw(Method::GET, &format!("/v1/files?path={path}"), "").await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.body.to_vec()
}

#[tokio::test]
async fn what_is_written_is_read_byte_for_byte() {
    let runner = Runner::start().await;
    let noise: Vec<u8> =
        (0..3_000_000_u32).map(|i| u8::try_from(i.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    for content in [Vec::new(), b"text\n".to_vec(), noise] {
        let bytes = put(&runner, "some/new/file", content.clone()).await.bytes;
        assert_eq!(bytes, content.len() as u64);
        assert!(read(&runner, "some/new/file").await == content);
    }
}

#[tokio::test]
async fn files_belong_to_the_sandbox_user() {
    let runner = Runner::start().await;
    put(&runner, "mine&mode=640", "x").await;
    let metadata = std::fs::metadata(runner.workspace().join("mine")).unwrap();
    let owner = if is_root() { SANDBOX_USER } else { nix::unistd::geteuid().as_raw() };
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (owner, 0o640));
}

#[tokio::test]
async fn what_the_sandbox_user_may_not_read_is_forbidden() {
    if !is_root() {
        return skipped(
            "what_the_sandbox_user_may_not_read_is_forbidden",
            "only root has files that others may not read",
        );
    }
    let runner = Runner::start().await;
    let reply = runner.raw(Method::GET, "/v1/files?path=/etc/shadow", "").await;
    assert_eq!((reply.status, reply.refused()), (403, Forbidden));
    let written = runner.raw(Method::PUT, "/v1/files?path=/etc/cove-e2e", "x").await;
    assert_eq!((written.status, written.refused()), (403, Forbidden));
    assert!(read(&runner, "/etc/passwd").await.starts_with(b"root:"), "the control: what it may read it gets");
}

#[tokio::test]
async fn a_file_that_a_command_could_not_write_is_not_replaced() {
    let runner = Runner::start().await;
    runner.sh("echo old >kept; chmod 444 kept; ln -s kept link; ln kept twin").await;
    assert_ne!(runner.exec(ask("echo new >kept")).await.code(), 0, "the control: a command cannot write it");
    for path in ["kept", "kept&mode=644", "link", "twin"] {
        let reply = runner.raw(Method::PUT, &format!("/v1/files?path={path}"), "new").await;
        assert_eq!((reply.status, reply.refused()), (403, Forbidden), "{path}");
    }
    assert_eq!(read(&runner, "kept").await, b"old\n");
    assert_eq!(runner.output_of("stat -c '%a %h' kept; ls -A").await, "444 2\nkept\nlink\ntwin\n");
    runner.sh("chmod 664 kept").await;
    put(&runner, "link", "new").await;
    assert_eq!(runner.output_of("stat -c '%a' kept; cat kept twin").await, "664\nnewold\n", "a new file, the old mode");
}

#[tokio::test]
async fn an_archive_replaces_a_read_only_file_as_tar_does() {
    let runner = Runner::start().await;
    runner.sh("mkdir a b; echo new >a/f; echo old >b/f; chmod 444 b/f").await;
    let packed = runner.raw(Method::GET, "/v1/archive?path=a", "").await;
    let unpacked = runner.raw(Method::PUT, "/v1/archive?path=b", packed.body).await;
    assert_eq!(unpacked.status, 201, "{}", unpacked.text());
    assert_eq!(read(&runner, "b/f").await, b"new\n");
}

#[tokio::test]
async fn a_range_gives_that_part() {
    let runner = Runner::start().await;
    put(&runner, "digits", "0123456789").await;
    let request = hyper::Request::get("/v1/files?path=digits").header("range", "bytes=2-4");
    let response = runner.send(request.body(http_body_util::Full::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 206);
    assert_eq!(response.headers()["content-range"], "bytes 2-4/10");
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(body, "234");
}

#[tokio::test]
async fn directories_are_made_listed_moved_and_deleted() {
    let runner = Runner::start().await;
    let made = runner.raw(Method::POST, "/v1/fs/mkdir?path=a/b&parents=1", "").await;
    assert_eq!(made.status, 201, "{}", made.text());
    put(&runner, "a/b/file", "x").await;
    let list: ListView = runner.get("/v1/fs/list?path=a&recursive=1").await.unwrap();
    let paths: Vec<&str> = list.entries.iter().map(|e| e.path.as_str()).collect();
    assert_eq!((paths, list.truncated), (vec!["b", "b/file"], false));
    let _: FileView = runner.post("/v1/fs/move?from=a/b/file&to=a/moved", &()).await.unwrap();
    let moved: FileView = runner.get("/v1/fs/stat?path=a/moved").await.unwrap();
    assert_eq!((moved.kind, moved.size), (FileKind::File, 1));
    let deleted = runner.raw(Method::DELETE, "/v1/fs?path=a&recursive=1", "").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    let gone: Result<FileView, _> = runner.get("/v1/fs/stat?path=a").await;
    assert_eq!(gone.unwrap_err().body.error_code, FileNotFound);
}

#[tokio::test]
async fn a_symbolic_link_leads_nowhere_beyond_the_root() {
    let runner = Runner::start().await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::fs::set_permissions(outside.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let secret = outside.path().join("secret").display().to_string();
    assert_eq!(read(&runner, &secret).await, b"secret", "the control: without a root of its own it is found");
    let root = runner.workspace().display().to_string();
    let jailed = Runner::builder().arg(&format!("--files-root={root}")).start().await;
    runner.sh(&format!("ln -s {secret} link; ln -s / up; ln -s /proc/self/root magic; echo in >inside")).await;
    for path in ["/link", &format!("/up{secret}"), &format!("/magic{secret}"), &secret, "/../../../../../etc/passwd"] {
        let reply = jailed.raw(Method::GET, &format!("/v1/files?path={path}"), "").await;
        assert!((400..500).contains(&reply.status), "{path}: {} {}", reply.status, reply.text());
    }
    assert_eq!(read(&jailed, "/inside").await, b"in\n", "the control: what is inside is found");
}

#[tokio::test]
async fn fifos_and_devices_do_not_hang_the_runner() {
    let runner = Runner::start().await;
    runner.sh("mkfifo fifo").await;
    for path in ["fifo", "/dev/zero", "/dev/tty", "."] {
        // If no answer comes, the client gives up by itself.
        let reply = runner.raw(Method::GET, &format!("/v1/files?path={path}"), "").await;
        assert!((400..500).contains(&reply.status), "{path}: {}", reply.status);
    }
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_the_old_content() {
    use tokio::io::AsyncWriteExt as _;
    let runner = Runner::start().await;
    put(&runner, "kept", "old").await;
    let mut socket = tokio::net::UnixStream::connect(runner.socket()).await.unwrap();
    let head = "PUT /v1/files?path=kept HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nnew";
    socket.write_all(head.as_bytes()).await.unwrap();
    drop(socket);
    e2e::wait_until("no temporary file is left", Duration::from_secs(10), async || {
        (std::fs::read_dir(runner.workspace()).unwrap().count() == 1).then_some(())
    })
    .await;
    assert_eq!(read(&runner, "kept").await, b"old");
}

#[tokio::test]
async fn an_archive_goes_out_and_comes_back_in() {
    let runner = Runner::start().await;
    runner
        .sh("mkdir -p tree/deep; echo one >tree/one; echo two >tree/deep/two; ln -s one tree/link; chmod 750 tree/deep")
        .await;
    let tar = runner.raw(Method::GET, "/v1/archive?path=tree", "").await;
    assert_eq!(tar.status, 200, "{}", tar.text());
    let unpacked = runner.raw(Method::PUT, "/v1/archive?path=copy", tar.body).await;
    assert_eq!(unpacked.status, 201, "{}", unpacked.text());
    let listing = |tree: &str| format!("cd {tree}; find . -printf '%P %y %m %l\\n' | sort; cat one deep/two; cd ..");
    assert_eq!(runner.output_of(&listing("copy")).await, runner.output_of(&listing("tree")).await);
}

#[tokio::test]
async fn names_of_any_bytes_can_be_asked_for() {
    let runner = Runner::start().await;
    put(&runner, "a%20b%ff%0ac", "odd").await;
    assert_eq!(read(&runner, "a%20b%ff%0ac").await, b"odd");
    let list: Value = runner.get("/v1/fs/list?path=.").await.unwrap();
    assert!(list["entries"][0]["path_base64"].is_string(), "{list}");
}
