//! The daemon itself in a container, as compose.yaml starts it, with the engine that it uses.

use std::path::PathBuf;

use e2e::daemon::{Api, Engine, Leftovers, Session, engine};
use e2e::{DEADLINE, skipped, wait_until};
use serde_json::json;

const KEY: &str = "a-key-for-this-story";

/// A daemon in a container, started like compose.yaml does, and the data directory that it shares with the host.
struct Contained<'a> {
    engine: &'a Engine,
    name: String,
    data_dir: PathBuf,
    _directory: tempfile::TempDir,
}

impl Drop for Contained<'_> {
    fn drop(&mut self) {
        self.engine.docker(&["rm", "--force", &self.name]);
    }
}

impl Contained<'_> {
    /// Starts a daemon with one more variable. `None` if there is no engine or no image of the daemon; then it prints the
    /// skip.
    fn start(story: &str, variable: &str) -> Option<Self> {
        let Some(engine) = engine() else {
            skipped("the daemon in a container", "the stories run on local");
            return None;
        };
        if engine.docker(&["images", "--quiet", "cove"]).is_empty() {
            skipped(
                "the daemon in a container",
                "the engine has not got the daemon's image; scripts/docker/images cove makes it",
            );
            return None;
        }
        let directory = tempfile::Builder::new().prefix("cove-e2e-").tempdir().expect("a temporary directory");
        let data_dir = directory.path().join("data");
        std::fs::create_dir(&data_dir).expect("our own directory");
        let shared = data_dir.to_str().expect("UTF-8").to_owned();
        let name = format!("cove-story-{story}-{}", std::process::id());
        let contained = Self { engine, name, data_dir, _directory: directory };
        // The arguments are those of compose.yaml, except for the port, which no other program may want.
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
            variable,
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
        Some(contained)
    }

    /// Waits until the daemon listens for the nth time, and returns a client of it.
    async fn listens(&self, nth: usize) -> Api {
        let address = wait_until("the daemon listens", DEADLINE, async || {
            let said = self.engine.docker(&["logs", &self.name]);
            let mut addresses = said.lines().filter_map(|line| line.strip_prefix("listening on http://")?.parse().ok());
            addresses.nth(nth - 1)
        })
        .await;
        Api { address, key: Some(KEY.to_owned()), headers: Vec::new(), patience: DEADLINE }
    }

    /// Stops the daemon as `docker stop` and `docker compose stop` do.
    fn stop(&self) {
        self.engine.docker(&["stop", "--time", "60", &self.name]);
        assert_eq!(self.engine.docker(&["inspect", "--format", "{{.State.ExitCode}}", &self.name]), "0");
    }
}

#[tokio::test]
async fn a_daemon_in_a_container_makes_sandboxes_beside_itself() {
    let Some(contained) = Contained::start("beside", "COVE_SESSIONS_ON_STOP=destroy") else { return };
    let api = contained.listens(1).await;
    let session = api.create(json!({ "image": "cove-base", "workspace_id": "kept" })).await;
    assert_eq!(session.sh("echo kept >file; cat /proc/1/comm; id -un").await, "runner\nsandbox\n");
    let kept = std::fs::read_to_string(contained.data_dir.join("workspaces/kept/file"));
    assert_eq!(kept.expect("the workspace is on the host"), "kept\n");
    wait_until("it is healthy", DEADLINE, async || {
        let health = contained.engine.docker(&["inspect", "--format", "{{.State.Health.Status}}", &contained.name]);
        (health == "healthy").then_some(())
    })
    .await;
    contained.stop();
    let left = Leftovers::of(&contained.data_dir);
    assert!(left.is_empty(), "the daemon left something: {left:?}");
}

#[tokio::test]
async fn a_daemon_in_a_container_comes_back_to_its_sessions_after_a_stop() {
    let Some(contained) = Contained::start("returns", "LANG=C.UTF-8") else { return };
    let api = contained.listens(1).await;
    let session = api.create(json!({ "image": "cove-base" })).await;
    session.sh("export KEPT=yes; cd /tmp").await;
    contained.stop();
    contained.engine.docker(&["start", &contained.name]);
    let session = Session { api: contained.listens(2).await, id: session.id };
    assert_eq!(session.sh("echo $KEPT in $PWD").await, "yes in /tmp\n");
    session.destroy().await;
    contained.stop();
    let left = Leftovers::of(&contained.data_dir);
    assert!(left.is_empty(), "the daemon left something: {left:?}");
}
