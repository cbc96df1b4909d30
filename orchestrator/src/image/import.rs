//! `cove image import`: makes an image from a tar archive or a directory, completely or not at all, also if the host loses
//! power: everything is on the disk before the image gets its name, and the name is before the import reports success.
//!
//! This process reads the archive. Another process, whose root is the new directory, unpacks it. So no name, link or `..` in the
//! archive can reach anything outside.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::{HIDDEN, is_name};

/// How much is read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The first bytes of compressed files, with the format and the command to use instead.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (&[0x1f, 0x8b], "gzip", "zcat FILE | cove image import NAME -"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstdcat FILE | cove image import NAME -"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz", "xzcat FILE | cove image import NAME -"),
    (b"BZh", "bzip2", "bzcat FILE | cove image import NAME -"),
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSummary {
    pub files: u64,
    pub bytes: u64,
    /// How many devices and FIFOs were left out, because a sandbox has its own.
    pub skipped: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{0:?} is not a valid image name: use 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit")]
    Name(String),
    #[error("there is already an image {0:?}; remove it first with: cove image rm {0}")]
    Exists(String),
    #[error("{0}")]
    Archive(String),
    #[error("{step}")]
    Io {
        step: String,
        #[source]
        source: io::Error,
    },
}

fn at(step: impl Into<String>) -> impl FnOnce(io::Error) -> ImportError {
    let step = step.into();
    move |source| ImportError::Io { step, source }
}

/// `source` is a tar file, a directory, or `-` for standard input. `progress` gets the bytes read so far.
pub fn import(
    images_dir: &Path,
    name: &str,
    source: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<ImportSummary, ImportError> {
    if !is_name(name) {
        return Err(ImportError::Name(name.to_owned()));
    }
    if super::rootfs(images_dir, name).is_some() {
        return Err(ImportError::Exists(name.to_owned()));
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(images_dir)
        .map_err(at("making the images directory"))?;
    let staging = Staging::new(images_dir, name).map_err(at("making a directory for the image"))?;
    let summary = unpack(&staging.rootfs(), source, progress)?;
    let place = images_dir.join(name);
    let directory = File::open(images_dir).map_err(at("opening the images directory"))?;
    // One call for the whole file system: a call for each of many thousand files takes much longer.
    rustix::fs::syncfs(&directory).map_err(|e| at("writing the image to the disk")(e.into()))?;
    std::fs::rename(&staging.0, &place).map_err(at(format!("moving the image to {}", place.display())))?;
    directory.sync_all().map_err(at("writing the images directory to the disk"))?;
    Ok(summary)
}

/// The directory of an import that is not complete. It is removed when this is dropped, unless it was renamed.
struct Staging(PathBuf);

impl Staging {
    fn new(images_dir: &Path, name: &str) -> io::Result<Self> {
        let path = images_dir.join(format!("{HIDDEN}import-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        std::fs::DirBuilder::new().mode(0o755).create(path.join("rootfs"))?;
        Ok(Self(path))
    }

    fn rootfs(&self) -> PathBuf {
        self.0.join("rootfs")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unpack(rootfs: &Path, source: &Path, progress: &mut dyn FnMut(u64)) -> Result<ImportSummary, ImportError> {
    let mut child = Command::new("/proc/self/exe")
        .arg(super::unpack::SUBCOMMAND)
        .arg(rootfs)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(at("starting the process that unpacks"))?;
    let fed = match child.stdin.take() {
        Some(stdin) => feed(stdin, source, progress),
        None => Err(at("starting the process that unpacks")(io::ErrorKind::BrokenPipe.into())),
    };
    let output = child.wait_with_output().map_err(at("waiting for the process that unpacks"))?;
    let report = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match (fed, output.status.success()) {
        (Ok(()), true) => serde_json::from_str(&report).map_err(|e| ImportError::Archive(format!("unpacking: {e}"))),
        // The process says why it ended, which is more useful than that the pipe to it broke.
        (Err(ImportError::Io { source, .. }), false) if source.kind() == io::ErrorKind::BrokenPipe => {
            Err(ImportError::Archive(report))
        }
        (Err(error), _) => Err(error),
        (Ok(()), false) => Err(ImportError::Archive(report)),
    }
}

fn feed(stdin: ChildStdin, source: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), ImportError> {
    let reading = || format!("reading {}", source.display());
    if source == Path::new("-") {
        return copy(&mut io::stdin().lock(), stdin, progress).map_err(at("reading standard input"));
    }
    let metadata = std::fs::metadata(source).map_err(at(reading()))?;
    if metadata.is_dir() {
        let mut archive = tar::Builder::new(Counting { inner: stdin, count: 0, progress });
        archive.follow_symlinks(false);
        archive.append_dir_all(".", source).map_err(at(reading()))?;
        return archive.finish().map_err(at(reading()));
    }
    let mut file = File::open(source).map_err(at(reading()))?;
    copy(&mut file, stdin, progress).map_err(at(reading()))
}

fn copy(from: &mut dyn Read, mut to: ChildStdin, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let magic = COMPRESSED.iter().find(|(magic, ..)| total == 0 && chunk[..count].starts_with(magic));
        if let Some((_, kind, remedy)) = magic {
            return Err(io::Error::other(format!("it is compressed with {kind}; use: {remedy}")));
        }
        to.write_all(&chunk[..count])?;
        total += u64::try_from(count).unwrap_or(0);
        progress(total);
    }
}

struct Counting<'a> {
    inner: ChildStdin,
    count: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl io::Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.count += u64::try_from(count).unwrap_or(0);
        (self.progress)(self.count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
