//! The process that unpacks. Its root is the directory that it unpacks into, so no name in the archive leads outside.
//!
//! It reads the archive from its standard input, and its task from its command line; it prints one line: a report as JSON, or what
//! went wrong.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use oci_registry::Digest;
use serde::{Deserialize, Serialize};

use super::ImportSummary;
use super::complete::complete;
use super::entries::{Owners, UnpackLimits, Whiteouts, apply_whiteouts, unpack_entries};
use super::stream::ArchiveStream;
use crate::image_store::ImageUser;
use crate::sys::mount::{Overlay, Restrictions, attach, overlay};

/// The hidden subcommand that makes `cove` unpack an image.
pub const SUBCOMMAND: &str = "__unpack-image";

/// What the process is started for. Each unpacks into the directory that is its root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Unpack an archive as it is.
    Files(UnpackLimits),
    /// Unpack one layer, with whiteouts as overlayfs has them.
    Layer(UnpackLimits),
    /// Unpack a layer over the ones below it, in one tree.
    Flatten(UnpackLimits),
    /// Add what a sandbox needs.
    Complete,
    /// Put these layers together as in the next task, to see whether this host can.
    TryLayers { layers: Vec<PathBuf>, upper: PathBuf, work: PathBuf },
    /// Put these layers together, the topmost first, and write what a sandbox needs and they lack to `upper`. The root serves as a place
    /// to mount at.
    CompleteLayers { layers: Vec<PathBuf>, upper: PathBuf, work: PathBuf },
    /// Put these layers together, and find the user of this name in them.
    FindUser { layers: Vec<PathBuf>, upper: PathBuf, work: PathBuf, user: String },
}

/// What the process reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    pub summary: ImportSummary,
    /// The digest of the archive without its compression.
    pub diff_id: Option<Digest>,
    #[serde(default)]
    pub user: Option<ImageUser>,
}

/// The whole program of a process that was started to unpack an image; `None` for any other process. It must be called before any
/// thread is made.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    // What is unpacked for a process that is gone is of no use, and would be written while the next one tidies up.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let root = PathBuf::from(arguments.next()?);
    let task: Task = serde_json::from_str(arguments.next()?.to_str()?).ok()?;
    let (text, code) = match run(&root, &task) {
        Ok(report) => (serde_json::to_string(&report).unwrap_or_default(), ExitCode::SUCCESS),
        Err(message) => (message, ExitCode::FAILURE),
    };
    let _ = writeln!(io::stdout(), "{text}");
    Some(code)
}

fn run(root: &Path, task: &Task) -> Result<Report, String> {
    // Asked first: in the user namespace of `confine`, an ordinary user is root too.
    let owners = if nix::unistd::geteuid().is_root() { Owners::OfArchive } else { Owners::Ours };
    if let Task::CompleteLayers { layers, upper, work }
    | Task::TryLayers { layers, upper, work }
    | Task::FindUser { layers, upper, work, .. } = task
    {
        put_together(root, layers, upper, work).map_err(|e| format!("putting the layers together: {e}"))?;
    }
    confine(root).map_err(|e| format!("confining the unpacking to {}: {e}", root.display()))?;
    let unpack = |limits: &UnpackLimits, whiteouts| unpack(owners, *limits, whiteouts);
    match task {
        Task::Files(limits) => unpack(limits, Whiteouts::AreFiles),
        Task::Layer(limits) => unpack(limits, Whiteouts::ForOverlay),
        Task::Flatten(limits) => {
            // Whiteouts remove from lower layers alone, wherever they stand in the archive. So it is read twice.
            let mut input = stdin().map_err(|e| e.to_string())?;
            apply_whiteouts(ArchiveStream::new(&input, limits.bytes).map_err(|e| e.to_string())?, Path::new("/"))?;
            input.rewind().map_err(|e| format!("reading the layer again: {e}"))?;
            unpack(limits, Whiteouts::AreDone)
        }
        Task::TryLayers { .. } => Ok(Report::default()),
        Task::FindUser { user, .. } => {
            Ok(Report { user: super::user::find(Path::new("/"), user), ..Report::default() })
        }
        Task::Complete | Task::CompleteLayers { .. } => complete(Path::new("/")).map(|()| Report::default()),
    }
}

fn unpack(owners: Owners, limits: UnpackLimits, whiteouts: Whiteouts) -> Result<Report, String> {
    let input = stdin().map_err(|e| e.to_string())?;
    let mut stream = ArchiveStream::new(input, limits.bytes).map_err(|e| e.to_string())?;
    let summary = unpack_entries(&mut stream, Path::new("/"), owners, whiteouts, limits)?;
    let diff_id = stream.finish().map_err(|e| format!("reading to the end: {e}"))?;
    Ok(Report { summary, diff_id: Some(diff_id), user: None })
}

fn stdin() -> io::Result<File> {
    let input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(input.into())
}

/// Mounts an overlay of all layers over `root`, in a mount namespace of this process alone.
fn put_together(root: &Path, layers: &[PathBuf], upper: &Path, work: &Path) -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let text = |path: &Path| path.display().to_string();
    let layers: Vec<String> = layers.iter().map(|path| text(path)).collect();
    let lower = match layers.as_slice() {
        // Without an upper directory the kernel wants two; with one, one is enough.
        [] => return Err(io::Error::other("there are none")),
        layers => layers,
    };
    let directories = Overlay { lower, upper: Some((text(upper), text(work))) };
    let restrictions = Restrictions { no_suid: true, no_dev: true, no_exec: true, read_only: false };
    let tree = overlay(&directories, restrictions, root)?;
    attach(tree.as_fd(), File::open(root)?.as_fd())
}

fn confine(root: &Path) -> nix::Result<()> {
    nix::unistd::chdir(root)?;
    if !nix::unistd::geteuid().is_root() {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
        let write = |path: &str, text: String| std::fs::write(path, text).map_err(|_| nix::Error::EPERM);
        write("/proc/self/setgroups", "deny".into())?;
        write("/proc/self/uid_map", format!("0 {uid} 1\n"))?;
        write("/proc/self/gid_map", format!("0 {gid} 1\n"))?;
    }
    nix::unistd::chroot(".")?;
    nix::unistd::chdir("/")?;
    // So that files get the modes that the archive says.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    Ok(())
}
