//! The directories of the host that sandboxes see, and whether each can be shown through an overlay. The daemon finds out once, when
//! it starts. A separate process tries the overlays, because it needs namespaces of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::stat::{Mode, mkdirat};

use super::launcher::{AtStep as _, LaunchError};
use super::plan::View;
use super::{host_view, idmap, ids, root};
use crate::sys::mount::{self, Restrictions, Submounts};

/// Directories at the host's root that a sandbox sees, if they exist. On most systems all but two are links into `/usr`.
const TOPS: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];

/// Deeper directories that a sandbox sees: package tools look there for installed packages; Nix keeps programs there. Beside the
/// store, `/nix` has the socket of a daemon that is root.
const DEEPER: [&str; 2] = ["/var/lib/dpkg", "/nix/store"];

pub const ETC: &str = "/etc";
const ROOT: &str = "/";

/// The most mounts below the shown directories that are shown as well. An overlay shows no mounts of its lower layer.
const MAX_SUBMOUNTS: usize = 64;

/// What the host image shows.
#[derive(Debug, Clone, Default)]
pub struct ShownFiles {
    /// Links at the host's root: name and target.
    pub links: Vec<(String, String)>,
    pub directories: Vec<ShownDirectory>,
    /// What the host has mounted below these directories and below `/etc`.
    pub submounts: Vec<ShownDirectory>,
    /// Files that the host has mounted there. An overlay can show directories only.
    pub mounted_files: Vec<PathBuf>,
    pub etc: OverlaySupport,
    /// Whether images can be shown through an overlay.
    pub images: OverlaySupport,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownDirectory {
    pub path: PathBuf,
    pub overlay: OverlaySupport,
}

/// Whether a directory can be shown through an overlay; if not, why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OverlaySupport {
    Possible,
    /// It is possible, and the directory lies on the host's root file system, which one overlay can show.
    PartOfRoot,
    #[default]
    NotTried,
    Impossible(String),
}

impl OverlaySupport {
    pub fn view(&self) -> View {
        match self {
            Self::Possible => View::Overlay,
            Self::PartOfRoot => View::PartOfRoot,
            Self::NotTried | Self::Impossible(_) => View::Bind,
        }
    }
}

impl ShownFiles {
    /// Finds out what this host has, and tries to show each directory. `data_dir` is where images are, or will be.
    pub fn look(data_dir: &Path, idmap: bool) -> Self {
        let mut shown = Self::default();
        let mut paths: Vec<PathBuf> = Vec::new();
        for name in TOPS {
            let path = Path::new("/").join(name);
            let Ok(kind) = std::fs::symlink_metadata(&path).map(|found| found.file_type()) else { continue };
            if kind.is_dir() {
                paths.push(path);
            } else if let Some(target) =
                std::fs::read_link(&path).ok().and_then(|target| target.to_str().map(str::to_owned))
            {
                shown.links.push((name.to_owned(), target));
            }
        }
        paths.extend(DEEPER.iter().map(PathBuf::from).filter(|path| path.is_dir()));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let roots: Vec<&Path> = paths.iter().map(PathBuf::as_path).chain([Path::new(ETC)]).collect();
        let (directories, files) =
            mounts_below(&mounts, &roots).into_iter().partition::<Vec<_>, _>(|path| path.is_dir());
        shown.mounted_files = files.into_iter().filter(|path| path.is_file()).collect();
        let to_try = paths.iter().chain(&directories).map(PathBuf::as_path).chain([Path::new(ETC), Path::new(ROOT)]);
        let tried = try_overlays(data_dir, idmap, to_try);
        let is_root_shown = tried.of(Path::new(ROOT)) == OverlaySupport::Possible;
        let overlay = |path: &Path| match tried.of(path) {
            OverlaySupport::Possible if is_root_shown && is_on_root(&mounts, path) => OverlaySupport::PartOfRoot,
            other => other,
        };
        shown.directories = paths.into_iter().map(|path| ShownDirectory { overlay: overlay(&path), path }).collect();
        shown.submounts =
            directories.into_iter().map(|path| ShownDirectory { overlay: overlay(&path), path }).collect();
        shown.etc = overlay(Path::new(ETC));
        shown.images = tried.of(Path::new(IMAGES));
        shown
    }

