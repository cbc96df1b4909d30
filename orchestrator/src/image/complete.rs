//! Adds to the root of an image what a sandbox needs and the image does not have. It runs in a process with that root.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::Path;

use shared_protocol::SANDBOX_USER;

use crate::runtime::netns::resolv_conf;

/// The number of this file's rules. An image that was completed by others is completed again under another name.
pub const VERSION: u32 = 2;

/// The directories that a sandbox mounts something on, with their modes. They are created if they are missing.
const MOUNT_POINTS: [(&str, u32); 11] = [
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
    ("root", 0o700),
];

/// Where bash may be. It is the one program that every sandbox needs.
const SHELLS: [&str; 3] = ["bin/bash", "usr/bin/bash", "usr/local/bin/bash"];

/// Adds what is missing below `root`.
pub fn complete(root: &Path) -> Result<(), String> {
    // Checked first: an image without it is not changed.
    if !SHELLS.iter().any(|shell| root.join(shell).is_file()) {
        let looked = SHELLS.map(|shell| format!("/{shell}")).join(", ");
        return Err(format!("the image has no bash (looked for {looked}), which every session needs for its shells"));
    }
    for (name, mode) in MOUNT_POINTS {
        let path = root.join(name);
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
    for (file, line) in [("etc/passwd", user), ("etc/group", group)] {
        let file = root.join(file);
        // An image without these files has no user names, and needs none.
        let Ok(known) = std::fs::read_to_string(&file) else { continue };
        if !known.lines().any(|line| line.split(':').nth(2) == Some(id.as_str())) {
            let gap = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
            std::fs::write(&file, format!("{known}{gap}{line}"))
                .map_err(|e| format!("adding a user to {}: {e}", file.display()))?;
        }
    }
    // An image has no name server of its own: it may have that of the machine that made it, or a link to nowhere.
    if root.join("etc").is_dir() {
        let file = root.join("etc/resolv.conf");
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, resolv_conf()).map_err(|e| format!("writing {}: {e}", file.display()))?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).map_err(|e| e.to_string())?;
    }
    Ok(())
}
