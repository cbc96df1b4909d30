//! Credentials for registries, from the files and helper programs of Docker and Podman.
//!
//! They are read for each pull, so that a login takes effect at once. They are never written, logged or kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::reference::DEFAULT_HOST;

/// The name under which Docker keeps the login of the default registry.
const DEFAULT_LOGIN: &str = "index.docker.io";
const DEFAULT_SERVER: &str = "https://index.docker.io/v1/";
/// The user that a helper names for a token instead of a password.
const TOKEN_USER: &str = "<token>";

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_HELPER_BYTES: u64 = 64 << 10;
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    Password {
        user: String,
        secret: String,
    },
    /// A token that the registry's token server takes for another one.
    RefreshToken(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// Where credentials may be, the first file first.
#[derive(Debug, Clone, Default)]
pub struct CredentialFiles(pub Vec<PathBuf>);

impl CredentialFiles {
    /// The files of the user that this program runs as: Podman's, then Docker's.
    pub fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = path("HOME");
        let below_home = |rest: &str| home.as_ref().map(|home| home.join(rest));
        let podman_config = path("XDG_CONFIG_HOME").or_else(|| below_home(".config"));
        let docker = path("DOCKER_CONFIG").or_else(|| below_home(".docker"));
        let places = [
            path("REGISTRY_AUTH_FILE"),
            path("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
            podman_config.map(|dir| dir.join("containers/auth.json")),
            docker.map(|dir| dir.join("config.json")),
        ];
        Self(places.into_iter().flatten().collect())
    }

    /// The credential for a repository. A file or helper that does not work counts as without it, with a warning: many images
    /// need none.
    pub async fn find(&self, host: &str, repository: &str) -> Option<Credential> {
        for path in &self.0 {
            let Some(file) = read(path).await else { continue };
            match file.look_up(host, repository) {
                Some(Entry::Known(credential)) => return Some(credential),
                Some(Entry::Helper { program, server }) => match ask_helper(&program, &server).await {
                    Ok(Some(credential)) => return Some(credential),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%program, %error, "credential helper gave no credentials"),
                },
                None => {}
            }
        }
        None
    }
}

async fn read(path: &Path) -> Option<AuthFile> {
    let file = tokio::fs::File::open(path).await.ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).await.ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            // The message of serde has a position and no content.
            tracing::warn!(path = %path.display(), line = error.line(), "credentials file is not understood");
            None
        }
    }
}

/// What `config.json` and `auth.json` have in common.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
struct Auth {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Known(Credential),
    Helper { program: String, server: String },
}

impl AuthFile {
    /// What this file says about a repository. A helper for the host wins over a stored login, as with Docker; of the logins, the
    /// one with the longest path wins, as with Podman.
    fn look_up(&self, host: &str, repository: &str) -> Option<Entry> {
        let server = if host == DEFAULT_HOST { DEFAULT_SERVER.to_owned() } else { host.to_owned() };
        let helper = |name: &String| {
            let is_name =
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            is_name.then(|| Entry::Helper { program: format!("docker-credential-{name}"), server: server.clone() })
        };
        let named = self.cred_helpers.iter().find(|(key, _)| is_for(key, host)).and_then(|(_, name)| helper(name));
        if named.is_some() {
            return named;
        }
        let mut path = format!("{host}/{repository}");
        let known = loop {
            let found = self.auths.iter().find(|(key, _)| **key == path || (path == host && is_for(key, host)));
            match (found.and_then(|(_, auth)| auth.credential()), path.rfind('/')) {
                (Some(credential), _) => break Some(Entry::Known(credential)),
                (None, Some(slash)) => path.truncate(slash),
                (None, None) => break None,
            }
        };
        known.or_else(|| self.creds_store.as_ref().and_then(helper))
    }
}

/// Whether a key of a file, a host or an old kind of URL, means this host.
fn is_for(key: &str, host: &str) -> bool {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
    let name = bare.map_or(key, |rest| rest.split('/').next().unwrap_or_default());
    name == host || (host == DEFAULT_HOST && name == DEFAULT_LOGIN)
}

