//! The certificate authorities that the programs of a session with injected headers trust, as files that are mounted into its
//! container.
//!
//! The image's own bundle is read from the container before anything in it runs, so such a container is made twice: mounts are
//! fixed when it is made. What was found is remembered for the image.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bollard::Docker;
use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use futures_util::StreamExt as _;

use super::engine;
use crate::runtime::RuntimeError;
use crate::runtime::policy::{MAX_STORE_BYTES, TRUST_AUTHORITY, TRUST_BUNDLE, TRUST_STORES};

/// The most images whose bundles are remembered. If there are more, all are forgotten and read again.
const MAX_KNOWN: usize = 16;
/// The most that an archive of one file has beside the file.
const ARCHIVE_BYTES: u64 = 64 << 10;

/// The bundles of certificate authorities that an image has.
#[derive(Debug, Default)]
pub struct Stores {
    /// The paths of all of them, which are files and no links.
    paths: Vec<String>,
    /// The content of the first one.
    content: Vec<u8>,
}

/// The files of one session, and where they are seen.
#[derive(Debug, Clone)]
pub struct Trust {
    pub directory: PathBuf,
    /// The bundles of the image, in place of which the session's is seen.
    pub covered: Vec<String>,
}

impl Trust {
    pub fn bundle(&self) -> PathBuf {
        self.directory.join(file_name(TRUST_BUNDLE))
    }

    /// Writes the files of a session into a new directory.
    pub fn write(directory: PathBuf, authority: &str, stores: &Stores) -> io::Result<Self> {
        // The directory around it is the daemon's own. In the container, everybody may read these.
        std::fs::DirBuilder::new().mode(0o755).create(&directory)?;
        let mut bundle = stores.content.clone();
        if !bundle.is_empty() && !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
        bundle.extend_from_slice(authority.as_bytes());
        let trust = Self { directory, covered: stores.paths.clone() };
        for (path, content) in [(TRUST_AUTHORITY, authority.as_bytes()), (TRUST_BUNDLE, &bundle)] {
            let path = trust.directory.join(file_name(path));
            let mut file = std::fs::File::options().write(true).create_new(true).mode(0o444).open(path)?;
            // Whatever the daemon's umask is.
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
            file.write_all(content)?;
        }
        std::fs::set_permissions(&trust.directory, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(trust)
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// The bundles of the images that were asked for lately, by the images' ids. The content behind an id does not change.
#[derive(Debug, Default)]
pub struct KnownStores(Mutex<HashMap<String, Arc<Stores>>>);

impl KnownStores {
    pub fn get(&self, image: &str) -> Option<Arc<Stores>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(image).cloned()
    }

    /// Reads the bundles from a container that was made from the image and has not run.
    pub async fn read(&self, docker: &Docker, image: &str, container: &str) -> Result<Arc<Stores>, RuntimeError> {
        let mut stores = Stores::default();
        for path in TRUST_STORES {
            let Some(content) = file(docker, container, path).await? else { continue };
            stores.paths.push(path.to_owned());
            if stores.content.is_empty() {
                stores.content = content;
            }
        }
        let stores = Arc::new(stores);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(image.to_owned(), stores.clone());
        Ok(stores)
    }
}

/// The content of a file in a container. `None` if there is none, or something else.
async fn file(docker: &Docker, container: &str, path: &str) -> Result<Option<Vec<u8>>, RuntimeError> {
    const STEP: &str = "reading the image's certificate authorities";
    let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
    let mut pieces = std::pin::pin!(docker.download_from_container(container, Some(options)));
    let mut archive = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => archive.extend_from_slice(&piece),
            Err(error) if engine::is_missing(&error) => return Ok(None),
            Err(error) => return Err(engine::failed(STEP, error)),
        }
        // As on `local`: such a file is not a bundle of authorities.
        if archive.len() as u64 > MAX_STORE_BYTES + ARCHIVE_BYTES {
            return Ok(None);
        }
    }
    only_file(&archive).map_err(|error| RuntimeError::failed(STEP, error))
}

/// The content of an archive's first entry, if that is a file.
fn only_file(archive: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut archive = tar::Archive::new(archive);
    let Some(mut entry) = archive.entries()?.next().transpose()? else { return Ok(None) };
    if !entry.header().entry_type().is_file() {
        return Ok(None);
    }
    let (size, mut content) = (entry.size(), Vec::new());
    entry.read_to_end(&mut content)?;
    if content.len() as u64 == size { Ok(Some(content)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entry_type: tar::EntryType, content: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(entry_type);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, "bundle", content).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn only_a_file_is_a_bundle() {
        assert_eq!(only_file(&archive(tar::EntryType::Regular, b"pem")).unwrap(), Some(b"pem".to_vec()));
        assert_eq!(only_file(&archive(tar::EntryType::Directory, b"")).unwrap(), None);
        assert_eq!(only_file(&archive(tar::EntryType::Symlink, b"")).unwrap(), None);
        assert_eq!(only_file(&[0; 1024]).unwrap(), None);
        assert!(only_file(&archive(tar::EntryType::Regular, &[b'x'; 600])[..700]).is_err());
    }

    #[test]
    fn the_bundle_of_a_session_is_that_of_its_image_and_one_more() {
        let home = tempfile::tempdir().unwrap();
        let stores = Stores { paths: vec!["/etc/ssl/cert.pem".into()], content: b"image's".to_vec() };
        let trust = Trust::write(home.path().join("trust"), "ours\n", &stores).unwrap();
        assert_eq!(std::fs::read_to_string(trust.bundle()).unwrap(), "image's\nours\n");
        assert_eq!(std::fs::read_to_string(trust.directory.join("ca.pem")).unwrap(), "ours\n");
        assert_eq!(trust.covered, ["/etc/ssl/cert.pem"]);
        let mode =
            |path: &Path| std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
        assert_eq!((mode(&trust.bundle()) & 0o777, mode(&trust.directory) & 0o777), (0o444, 0o755));
    }
}
