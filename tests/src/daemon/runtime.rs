//! The runtime that the stories run on: `COVE_E2E_RUNTIME=local` (the default) or `docker`. For `docker`,
//! `COVE_E2E_DOCKER_SOCKET` names the engine's socket, `COVE_E2E_OCI_RUNTIME` its runtime, and `COVE_E2E_IMAGE` the image
//! for `base`, `python` and `node`.

use std::process::Command;
use std::sync::LazyLock;

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The default image. It has Python, because some stories use it.
const DEFAULT_IMAGE: &str = "cove-python";

#[derive(Debug, Clone)]
pub struct Engine {
    pub(super) socket: String,
    pub(super) oci_runtime: Option<String>,
    pub(super) image: String,
}

static ENGINE: LazyLock<Option<Engine>> = LazyLock::new(|| {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match variable("COVE_E2E_RUNTIME").as_deref() {
        None | Some("local") => None,
        Some("docker") => Some(Engine {
            socket: variable("COVE_E2E_DOCKER_SOCKET").unwrap_or_else(|| DEFAULT_SOCKET.into()),
            oci_runtime: variable("COVE_E2E_OCI_RUNTIME"),
            image: variable("COVE_E2E_IMAGE").unwrap_or_else(|| DEFAULT_IMAGE.into()),
        }),
        Some(other) => panic!("COVE_E2E_RUNTIME is local or docker, not {other:?}"),
    }
});

/// The engine, if the stories run on one.
pub fn engine() -> Option<&'static Engine> {
    ENGINE.as_ref()
}

/// Whether to skip a story that looks at traces that only `local` leaves. Prints the skip.
pub fn is_local_only(story: &str, why: &str) -> bool {
    if engine().is_some() {
        crate::skipped(story, &format!("on docker: {why}"));
    }
    engine().is_some()
}

/// The variables for a daemon on this runtime, or for a command that starts one.
pub fn variables() -> Vec<(String, String)> {
    engine().map(Engine::variables).unwrap_or_default()
}

impl Engine {
    /// The variables for a daemon whose sandboxes this engine makes.
    pub fn variables(&self) -> Vec<(String, String)> {
        let images = ["base", "python", "node"].map(|name| format!("{name}={}", self.image)).join(",");
        let mut all = vec![
            ("COVE_RUNTIME", "docker".to_owned()),
            ("COVE_DOCKER_SOCKET", self.socket.clone()),
            ("COVE_DOCKER_IMAGES", images),
            ("COVE_DOCKER_PULL", "never".to_owned()),
        ];
        all.extend(self.oci_runtime.clone().map(|name| ("COVE_DOCKER_OCI_RUNTIME", name)));
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub fn docker(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The output of the engine's client. `None` if it fails.
    pub(super) fn try_docker(&self, arguments: &[&str]) -> Option<String> {
        let output = self.output(arguments);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn output(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.socket)).args(arguments);
        command.output().expect("docker is installed")
    }

    /// The name of a session's container.
    pub fn container(&self, session: &str) -> String {
        self.docker(&["ps", "-aq", "--filter", &format!("label=cove.session={session}")])
    }

    /// All containers of a daemon, found by the daemon's label.
    pub fn containers_of(&self, instance: &str) -> Vec<String> {
        let listed = self.docker(&["ps", "-aq", "--filter", &format!("label=cove.data-dir={instance}")]);
        listed.lines().map(str::to_owned).collect()
    }

    /// The sessions of a daemon that have a container, and whether its first process runs.
    pub(super) fn sessions_of(&self, instance: &str) -> Vec<(String, bool)> {
        let format = "{{.Label \"cove.session\"}} {{.State}}";
        let filter = format!("label=cove.data-dir={instance}");
        let listed = self.docker(&["ps", "-a", "--no-trunc", "--filter", &filter, "--format", format]);
        let one = |line: &str| line.split_once(' ').map(|(id, state)| (id.to_owned(), state == "running"));
        listed.lines().filter_map(one).collect()
    }

    /// The images of a daemon with names in this repository.
    pub fn images_of(&self, repository: &str) -> Vec<String> {
        let repository = format!("localhost/{repository}");
        let listed = self.docker(&[
            "images",
            "--format",
            "{{.Repository}}:{{.Tag}}",
            "--filter",
            &format!("reference={repository}"),
        ]);
        listed.lines().filter(|name| name.starts_with(&repository)).map(str::to_owned).collect()
    }

    pub fn socket(&self) -> &str {
        &self.socket
    }
}