impl Auth {
    fn credential(&self) -> Option<Credential> {
        if let Some(token) = self.identitytoken.as_ref().filter(|token| !token.is_empty()) {
            return Some(Credential::RefreshToken(token.clone()));
        }
        let decoded = STANDARD.decode(self.auth.as_ref()?).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (user, secret) = text.split_once(':')?;
        Some(Credential::Password { user: user.into(), secret: secret.trim_end_matches('\0').into() })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Asks a helper program, which gets the server's name on its standard input. `None` if it has no login for it.
async fn ask_helper(program: &str, server: &str) -> std::io::Result<Option<Credential>> {
    let asking = async {
        let mut child = tokio::process::Command::new(program)
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A helper that does not read its input has ended, and its status says more.
            let _ = stdin.write_all(server.as_bytes()).await;
        }
        let mut answer = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_HELPER_BYTES).read_to_end(&mut answer).await?;
        }
        if !child.wait().await?.success() {
            return Ok(None);
        }
        let answer: HelperAnswer =
            serde_json::from_slice(&answer).map_err(|_| std::io::Error::other("its answer is not understood"))?;
        Ok(Some(match answer.username.as_str() {
            TOKEN_USER => Credential::RefreshToken(answer.secret),
            _ => Credential::Password { user: answer.username, secret: answer.secret },
        }))
    };
    let late = || std::io::Error::other(format!("no answer within {} s", HELPER_TIMEOUT.as_secs()));
    tokio::time::timeout(HELPER_TIMEOUT, asking).await.map_err(|_| late())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(json: serde_json::Value) -> AuthFile {
        serde_json::from_value(json).unwrap()
    }

    fn login(user: &str) -> serde_json::Value {
        serde_json::json!({ "auth": STANDARD.encode(format!("{user}:pw:1")) })
    }

    fn user(entry: Option<Entry>) -> String {
        match entry {
            Some(Entry::Known(Credential::Password { user, secret })) => format!("{user} {secret}"),
            Some(Entry::Known(Credential::RefreshToken(token))) => format!("token {token}"),
            Some(Entry::Helper { program, server }) => format!("{program} {server}"),
            None => "nobody".into(),
        }
    }

    #[test]
    fn the_login_with_the_longest_path_wins_and_old_keys_are_understood() {
        let file = file(serde_json::json!({ "auths": {
            "r.example.com": login("ann"), "r.example.com/team": login("bob"), "https://old.example.com/v1/": login("eve"),
            "https://index.docker.io/v1/": login("hub"), "t.example.com": { "identitytoken": "tok" },
            "broken.example.com": { "auth": "%%" }
        } }));
        assert_eq!(user(file.look_up("r.example.com", "x")), "ann pw:1");
        assert_eq!(user(file.look_up("r.example.com", "team/x")), "bob pw:1");
        assert_eq!(user(file.look_up("r.example.com", "teammate/x")), "ann pw:1");
        assert_eq!(user(file.look_up("old.example.com", "x")), "eve pw:1");
        assert_eq!(user(file.look_up(DEFAULT_HOST, "library/x")), "hub pw:1");
        assert_eq!(user(file.look_up("t.example.com", "x")), "token tok");
        assert_eq!(user(file.look_up("broken.example.com", "x")), "nobody");
        assert_eq!(user(file.look_up("example.com", "x")), "nobody");
    }

    #[test]
    fn a_helper_for_the_host_wins_and_the_store_is_asked_last() {
        let file = file(serde_json::json!({
            "auths": { "h.example.com": login("ann"), "s.example.com": {} },
            "credHelpers": { "h.example.com": "ours", "bad.example.com": "../../bin/sh" }, "credsStore": "vault"
        }));
        assert_eq!(user(file.look_up("h.example.com", "x")), "docker-credential-ours h.example.com");
        assert_eq!(user(file.look_up("s.example.com", "x")), "docker-credential-vault s.example.com");
        assert_eq!(user(file.look_up("bad.example.com", "x")), "docker-credential-vault bad.example.com");
    }

    #[tokio::test]
    async fn a_helper_is_asked_by_name_and_may_have_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("docker-credential-test");
        let script = "#!/bin/sh\nread server\n[ \"$server\" = good ] || { echo none; exit 1; }\necho '{\"Username\":\"u\",\"Secret\":\"s\"}'\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = program.to_str().unwrap();
        let expected = Credential::Password { user: "u".into(), secret: "s".into() };
        assert_eq!(ask_helper(program, "good").await.unwrap(), Some(expected));
        assert_eq!(ask_helper(program, "other").await.unwrap(), None);
        assert!(ask_helper("docker-credential-that-is-not-there", "good").await.is_err());
    }

    #[test]
    fn a_credential_is_never_printed() {
        let credential = Credential::Password { user: "ann".into(), secret: "hush".into() };
        assert!(!format!("{credential:?}").contains("hush"));
    }
}