    /// The same directories, all shown as they are.
    pub fn without_overlays(mut self) -> Self {
        let all = self.directories.iter_mut().chain(&mut self.submounts).map(|directory| &mut directory.overlay);
        for overlay in all.chain([&mut self.etc, &mut self.images]) {
            *overlay = OverlaySupport::NotTried;
        }
        self
    }

    /// The directories that cannot be shown through an overlay, and why.
    pub fn impossible(&self) -> Vec<(String, String)> {
        let directories = self.directories.iter().chain(&self.submounts);
        let named = directories.map(|directory| (directory.path.display().to_string(), &directory.overlay));
        let all = named.chain([(ETC.to_owned(), &self.etc), ("images".to_owned(), &self.images)]);
        all.filter_map(|(name, overlay)| match overlay {
            OverlaySupport::Possible | OverlaySupport::PartOfRoot => None,
            OverlaySupport::NotTried => Some((name, "it could not be tried".to_owned())),
            OverlaySupport::Impossible(why) => Some((name, why.clone())),
        })
        .collect()
    }
}

/// The mount points strictly below one of these directories, in the order in which they were mounted, without those that a later
/// mount of the same place covers.
fn mounts_below(mountinfo: &str, directories: &[&Path]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let places =
        mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(|place| PathBuf::from(unescaped(place)));
    for place in places {
        let is_below = directories.iter().any(|directory| place.starts_with(directory) && place != **directory);
        if is_below && !found.contains(&place) && found.len() < MAX_SUBMOUNTS {
            found.push(place);
        }
    }
    found
}

/// Whether a directory is reached from the host's root without a mount or a link in between.
fn is_on_root(mountinfo: &str, directory: &Path) -> bool {
    let mut places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    let is_mounted = places.any(|place| place != ROOT && directory.starts_with(&place));
    !is_mounted && std::fs::canonicalize(directory).is_ok_and(|real| real == directory)
}

/// A path of mountinfo, in which the kernel writes spaces, tabs, newlines and backslashes in octal.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(path.to_owned(), |path, (octal, character)| path.replace(octal, character))
}

/// The results of the process that tries overlays, by path.
struct Tried(BTreeMap<String, Option<String>>);

impl Tried {
    fn of(&self, path: &Path) -> OverlaySupport {
        match path.to_str().and_then(|path| self.0.get(path)) {
            None => OverlaySupport::NotTried,
            Some(None) => OverlaySupport::Possible,
            Some(Some(why)) => OverlaySupport::Impossible(why.clone()),
        }
    }
}

/// Stands for the data directory in the results.
const IMAGES: &str = "images";

/// The hidden subcommand that makes `cove` try out overlays. Its arguments are the data directory, one of the two words below, and
/// the directories.
pub const PROBE_SUBCOMMAND: &str = "__probe-overlays";
const IDMAPPED: &str = "idmapped";
const PLAIN: &str = "plain";

fn try_overlays<'a>(data_dir: &Path, idmap: bool, paths: impl Iterator<Item = &'a Path>) -> Tried {
    let output = Command::new("/proc/self/exe")
        .args([Path::new(PROBE_SUBCOMMAND), data_dir, Path::new(if idmap { IDMAPPED } else { PLAIN })])
        .args(paths)
        .stdin(Stdio::null())
        .output();
    Tried(output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default())
}

/// The whole program of the process that [`ShownFiles::look`] starts. It prints one JSON object.
pub fn probe(arguments: Vec<std::ffi::OsString>) -> ExitCode {
    let mut paths = arguments.iter().map(Path::new);
    let (Some(data_dir), Some(how)) = (paths.next(), paths.next()) else { return ExitCode::FAILURE };
    let results = match Ground::new(data_dir, how == Path::new(IDMAPPED)) {
        Ok(ground) => ground.results(paths),
        Err(LaunchError { step, error }) => {
            let failed = Some(format!("{step}: {error}"));
            let names = paths.filter_map(Path::to_str).chain([IMAGES]);
            names.map(|name| (name.to_owned(), failed.clone())).collect()
        }
    };
    println!("{}", serde_json::to_string(&results).unwrap_or_default());
    ExitCode::SUCCESS
}

