//! Images of all kinds, as docs/guides/custom-image.md describes them. The stories run only on a container engine.

use std::path::Path;
use std::process::Command;

use e2e::daemon::{Daemon, Engine, engine};
use e2e::skipped;
use serde_json::json;
use shared_protocol::ErrorCode::InvalidImage;

/// The first process of a sandbox, and the number of the runner's mounts: its socket's directory, and its binary if the
/// daemon adds it.
fn first_process(engine: &Engine, session: &str) -> String {
    let format = "{{.Path}}{{range .Mounts}} {{.Destination}}{{end}}";
    let told = engine.docker(&["inspect", "--format", format, &engine.container(session)]);
    let mut words = told.split(' ');
    let program = words.next().unwrap_or_default();
    format!("{program} {}", words.filter(|place| place.starts_with("/run/cove/private/")).count())
}

/// Builds an image without a network, with the builder that every engine has.
fn build(engine: &Engine, directory: &Path, tag: &str) {
    let built = Command::new("docker")
        .env("DOCKER_BUILDKIT", "0")
        .args(["--host", &format!("unix://{}", engine.socket()), "build", "--network", "none", "--tag", tag])
        .arg(directory)
        .output()
        .expect("docker is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

#[tokio::test]
async fn an_image_of_the_guides_three_lines_runs_with_its_own_runner_and_any_other_with_ours() {
    let Some(engine) = engine() else { return skipped("a custom image", "the stories run on local") };
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/custom-image.md"));
    let guide = guide.expect("the guide is there");
    // After the fence comes the rest of its line, which says that the documents' own test leaves the block out.
    let block = guide.split("```dockerfile").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let (_, lines) = block.split_once('\n').expect("three lines");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = lines.replace("FROM anything", "FROM debian:bookworm-slim");
    assert_ne!(text, lines, "the guide begins with FROM anything");
    std::fs::write(directory.path().join("Dockerfile"), text).expect("our own directory");
    let tag = format!("cove-story-custom:{}", std::process::id());
    build(engine, directory.path(), &tag);

    let daemon = Daemon::start().await;
    let custom = daemon.create(json!({ "image": tag })).await;
    assert_eq!(first_process(engine, &custom.id), "/usr/local/bin/runner 1");
    let plain = daemon.create(json!({ "image": "debian:bookworm-slim" })).await;
    assert_eq!(first_process(engine, &plain.id), "/run/cove/private/runner 2");
    for session in [&custom, &plain] {
        assert_eq!(session.sh("cat /proc/1/comm; id -u; pwd; cd /tmp").await, "runner\n1000\n/workspace\n");
        assert_eq!(session.sh("pwd").await, "/tmp\n");
    }
    daemon.stop().await;
    engine.docker(&["rmi", &tag]);
}

#[tokio::test]
async fn an_image_without_bash_is_refused_and_the_answer_says_so() {
    let Some(engine) = engine() else { return skipped("an image without bash", "the stories run on local") };
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("Dockerfile"), "FROM scratch\nCOPY Dockerfile /\n")
        .expect("our own directory");
    let tag = format!("cove-story-empty:{}", std::process::id());
    build(engine, directory.path(), &tag);
    let daemon = Daemon::start().await;
    let answer = daemon.post("/v1/sessions", json!({ "image": tag })).await;
    assert_eq!(answer.refused(), InvalidImage, "{}", answer.text());
    assert!(answer.text().contains("bash"), "{}", answer.text());
    daemon.stop().await;
    engine.docker(&["rmi", &tag]);
}

#[tokio::test]
async fn each_of_the_three_images_has_what_its_name_says() {
    let Some(engine) = engine() else { return skipped("the three images", "the stories run on local") };
    let daemon = Daemon::start().await;
    for (image, command) in [
        ("cove-base", "git --version && curl --version && echo '{}' | jq . && rg --version && id -un"),
        (
            "cove-python",
            "python -m venv --without-pip /tmp/v && /tmp/v/bin/python -c 'print(1)' && pip --version && id -un",
        ),
        ("cove-node", "node --eval 'console.log(1)' && npm --version && id -un"),
    ] {
        if engine.docker(&["images", "--quiet", image]).is_empty() {
            skipped(image, "the engine has not got it; scripts/docker/images makes it");
            continue;
        }
        let session = daemon.create(json!({ "image": image })).await;
        assert_eq!(first_process(engine, &session.id), "/usr/local/bin/runner 1");
        let said = session.sh(command).await;
        assert!(said.ends_with("sandbox\n"), "{image}: {said}");
    }
    daemon.stop().await;
}
