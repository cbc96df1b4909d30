//! The process that unpacks an image. Its root is the root of the new image, so no name in the archive leads outside.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sched::CloneFlags;
use shared_protocol::SANDBOX_USER;

use crate::runtime::netns::resolv_conf;

use super::ImportSummary;

/// The hidden subcommand that makes `cove` unpack an image.
pub const SUBCOMMAND: &str = "__unpack-image";

/// The directories that a sandbox mounts something on, with their modes. They are created if they are missing.
const MOUNT_POINTS: [(&str, u32); 10] = [
    ("dev", 0o755),
    ("proc", 0o555),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
    ("home", 0o755),
    ("home/sandbox", 0o755),
];

/// Where bash may be. It is the one program that every sandbox needs.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];

/// The whole program of a process that was started to unpack an image; `None` for any other process. It must be called before any
/// thread is made.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    let root = PathBuf::from(arguments.next()?);
    let (text, code) = match run(&root) {
        Ok(summary) => (serde_json::to_string(&summary).unwrap_or_default(), ExitCode::SUCCESS),
        Err(message) => (message, ExitCode::FAILURE),
    };
    let _ = writeln!(io::stdout(), "{text}");
    Some(code)
}

fn run(root: &Path) -> Result<ImportSummary, String> {
    // Asked first: in the user namespace of `confine`, an ordinary user is root too.
    let keeps_owners = nix::unistd::geteuid().is_root();
    confine(root).map_err(|e| format!("confining the unpacking to {}: {e}", root.display()))?;
    let owners = if keeps_owners { Owners::OfArchive } else { Owners::Ours };
    let (summary, is_docker_save) = unpack_entries(io::BufReader::new(io::stdin().lock()), Path::new("/"), owners)?;
    if is_docker_save && !Path::new("/bin").exists() && !Path::new("/usr").exists() {
        return Err("it is an archive of layers (docker save); make a flat one with: \
                    docker export $(docker create IMAGE) > FILE"
            .into());
    }
    complete()?;
    Ok(summary)
}

/// The owner that unpacked files get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    OfArchive,
    Ours,
}

/// Unpacks all entries of an archive below `root`. The second value says whether it looks like the output of `docker save`.
pub fn unpack_entries(from: impl io::Read, root: &Path, owners: Owners) -> Result<(ImportSummary, bool), String> {
    let mut archive = tar::Archive::new(from);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(owners == Owners::OfArchive);
    let mut summary = ImportSummary::default();
    let mut is_docker_save = false;
    for entry in archive.entries().map_err(|e| format!("it is not a tar archive: {e}"))? {
        let mut entry = entry.map_err(|e| format!("it is not a tar archive, or it is damaged: {e}"))?;
        let name = entry.path().map(|path| path.display().to_string()).unwrap_or_default();
        is_docker_save |= name == "manifest.json";
        let kind = entry.header().entry_type();
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            summary.skipped += 1;
            continue;
        }
        // A sparse entry can claim any size.
        summary.bytes = summary.bytes.saturating_add(entry.size());
        if !entry.unpack_in(root).map_err(|e| format!("unpacking {name:?}: {e}"))? {
            return Err(format!("the archive contains {name:?}, which leads out of the image"));
        }
        summary.files += 1;
    }
    Ok((summary, is_docker_save))
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

/// Adds what a sandbox needs and the archive does not have.
fn complete() -> Result<(), String> {
    for (name, mode) in MOUNT_POINTS {
        let path = Path::new("/").join(name);
        if path.is_dir() {
            continue;
        }
        std::fs::DirBuilder::new().mode(mode).create(&path).map_err(|e| format!("making {}: {e}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).map_err(|e| e.to_string())?;
    }
    // The sandbox's user, where the image has no user with that id.
    let id = SANDBOX_USER.to_string();
    let user = format!("sandbox:x:{id}:{id}:sandbox:/home/sandbox:/bin/bash\n");
    let group = format!("sandbox:x:{id}:\n");
    for (file, line) in [("/etc/passwd", user), ("/etc/group", group)] {
        // An image without these files has no user names, and needs none.
        let Ok(known) = std::fs::read_to_string(file) else { continue };
        if !known.lines().any(|line| line.split(':').nth(2) == Some(id.as_str())) {
            let gap = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
            std::fs::write(file, format!("{known}{gap}{line}")).map_err(|e| format!("adding a user to {file}: {e}"))?;
        }
    }
    // An image has no name server of its own: it may have that of the machine that made it, or a link to nowhere.
    if Path::new("/etc").is_dir() {
        let _ = std::fs::remove_file("/etc/resolv.conf");
        std::fs::write("/etc/resolv.conf", resolv_conf()).map_err(|e| format!("writing /etc/resolv.conf: {e}"))?;
        let readable = PermissionsExt::from_mode(0o644);
        std::fs::set_permissions("/etc/resolv.conf", readable).map_err(|e| e.to_string())?;
    }
    if SHELLS.iter().any(|shell| Path::new(shell).is_file()) {
        Ok(())
    } else {
        Err(format!(
            "the image has no bash (looked for {}), which every session needs for its shells",
            SHELLS.join(", ")
        ))
    }
}
