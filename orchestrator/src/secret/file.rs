//! The file of one secret. It is replaced as a whole: a crash leaves the old one or the new one, and what is half-written has another
//! name, under which nobody reads it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use network_policy::HostName;
use serde::{Deserialize, Serialize};
use shared_protocol::api::SecretText;
use shared_protocol::{KeyName, SecretName};
use zeroize::{Zeroize as _, Zeroizing};

use super::{Secret, SecretFacts, SecretValue, read_hosts};

const SUFFIX: &str = ".json";
/// The suffix of a file that is being written.
const NEW_SUFFIX: &str = ".json.new";
/// The largest file that is read: the longest value and all hosts, escaped.
const MAX_FILE_BYTES: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Stored {
    value: SecretText,
    hosts: Vec<String>,
    updated_at_ms: u64,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.value.0.zeroize();
    }
}

fn path_of(directory: &Path, owner: &KeyName, name: &SecretName) -> PathBuf {
    directory.join(owner.as_str()).join(format!("{name}{SUFFIX}"))
}

pub fn write(directory: &Path, facts: &SecretFacts, value: &SecretValue) -> io::Result<()> {
    let since = facts.updated_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let stored = Stored {
        value: SecretText(value.expose().to_owned()),
        hosts: facts.hosts.iter().map(ToString::to_string).collect(),
        updated_at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    };
    let text = Zeroizing::new(serde_json::to_vec(&stored)?);
    let own = directory.join(facts.owner.as_str());
    DirBuilder::new().mode(0o700).recursive(true).create(&own)?;
    let (path, new) = (path_of(directory, &facts.owner, &facts.name), own.join(format!("{}{NEW_SUFFIX}", facts.name)));
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(&own)?.sync_all()
}

/// Removes the file. A missing one is no error.
pub fn remove(directory: &Path, owner: &KeyName, name: &SecretName) -> io::Result<()> {
    match std::fs::remove_file(path_of(directory, owner, name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Reads all secrets, and removes what was half-written. A file that cannot be read is left out, with a warning that names it.
pub fn read_all(directory: &Path) -> io::Result<Vec<(KeyName, SecretName, Secret)>> {
    DirBuilder::new().mode(0o700).recursive(true).create(directory)?;
    let mut found = Vec::new();
    for owner in std::fs::read_dir(directory)? {
        let owner = owner?;
        let Ok(key) = KeyName::new(owner.file_name().to_string_lossy()) else { continue };
        if !owner.file_type()?.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(owner.path())? {
            let path = entry?.path();
            let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if file_name.ends_with(NEW_SUFFIX) {
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let Some(Ok(name)) = file_name.strip_suffix(SUFFIX).map(SecretName::new) else { continue };
            match read(&path) {
                Ok(secret) => found.push((key.clone(), name, secret)),
                Err(cause) => tracing::warn!(owner = %key, %name, cause, "a secret cannot be read; set it again"),
            }
        }
    }
    Ok(found)
}

/// The cause of an error says nothing of the content.
fn read(path: &Path) -> Result<Secret, &'static str> {
    let mut text = Zeroizing::new(Vec::new());
    let file = File::open(path).map_err(|_| "the file cannot be opened")?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(|_| "the file cannot be read")?;
    let stored: Stored = serde_json::from_slice(&text).map_err(|_| "the file is not what the daemon wrote")?;
    let value = SecretValue::new(stored.value.0.clone()).map_err(|_| "the value is not one of a header")?;
    let hosts: Vec<HostName> = read_hosts(&stored.hosts).map_err(|_| "the hosts are not names")?;
    let updated_at = SystemTime::UNIX_EPOCH + Duration::from_millis(stored.updated_at_ms.min(MAX_MILLIS));
    Ok(Secret { value, hosts, updated_at })
}

/// The last millisecond of the year 9999: a later time cannot be shown.
const MAX_MILLIS: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_private_and_a_half_written_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("secrets");
        let (owner, name) = (KeyName::new("alice").unwrap(), SecretName::new("token").unwrap());
        let updated_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1234);
        let hosts = read_hosts(&["api.example.com".into()]).unwrap();
        let facts = SecretFacts { owner: owner.clone(), name: name.clone(), hosts: hosts.clone(), updated_at };
        let value = SecretValue::new("hunter2".into()).unwrap();
        write(&directory, &facts, &value).unwrap();
        let path = directory.join("alice/token.json");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(directory.join("alice").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let half = directory.join("alice/other.json.new");
        std::fs::write(&half, br#"{"value":"half"#).unwrap();
        std::fs::write(directory.join("alice/broken.json"), br#"{"value":"half"#).unwrap();
        let all = read_all(&directory).unwrap();
        assert_eq!(all, [(owner.clone(), name.clone(), Secret { value, hosts, updated_at })]);
        assert!(!half.exists());
        remove(&directory, &owner, &name).unwrap();
        remove(&directory, &owner, &name).unwrap();
        assert!(read_all(&directory).unwrap().is_empty());
    }
}
