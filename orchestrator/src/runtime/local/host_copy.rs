//! Copies files of the host's `/etc` into a root that a sandbox may change. Nothing of it is more than everybody may read.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown, fchownat, symlinkat};

use super::plan::Owner;
use super::root::make_directory;
use super::{etc, root};

/// The most files that are copied, and their bytes together. The names of a usual host are some hundred files of 1 MiB.
const MAX_FILES: usize = 8192;
const MAX_BYTES: u64 = 64 << 20;
/// The deepest directory.
const MAX_DEPTH: usize = 32;
const READABLE_BY_ALL: u32 = 0o004;

/// What may still be copied.
struct Left {
    files: usize,
    bytes: u64,
    /// The directory that is copied from.
    root: PathBuf,
}

/// Copies what has one of these names in a directory of the host.
pub fn copy_names(source: &Path, names: &[String], into: &OwnedFd, owner: Owner) -> io::Result<()> {
    let mut left = Left { files: MAX_FILES, bytes: MAX_BYTES, root: source.to_owned() };
    some(source, Some(names), into, owner, &mut left, MAX_DEPTH)
}

/// Copies entries of a directory: those with one of the names, or all.
fn some(
    source: &Path,
    names: Option<&[String]>,
    into: &OwnedFd,
    owner: Owner,
    left: &mut Left,
    depth: usize,
) -> io::Result<()> {
    let deeper = depth.checked_sub(1).ok_or_else(|| io::Error::other("a directory of /etc is too deep"))?;
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_shown = names.is_none_or(|names| etc::is_one_of(names, &name));
        let parts = names.map(|names| etc::names_in(names, &name)).unwrap_or_default();
        if !is_shown && parts.is_empty() {
            continue;
        }
        let status = entry.metadata()?;
        let kind = status.file_type();
        left.files = left.files.checked_sub(1).ok_or_else(|| io::Error::other("/etc has too many files"))?;
        if kind.is_symlink() {
            link(&std::fs::read_link(entry.path())?, into, &name, owner)?;
        } else if status.mode() & READABLE_BY_ALL == 0 {
            // Only some users of the host may read it.
        } else if kind.is_dir() {
            make_directory(into, &name, status.mode() & 0o777, owner)?;
            let below = match openat(into, name.as_str(), root::O_DIRECTORY_PATH | OFlag::O_NOFOLLOW, Mode::empty()) {
                // In a root that was kept, its user has put something else there.
                Err(nix::Error::ENOTDIR | nix::Error::ELOOP) => continue,
                opened => opened?,
            };
            let names = (!is_shown).then_some(parts.as_slice());
            some(&entry.path(), names, &below, owner, left, deeper)?;
        } else if kind.is_file() {
            file(&entry.path(), into, &name, owner, left)?;
        }
    }
    Ok(())
}

fn link(target: &Path, into: &OwnedFd, name: &str, owner: Owner) -> io::Result<()> {
    match symlinkat(target, into, name) {
        // It is one of the files that Cove has written.
        Err(nix::Error::EEXIST) => Ok(()),
        made => {
            made?;
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            Ok(fchownat(into, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)?)
        }
    }
}

