//! Root file systems that stories make, for images.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A minimal root file system: bash and a few programs of the host with their libraries.
pub fn rootfs() -> TempDir {
    let directory = tempfile::Builder::new().prefix("cove-rootfs-").tempdir().expect("a temporary directory");
    let root = directory.path();
    std::fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("our own directory");
    for program in ["bash", "ls", "cat", "rm", "mkdir", "env", "id"] {
        put_program(root, &which(program));
    }
    std::os::unix::fs::symlink("bash", root.join("bin/sh")).expect("our own directory");
    std::fs::create_dir_all(root.join("etc")).expect("our own directory");
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n").expect("our own directory");
    std::fs::write(root.join("etc/mark"), "an image of its own\n").expect("our own directory");
    directory
}

/// Puts a program into `/bin` of a root file system, and its libraries where it looks for them.
pub fn put_program(root: &Path, program: &Path) {
    put(root, program, &Path::new("/bin").join(program.file_name().expect("a program")));
    let libraries = Command::new("ldd").arg(program).output().expect("ldd is installed");
    for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
        put(root, Path::new(word), Path::new(word));
    }
}

fn which(program: &str) -> PathBuf {
    let found =
        ["/usr/bin", "/bin"].into_iter().map(|place| Path::new(place).join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{program} is not installed"))
}

fn put(root: &Path, from: &Path, to: &Path) {
    let place = root.join(to.strip_prefix("/").expect("absolute"));
    if !place.exists() {
        std::fs::create_dir_all(place.parent().expect("below the root")).expect("our own directory");
        std::fs::copy(from, &place).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }
}

pub fn tar_of(directory: &Path) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    builder.append_dir_all(".", directory).expect("our own directory");
    builder.into_inner().expect("memory")
}
