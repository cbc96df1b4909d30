//! Where the changes of a session's root are, for a commit: which directories of its disk become a layer, and what is below them.
//!
//! ```text
//!  the session's image   lowest layers                    new layers
//!  in layers             those of the image               .upper
//!  imported              (none)                           the root file system · .upper
//!  the host's system     (none)                           the shown directories of the host · .root with .upper-usr, .upper-opt …
//! ```
//!
//! What a sandbox mounts over its root is no part of it: `/tmp`, `/workspace`, `/home/sandbox`, `/run` and what the kernel shows.

use std::fs::File;
use std::path::{Path, PathBuf};

use shared_protocol::SnapshotId;

use super::images::KeptImage;
use super::layout::show_name;
use super::root::{OVERLAY_UPPER, ROOT_DIRECTORY};
use super::shown::ShownFiles;
use super::snapshots::SnapshotDir;
use super::{LocalRuntime, failed, users};
use crate::image_store::ImageSettings;
use crate::runtime::{LayerSource, OwnerMap, RootChanges, RuntimeError, TreeSource};
use crate::spec::SessionSpec;

const STEP: &str = "looking for the session's changes";

/// The places that a sandbox mounts something on.
const MOUNTED: [&str; 8] = ["dev", "proc", "run", "sys", "tmp", "var/tmp", "workspace", "home/sandbox"];

/// Files that Cove writes into the root of a session on the host's own system, with what is true for that session alone.
const OWN_FILES: [&str; 3] = ["etc/hostname", "etc/resolv.conf", "etc/cove"];

/// Nobody, for files of the host whose owner no sandbox has.
const NOBODY: u32 = 65_534;

impl LocalRuntime {
    pub(super) fn check_commit(&self, spec: &SessionSpec) -> Result<(), RuntimeError> {
        if !spec.writable_root {
            return Err(RuntimeError::Unsupported(
                "the session has no writable root, so there is nothing to make an image from: create it with \"writable_root\": true \
                 or \"user\": \"root\""
                    .into(),
            ));
        }
        self.disks.check_lasting()
    }

    /// Describes the changes of a session's root, from a snapshot of its disk.
    pub(super) async fn changes_in(
        &self,
        snapshot: &SnapshotId,
        spec: &SessionSpec,
    ) -> Result<RootChanges, RuntimeError> {
        self.check_commit(spec)?;
        let (disks, images, shown) = (self.disks.clone(), self.images.clone(), self.host.shown.clone());
        let (found, name, image) =
            (SnapshotDir::new(&self.snapshots, snapshot), snapshot.to_string(), spec.image.clone());
        let data_dir = self.sandboxes.parent().map(Path::to_owned).unwrap_or_default();
        let (host, user) = (self.host.clone(), spec.user);
        let work = move || {
            let at = |error| failed(STEP, error);
            let disk = disks.open_snapshot(&name)?;
            let record = found.read()?;
            let root = images.reopen(record.image.as_ref(), &image)?;
            let named = root.as_ref().and_then(|root| root.settings.user);
            // In a session of an ordinary user, that user had the files of root.
            let owners = OwnerMap { root_was: users::owner_of_root(&host, user, named), others: 0 };
            let changed = |trees| LayerSource { directory: disk, trees, owners };
            let upper = || vec![tree(OVERLAY_UPPER, "")];
            Ok(match (KeptImage::of(root.as_ref()), root) {
                (KeptImage::Layers { layers, settings }, _) => {
                    RootChanges { layers, settings, added: vec![changed(upper())] }
                }
                (_, Some(root)) => {
                    let directory = File::open(root.tree.path()).map_err(at)?;
                    let whole = TreeSource { emptied: Vec::new(), ..tree(".", "") };
                    let owners = OwnerMap { root_was: None, others: NOBODY };
                    let below = LayerSource { directory, trees: vec![whole], owners };
                    RootChanges { layers: Vec::new(), settings: root.settings, added: vec![below, changed(upper())] }
                }
                (_, None) => {
                    let below = LayerSource {
                        directory: File::open("/").map_err(at)?,
                        trees: of_host(&shown, &data_dir),
                        owners: OwnerMap { root_was: None, others: NOBODY },
                    };
                    let added = vec![below, changed(over_host(&shown))];
                    RootChanges { layers: Vec::new(), settings: ImageSettings::default(), added }
                }
            })
        };
        self.disk.run(work).await.map_err(|e| failed(STEP, e.into()))?
    }
}

/// A directory with changes of a session. What a sandbox mounts over it is left out.
fn tree(from: &str, to: &str) -> TreeSource {
    let emptied = if to.is_empty() { MOUNTED.map(str::to_owned).to_vec() } else { Vec::new() };
    TreeSource { from: from.to_owned(), to: to.to_owned(), left_out: Vec::new(), emptied }
}

/// The directories of the host that sessions see, without the daemon's own.
fn of_host(shown: &ShownFiles, data_dir: &Path) -> Vec<TreeSource> {
    let data_dir = std::fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let whole = |path: &PathBuf| {
        let to = path.to_string_lossy().trim_start_matches('/').to_owned();
        let below = data_dir.strip_prefix(path).ok().map(|below| below.to_string_lossy().into_owned());
        TreeSource { from: to.clone(), to, left_out: below.into_iter().collect(), emptied: Vec::new() }
    };
    shown_paths(shown).map(whole).collect()
}

/// The root of a session on the host's own system, and the layers that it has over directories of the host.
fn over_host(shown: &ShownFiles) -> Vec<TreeSource> {
    let own = OWN_FILES.map(str::to_owned).to_vec();
    let root = TreeSource { left_out: own, ..tree(ROOT_DIRECTORY, "") };
    let over = shown_paths(shown).map(|path| {
        let path = path.to_string_lossy();
        tree(&format!("{OVERLAY_UPPER}-{}", show_name(&path)), path.trim_start_matches('/'))
    });
    std::iter::once(root).chain(over).collect()
}

fn shown_paths(shown: &ShownFiles) -> impl Iterator<Item = &PathBuf> {
    shown.directories.iter().chain(&shown.submounts).map(|directory| &directory.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::local::shown::{OverlaySupport, ShownDirectory};

    #[test]
    fn a_session_on_the_hosts_system_has_a_layer_over_each_directory_and_the_daemons_own_is_left_out() {
        let directory = |path: &str| ShownDirectory { path: path.into(), overlay: OverlaySupport::Possible };
        let shown = ShownFiles {
            directories: ["/usr", "/opt", "/var/lib/dpkg"].map(directory).into(),
            ..ShownFiles::default()
        };
        let below = of_host(&shown, Path::new("/opt/cove/data"));
        let left_out: Vec<_> = below.iter().map(|tree| (tree.to.as_str(), tree.left_out.join(" "))).collect();
        assert_eq!(left_out, [("usr", "".into()), ("opt", "cove/data".into()), ("var/lib/dpkg", "".to_owned())]);
        let over: Vec<(String, String)> = over_host(&shown).into_iter().map(|tree| (tree.from, tree.to)).collect();
        let expected =
            [(".root", ""), (".upper-usr", "usr"), (".upper-opt", "opt"), (".upper-var-lib-dpkg", "var/lib/dpkg")];
        assert_eq!(over, expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
        assert!(over_host(&shown)[0].left_out.contains(&"etc/hostname".to_owned()));
    }
}
