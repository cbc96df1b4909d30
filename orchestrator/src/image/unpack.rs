//! The process that unpacks an image: its root is the image's, so that no name in the archive means anything outside.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sched::CloneFlags;

use super::ImportSummary;

/// The hidden first argument.
pub const WORD: &str = "__unpack-image";

/// Where a sandbox mounts something, with the mode of what is made there if it is missing.
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

/// Whom commands run as, where the image has nobody with that number.
const USER: &str = "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n";
const GROUP: &str = "sandbox:x:1000:\n";
const USER_ID: &str = "1000";

/// Where bash may be: the one program that a sandbox cannot do without.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];

/// The whole program, where this process was started to unpack; otherwise `None`. Before any thread is made.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != WORD {
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
    // Before the user namespace of an ordinary user makes him root of nothing else.
    let keeps_owners = nix::unistd::geteuid().is_root();
    confine(root).map_err(|e| format!("confining the unpacking to {}: {e}", root.display()))?;
    let mut archive = tar::Archive::new(io::BufReader::new(io::stdin().lock()));
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(keeps_owners);
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
        summary.bytes += entry.size();
        if !entry.unpack_in("/").map_err(|e| format!("unpacking {name:?}: {e}"))? {
            return Err(format!("the archive holds {name:?}, which leads out of it"));
        }
        summary.files += 1;
    }
    if is_docker_save && !Path::new("/bin").exists() && !Path::new("/usr").exists() {
        return Err("it is an image archive of layers (docker save); make a flat one with: \
                    docker export $(docker create IMAGE) > FILE"
            .into());
    }
    complete()?;
    Ok(summary)
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
    // Of what is in the archive; what this process makes itself gets its mode by name.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    Ok(())
}

/// Makes what a sandbox needs and the archive did not have.
fn complete() -> Result<(), String> {
    for (name, mode) in MOUNT_POINTS {
        let path = Path::new("/").join(name);
        if path.is_dir() {
            continue;
        }
        std::fs::DirBuilder::new().mode(mode).create(&path).map_err(|e| format!("making {}: {e}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).map_err(|e| e.to_string())?;
    }
    for (file, line) in [("/etc/passwd", USER), ("/etc/group", GROUP)] {
        // An image without these files has no names at all, and needs none.
        let Ok(known) = std::fs::read_to_string(file) else { continue };
        if !known.lines().any(|line| line.split(':').nth(2) == Some(USER_ID)) {
            let gap = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
            std::fs::write(file, format!("{known}{gap}{line}")).map_err(|e| format!("adding a user to {file}: {e}"))?;
        }
    }
    if SHELLS.iter().any(|shell| Path::new(shell).is_file()) {
        Ok(())
    } else {
        Err(format!("the image has no bash (looked for {}), which every shell of a sandbox is", SHELLS.join(", ")))
    }
}