fn file(source: &Path, into: &OwnedFd, name: &str, owner: Owner, left: &mut Left) -> io::Result<()> {
    let is_source =
        source.strip_prefix(&left.root).is_ok_and(|path| etc::SOURCES.iter().any(|known| path.starts_with(known)));
    let from = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(source)?;
    let status = from.metadata()?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let mut to = match openat(into, name, flags, Mode::from_bits_truncate(0o600)) {
        Err(nix::Error::EEXIST) => return Ok(()),
        opened => File::from(opened?),
    };
    let copied = if is_source {
        let mut text = Vec::new();
        from.take(left.bytes + 1).read_to_end(&mut text)?;
        if has_password(&text) {
            return Ok(nix::unistd::unlinkat(into, name, nix::unistd::UnlinkatFlags::NoRemoveDir)?);
        }
        to.write_all(&text)?;
        u64::try_from(text.len()).unwrap_or(u64::MAX)
    } else {
        io::copy(&mut from.take(left.bytes + 1), &mut to)?
    };
    left.bytes = left.bytes.checked_sub(copied).ok_or_else(|| io::Error::other("/etc has too much in it"))?;
    fchown(&to, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    Ok(fchmod(&to, Mode::from_bits_truncate(status.mode() & 0o777))?)
}

/// Settings of package managers that are a login, or a program that may get one.
const LOGINS: [&str; 6] = ["username", "password", "proxy_username", "proxy_password", "sslclientkey", "xfercommand"];

/// Whether this text has a login: an address with a user or a password, as in `https://user:password@example.com/`, or a setting that
/// is one.
fn has_password(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut hosts = text.split("://").skip(1);
    let is_login = |line: &str| {
        let key = line.split(['=', ':']).next().unwrap_or_default().trim().to_ascii_lowercase();
        LOGINS.contains(&key.as_str())
    };
    hosts.any(|rest| rest.split(|c: char| c == '/' || c.is_whitespace()).next().is_some_and(|host| host.contains('@')))
        || text.lines().any(is_login)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_has_a_name_is_copied_unless_only_some_may_read_it() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(from.path().join("ssl/private")).unwrap();
        for (name, mode) in [("ssl/cert", 0o644), ("ssl/private/key", 0o644), ("shadow", 0o644), ("ssl/secret", 0o640)]
        {
            std::fs::write(from.path().join(name), name).unwrap();
            std::fs::set_permissions(from.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::set_permissions(from.path().join("ssl/private"), PermissionsExt::from_mode(0o710)).unwrap();
        std::os::unix::fs::symlink("../shadow", from.path().join("ssl/link")).unwrap();
        let into = OwnedFd::from(File::open(to.path()).unwrap());
        let owner = Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        copy_names(from.path(), &["ssl".to_owned()], &into, owner).unwrap();
        let mut copied: Vec<_> =
            std::fs::read_dir(to.path().join("ssl")).unwrap().map(|e| e.unwrap().file_name()).collect();
        copied.sort();
        assert_eq!(copied, ["cert", "link"]);
        assert_eq!(std::fs::read_to_string(to.path().join("ssl/cert")).unwrap(), "ssl/cert");
        assert!(!to.path().join("shadow").exists());
    }

    #[test]
    fn lists_of_repositories_with_a_login_are_not_copied_whatever_their_package_manager() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (open, secret) = ("https://mirror.test/x\n", "https://me:secret@mirror.test/x\n");
        for name in
            ["apt/sources.list", "yum.repos.d/corp.repo", "apk/repositories", "pacman.conf", "pacman.d/mirrorlist"]
        {
            let path = from.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, secret).unwrap();
        }
        std::fs::write(from.path().join("yum.repos.d/open.repo"), open).unwrap();
        std::fs::write(from.path().join("skel"), secret).unwrap();
        let into = OwnedFd::from(File::open(to.path()).unwrap());
        let owner = Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        copy_names(from.path(), &etc::with_those_of_root(&[]), &into, owner).unwrap();
        for name in
            ["apt/sources.list", "yum.repos.d/corp.repo", "apk/repositories", "pacman.conf", "pacman.d/mirrorlist"]
        {
            assert!(!to.path().join(name).exists(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(to.path().join("yum.repos.d/open.repo")).unwrap(), open);
        assert!(to.path().join("skel").exists(), "only lists of repositories are looked at");
    }

    #[test]
    fn a_password_in_an_address_is_noticed_wherever_it_is() {
        for text in [
            "deb https://me:secret@mirror.test/debian stable main",
            "Types: deb\nURIs: http://a.test/ https://token@b.test/x",
            "[corp]\nbaseurl=https://yum.test/el9\nusername=me\nPassword = secret\n",
            "https://me:secret@apk.test/v3.20/main\n",
            "XferCommand = /usr/bin/curl -u me:secret -o %o %u",
            "Server = https://me:secret@pacman.test/$repo/os/$arch",
        ] {
            assert!(has_password(text.as_bytes()), "{text}");
        }
        for text in [
            "deb [signed-by=/a@b] https://mirror.test/debian stable main",
            "# mail me@example.com",
            "deb https://a.test/pool/x@1 s m",
            "[base]\nbaseurl=https://yum.test/el9\n#password=example\ngpgcheck=1\n",
            "#XferCommand = /usr/bin/curl\nHoldPkg = pacman glibc",
        ] {
            assert!(!has_password(text.as_bytes()), "{text}");
        }
    }
}
