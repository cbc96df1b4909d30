//! The daemon itself in a container, as compose.yaml starts it, with the engine that it runs on.

use e2e::daemon::{Api, Engine, Leftovers, engine};
use e2e::{DEADLINE, skipped, wait_until};
use serde_json::json;

const KEY: &str = "a-key-for-this-story";

struct Contained<'a> {
    engine: &'a Engine,
    name: String,
}

impl Drop for Contained<'_> {
    fn drop(&mut self) {
        self.engine.docker(&["rm", "--force", &self.name]);
    }
}

#[tokio::test]
async fn a_daemon_in_a_container_makes_sandboxes_beside_itself() {
    let Some(engine) = engine() else { return skipped("the daemon's image", "the stories run on local") };
    if engine.docker(&["images", "--quiet", "cove"]).is_empty() {
        return skipped("the daemon's image", "the engine has not got it; scripts/images cove makes it");
    }
    let directory = tempfile::Builder::new().prefix("cove-e2e-").tempdir().expect("a temporary directory");
    let data_dir = directory.path().join("data");
    std::fs::create_dir(&data_dir).expect("our own directory");
    let shared = data_dir.to_str().expect("UTF-8");
    let contained = Contained { engine, name: format!("cove-story-daemon-{}", std::process::id()) };
    // As in compose.yaml, but for the port: nobody else shall want the same.
    engine.docker(&[
        "run",
        "--detach",
        "--runtime=runc",
        "--name",
        &contained.name,
        "--env",
        &format!("COVE_API_KEY={KEY}"),
        "--env",
        &format!("COVE_DATA_DIR={shared}"),
        "--env",
        "COVE_LISTEN=127.0.0.1:0",
        "--env",
        "COVE_SESSIONS_ON_STOP=destroy",
        "--network=host",
        "--volume",
        &format!("{}:/var/run/docker.sock", engine.socket()),
        "--volume",
        &format!("{shared}:{shared}"),
        "--read-only",
        "--cap-drop=ALL",
        "--cap-add=CHOWN",
        "--cap-add=DAC_OVERRIDE",
        "--cap-add=FOWNER",
        "--security-opt=no-new-privileges:true",
        "cove",
    ]);
    let address = wait_until("the daemon listens", DEADLINE, async || {
        let said = engine.docker(&["logs", &contained.name]);
        said.lines().find_map(|line| line.strip_prefix("listening on http://")?.parse().ok())
    })
    .await;
    let api = Api { address, key: Some(KEY.to_owned()), headers: Vec::new(), patience: e2e::DEADLINE };
    let session = api.create(json!({ "image": "cove-base", "workspace_id": "kept" })).await;
    assert_eq!(session.sh("echo kept >file; cat /proc/1/comm; id -un").await, "runner\nsandbox\n");
    let kept = std::fs::read_to_string(data_dir.join("workspaces/kept/file")).expect("the workspace is on the host");
    assert_eq!(kept, "kept\n");
    wait_until("it is healthy", DEADLINE, async || {
        let health = engine.docker(&["inspect", "--format", "{{.State.Health.Status}}", &contained.name]);
        (health == "healthy").then_some(())
    })
    .await;
    engine.docker(&["stop", "--time", "60", &contained.name]);
    assert_eq!(engine.docker(&["inspect", "--format", "{{.State.ExitCode}}", &contained.name]), "0");
    drop(contained);
    let left = Leftovers::of(&data_dir);
    assert!(left.is_empty(), "the daemon left something: {left:?}");
}