/// The namespaces and the places in which overlays are tried.
struct Ground {
    /// A tmpfs with an empty directory.
    disk: OwnedFd,
    /// The data directory, mapped as an image would be.
    image: OwnedFd,
}

impl Ground {
    fn new(data_dir: &Path, is_mapped: bool) -> Result<Self, LaunchError> {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let map = if is_mapped { Some(idmap::make(&ids::block_map(0))?) } else { None };
        if uid != 0 {
            nix::sched::unshare(CloneFlags::CLONE_NEWUSER).at("making a user namespace")?;
            std::fs::write("/proc/self/setgroups", "deny").at("denying setgroups")?;
            std::fs::write("/proc/self/uid_map", ids::lines(&ids::self_map(uid))).at("writing uid_map")?;
            std::fs::write("/proc/self/gid_map", ids::lines(&ids::self_map(gid))).at("writing gid_map")?;
        }
        nix::sched::unshare(CloneFlags::CLONE_NEWNS).at("making a mount namespace")?;
        nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .at("making mounts private")?;
        let step = "preparing a directory";
        let own: OwnedFd = File::open(data_dir).at(step)?.into();
        let mapped = map.map(|namespace| {
            let tree = mount::clone_tree(AT_FDCWD, data_dir, Submounts::Exclude).at("copying the mount")?;
            mount::restrict_and_map(tree.as_fd(), Restrictions::default(), namespace.as_fd())
                .at("mapping the mount")?;
            Ok(tree)
        });
        let mapped = mapped.transpose()?;
        let disk = mount::new_filesystem("tmpfs", &[], Restrictions::default()).at("making a tmpfs")?;
        mount::attach(disk.as_fd(), own.as_fd()).at("mounting a tmpfs")?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let disk = openat(AT_FDCWD, data_dir, flags, Mode::empty()).at(step)?;
        for name in [root::EMPTY_DIRECTORY, IMAGES] {
            mkdirat(&disk, name, Mode::from_bits_truncate(0o755)).at(step)?;
        }
        let image = match mapped {
            None => own,
            Some(tree) => {
                let place = openat(&disk, IMAGES, flags, Mode::empty()).at(step)?;
                mount::attach(tree.as_fd(), place.as_fd()).at("mounting an image")?;
                openat(&disk, IMAGES, flags, Mode::empty()).at(step)?
            }
        };
        Ok(Self { disk, image })
    }

    fn results<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> BTreeMap<String, Option<String>> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let shown = |path: &Path| {
            let lower = openat(AT_FDCWD, path, flags, Mode::empty())?;
            host_view::read_only_overlay(&lower, &self.disk)
        };
        let result = |tried: std::io::Result<OwnedFd>| tried.err().map(|error| error.to_string());
        let of_paths = paths.filter_map(|path| Some((path.to_str()?.to_owned(), result(shown(path)))));
        let of_images = (IMAGES.to_owned(), result(host_view::read_only_overlay(&self.image, &self.disk)));
        of_paths.chain([of_images]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_the_shown_directories_are_found_once_each() {
        let mountinfo = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 27 0:27 / /usr/local rw,relatime - ext4 /dev/vdb rw\n\
            31 27 0:28 / /usr/local rw,relatime - ext4 /dev/vdc rw\n\
            32 27 0:29 / /usrlocal rw - tmpfs tmpfs rw\n\
            33 27 0:30 / /opt rw - tmpfs tmpfs rw\n\
            34 27 0:31 / /etc/with\\040space rw - tmpfs tmpfs rw\n\
            35 27 0:32 / /home rw - tmpfs tmpfs rw\n";
        let found = mounts_below(mountinfo, &[Path::new("/usr"), Path::new("/opt"), Path::new("/etc")]);
        assert_eq!(found, [PathBuf::from("/usr/local"), PathBuf::from("/etc/with space")]);
        assert!(is_on_root(mountinfo, Path::new("/usr")) && is_on_root(mountinfo, Path::new("/etc")));
        assert!(!is_on_root(mountinfo, Path::new("/usr/local")) && !is_on_root(mountinfo, Path::new("/opt")));
    }

    #[test]
    fn of_nix_only_the_store_is_shown() {
        assert!(TOPS.iter().all(|top| *top != "nix"));
        assert!(DEEPER.contains(&"/nix/store"));
    }
}
